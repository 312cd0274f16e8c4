#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small residual network with BatchNorm and dropout on Fashion-MNIST: an ordinary PyTorch program, in Ringmaster's loop.

  ringmaster run examples/pytorch/job.yaml      four workers: kill any of them, and the weights end with the same bits
  python3 examples/pytorch/train.py             one worker

The data is the Debian package dataset-fashion-mnist; --data names another folder with its four files.
"""

import argparse
import gzip
import pathlib

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import ringmaster.torch as rm


def read(folder, name):
    """Returns an array of an IDX file: uint8, (60000, 28, 28) for the images of the training set."""
    data = gzip.decompress((pathlib.Path(folder) / f"{name}.gz").read_bytes())
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    return torch.frombuffer(bytearray(data[4 + 4 * len(shape) :]), dtype=torch.uint8).view(shape)


def dataset(folder, name):
    """Returns images, float32 (N, 1, 28, 28) from -1 to 1, and their classes, int64 (N)."""
    images = read(folder, f"{name}-images-idx3-ubyte").unsqueeze(1)
    return images.float().div_(127.5).sub_(1), read(folder, f"{name}-labels-idx1-ubyte").long()


class Residual(nn.Module):
    """Maps (N, C, H, W) to the same shape."""

    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.layers(x))


def build():
    """Returns a model that maps images (N, 1, 28, 28) to scores (N, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), Residual(16), nn.MaxPool2d(2), Residual(16),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16 * 3 * 3, 10),
    )  # fmt: skip


@torch.no_grad()
def validate(run, model, images, labels):
    model.eval()
    scores = model(images)
    model.train()
    accuracy = (scores.argmax(1) == labels).float().mean().item()
    run.validated(cross_entropy(scores, labels), accuracy)
    return accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--export", metavar="FILE", help="write the weights as safetensors")
    arguments = parser.parse_args()

    run = rm.init(micro_batches=8, samples_per_step=128, seed=1)
    images, labels = dataset(arguments.data, "train")
    held_out = [values[:1000] for values in dataset(arguments.data, "t10k")]
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)

    for step in run.steps(arguments.steps):
        for x, y in step.micro_batches((images, labels)):
            step.backward(cross_entropy(model(x), y))
        done = step.number + 1
        if step.commit(clip_norm=1.0) and run.rank == 0 and (done % 25 == 0 or done == arguments.steps):
            accuracy = validate(run, model, *held_out)
            print(f"step {done}: loss {step.loss:.4f}, accuracy {accuracy:.3f}", flush=True)

    if arguments.export:
        run.export(arguments.export)


if __name__ == "__main__":
    main()
