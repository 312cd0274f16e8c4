# SPDX-License-Identifier: Apache-2.0
"""What programs do that would make workers differ: it stays exact, or it is refused by name."""

import copy
import os
import random
import unittest
import warnings

import numpy as np
from training import Case, interruptions

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import ringmaster.torch as rm
from ringmaster import _generators, _state
from ringmaster.torch import _objects, _tensors


def start(**options):
    return rm.init(**{"micro_batches": 4, "samples_per_step": 8, "seed": 3, **options})


def data(samples=24):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(samples, 10, generator=generator)
    return x, (x @ torch.randn(10, 3, generator=generator)).argmax(1)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(step_of, dataset=None, steps=6, interrupted=0, build=lambda: nn.Linear(10, 3), **options):
    """Returns the weights and what step_of(run, step, model, optimizer) returned in committed steps; it yields before the commit."""
    run = start()
    try:
        model = build()
        optimizer = sgd(model)
        run.register(model=model, optimizer=optimizer)
        noted = []
        with interruptions(interrupted, 0.3 if interrupted else 0):
            for step in run.steps(steps):
                note = step_of(step, optimizer, model)
                for x, y in step.micro_batches(dataset if dataset is not None else data(), **options):
                    step.backward(cross_entropy(model(x), y))
                if step.commit():
                    noted.append(note)
        return {name: value.clone() for name, value in model.state_dict().items()}, noted
    finally:
        run.close()


def nothing(step, optimizer, model):
    return None


class RandomNumbers(Case):
    def same_when_interrupted(self, call):
        expected, noted = call(0)
        for seed in (1, 2, 3):
            weights, again = call(seed)
            self.assertEqual(again, noted)
            for name, value in expected.items():
                self.assertTrue(torch.equal(value, weights[name]), (seed, name))

    def test_at_the_top_of_a_step_depend_on_the_step_only(self):
        def top(step, optimizer, model):
            return random.random(), float(np.random.rand()), float(torch.rand(1))

        self.same_when_interrupted(lambda seed: train(top, interrupted=seed))
        _, noted = train(top)
        self.assertEqual(len(set(noted)), 6)
        run = start()  # as a worker whose share is another one
        model = nn.Linear(10, 3)
        run.register(model=model, optimizer=sgd(model))
        seen = []
        for step in run.steps(6):
            if step.attempt == 1 or step.number > 0:
                seen.append(top(step, None, None))
            for batch in step.micro_batches(lambda step, v: v):
                random.random() if batch else None
                torch.rand(step.number + 1)
                step.backward(model(torch.ones(10)).sum())
            step.commit()
        run.close()
        self.assertEqual(seen, noted)

    def test_of_a_collate_fn_of_a_stream_are_the_same_again(self):
        class Rows(torch.utils.data.IterableDataset):
            def __iter__(self):
                for row, label in zip(*data(200)):
                    yield row + torch.rand(1), label

        def collate(samples):
            return torch.stack([x for x, _ in samples]) + torch.rand(1), torch.stack([y for _, y in samples])

        stream = Rows()
        self.same_when_interrupted(lambda seed: train(nothing, stream, interrupted=seed, collate_fn=collate))

    def test_of_generators_that_a_dataset_holds(self):
        class Noise:
            def __init__(self):
                self.python = random.Random(1)

            def __call__(self, x):
                return x + self.python.random()

        class Held(torch.utils.data.Dataset):
            def __init__(self):
                self.numpy, self.old = np.random.default_rng(0), np.random.RandomState(0)
                self.torch, self.transforms, self.lazy = torch.Generator(), [Noise()], None

            def __len__(self):
                return 24

            def __getitem__(self, index):
                self.lazy = self.lazy or np.random.default_rng()
                x, y = data()
                noise = self.numpy.random() + self.old.rand() + self.lazy.random() + MODULE.random()
                return self.transforms[0](x[index] + noise + torch.rand(1, generator=self.torch)), y[index]

        self.same_when_interrupted(lambda seed: train(nothing, Held(), interrupted=seed))
        expected, _ = train(nothing, Held())
        for workers in (1, 2):
            weights, _ = train(nothing, Held(), num_workers=workers)
            self.assertTrue(torch.equal(expected["weight"], weights["weight"]), "whichever process reads the samples")

    def test_of_generators_that_a_model_holds_or_the_run_gives(self):
        def loop(seed):
            run = start()
            given = [run.rng(kind) for kind in ("numpy", "python", "torch")]

            class Noisy(nn.Linear):
                def __init__(self):
                    super().__init__(10, 3)
                    self.rng = np.random.default_rng()

                def forward(self, x):
                    noise = self.rng.random() + given[0].random() + given[1].random() + float(torch.rand(1, generator=given[2]))
                    return super().forward(x + noise)

            model = Noisy()
            run.register(model=model, optimizer=sgd(model))
            noted = []
            with interruptions(seed, 0.3 if seed else 0):
                for step in run.steps(6):
                    for x, y in step.micro_batches(data()):
                        step.backward(cross_entropy(model(x), y))
                    if step.commit():
                        noted.append(given[0].random())
            self.fails("create all generators before run.steps", run.rng)
            run.close()
            return {name: value.clone() for name, value in model.state_dict().items()}, noted

        self.same_when_interrupted(loop)
        run = start()
        self.addCleanup(run.close)
        self.assertNotEqual(run.rng("python").random(), run.rng("python").random())
        self.fails('the kind is "numpy", "python" or "torch"', run.rng, "cupy")

    def test_a_registered_generator_is_state(self):
        def loop(seed):
            run = start()
            model = nn.Linear(10, 3)
            held = {"numpy": np.random.default_rng(1), "python": random.Random(1), "old": np.random.RandomState(1)}
            held["torch"] = torch.Generator()
            run.register(model=model, optimizer=sgd(model), **held)
            noted = []
            with interruptions(seed, 0.3 if seed else 0):
                for step in run.steps(6):
                    note = held["numpy"].random(), held["python"].random(), held["old"].rand(), float(torch.rand(1, generator=held["torch"]))
                    for x, y in step.micro_batches(data()):
                        step.backward(cross_entropy(model(x), y))
                    if step.commit():
                        noted.append(note)
            run.close()
            return {name: value.clone() for name, value in model.state_dict().items()}, noted

        self.same_when_interrupted(loop)
        for generator in (np.random.default_rng(1), random.Random(1), np.random.RandomState(1)):
            encoder = _state.Encoder(_tensors.as_array)
            state = _state.from_bytes(_state.to_bytes(_objects.describe("rng", generator, encoder)))
            expected = generator.random()
            _objects.load("rng", generator, state, _state.Decoder(encoder.arrays, _tensors.from_array))
            self.assertEqual(generator.random(), expected)

    def test_a_generator_that_takes_numbers_from_the_system_is_refused(self):
        self.fails("cannot be seeded", _generators.seed_one, random.SystemRandom(), 1)


