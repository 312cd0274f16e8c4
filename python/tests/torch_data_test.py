# SPDX-License-Identifier: Apache-2.0
"""Datasets of ringmaster.torch: every form gives the same batches, and processes that read ahead end with their trainer."""

import collections
import os
import random
import re
import subprocess
import sys
import time
import unittest
import unittest.mock

from training import PACKAGE, Case, interruptions, program

import torch
import torch.utils.data

import ringmaster.torch as rm
from ringmaster import _native
from ringmaster._errors import describe_exception
from ringmaster.torch import _data

SIZE = 22  # samples; the last step of an epoch has 6 of 8
X = torch.arange(SIZE * 3.0).reshape(SIZE, 3)
Y = torch.arange(SIZE)


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return X[index], int(Y[index])


class Augmented(Pairs):
    """Draws random numbers of all three generators."""

    def __getitem__(self, index):
        import numpy

        return X[index] + torch.rand(3) + random.random() + float(numpy.random.rand()), index


def collate(samples):
    return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])


class Many(Pairs):
    def __getitems__(self, indices):
        return [self[index] for index in indices]

    def __getitem__(self, index):
        assert type(index) is int
        return super().__getitem__(index)


Sample = collections.namedtuple("Sample", "x y")


class Named(Pairs):
    def __getitem__(self, index):
        return Sample(*super().__getitem__(index))


class Broken(Pairs):
    def __init__(self, kind, *arguments):
        self.kind, self.arguments = kind, arguments

    def __getitem__(self, index):
        raise self.kind(*self.arguments)


class Unsendable(Exception):
    """Cannot be unpickled: its constructor takes other arguments than its base class."""

    def __init__(self, what, index):
        super().__init__(f"{what} {index} is damaged")


class Numbers(torch.utils.data.IterableDataset):
    """Yields (pass, number, a random number) in a random order. Notes how far it was read."""

    def __init__(self, size=10):
        self.size, self.epoch, self.read = size, None, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for number in torch.randperm(self.size).tolist():
            self.read += 1
            yield self.epoch, number, random.random()


def batches(dataset, steps=5, interrupted=None, drawn=None, **options):
    """Sets `drawn` to what the code of each micro-batch draws, and returns {(step, micro-batch): batch} of a run that trains nothing of interest."""
    run = rm.init(micro_batches=4, samples_per_step=8, seed=3)
    model = torch.nn.Linear(1, 1)
    run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    seen, drawn = {}, {} if drawn is None else drawn
    with interruptions(interrupted or 0, 0.2 if interrupted else 0):
        for step in run.steps(steps):
            for batch in step.micro_batches(dataset, **options):
                key = (step.number, step.micro_batch)
                if key in seen:
                    assert repr(seen[key]) == repr(batch), key
                seen[key] = batch
                drawn[key] = torch.rand(1)
                step.backward(model(drawn[key]).sum())
            step.commit()
    run.close()
    return seen


def rows(step, v):
    return _native.samples(3, SIZE, 8, 4, step, v)


