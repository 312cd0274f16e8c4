# SPDX-License-Identifier: Apache-2.0
"""The program that bench/torch/run measures: one model and one optimizer, trained through the library or by plain PyTorch.

  program.py library STEPS NUMERICS MICRO    through ringmaster.torch, with MICRO micro-batches per step
  program.py torchft STEPS WORKERS NAME      with torchft's DistributedDataParallel, as a replica group of one process called NAME
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


def torchft(steps, workers, name):
    """Each process has a fixed share of the samples. It prints the steps that it commits."""
    import torchft as ft

    torch.set_num_threads(1)
    torch.manual_seed(1)
    images, classes = dataset()
    model, plain = build()
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    def load(state):
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    manager = ft.Manager(
        pg=ft.ProcessGroupGloo(), min_replica_size=1, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": plain.state_dict()},
        replica_id=name, store_addr="localhost", store_port=store.port, rank=0, world_size=1,
    )  # fmt: skip
    parallel = ft.DistributedDataParallel(manager, model)
    optimizer = ft.Optimizer(manager, plain)
    share, index = SAMPLES_PER_STEP // workers, int(name.split("-")[0])
    while (before := manager.current_step()) < steps:
        first = (before * SAMPLES_PER_STEP + index * share) % len(images)
        rows = slice(first, first + share)
        optimizer.zero_grad()
        cross_entropy(parallel(images[rows]), classes[rows]).backward()
        optimizer.step()
        if manager.current_step() > before:
            print(json.dumps({"step": manager.current_step(), "world": manager.num_participants(), "time": time.time()}), flush=True)
    manager.shutdown()


def main():
    kind, steps, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if kind == "torchft":
        torchft(steps, int(how), sys.argv[4])
    elif kind == "library":
        library(steps, how, int(sys.argv[4]))
    else:
        ddp(steps, int(how), pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None)


if __name__ == "__main__":
    main()
