# SPDX-License-Identifier: Apache-2.0
"""GPT-2 in PyTorch, with the weights of bench_gpu: head tied, biases, no dropout.

The vocabulary is padded to a multiple of 64, which makes PyTorch's products faster; the padding rows start at zero.
"""

import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(c, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_c_proj(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp_c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """Maps tokens to the mean loss, so that a compiler sees head and cross entropy together."""

    def __init__(self, flags, residual_type):
        super().__init__()
        padded = (flags.vocabulary + 63) // 64 * 64 if flags.vocabulary > 1000 else flags.vocabulary
        self.residual_type = residual_type
        self.wte, self.wpe = nn.Embedding(padded, flags.width), nn.Embedding(flags.context, flags.width)
        self.h = nn.ModuleList(Block(flags.width, flags.heads) for _ in range(flags.layers))
        self.ln_f = nn.LayerNorm(flags.width)

    def forward(self, tokens, targets):
        x = (self.wte(tokens) + self.wpe.weight).to(self.residual_type)
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten().long())


def load(model, folder: pathlib.Path, layout):
    """Load the weights that bench_gpu wrote: [in, out], without the padding rows of the vocabulary."""
    path = folder / "weights.f32"
    arena = torch.from_file(str(path), shared=False, size=path.stat().st_size // 4, dtype=torch.float32)
    ours = dict(model.named_parameters())
    with torch.no_grad():
        ours["wte.weight"].zero_()
        for parameter in layout["parameters"]:
            size = 1
            for extent in parameter["shape"]:
                size *= extent
            value = arena[parameter["offset"] : parameter["offset"] + size].view(parameter["shape"])
            name = parameter["name"]
            if name.startswith("h."):
                name = name.replace("attn.c_attn", "c_attn").replace("attn.c_proj", "attn_c_proj")
                name = name.replace("mlp.c_fc", "c_fc").replace("mlp.c_proj", "mlp_c_proj")
                if len(parameter["shape"]) == 2:
                    value = value.T
            ours[name][: value.shape[0]].copy_(value)
