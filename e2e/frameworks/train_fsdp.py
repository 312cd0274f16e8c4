# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST with parameters and optimizer state that are split over the ranks (FSDP2). All ranks
save their parts with torch.distributed.checkpoint after every step, and continue from the newest one in any world size.

  python3 train_fsdp.py --data FOLDER --checkpoints FOLDER --steps N [--step-seconds S] [--fail WHAT:RANK]
"""

import os
import shutil
import signal
import sys
import time

import numpy
import program
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def link_to(name):
    def write(link):
        link.unlink(missing_ok=True)  # left by a program that was killed here
        link.symlink_to(name)
    return write


def main():
    wanted = program.arguments()
    program.fail_to_import(wanted, int(os.environ["RANK"]))
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    program.say(up=True, rank=rank, world=world)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    mesh = init_device_mesh("cpu", (world,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    newest, step = wanted.checkpoints / "newest", 0
    if newest.exists():
        parts, state = get_state_dict(model, optimizer)
        saved = {"model": parts, "optimizer": state, "step": torch.tensor(0)}
        dcp.load(saved, checkpoint_id=newest)
        set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
        step = int(saved["step"])
        program.say(resumed=step, rank=rank, world=world)

    def save():
        parts, state = get_state_dict(model, optimizer)
        folder = wanted.checkpoints / f"step-{step}"
        dcp.save({"model": parts, "optimizer": state, "step": torch.tensor(step)}, checkpoint_id=folder)
        if rank == 0:
            before = newest.resolve() if newest.exists() else None
            program.replace(newest, link_to(folder.name))
            if before and before.name != folder.name:
                shutil.rmtree(before)

    pixels, labels = map(torch.from_numpy, program.images(numpy, wanted.data))
    while step < wanted.steps:
        step += 1
        mine = program.share(step, rank, world, len(labels))
        loss = nn.functional.cross_entropy(model(pixels[mine]), labels[mine].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen = torch.tensor([loss.item() / world, float(len(stop))])
        dist.all_reduce(seen)  # all ranks stop after the same step
        mean, ending = seen.tolist()
        save()
        if rank == 0:
            program.say(step=step, loss=round(mean, 5), world=world, total_steps=wanted.steps)
        program.fail_at(step, wanted, rank)
        if ending:
            dist.barrier()
            program.say(stopped=step, rank=rank)
            sys.exit(143)
        time.sleep(wanted.step_seconds)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        plain = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        plain.load_state_dict(whole)
        with torch.no_grad():
            program.finish(wanted, world, (plain(pixels).argmax(1) == labels).float().mean().item())
    program.say(done=step, rank=rank, world=world)
    dist.barrier()
    dist.destroy_process_group()


main()