MODULE = np.random.default_rng(0)


class Data(Case):
    def stamp(self, dataset, **options):
        run = start(**options)
        self.addCleanup(run.close)
        source = run._cached_source(dataset, None, 0)
        return source.stamp(0)

    def test_of_equal_length_is_compared_by_content(self):
        class Dataset(torch.utils.data.Dataset):
            def __init__(self, value, where="/a"):
                self.value, self.where = value, where

            def __len__(self):
                return 24

            def __getitem__(self, index):
                return torch.ones(2) * self.value + index + torch.rand(1) + MODULE.random(), f"{self.where}/{index}.png"

        self.assertEqual(self.stamp(Dataset(1)), self.stamp(Dataset(1, "/b")), "wherever the files are, and whatever was drawn before")
        self.assertNotEqual(self.stamp(Dataset(1)), self.stamp(Dataset(2)))
        x, y = data()
        other = x.clone()
        other[-1, 0] += 1
        self.assertEqual(self.stamp((x, y)), self.stamp((x.clone(), y)))
        self.assertNotEqual(self.stamp((x, y)), self.stamp((other, y)))
        self.assertEqual(self.stamp((x, y), data_fingerprint="v1"), 24, "the fingerprint is compared instead")

        class Named(Dataset):
            fingerprint = "v1"

            def __getitem__(self, index):
                raise AssertionError

        self.assertEqual(self.stamp(Named(1)), self.stamp(Named(2)))

        class Damaged(Dataset):
            def __getitem__(self, index):
                raise ValueError

        self.assertEqual(self.stamp(Damaged(1)), 24, "the micro-batch that reads it reports it")

    def test_is_not_opened_before_the_processes_that_read_it(self):
        main = os.getpid()

        class Opens(torch.utils.data.Dataset):
            def __len__(self):
                return 24

            def __getitem__(self, index):
                assert os.getpid() != main
                return torch.ones(10), index % 3

        train(nothing, Opens(), num_workers=1)


