# SPDX-License-Identifier: Apache-2.0
"""The program that bench/torch/run measures: one model and one optimizer, trained through the library or by plain PyTorch.

  program.py library STEPS NUMERICS MICRO    through ringmaster.torch, with MICRO micro-batches per step
  program.py ddp STEPS PARTS [CHECKPOINT]    with DistributedDataParallel over gloo, under torchrun; each rank divides its samples of a
                                             step into PARTS batches, and rank 0 saves after every step if CHECKPOINT is given

A network of three hidden layers classifies 128 random vectors per step.
"""

import json
import os
import pathlib
import sys
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

WIDTH = 512
SAMPLES_PER_STEP = 128


def dataset():
    """Returns (4096, WIDTH) and classes (4096)."""
    generator = torch.Generator().manual_seed(1)
    classes = torch.arange(4096) % 10
    return torch.randn(10, WIDTH, generator=generator)[classes] + torch.randn(4096, WIDTH, generator=generator), classes


def build():
    model = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())), nn.Linear(WIDTH, 10))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def library(steps, numerics, micro_batches):
    import ringmaster.torch as rm

    run = rm.init(micro_batches=micro_batches, samples_per_step=SAMPLES_PER_STEP, seed=1, numerics=numerics, checkpoint_folder="")
    data = dataset()
    model, optimizer = build()
    run.register(model=model, optimizer=optimizer)
    for step in run.steps(steps):
        for x, y in step.micro_batches(data):
            step.backward(cross_entropy(model(x), y))
        step.commit()


def ddp(steps, parts, checkpoint):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    images, classes = dataset()
    model, optimizer = build()
    done = 0
    if checkpoint and checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    parallel = nn.parallel.DistributedDataParallel(model)
    share = SAMPLES_PER_STEP // world
    while done < steps:
        first = (done * SAMPLES_PER_STEP + rank * share) % len(images)
        for part in range(parts):
            rows = slice(first + part * share // parts, first + (part + 1) * share // parts)
            parallel.require_backward_grad_sync = part == parts - 1
            (cross_entropy(parallel(images[rows]), classes[rows]) / parts).backward()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if rank == 0:
            if checkpoint:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": done}, f"{checkpoint}.new")
                os.replace(f"{checkpoint}.new", checkpoint)
            print(json.dumps({"step": done, "world": world, "time": time.time()}), flush=True)
    torch.distributed.destroy_process_group()


def main():
    kind, steps, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if kind == "library":
        library(steps, how, int(sys.argv[4]))
    else:
        ddp(steps, int(how), pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None)


if __name__ == "__main__":
    main()