class Datasets(Case):
    def pairs(self, seen, x=0, y=1):
        # 22 samples in steps of 8, 8 and 6: the last micro-batch of every third step has none.
        self.assertEqual(sorted(seen), [(s, v) for s in range(5) for v in range(4) if (s, v) != (2, 3)])
        for (step, v), batch in seen.items():
            self.assertTrue(torch.equal(batch[x], X[rows(step, v)]))
            self.assertTrue(torch.equal(batch[y], Y[rows(step, v)]))

    def test_an_epoch_has_each_sample_once(self):
        seen = sum((rows(step, v) for step in range(3) for v in range(4)), [])
        self.assertEqual(sorted(seen), list(range(SIZE)))
        self.assertNotEqual(seen, sorted(seen))

    def test_all_forms_give_the_same_batches(self):
        self.pairs(batches((X, Y)))
        self.pairs(batches({"x": X, "y": Y}), "x", "y")
        self.pairs(batches(Pairs()))
        self.pairs(batches(Many()))
        self.pairs(batches([(X[i], Y[i]) for i in range(SIZE)]))
        self.pairs(batches(torch.utils.data.TensorDataset(X, Y)))
        self.pairs(batches(torch.utils.data.Subset(Pairs(), range(SIZE))))
        self.pairs(batches(Pairs(), num_workers=2))
        self.pairs(batches(Pairs(), collate_fn=collate))
        for (step, v), batch in batches(X).items():
            self.assertTrue(torch.equal(batch, X[rows(step, v)]))
        for (step, v), batch in batches(X.numpy()).items():
            self.assertEqual(batch.tolist(), X[rows(step, v)].tolist())
        named = batches(Named())
        self.assertTrue(torch.equal(named[0, 0].x, X[rows(0, 0)]))

    def test_random_numbers_of_a_dataset_depend_on_the_micro_batch_only(self):
        expected_draws = {}
        expected = batches(Augmented(), drawn=expected_draws)
        self.assertFalse(torch.equal(expected[0, 0][0], X[rows(0, 0)]))
        for options in ({"num_workers": 1}, {"num_workers": 3}, {"num_workers": 2, "interrupted": 4}, {"interrupted": 5}):
            with self.subTest(options):
                draws = {}
                seen = batches(Augmented(), drawn=draws, **options)
                self.assertEqual(set(seen), set(expected))
                self.assertEqual(draws, expected_draws, "whichever process reads the samples")
                for key, batch in expected.items():
                    self.assertTrue(torch.equal(seen[key][0], batch[0]), key)

    def test_a_function(self):
        seen = batches(lambda step, v: (step, v), steps=2)
        self.assertEqual(seen, {(s, v): (s, v) for s in range(2) for v in range(4)})

    def test_indices(self):
        run = rm.init(micro_batches=4, samples_per_step=8, seed=3)
        model = torch.nn.Linear(1, 1)
        run.register(model=model)
        seen = {}
        for step in run.steps(1):
            for indices in step.indices(SIZE):
                seen[step.micro_batch] = indices
                step.backward(model(torch.ones(1)).sum())
            step.commit()
        run.close()
        self.assertEqual(seen, {v: rows(0, v) for v in range(4)})

    def test_data_that_cannot_be_used(self):
        class Empty(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(())

        class NoLength:
            def __getitem__(self, index):
                return index

        for dataset, options, text in (
            (Empty(), {}, "Empty yields no sample in pass 1"),
            (Numbers(), {"num_workers": 1}, "processes cannot share a stream"),
            (iter([1, 2]), {}, "is neither a map-style dataset"),
            (NoLength(), {}, "NoLength has no length"),
            ([], {}, "list is empty"),
            ((X, Y[1:]), {}, "different numbers of samples (their first dimension): [21, 22]"),
            (lambda step, v: 0, {"num_workers": 2}, "takes neither collate_fn nor num_workers"),
        ):
            with self.subTest(text):
                self.fails(text, batches, dataset, **options)
        run = rm.init(micro_batches=4)
        model = torch.nn.Linear(1, 1)
        run.register(model=model)
        self.fails("init(samples_per_step=...)", lambda: list(next(run.steps(1)).micro_batches(X)))
        run.close()


class Streams(Case):
    def test_each_step_takes_the_samples_that_come_next(self):
        stream = Numbers()
        seen = batches(stream, collate_fn=list)
        self.assertEqual(list(seen), [(s, v) for s in range(5) for v in range(4)])
        samples = [sample for batch in seen.values() for sample in batch]
        self.assertEqual([sample[0] for sample in samples], [i // 10 for i in range(40)])
        for start in range(0, 40, 10):
            self.assertEqual(sorted(sample[1] for sample in samples[start : start + 10]), list(range(10)))
        self.assertEqual(stream.read, 40)

    def test_interruptions_change_nothing(self):
        expected, drawn = batches(Numbers(), collate_fn=list, drawn=(numbers := {})), numbers
        for seed in range(1, 5):
            again = {}
            self.assertEqual(batches(Numbers(), interrupted=seed, drawn=again, collate_fn=list), expected)
            self.assertEqual(again, drawn)

    def test_a_worker_reads_no_further_than_its_share(self):
        stream = Numbers(100)
        reader = self.reader(stream)
        reader.get(2, 1, [])
        self.assertEqual(stream.read, 2 * 8 + 2 * 2)
        self.assertEqual(len(reader.get(2, 0, [])), 2, "it is kept, since another share may need it")
        self.assertEqual(stream.read, 2 * 8 + 2 * 2)

    def test_a_share_of_any_worker_at_any_time_is_the_same(self):
        whole = batches(Numbers(), collate_fn=list)
        for steps in ((3,), (1, 4), (4, 2, 3)):  # it joins late; it skips steps; the job goes back to an older state
            reader = self.reader(Numbers())
            for step in steps:
                for v in (3, 0):
                    self.assertEqual(reader.get(step, v, []), whole[step, v])

    def reader(self, stream):
        run = rm.init(micro_batches=4, samples_per_step=8, seed=3)
        self.addCleanup(run.close)
        return run._cached_source(stream, list, 0)

    def test_a_collate_fn_may_change_what_it_gets(self):
        class Rows:
            def __iter__(self):
                return iter([{"x": i} for i in range(8)])

        def take(rows):
            return [row.pop("x") for row in rows]

        seen = batches(Rows(), steps=2, interrupted=3, collate_fn=take)
        self.assertEqual([seen[0, v] for v in range(4)], [[0, 1], [2, 3], [4, 5], [6, 7]])

    def test_the_default_is_that_of_pytorch(self):
        class Tensors:
            def __iter__(self):
                return iter(zip(X, Y.tolist()))

            def __getitem__(self, column):  # as a stream of Hugging Face
                raise AssertionError

        x, y = batches(Tensors(), steps=1)[0, 1]
        self.assertTrue(torch.equal(x, X[2:4]) and torch.equal(y, Y[2:4]))

    def test_a_stamp_tells_samples_apart(self):
        def stamp(sample):
            class One:
                def __iter__(self):
                    return iter([sample] * 8)

            return self.reader(One()).stamp(0)

        samples = [1, 2, "1", None, (1, 2), {"x": torch.ones(2)}, {"x": torch.ones(3)}, {"x": torch.zeros(2)}, {"y": torch.ones(2)}]
        self.assertEqual(len({stamp(sample) for sample in samples}), len(samples))
        self.assertEqual(stamp({"x": torch.ones(2)}), stamp({"x": torch.ones(4)[::2]}))
        self.assertEqual(stamp(object()), stamp(object()), "nothing is known of them")
        self.assertEqual(stamp(torch.ones(2).to_sparse()), stamp(torch.zeros(2).to_sparse()))

    def test_workers_with_other_streams_are_told(self):
        run = rm.init(micro_batches=4, samples_per_step=8, seed=3)
        self.addCleanup(run.close)
        model = torch.nn.Linear(1, 1)
        run.register(model=model)

        def train():
            for step in run.steps(1):
                for _ in step.micro_batches(Numbers(), collate_fn=list):
                    if step.micro_batch == 2:  # as if another worker computed the rest
                        run._set_stamp(12345)
                    step.backward(model(torch.ones(1)).sum())
                step.commit()

        self.fails("workers have different data", train)


class Seeds(Case):
    @unittest.skipIf(torch.accelerator.is_available(), "needs a machine without an accelerator")
    def test_are_those_of_torch_and_cost_no_stack(self):
        torch.manual_seed(2**63 + 5)
        expected = torch.rand(3)
        with unittest.mock.patch("traceback.format_stack", side_effect=AssertionError):
            _data.seed_all(2**63 + 5)
        torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


class Processes(Case):
    PROGRAM = """
import os, time, torch, torch.utils.data, ringmaster.torch as rm
torch.utils.data._utils.worker.MP_STATUS_CHECK_INTERVAL = 600  # how often PyTorch itself looks for the parent
run = rm.init(micro_batches=4, samples_per_step=8)
model = torch.nn.Linear(2, 2)
run.register(model=model)
class Data:
    def __len__(self): return 8
    def __getitem__(self, index): return torch.ones(2) * os.getpid()
for step in run.steps(1):
    for x in step.micro_batches(Data(), num_workers=2):
        print(int(x[0, 0]), flush=True)
        step.backward(model(x).sum())
        if step.micro_batch == 3:
            time.sleep(600)
"""

    def test_end_with_a_trainer_that_is_killed(self):
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
        trainer = subprocess.Popen(
            [sys.executable, "-B", "-c", self.PROGRAM], stdout=subprocess.PIPE, text=True, env=environment
        )
        readers = {int(trainer.stdout.readline()) for _ in range(4)}
        self.assertEqual(len(readers), 2)
        self.assertNotIn(trainer.pid, readers)
        trainer.kill()
        trainer.communicate()
        deadline = time.monotonic() + 60
        while any(os.path.exists(f"/proc/{pid}") and b") Z" not in _stat(pid) for pid in readers):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_end_although_the_trainer_ended_before_they_began(self):
        done = program("""
import os
from ringmaster.torch import _data
result, report = os.pipe()
if os.fork() == 0:
    die_with_trainer = _data._die_with_this_process()
    trainer = os.getpid()
    if os.fork() == 0:
        while os.getppid() == trainer:
            pass
        die_with_trainer(0)
        os.write(report, b"a process lives without its trainer")
    os._exit(0)
os.close(report)
print(os.read(result, 100).decode(), end="")
""")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_whose_loss_is_a_fault_and_no_mistake_of_the_program(self):
        for way in ("os.kill(os.getpid(), 9)", "os._exit(1)"):
            text = self.PROGRAM.replace("return torch.ones(2) * os.getpid()", way).replace("time.sleep(600)", "pass")
            done = program(text)
            self.assertEqual(done.returncode, 71, done.stderr)
            self.assertIn("RuntimeError: DataLoader worker (pid", done.stderr)

    def test_whose_exception_names_its_place_in_the_program(self):
        for dataset, arrives in (
            (Broken(ValueError, "sample 3 is damaged"), ValueError),
            (Broken(Unsendable, "sample", 3), RuntimeError),
        ):
            with self.subTest(arrives), self.assertRaisesRegex(arrives, "sample 3 is damaged") as caught:
                batches(dataset, num_workers=2)
            first, *rest = describe_exception(caught.exception).splitlines()
            self.assertRegex(first, rf"^{re.escape(__file__)}:\d+: \S*{dataset.kind.__name__}: sample 3 is damaged$")
            self.assertIn("    raise self.kind(*self.arguments)", rest)
            self.assertNotIn("ringmaster/torch/_data.py", "".join(rest))

    def test_whose_errors_of_storage_and_memory_restart_the_trainer(self):
        for error, code in (("OSError(5, 'I/O error')", 74), ("MemoryError", 71), ("FileNotFoundError(2, 'no')", 64)):
            text = self.PROGRAM.replace("return torch.ones(2) * os.getpid()", f"raise {error}")
            done = program(text)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(error.partition("(")[0], done.stderr)

    def test_fill_pinned_memory_when_the_program_computes_on_a_gpu(self):
        for used in (False, True):
            with (
                unittest.mock.patch.object(torch.cuda, "is_initialized", return_value=used),
                unittest.mock.patch.object(torch.utils.data, "DataLoader") as loader,
            ):
                _data._ReadAhead(Pairs(), collate, 2, lambda size, step, v: iter(()), _data.Seeder(0, 4))
            self.assertIs(loader.call_args.kwargs["pin_memory"], used)

    def test_end_with_the_run(self):
        before = _children()
        batches(Pairs(), num_workers=2)
        self.assertEqual(_children() - before, set())


def _stat(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read()
    except OSError:
        return b") Z"


def _children():
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        fields = _stat(pid).rpartition(b")")[2].split()
        if len(fields) > 1 and int(fields[1]) == os.getpid() and fields[0] != b"Z":
            found.add(int(pid))
    return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