class Parameters(Case):
    def test_that_an_optimizer_gets_later_are_refused(self):
        run = start()
        self.addCleanup(run.close)
        model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 3))
        model[0].requires_grad_(False)
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
        run.register(model=model, optimizer=optimizer)
        before = copy.deepcopy(model[0])

        def loop():
            for step in run.steps(3):
                if step.number == 1 and len(optimizer.param_groups) == 1:
                    model[0].requires_grad_(True)
                    optimizer.add_param_group({"params": list(model[0].parameters())})
                for x, y in step.micro_batches(data()):
                    step.backward(cross_entropy(model(x), y))
                step.commit()

        self.fails("model.0.weight was added to optimizer after run.steps", loop)
        self.assertTrue(torch.equal(before.weight, model[0].weight))

    def test_that_are_not_trained_keep_no_gradient(self):
        run = start()
        self.addCleanup(run.close)
        model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 3))
        run.register(model=model, optimizer=torch.optim.SGD(model[1].parameters(), lr=0.1))
        for step in run.steps(2):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model(x), y))
            step.commit()
        self.assertIsNone(model[0].weight.grad)

    def optimizer(self, order):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 3))
        named = dict(model.named_parameters())
        optimizer = torch.optim.AdamW([{"params": [named[name] for name in order], "lr": 0.1}])
        return model, optimizer

    def test_whose_order_in_an_optimizer_differs_have_the_same_state(self):
        orders = ["0.weight", "0.bias", "1.weight", "1.bias"], ["1.bias", "0.bias", "1.weight", "0.weight"]
        states = []
        for order in orders:
            model, optimizer = self.optimizer(order)
            x, y = data()
            cross_entropy(model(x), y).backward()
            optimizer.step()
            known = _objects.Known({"model": model, "optimizer": optimizer})
            encoder = _state.Encoder(_tensors.as_array)
            meta = _state.to_bytes(_objects.describe("optimizer", optimizer, encoder, known))
            states.append((meta, {name: bytes(array.view()) for name, array in encoder.arrays.items()}, encoder))
            fingerprint = _objects.fingerprint({"model": model, "optimizer": optimizer})["optimizer"]
        self.assertEqual(states[0][:2], states[1][:2])
        self.assertIn("model.0.weight", fingerprint)
        model, optimizer = self.optimizer(orders[1])
        known = _objects.Known({"model": model, "optimizer": optimizer})
        decoder = _state.Decoder(states[0][2].arrays, _tensors.from_array)
        _objects.load("optimizer", optimizer, _state.from_bytes(states[0][0]), decoder, known)
        for parameter in model.parameters():
            self.assertEqual(optimizer.state[parameter]["exp_avg"].shape, parameter.shape)
        other, wrong = self.optimizer(orders[0][:3])
        known = _objects.Known({"model": other, "optimizer": wrong})
        self.fails("model.1.bias only on one side", _objects.load, "optimizer", wrong, _state.from_bytes(states[0][0]), decoder, known)

    def test_that_change_by_their_data_are_refused(self):
        class Initializes(nn.Linear):
            ready = False

            def forward(self, x):
                if not self.ready:
                    self.weight.data.copy_(self.weight.data / x.std())
                    self.ready = True
                return super().forward(x)

        self.fails("model.weight changed in micro-batch 0, by its `data`", train, nothing, build=lambda: Initializes(10, 3))

    def test_that_change_at_the_top_of_a_step_are_refused(self):
        def clamp(step, optimizer, model):
            with torch.no_grad():
                model.weight.clamp_(-0.1, 0.1)

        self.fails("model.weight changed between the start of the step and its micro-batches", train, clamp)


