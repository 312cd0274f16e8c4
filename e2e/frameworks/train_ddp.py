# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST with DistributedDataParallel, as a user would write it: the process group comes from
the environment (env://), rank 0 saves a checkpoint every few steps, and the program continues from the newest one.

  python3 train_ddp.py --data FOLDER --checkpoints FOLDER --steps N [--every N] [--step-seconds S] [--fail WHAT]

--fail makes a program that has a fault, for the tests:
  import:RANK   a module is missing on that rank only
  exit:STEP     rank 0 ends with exit code 1 at that step, always
"""

import argparse
import gzip
import json
import os
import pathlib
import signal
import sys
import time

BEGAN = time.time()

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BATCH = 64  # of all ranks together


PHASES = {}  # seconds from the start of the program to the end of each part


def passed(name):
    PHASES[name] = round(time.time() - BEGAN, 2)


def say(**words):
    print(json.dumps({"time": round(time.time(), 6), "rank": RANK, **words}), flush=True)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--checkpoints", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--step-seconds", type=float, default=0)
    parser.add_argument("--fail", default="")
    return parser.parse_args()


def images(torch, folder):
    def read(name, header):
        return torch.frombuffer(bytearray(gzip.open(folder / name).read()[header:]), dtype=torch.uint8)
    pixels = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784).float() / 255
    return pixels, read("train-labels-idx1-ubyte.gz", 8).long()


def main():
    wanted = arguments()
    kind, _, number = wanted.fail.partition(":")
    if kind == "import" and RANK == int(number):
        import module_that_only_this_rank_lacks  # noqa: F401
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
    pixels, labels = images(torch, wanted.data)
    passed("data")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))
    losses = torch.zeros(1)
    while step < wanted.steps:
        at = torch.arange(step * BATCH, (step + 1) * BATCH) % len(order)
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
            say(step=step, loss=round(losses.item(), 5), world=WORLD)
            if step % wanted.every == 0 or step == wanted.steps or ending.item():
                partial = newest.with_suffix(".partial")
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
                partial.rename(newest)
        if kind == "exit" and RANK == 0 and step == int(number):
            sys.exit(1)
        if ending.item():
            dist.barrier()
            say(stopped=step)
            sys.exit(143)
        time.sleep(wanted.step_seconds)
    if RANK == 0:
        with torch.no_grad():
            right = (model(pixels).argmax(1) == labels).float().mean().item()
        (wanted.checkpoints / "result.json").write_text(json.dumps({"steps": step, "accuracy": right, "world": WORLD}))
        say(done=step, accuracy=round(right, 4))
    dist.barrier()
    dist.destroy_process_group()


main()
