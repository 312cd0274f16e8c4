# SPDX-License-Identifier: Apache-2.0
"""Folders of torch.distributed.checkpoint: what one writes, PyTorch reads, and the other way round."""

import errno
import os
import stat
import sys
import unittest
import unittest.mock

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


def constant(value):
    model = nn.Linear(4, 4)
    for parameter in model.parameters():
        nn.init.constant_(parameter, value)
    return model


DIED = 7


def save_and_die(folder, dies_at):
    """Saves twos in a child, which dies before its change `dies_at` of the folder. Returns its exit code; 0: it had fewer."""
    child = os.fork()
    if child == 0:
        left = dies_at

        def audit(event, arguments):
            nonlocal left
            writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR) and folder in str(arguments[0])
            left -= bool(writes) or event in ("os.rename", "os.remove")
            if left == 0:
                os._exit(DIED)

        try:
            sys.addaudithook(audit)
            ringmaster.torch.dcp.save(folder, model=constant(2.0))
            os._exit(0)
        finally:
            os._exit(1)  # an exception
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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

    def test_a_save_that_dies_leaves_the_checkpoint_before_it(self):
        """A process dies before each change of the disk: the folder has the old or the new state, whole."""
        seen, status, dies_at = set(), None, 0
        while status != 0:
            folder, dies_at = self.folder(), dies_at + 1
            ringmaster.torch.dcp.save(folder, model=constant(1.0))
            status = save_and_die(folder, dies_at)
            model = constant(0.0)
            ringmaster.torch.dcp.load(folder, model=model)
            kept = {value for parameter in model.parameters() for value in parameter.flatten().tolist()}
            self.assertIn(kept, ({1.0}, {2.0}), dies_at)
            self.assertIn(status, (0, DIED))
            seen |= kept
        self.assertEqual(seen, {1.0, 2.0})
        self.assertGreater(dies_at, 3)
        self.assertEqual(len(os.listdir(folder)), 2, "the files of the old checkpoint remain")

    def test_what_a_save_left_that_died_long_ago_is_removed(self):
        folder = self.folder()
        self.assertEqual(save_and_die(folder, 2), DIED)
        (left,) = os.listdir(folder)
        ringmaster.torch.dcp.save(folder, model=constant(1.0))
        self.assertIn(left, os.listdir(folder), "its process may still live")
        os.utime(os.path.join(folder, left), (0, 0))
        ringmaster.torch.dcp.save(folder, model=constant(1.0))
        self.assertEqual(len(os.listdir(folder)), 2)

    def test_a_save_that_fails_leaves_the_checkpoint_before_it(self):
        folder = self.folder()
        model, optimizer = build()
        ringmaster.torch.dcp.save(folder, model=model)
        before, files = values(model), sorted(os.listdir(folder))
        train(model, optimizer, 1)
        with unittest.mock.patch("os.fsync", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
            self.fails(f"{folder} cannot be written: [Errno 28] No space left on device", ringmaster.torch.dcp.save, folder, model=model)
        self.assertEqual(sorted(os.listdir(folder)), files)
        other, _ = build(seed=2)
        ringmaster.torch.dcp.load(folder, model=other)
        self.assertEqual(values(other), before)

    def test_a_save_that_ends_after_metadata_was_replaced_leaves_the_new_checkpoint(self):
        """The folder cannot be synced, or the user presses Ctrl-C."""
        real = os.fsync
        for error in (OSError(errno.EIO, os.strerror(errno.EIO)), KeyboardInterrupt()):
            folder = self.folder()
            ringmaster.torch.dcp.save(folder, model=constant(1.0))

            def fsync(file, error=error):
                if stat.S_ISDIR(os.stat(file).st_mode):
                    raise error
                real(file)

            with self.subTest(type(error).__name__), unittest.mock.patch("os.fsync", fsync):
                with self.assertRaises(BaseException):
                    ringmaster.torch.dcp.save(folder, model=constant(2.0))
            model = constant(0.0)
            ringmaster.torch.dcp.load(folder, model=model)
            self.assertEqual(float(model.bias[0].detach()), 2.0)

    def test_a_save_that_cannot_replace_metadata_leaves_the_checkpoint_before_it(self):
        folder = self.folder()
        ringmaster.torch.dcp.save(folder, model=constant(1.0))
        files = sorted(os.listdir(folder))
        with unittest.mock.patch("os.replace", side_effect=OSError(errno.EACCES, os.strerror(errno.EACCES))):
            self.fails(f"{folder} cannot be written", ringmaster.torch.dcp.save, folder, model=constant(2.0))
        self.assertEqual(sorted(os.listdir(folder)), files)

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