class Attempts(Case):
    def test_a_rate_that_is_set_at_the_top_is_taken_back(self):
        def schedule(step, optimizer, model):
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (1 + step.number)

        run = start()
        self.addCleanup(run.close)
        model = nn.Linear(10, 3)
        optimizer = sgd(model)
        counter = {"steps": 0}
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        run.register(model=model, optimizer=optimizer, counter=counter, scheduler=scheduler)
        state = run._native.describe
        described = []
        expected = None
        with interruptions(4, 0.3):
            for step in run.steps(6):
                self.assertEqual(counter["steps"], step.number, "an attempt that was interrupted does not count")
                if expected is not None:
                    encoder = _state.Encoder(_tensors.as_array)
                    self.assertEqual(_state.to_bytes(run._describe(encoder)), expected)
                schedule(step, optimizer, model)
                counter["steps"] += 1
                scheduler.last_epoch += 0 if step.attempt == 0 else 100
                for x, y in step.micro_batches(data()):
                    step.backward(cross_entropy(model(x), y))
                if step.commit():
                    described.append(step.number)
                    encoder = _state.Encoder(_tensors.as_array)
                    scheduler.last_epoch = step.number
                    expected = _state.to_bytes(run._describe(encoder))
        self.assertEqual(described, list(range(6)))
        self.assertTrue(callable(state))

    def test_state_that_micro_batches_change_is_refused(self):
        def loop():
            run = start()
            self.addCleanup(run.close)
            model, counter = nn.Linear(10, 3), {"samples": 0}
            run.register(model=model, optimizer=sgd(model), counter=counter)
            for step in run.steps(2):
                for x, y in step.micro_batches(data()):
                    counter["samples"] += len(x)
                    step.backward(cross_entropy(model(x), y))
                step.commit()

        self.fails("counter was changed in the loop over the micro-batches", loop)

    def test_state_that_is_not_restored_exactly_is_refused(self):
        class Rounds:
            value = 0.0

            def state_dict(self):
                return {"value": self.value}

            def load_state_dict(self, state):
                self.value = round(state["value"], 1)

        folder = self.folder()

        def run_to(steps):
            run = start(checkpoint_folder=folder)
            self.addCleanup(run.close)
            model, odd = nn.Linear(10, 3), Rounds()
            run.register(model=model, optimizer=sgd(model), odd=odd)
            for step in run.steps(steps):
                for x, y in step.micro_batches(data()):
                    step.backward(cross_entropy(model(x), y))
                if step.commit():
                    odd.value = 0.123
            run.close()

        run_to(2)
        self.fails("after loading, odd.value of the state is not what was loaded", run_to, 3)


