#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the same GPT-2 124M step by torch on this CPU: tokens/s, minimum over the rounds.

Usage: torch_step.py [--threads N] [--rounds N] [--cases b4t64 b1t512] [--precision fp32 bf16]
Forward, backward and AdamW; same shapes as bench_step. Without OPENBLAS_CORETYPE, Debian's torch 1.13 is slow in
float on some CPUs, so this program sets COOPERLAKE unless the variable is set.
"""

import argparse
import math
import os
import time

os.environ.setdefault("OPENBLAS_CORETYPE", "COOPERLAKE")

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

WIDTH, HEADS, LAYERS, VOCABULARY = 768, 12, 12, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, HEADS, -1).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(WIDTH, -1))
        if hasattr(F, "scaled_dot_product_attention"):
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)).masked_fill(~mask, -math.inf)
            mixed = scores.softmax(-1) @ v
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(context, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(context, context, dtype=torch.bool)))

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.ln_f(x) @ self.wte.weight.T
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--cases", nargs="+", default=["b4t64", "b1t512"], choices=["b4t64", "b1t512"])
    arguments.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    for case in options.cases:
        batch, context = {"b4t64": (4, 64), "b1t512": (1, 512)}[case]
        for precision in options.precision:
            model = Gpt2(context)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
            tokens = torch.randint(VOCABULARY, (batch, context))
            targets = torch.randint(VOCABULARY, (batch, context))
            best, update = math.inf, math.inf
            for step in range(options.rounds + 1):
                begin = time.perf_counter()
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                    loss = model(tokens, targets)
                loss.backward()
                middle = time.perf_counter()
                optimizer.step()
                end = time.perf_counter()
                if step > 0:
                    best, update = min((best, update), (end - begin, end - middle))
            print(f"{case:<7} {precision:<5} threads {options.threads}  torch {torch.__version__}  step {best * 1e3:8.2f} ms"
                  f"  forward and backward {(best - update) * 1e3:8.2f}  optimizer {update * 1e3:7.2f}"
                  f"  {batch * context / best:7.0f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
