# SPDX-License-Identifier: Apache-2.0
"""A small GPT on a GPU that trains through ringmaster.torch, for torch_on_gpu: torch_gpu_program.py NUMERICS STEPS"""

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import ringmaster.torch as rm
from torch_program import CONTEXT, VOCABULARY, Gpt, fixed

MICRO_BATCHES = 6


def main():
    numerics, steps = sys.argv[1], int(sys.argv[2])
    run = rm.init(micro_batches=MICRO_BATCHES, seed=12, numerics=numerics)
    torch.use_deterministic_algorithms(True)
    gpu = torch.device("cuda:0")
    model = nn.Sequential(Gpt()).to(gpu)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), fused=True)
    run.register(model=model, optimizer=optimizer)
    text = ((torch.arange(4000) * 7 + fixed(4000, seed=4).mul(2).long()) % VOCABULARY).to(gpu)

    def batch(step, v):
        starts = torch.randint(0, len(text) - CONTEXT - 1, (4,)).tolist()  # by the seed of the micro-batch
        rows = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]

    for step in run.steps(steps):
        for x, y in step.micro_batches(batch):
            step.backward(cross_entropy(model(x).flatten(0, 1), y.flatten()))
        step.commit(clip_norm=1.0)


if __name__ == "__main__":
    main()