class State(Case):
    def resumes(self, build):
        folder = self.folder()
        weights = []
        for steps in (2, 4):
            run = start(checkpoint_folder=folder)
            self.addCleanup(run.close)
            model = build()
            run.register(model=model, optimizer=sgd(model))
            for step in run.steps(steps):
                for x, y in step.micro_batches(data()):
                    step.backward(cross_entropy(model(x), y))
                step.commit()
            run.close()
            weights.append(model)
        return weights

    def test_a_transient_buffer_that_forward_creates_is_none(self):
        class Masked(nn.Linear):
            def __init__(self):
                super().__init__(10, 3)
                self.register_buffer("mask", None, persistent=False)

            def forward(self, x):
                if self.mask is None:
                    self.register_buffer("mask", torch.ones(3), persistent=False)
                return super().forward(x) * self.mask

        self.resumes(Masked)

    def test_a_buffer_that_forward_creates_is_refused(self):
        class Creates(nn.Linear):
            def forward(self, x):
                if not hasattr(self, "mask"):
                    self.register_buffer("mask", torch.ones(3))
                return super().forward(x) * self.mask

        self.fails("model.mask was created after run.steps", self.resumes, lambda: Creates(10, 3))

    def test_complex_numbers_and_floats_of_8_bits(self):
        class Held(nn.Linear):
            def __init__(self):
                super().__init__(10, 3)
                self.register_buffer("frequencies", torch.polar(torch.ones(8), torch.arange(8.0)))
                self.register_buffer("wide", torch.arange(3) * torch.tensor(1j, dtype=torch.complex128))
                self.register_buffer("small", torch.arange(4.0).to(torch.float8_e4m3fn))

        first, second = self.resumes(Held)
        for name in ("frequencies", "wide", "small"):
            self.assertEqual(str(getattr(first, name)), str(getattr(second, name)))
        run = start()
        self.addCleanup(run.close)
        model = Held()
        model.register_buffer("sparse", torch.eye(3).to_sparse())
        self.fails("sparse is a tensor of torch.float32, torch.sparse_coo", run.register, model=model)

    def test_references_to_groups_and_rates_survive_a_load(self):
        model = nn.Linear(10, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1))
        group, rate, entries = optimizer.param_groups[0], optimizer.param_groups[0]["lr"], optimizer.state
        state = copy.deepcopy(optimizer.state_dict())
        state["param_groups"][0]["lr"] = torch.tensor(0.5)
        _objects._load_optimizer(optimizer, state)
        self.assertIs(optimizer.param_groups[0], group)
        self.assertIs(group["lr"], rate)
        self.assertIs(optimizer.state, entries)
        self.assertEqual(float(rate), 0.5)

    def test_gradients_that_an_optimizer_keeps_do_not_change(self):
        class Keeps(torch.optim.SGD):
            kept = ()

            def step(self):
                self.kept = (*self.kept, (self.param_groups[0]["params"][0].grad, self.param_groups[0]["params"][0].grad.clone()))
                super().step()

        run = start()
        self.addCleanup(run.close)
        model = nn.Linear(10, 3)
        optimizer = Keeps(model.parameters(), lr=0.1)
        run.register(model=model, optimizer=optimizer)
        for step in run.steps(3):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model(x), y))
            step.commit()
        for kept, copied in optimizer.kept:
            self.assertTrue(torch.equal(kept, copied))

    def test_schedulers_that_commit_would_step_wrongly(self):
        run = start()
        self.addCleanup(run.close)
        model = nn.Linear(10, 3)
        optimizer = sgd(model)
        parts = [torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.StepLR(optimizer, 2)]
        whole = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [2])
        self.fails("is a SequentialLR that steps it", run.register, model=model, optimizer=optimizer, whole=whole, part=parts[1])

        class Foreign:
            def get_last_lr(self):
                return [0.1]

            def state_dict(self):
                return {}

            def load_state_dict(self, state):
                pass

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start().register(foreign=Foreign())
        self.assertIn("does not step Foreign", str(caught[-1].message))


