# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST with DistributedDataParallel, as a user would write it: the process group comes from
the environment (env://) or from torchrun, rank 0 saves a checkpoint every few steps, and the program continues from the newest one.

  python3 train_ddp.py --data FOLDER --checkpoints FOLDER --steps N [--every N] [--step-seconds S] [--fail WHAT:RANK]
"""

import os
import signal
import sys
import time

import program

BEGAN = time.time()

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


PHASES = {}  # seconds from the start of the program to the end of each part


def passed(name):
    PHASES[name] = round(time.time() - BEGAN, 2)


def say(**words):
    program.say(rank=RANK, **words)


def main():
    wanted = program.arguments(every=1)
    program.fail_to_import(wanted, RANK)
    import numpy
    import torch
    from torch import nn
    import torch.distributed as dist

    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    passed("import")
    dist.init_process_group("gloo")
    passed("group")
    say(up=True, world=dist.get_world_size(), import_seconds=PHASES["import"], start=BEGAN)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    parallel = nn.parallel.DistributedDataParallel(model)
    passed("model")
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    passed("optimizer")
    newest, step = wanted.checkpoints / "newest.pt", 0
    if newest.exists():
        saved = torch.load(newest)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
        say(resumed=step)
    passed("checkpoint")
    pixels, labels = map(torch.from_numpy, program.images(numpy, wanted.data))
    labels = labels.long()
    passed("data")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))
    losses = torch.zeros(1)
    while step < wanted.steps:
        at = torch.arange(step * program.BATCH, (step + 1) * program.BATCH) % len(order)
        mine = order[at][RANK::WORLD]
        loss = nn.functional.cross_entropy(parallel(pixels[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        losses[0] = loss.item() / WORLD
        dist.all_reduce(losses)
        if "step" not in PHASES:
            passed("step")
            say(phases=PHASES)
        ending = torch.tensor([float(len(stop))])
        dist.all_reduce(ending)  # all ranks stop after the same step
        if RANK == 0:
            say(step=step, loss=round(losses.item(), 5), world=dist.get_world_size())
            if step % wanted.every == 0 or step == wanted.steps or ending.item():
                partial = newest.with_suffix(".partial")
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
                partial.rename(newest)
        program.fail_at(step, wanted, RANK)
        if ending.item():
            dist.barrier()
            say(stopped=step)
            sys.exit(143)
        time.sleep(wanted.step_seconds)
    if RANK == 0:
        with torch.no_grad():
            right = (model(pixels).argmax(1) == labels).float().mean().item()
        program.finish(wanted, dist.get_world_size(), right)
        say(done=step, accuracy=round(right, 4))
    dist.barrier()
    dist.destroy_process_group()


main()
