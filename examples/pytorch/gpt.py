#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small GPT over bytes, in the style of nanoGPT: tied embeddings, dropout, weight decay by group, warm-up and cosine.

  python3 examples/pytorch/gpt.py                  one worker, on the source code of Python's standard library
  python3 examples/pytorch/gpt.py --text FILE      on another text

To train it with several workers, name it in the command of examples/pytorch/job.yaml.
"""

import argparse
import math
import pathlib
import sysconfig

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import ringmaster.torch as rm

CONTEXT = 64  # T: tokens that the model sees
WIDTH = 64  # C
HEADS = 4
LAYERS = 2
DROPOUT = 0.1


class Block(nn.Module):
    """Maps (B, T, C) to the same shape."""

    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(DROPOUT))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=DROPOUT if self.training else 0.0)
        x = x + self.dropout(self.project(y.transpose(1, 2).reshape(x.shape)))
        return x + self.mlp(self.mlp_norm(x))


class Gpt(nn.Module):
    """Maps bytes (B, T) to the scores of the next byte, (B, T, 256)."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions(torch.arange(x.shape[1])))))


def read(path):
    """Returns windows of a text, uint8 (N, T + 1); each begins with the last byte of the one before it."""
    if path is None:
        files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
        text = b"".join(file.read_bytes() for file in files)
    else:
        text = pathlib.Path(path).read_bytes()
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).unfold(0, CONTEXT + 1, CONTEXT)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", metavar="FILE")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()

    run = rm.init(micro_batches=8, samples_per_step=32, seed=1)
    windows = read(arguments.text)
    model = Gpt()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.98))
    warm_up = 10

    def factor(step):
        if step < warm_up:
            return (step + 1) / warm_up
        return 0.05 + 0.95 * (1 + math.cos(math.pi * (step - warm_up) / max(1, arguments.steps - warm_up))) / 2

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)
    for step in run.steps(arguments.steps):
        for window in step.micro_batches(windows):
            window = window.long()
            scores = model(window[:, :-1])
            step.backward(cross_entropy(scores.flatten(0, 1), window[:, 1:].flatten()))
        done = step.number + 1
        if step.commit(clip_norm=1.0) and run.rank == 0 and (done % 25 == 0 or done == arguments.steps):
            print(f"step {done}: loss {step.loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