class BufferPolicies(Case):
    class Model(nn.Linear):
        def __init__(self):
            super().__init__(10, 3)
            for name, value in (("total", torch.zeros(())), ("seen", torch.zeros((), dtype=torch.int64)), ("queue", torch.zeros(4)),
                                ("pointer", torch.zeros((), dtype=torch.int64)), ("least", torch.full((2,), torch.inf)),
                                ("most", torch.full((2,), -torch.inf)), ("scratch", torch.zeros(3))):  # fmt: skip
                self.register_buffer(name, value)

        def forward(self, x):
            self.total += x.sum().detach()
            self.seen += (x > 0).sum()
            self.queue[int(self.pointer) % 4] = x[0, 0]
            self.pointer += int(x[0, 0] > 0) + 1
            self.least = torch.minimum(self.least, torch.stack([x.min(), torch.tensor(0.0)]))
            self.most = torch.maximum(self.most, torch.stack([x.max(), torch.tensor(0.0)]))
            self.scratch.normal_()
            return super().forward(x)

    POLICIES = {"model.total": "sum", "model.seen": "sum", "model.queue": "last", "model.pointer": "last", "model.least": "min",
                "model.most": "max", "model.scratch": "discard"}  # fmt: skip

    def run_with(self, policies, seed=0, samples=22):
        run = start()
        self.addCleanup(run.close)
        model = self.Model()
        run.register(model=model, optimizer=sgd(model), buffers=policies)
        read = {}
        with interruptions(seed, 0.3 if seed else 0):
            for step in run.steps(3):
                for x, y in step.micro_batches(data(samples)):
                    read[step.number, step.micro_batch] = x
                    step.backward(cross_entropy(model(x), y))
                step.commit()
        run.close()
        return model, read

    def test_do_what_they_say(self):
        model, read = self.run_with(self.POLICIES)
        every = torch.cat(list(read.values()))
        torch.testing.assert_close(model.total, every.sum())
        self.assertEqual(int(model.seen), int((every > 0).sum()))
        torch.testing.assert_close(model.least, torch.tensor([float(every.min()), 0.0]))
        torch.testing.assert_close(model.most, torch.tensor([float(every.max()), 0.0]))
        queue, pointer = torch.zeros(4), 0
        for step in range(3):
            x = read[max(key for key in read if key[0] == step)]
            queue[pointer % 4] = x[0, 0]
            pointer += int(x[0, 0] > 0) + 1
        torch.testing.assert_close(model.queue, queue)
        self.assertEqual(int(model.pointer), pointer)
        self.assertEqual(model.scratch.tolist(), [0, 0, 0])
        for seed in (1, 2):
            again, _ = self.run_with(self.POLICIES, seed)
            for name, value in model.state_dict().items():
                self.assertTrue(torch.equal(value, again.state_dict()[name]), name)

    def test_that_do_not_exist_are_refused(self):
        self.fails("it is one of mean, sum, min, max, last, constant, discard", self.run_with, {"model.total": "median"})
        self.fails("names no buffer of a registered model: model.none", self.run_with, {"model.none": "sum"})
        self.fails("model.total changed in a micro-batch", self.run_with, {**self.POLICIES, "model.total": "constant"})

    def test_a_mean_that_was_not_asked_for_is_named(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.run_with({name: policy for name, policy in self.POLICIES.items() if name != "model.queue"})
        texts = [str(warning.message) for warning in caught if "become the mean" in str(warning.message)]
        self.assertEqual(len(texts), 1)
        self.assertIn("the buffers model.queue become", texts[0])

    def test_of_observers_and_fake_quantization(self):
        from torch.ao import quantization as ao

        class Observed(nn.Linear):
            def __init__(self):
                super().__init__(10, 3)
                self.range, self.moving = ao.MinMaxObserver(), ao.MovingAverageMinMaxObserver()
                self.fake = ao.FakeQuantize()

            def forward(self, x):
                return super().forward(self.fake(self.range(self.moving(x))))

        read = []

        def loop(seed):
            run = start()
            model = Observed()
            run.register(model=model, optimizer=sgd(model))
            with interruptions(seed, 0.3 if seed else 0):
                for step in run.steps(3):
                    for x, y in step.micro_batches(data()):
                        read.append(x)
                        step.backward(cross_entropy(model(x), y))
                    step.commit()
            run.close()
            return model

        model = loop(0)
        torch.testing.assert_close(model.range.min_val, torch.cat(read).min())
        torch.testing.assert_close(model.range.max_val, torch.cat(read).max())
        self.assertNotEqual(model.fake.scale.item(), 1.0)
        for name, value in loop(3).state_dict().items():
            self.assertTrue(torch.equal(value, model.state_dict()[name]), name)


class Errors(Case):
    def test_of_the_network_and_of_storage_restart_the_worker(self):
        run = start()
        self.addCleanup(run.close)

        class ClientError(Exception):
            pass

        ClientError.__module__ = "botocore.exceptions"
        wrapped = RuntimeError("the reader failed")
        wrapped.__cause__ = ConnectionResetError(104, "Connection reset by peer")
        for error in (ConnectionResetError(104, ""), TimeoutError(), OSError(28, ""), ClientError(), wrapped, rm.Retry("again")):
            self.assertEqual(run._exit_code(error), 74, error)
        for error in (ValueError(), KeyError(), FileNotFoundError(2, "no"), PermissionError(13, "")):
            self.assertIsNone(run._exit_code(error), error)
        run._committed_steps = 1  # its paths were right
        self.assertEqual(run._exit_code(FileNotFoundError(2, "no")), 74)
        self.assertIsNone(run._exit_code(ValueError()))

    def test_an_export_follows_no_link_and_leaves_nothing(self):
        folder = self.folder()
        target, path = os.path.join(folder, "target"), os.path.join(folder, "model.safetensors")
        os.symlink(target, f"{path}.part-{os.getpid()}")
        rm.export(nn.Linear(2, 2), path)
        self.assertFalse(os.path.exists(target))
        self.assertEqual(sorted(os.listdir(folder)), ["model.safetensors", f"model.safetensors.part-{os.getpid()}"])
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o666 & ~mask)


