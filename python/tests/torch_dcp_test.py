# SPDX-License-Identifier: Apache-2.0
"""Folders of torch.distributed.checkpoint: what one writes, PyTorch reads, and the other way round."""

import unittest

from training import Case, program

import torch
import torch.distributed.checkpoint as dcp
from torch import nn

import ringmaster.torch.dcp


def build(width=16, kind=torch.optim.AdamW, seed=1):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(10, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))
    return model, kind(model.parameters(), lr=1e-2)


def train(model, optimizer, steps):
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        model(torch.randn(8, 10, generator=generator)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def values(*objects):
    """Returns the numbers of state_dicts, by name."""
    found = {}

    def visit(name, value):
        if isinstance(value, dict):
            for key, part in value.items():
                visit(f"{name}.{key}", part)
        elif isinstance(value, list):
            visit(name, dict(enumerate(value)))
        else:
            found[name] = value.tolist() if isinstance(value, torch.Tensor) else value

    for index, value in enumerate(objects):
        visit(str(index), value.state_dict())
    return found


class Dcp(Case):
    def test_a_folder_continues_a_program_with_the_same_bits(self):
        for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
            with self.subTest(kind=kind.__name__):
                folder = self.folder()
                model, optimizer = build(kind=kind)
                train(model, optimizer, 5)
                before = values(model, optimizer)
                ringmaster.torch.dcp.save(folder, model=model, optimizer=optimizer)
                self.assertEqual(values(model, optimizer), before, "saving changed the program")
                other, other_optimizer = build(kind=kind, seed=2)
                ringmaster.torch.dcp.load(folder, model=other, optimizer=other_optimizer)
                self.assertEqual(values(other, other_optimizer), before)
                train(model, optimizer, 3)
                train(other, other_optimizer, 3)
                self.assertEqual(values(other, other_optimizer), values(model, optimizer))

    def test_saving_before_the_first_step_changes_nothing(self):
        model, optimizer = build()
        before = values(model, optimizer)
        ringmaster.torch.dcp.save(self.folder(), model=model, optimizer=optimizer)
        self.assertEqual(values(model, optimizer), before)

    def test_a_program_without_ringmaster_reads_it(self):
        folder = self.folder()
        model, optimizer = build()
        train(model, optimizer, 5)
        ringmaster.torch.dcp.save(folder, model=model, optimizer=optimizer)
        done = program("""
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
store = dist.HashStore()
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
model = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
parallel = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-2)
of_model, of_optimizer = get_state_dict(parallel, optimizer)
state = {"model": of_model, "optimizer": of_optimizer}
dcp.load(state, checkpoint_id=sys.argv[1])
set_state_dict(parallel, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
print(model[0].weight.double().sum().item(), optimizer.state[model[0].weight]["exp_avg"].double().sum().item())
""", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = [value.double().sum().item() for value in (model[0].weight, optimizer.state[model[0].weight]["exp_avg"])]
        self.assertEqual([float(word) for word in done.stdout.split()], expected)

    def test_it_reads_what_a_program_wrote(self):
        folder = self.folder()
        model, _ = build()
        dcp.save({"model": model.state_dict()}, checkpoint_id=folder, no_dist=True)
        other, _ = build(seed=2)
        ringmaster.torch.dcp.load(folder, model=other)
        self.assertEqual(values(other), values(model))

    def test_differences_are_listed_and_nothing_is_loaded(self):
        folder = self.folder()
        model, _ = build()
        ringmaster.torch.dcp.save(folder, model=model)
        wide, optimizer = build(width=32)
        before = values(wide)
        self.fails("model.0.weight has the shape (16, 10), and the program's (32, 10)", ringmaster.torch.dcp.load, folder, model=wide)
        same, optimizer = build()
        self.fails("optimizer.state.0.weight.exp_avg is missing", ringmaster.torch.dcp.load, folder, model=same, optimizer=optimizer)
        self.fails("is no folder of torch.distributed.checkpoint", ringmaster.torch.dcp.load, self.folder(), model=wide)
        self.assertEqual(values(wide), before)


if __name__ == "__main__":
    unittest.main()
