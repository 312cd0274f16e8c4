# SPDX-License-Identifier: Apache-2.0
"""A program of PyTorch with the library, for tests/process/library_run: BatchNorm, dropout, AdamW and a schedule on random data.

Takes JSON: steps; pause, in seconds, of each micro-batch; fails, a step in which a sample raises; finishes, a step after which
the run ends early, on all ranks or on those in finish_ranks; leaves, a step after which the loop ends by break; audits, steps in
which all ranks compare a micro-batch, and audit_pod, a worker that adds to the output of a layer in them, or that dies before
the first of them, once, if audit_dies names a file that does not exist yet; odd_rate_from, a step from which on that worker
changes its learning rate; flips, steps after which worker flip_pod flips a bit
of a part of its state, and meet, paths of named pipes without these steps: in the steps that follow, worker flip_dies removes
the pipe and dies.
"""

import ctypes
import json
import os
import pathlib
import signal
import sys
import threading

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import ringmaster.torch as rm


class Samples:
    """100 samples, so that the last step of an epoch is smaller: x, float32 (10), with noise of the micro-batch, and a class."""

    def __init__(self, fails):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(100, 10, generator=generator)
        self.y = (self.x @ torch.randn(10, 3, generator=generator)).argmax(1)
        self.fails = fails

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if self.fails:
            raise ValueError(f"sample {index} is damaged")
        return self.x[index] + 0.1 * torch.randn(10), self.y[index]


class Flips:
    """Flips one bit of the state between two commits, which no code of the program notices."""

    def __init__(self, wanted, parts):
        self.steps = {int(step): part for step, part in wanted.get("flips", {}).items()}
        self.parts = parts  # by name: functions that flip a bit
        pod = os.environ.get("RINGMASTER_POD")
        self.corrupts, self.dies = pod == wanted.get("flip_pod", ""), pod == wanted.get("flip_dies", "")
        self.meet = wanted.get("meet")
        self.met = set()  # steps

    def committed(self, step):
        if self.corrupts and step.number in self.steps:
            self.parts[self.steps[step.number]]()

    def begins(self, step, world):
        """Dies when all others have computed in this step and before it can be committed, so gradients of a wrong state are not used."""
        pipe = pathlib.Path(f"{self.meet}{step.number - 1}")
        if self.dies and pipe.exists():
            others = os.open(pipe, os.O_RDWR)  # also a writer, so it does not end when another process closes it
            for _ in range(world - 1):
                os.read(others, 1)
            pipe.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def computed(self, step):
        """Called after each micro-batch."""
        if self.meet and step.number - 1 in self.steps and not self.dies and step.number not in self.met:
            self.met.add(step.number)
            pipe = os.open(f"{self.meet}{step.number - 1}", os.O_WRONLY)
            os.write(pipe, b"x")
            os.close(pipe)


def flip_bit(tensor):
    ctypes.c_ubyte.from_address(tensor.data_ptr() + tensor.numel() * tensor.element_size() - 1).value ^= 1


def main():
    wanted = json.loads(sys.argv[1])
    run = rm.init(micro_batches=6, samples_per_step=24, seed=7)
    model = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=wanted["steps"])
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)
    good, bad = Samples(False), Samples(True)
    odd = os.environ.get("RINGMASTER_POD") == wanted.get("audit_pod", "")
    dies = pathlib.Path(wanted["audit_dies"]) if "audit_dies" in wanted else None
    if odd and dies is None:
        model[2].register_forward_hook(lambda module, inputs, output: output + 1e-3 if auditing else output)
    auditing = False
    flips = Flips(wanted, {
        "weights": lambda: flip_bit(model[0].weight),
        "statistics": lambda: flip_bit(model[1].running_mean),
        "moment": lambda: flip_bit(optimizer.state[model[4].weight]["exp_avg"]),
        "schedule": lambda: setattr(scheduler, "last_epoch", scheduler.last_epoch ^ 1),
    })  # fmt: skip
    for step in run.steps(wanted["steps"]):
        if step.number in wanted.get("audits", ()):
            if odd and dies is not None and not dies.exists():
                dies.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            auditing = True
            found = run.audit(lambda: cross_entropy(model(good.x[:8]), good.y[:8]))
            auditing = False
            if found or step.number == 11:
                print(f"audit of step {step.number}: {found}", flush=True)
        flips.begins(step, run.world)
        for x, y in step.micro_batches(bad if step.number == wanted.get("fails") else good):
            step.backward(cross_entropy(model(x), y))
            threading.Event().wait(wanted.get("pause", 0))  # a model that takes longer
            flips.computed(step)
        committed = step.commit(clip_norm=1.0)
        if committed:
            flips.committed(step)
        if committed and odd and step.number >= wanted.get("odd_rate_from", wanted["steps"]):
            optimizer.param_groups[0]["lr"] *= 1.5  # a schedule that this worker alone follows
        if committed and step.number % 10 == 9:
            run.validated(step.loss, 0.5)
        if committed and step.number == wanted.get("finishes") and run.rank in wanted.get("finish_ranks", range(100)):
            run.finish()
        if committed and step.number == wanted.get("leaves"):
            break


main()