class Losses(Case):
    def test_several_in_a_micro_batch_add_up(self):
        def loop(several, seed=0, last=False):
            run = start()
            model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 3))
            run.register(model=model, optimizer=sgd(model))
            losses = []
            with interruptions(seed, 0.3 if seed else 0):
                for step in run.steps(4):
                    for x, y in step.micro_batches(data()):
                        one, other = cross_entropy(model(x), y), model[0](x).square().mean()
                        if several or (last and step.number % 2):
                            step.backward(one, **({"last": False} if last else {}))
                            model.zero_grad()
                            step.backward(other)
                        else:
                            step.backward(one + other)
                    if step.commit():
                        losses.append(step.loss)
            run.close()
            return model, losses

        one, losses = loop(False)
        for arguments in ({"several": True}, {"several": False, "last": True}):
            two, again = loop(**arguments)
            torch.testing.assert_close(losses, again)
            torch.testing.assert_close(dict(one.named_parameters()), dict(two.named_parameters()), rtol=1e-6, atol=1e-6)
            three, _ = loop(**arguments, seed=2)
            self.assertTrue(torch.equal(two[0].weight, three[0].weight))

    def test_that_come_unannounced_are_refused(self):
        def top(step, optimizer, model):
            return None

        run = start()
        self.addCleanup(run.close)
        model = nn.Linear(10, 3)
        run.register(model=model, optimizer=sgd(model))

        def loop():
            for step in run.steps(3):
                for x, y in step.micro_batches(data()):
                    step.backward(cross_entropy(model(x), y))
                    if step.number == 1:
                        step.backward(model(x).square().mean())
                step.commit()

        self.fails("pass last=False", loop)

    def gan(self, seed=0):
        """The generative adversarial network of PyTorch's tutorial: a step of the discriminator, then one of the generator."""
        run = start()
        generator, discriminator = nn.Linear(2, 10), nn.Linear(10, 1)
        g_optimizer = torch.optim.Adam(generator.parameters(), lr=0.1)
        d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=0.1)
        d_schedule = torch.optim.lr_scheduler.StepLR(d_optimizer, 1)
        run.register(G=generator, D=discriminator, g_optimizer=g_optimizer, d_optimizer=d_optimizer, schedule=d_schedule)
        criterion = nn.BCEWithLogitsLoss()
        with interruptions(seed, 0.3 if seed else 0):
            for step in run.steps(8):
                before = copy.deepcopy((generator, discriminator))
                trains_d = step.number % 2 == 0
                for real, _ in step.micro_batches(data()):
                    fake = generator(torch.randn(len(real), 2))
                    if trains_d:
                        step.backward(criterion(discriminator(real), torch.ones(len(real), 1)))
                        step.backward(criterion(discriminator(fake.detach()), torch.zeros(len(real), 1)))
                    else:
                        step.backward(criterion(discriminator(fake), torch.ones(len(real), 1)))
                if step.commit(clip_norm=0.5, optimizers=d_optimizer if trains_d else g_optimizer):
                    moved = [not torch.equal(a.weight, b.weight) for a, b in zip(before, (generator, discriminator))]
                    self.assertEqual(moved, [not trains_d, trains_d], step.number)
        self.assertEqual(d_schedule.last_epoch, 4)
        run.close()
        return [value for model in (generator, discriminator) for value in model.state_dict().values()]

    def test_of_a_gan_step_one_optimizer_each(self):
        expected = self.gan()
        for one, other in zip(expected, self.gan(5)):
            self.assertTrue(torch.equal(one, other))

    def test_an_optimizer_that_is_not_registered_is_refused(self):
        run = start()
        self.addCleanup(run.close)
        model = nn.Linear(10, 3)
        run.register(model=model, optimizer=sgd(model))
        step = next(run.steps(1))
        self.fails("takes registered optimizers", step.commit, optimizers=[sgd(model)])

    def test_clipping_takes_the_norm_of_changed_gradients(self):
        run = start()
        self.addCleanup(run.close)
        model = nn.Linear(10, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        run.register(model=model, optimizer=optimizer)
        for step in run.steps(1):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model(x), y))
            if step.reduce():
                model.weight.grad.mul_(100)
                before = copy.deepcopy(model)
                step.commit(clip_norm=1.0)
        moved = torch.cat([(a - b).flatten() for a, b in zip(model.parameters(), before.parameters())])
        self.assertAlmostEqual(float(moved.detach().norm()), 1.0, places=5)


if __name__ == "__main__":
    unittest.main()
