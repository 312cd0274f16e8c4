# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST with Horovod and PyTorch, as a user would write it. Rank 0 saves a checkpoint after every
step, and all continue from the newest one. With --elastic 1, ranks that lose others continue with those that are left, from the
last commit, and new ones join.

  horovodrun -np 2 python3 train_horovod.py --data FOLDER --checkpoints FOLDER --steps N [--elastic 1] [--step-seconds S]
      [--fail WHAT:RANK]
"""

import os
import time

import program


def main():
    wanted = program.arguments(elastic=0)
    program.fail_to_import(wanted, int(os.environ["RINGMASTER_RANK"]))
    import horovod.torch as hvd
    import numpy
    import torch
    from torch import nn

    hvd.init()
    place = {"pod": os.environ["RINGMASTER_POD"], "pid": os.getpid()}
    program.say(up=True, rank=hvd.rank(), world=hvd.size(), local_rank=hvd.local_rank(), gloo=hvd.gloo_enabled(), **place)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
    newest, done = wanted.checkpoints / "newest.pt", 0
    if newest.exists():
        saved = torch.load(newest)
        model.load_state_dict(saved["model"])
        done = saved["step"]
        program.say(resumed=done, rank=hvd.rank())
    pixels, labels = map(torch.from_numpy, program.images(numpy, wanted.data))
    labels = labels.long()

    def train_step(step):
        rank, size = hvd.rank(), hvd.size()
        mine = program.share(step, rank, size, len(labels))
        loss = nn.functional.cross_entropy(model(pixels[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = hvd.allreduce(loss.detach(), name="loss").item()
        if rank == 0:
            # A step that is saved is not done again, so it is reported before.
            program.say(step=step, loss=round(mean, 5), world=size, total_steps=wanted.steps)
            program.replace(newest, lambda path: torch.save({"model": model.state_dict(), "step": step}, path))
        program.fail_at(step, wanted, rank)
        time.sleep(wanted.step_seconds)

    if wanted.elastic:
        import horovod.torch.elastic as elastic

        @elastic.run
        def train(state):
            program.say(enter=state.step, rank=hvd.rank(), world=hvd.size(), **place)
            while state.step < wanted.steps:
                train_step(state.step + 1)
                state.step += 1
                state.commit()

        train(elastic.TorchState(model=model, optimizer=optimizer, step=done))
    else:
        hvd.broadcast_parameters(model.state_dict(), 0)
        for step in range(hvd.broadcast_object(done, 0) + 1, wanted.steps + 1):
            train_step(step)
    if hvd.rank() == 0:
        with torch.no_grad():
            right = (model(pixels).argmax(1) == labels).float().mean()
        program.finish(wanted, hvd.size(), right)
    program.say(done=wanted.steps, rank=hvd.rank(), world=hvd.size(), **place)


program.run(main)
