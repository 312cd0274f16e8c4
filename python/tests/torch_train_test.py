# SPDX-License-Identifier: Apache-2.0
"""Training with ringmaster.torch in a world of one worker: what the loop computes, and that interruptions change no bit."""

import collections
import copy
import functools
import gc
import io
import os
import pathlib
import random
import types
import unittest
import warnings
from contextlib import redirect_stderr
from unittest import mock

from training import Case, interruptions

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import ringmaster.torch as rm
from ringmaster import _native
from ringmaster.torch import _tensors
from ringmaster.torch._buffers import Buffers

SAMPLES = 96


def data(samples=SAMPLES, width=10, classes=3):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(samples, width, generator=generator)
    return x, (x @ torch.randn(width, classes, generator=generator)).argmax(1)


def net():
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 3))


def noisy_net():
    return nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3))


def start(**options):
    return rm.init(**{"micro_batches": 4, "samples_per_step": 32, "seed": 7, **options})


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


class Trained:
    """A finished run."""

    def __init__(self, build=net, steps=6, optimizer=adamw, scheduler=None, clip_norm=None, dataset=None, **options):
        run = start(**options)
        self.model = build()
        self.initial = copy.deepcopy(self.model)
        self.optimizer = optimizer(self.model)
        objects = {"model": self.model, "optimizer": self.optimizer}
        if scheduler is not None:
            self.scheduler = objects["scheduler"] = scheduler(self.optimizer)
        run.register(**objects)
        self.losses, self.norms, self.attempts = [], [], 0
        for step in run.steps(steps):
            self.attempts += 1
            for x, y in step.micro_batches(dataset or data()):
                step.backward(cross_entropy(self.model(x), y))
            if step.commit(clip_norm):
                self.losses.append(step.loss)
                self.norms.append(step.gradient_norm)
        run.close()

    def state(self):
        return {**self.model.state_dict(), "losses": torch.tensor(self.losses, dtype=torch.float64)}


def by_hand(trained, steps=6, clip_norm=None, scheduler=None, optimizer=adamw, samples=SAMPLES):
    """Returns the model of a plain loop over the same samples, with whole steps as batches."""
    x, y = data(samples)
    model = copy.deepcopy(trained.initial)
    optimizer = optimizer(model)
    scheduler = scheduler(optimizer) if scheduler else None
    losses = []
    for step in range(steps):
        indices = sum((_native.samples(7, samples, 32, 4, step, v) for v in range(4)), [])
        loss = cross_entropy(model(x[indices]), y[indices])
        optimizer.zero_grad()
        loss.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return model, losses


class Training(Case):
    def same(self, one, other):
        self.assertEqual(list(one), list(other))
        for name in one:
            self.assertTrue(torch.equal(one[name], other[name]), name)

    def close_to(self, one, other, tolerance=2e-6):
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=tolerance, atol=tolerance, msg=lambda text: f"{name}: {text}")

    def test_equals_a_loop_by_hand(self):
        def schedule(optimizer):
            return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)

        def sgd(model):
            return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

        for clip_norm, optimizer in ((None, adamw), (0.05, sgd)):
            with self.subTest(clip_norm=clip_norm):
                how = dict(clip_norm=clip_norm, scheduler=schedule, optimizer=optimizer)
                trained = Trained(**how)
                model, losses = by_hand(trained, **how)
                self.close_to(trained.model.state_dict(), model.state_dict(), 1e-5)
                torch.testing.assert_close(trained.losses, losses, rtol=1e-6, atol=1e-6)
                self.assertNotEqual(trained.losses[0], trained.losses[-1])
                self.assertEqual(trained.attempts, 7, "the first step is attempted twice")
                self.assertEqual(trained.scheduler.last_epoch, 6)

    def test_the_last_step_of_an_epoch_weighs_samples_equally(self):
        # 70 samples: the third step has 6, of which the first micro-batch takes all.
        trained = Trained(dataset=data(70))
        model, losses = by_hand(trained, samples=70)
        self.close_to(trained.model.state_dict(), model.state_dict(), 1e-5)
        torch.testing.assert_close(trained.losses, losses, rtol=1e-6, atol=1e-6)

    def test_interruptions_change_no_bit(self):
        def schedule(optimizer):
            return torch.optim.lr_scheduler.StepLR(optimizer, 2)

        expected = Trained(noisy_net, scheduler=schedule, clip_norm=1.0).state()
        places = collections.Counter()
        for seed in range(6):
            with self.subTest(seed=seed), interruptions(seed) as counts:
                random.seed(seed)  # what the process computed before makes no difference
                torch.manual_seed(seed)
                self.same(Trained(noisy_net, scheduler=schedule, clip_norm=1.0).state(), expected)
                places.update(counts)
        self.assertTrue(all(places.values()), places)

    def test_the_seed_determines_weights_order_and_dropout(self):
        one, same, other = (Trained(noisy_net, seed=seed) for seed in (7, 7, 8))
        self.same(one.state(), same.state())
        self.assertFalse(torch.equal(one.initial[0].weight, other.initial[0].weight))
        self.assertNotEqual(one.losses, other.losses)

    def test_batch_norm_takes_the_mean_over_micro_batches(self):
        trained = Trained(noisy_net, steps=1)
        x, _ = data()
        layer, first = copy.deepcopy(trained.initial)[1], trained.initial[0]
        means, variances = [], []
        for v in range(4):
            layer.load_state_dict(trained.initial[1].state_dict())
            layer(first(x[_native.samples(7, SAMPLES, 32, 4, 0, v)]))
            means.append(layer.running_mean)
            variances.append(layer.running_var)
            means[-1], variances[-1] = means[-1].clone(), variances[-1].clone()
        torch.testing.assert_close(trained.model[1].running_mean, torch.stack(means).mean(0))
        torch.testing.assert_close(trained.model[1].running_var, torch.stack(variances).mean(0))
        self.assertEqual(trained.model[1].num_batches_tracked, 1)
        self.assertEqual(Trained(noisy_net, steps=5).model[1].num_batches_tracked, 5)

    def test_buffers_of_the_last_step_of_an_epoch_weigh_samples_equally(self):
        class Mean(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(10, 3)
                self.register_buffer("mean", torch.zeros(10, dtype=torch.float64))

            def forward(self, x):
                self.mean = self.mean + x.mean(0)
                return self.layer(x)

        # 22 samples: micro-batches of 8, 8, 6 and none.
        trained = Trained(Mean, steps=3, dataset=data(22))
        torch.testing.assert_close(trained.model.mean, 3 * data(22)[0].mean(0).double(), rtol=1e-5, atol=1e-5)

    def test_tied_weights_are_one_parameter(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(10, 10, bias=False)
                self.b = nn.Linear(10, 10, bias=False)
                self.b.weight = self.a.weight
                self.out = nn.Linear(10, 3)

            def forward(self, x):
                return self.out(self.b(self.a(x).tanh()))

        trained = Trained(Tied)
        self.assertIs(trained.model.a.weight, trained.model.b.weight)
        model, _ = by_hand(trained)
        self.close_to(trained.model.state_dict(), model.state_dict(), 1e-5)

    def test_frozen_and_unused_parameters_stay(self):
        class Partly(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.frozen, self.unused = nn.Linear(10, 10), nn.Linear(10, 3), nn.Linear(4, 4)
                self.frozen.requires_grad_(False)

            def forward(self, x):
                return self.frozen(self.used(x))

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trained = Trained(Partly)
        names = [str(warning.message) for warning in caught if "gave a gradient" in str(warning.message)]
        self.assertEqual(len(names), 1)
        self.assertIn("model.unused.bias, model.unused.weight", names[0])
        self.assertNotIn("used.weight, model.used", names[0])
        # Weight decay would shrink a parameter whose gradient is zero.
        for layer in ("frozen", "unused"):
            self.same(getattr(trained.model, layer).state_dict(), getattr(trained.initial, layer).state_dict())
        model, _ = by_hand(trained)
        self.close_to(trained.model.state_dict(), model.state_dict(), 1e-5)

    def test_groups_and_two_optimizers(self):
        run = start()
        first, second = nn.Linear(10, 16), nn.Linear(16, 3)
        groups = [{"params": [first.weight], "lr": 0.5}, {"params": [first.bias], "lr": 0.0}]
        before = copy.deepcopy((first, second))
        run.register(first=first, second=second, a=torch.optim.SGD(groups), b=torch.optim.Adam(second.parameters()))
        for step in run.steps(2):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(second(first(x)), y))
            step.commit()
        self.assertTrue(torch.equal(first.bias, before[0].bias))
        self.assertFalse(torch.equal(first.weight, before[0].weight))
        self.assertFalse(torch.equal(second.bias, before[1].bias))
        run.close()

    def test_gradients_can_be_changed_between_reduce_and_commit(self):
        run = start()
        model = net()
        before = copy.deepcopy(model)
        run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
        for step in run.steps(1):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model(x), y))
            if step.reduce():
                nn.utils.clip_grad_value_(model.parameters(), 1e-3)
                self.assertTrue(step.commit())
        self.assertLessEqual((model[0].weight - before[0].weight).abs().max().item(), 1.001e-3)
        self.assertFalse(torch.equal(model[0].weight, before[0].weight))
        run.close()

    def test_bfloat16_parameters_and_autocast(self):
        class Cast(nn.Sequential):
            def forward(self, x):
                return super().forward(x.bfloat16()).float()

        trained = Trained(lambda: Cast(*net()).bfloat16())
        self.assertEqual(trained.model[0].weight.dtype, torch.bfloat16)
        self.assertLess(trained.losses[-1], trained.losses[0])

        class Auto(nn.Sequential):
            def forward(self, x):
                with torch.autocast("cpu", torch.bfloat16):
                    return super().forward(x)

        trained = Trained(lambda: Auto(*net()))
        self.assertEqual(trained.model[0].weight.dtype, torch.float32)
        self.assertLess(trained.losses[-1], trained.losses[0])

    def test_memory_of_a_gradient_is_kept_only_where_it_is_the_gradient(self):
        model = nn.Sequential(nn.Unflatten(1, (2, 5, 1)), nn.Conv2d(2, 4, (3, 1)), nn.Flatten(), nn.Linear(12, 3))
        model[1].to(memory_format=torch.channels_last)
        model.append(nn.Linear(3, 3).bfloat16())
        run = start()
        self.addCleanup(run.close)
        run.register(model=model)
        memory = set()
        for step in run.steps(2):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model[:4](x) + model[4](x[:, :3].bfloat16()), y))
            if step.reduce():
                for name, parameter, held in zip(run._names, run._parameters, run._gradients):
                    self.assertEqual((parameter.grad.dtype, parameter.grad.stride()), (parameter.dtype, parameter.stride()))
                    if parameter.dtype == torch.float32 and parameter.is_contiguous():
                        self.assertEqual(held.data_ptr(), parameter.grad.data_ptr(), name)
                        memory.add(held.data_ptr())
                    else:
                        self.assertIsNone(held, name)
                step.commit()
        self.assertEqual(len(memory), 3, "of the bias of the convolution and of the linear layer, the same in both steps")

    def test_a_constant_scale_changes_only_small_gradients(self):
        def train(scale):
            run = start()
            model = net()
            run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
            for step in run.steps(3):
                for x, y in step.micro_batches(data()):
                    step.backward(cross_entropy(model(x), y), scale=scale)
                step.commit()
            run.close()
            return model.state_dict()

        self.same(train(1024.0), train(1.0))  # a power of two is exact in float32

    def test_fast_numerics_equal_a_loop_by_hand(self):
        for options in ({}, {"micro_batches": 1}, {"micro_batches": 16}):
            fast = Trained(numerics="fast", **options)
            exact = Trained(**options)
            self.assertEqual(fast.attempts, 6)
            self.close_to(fast.state(), exact.state())
        model, losses = by_hand(fast := Trained(numerics="fast", clip_norm=0.05), clip_norm=0.05)
        self.close_to(fast.model.state_dict(), model.state_dict())
        self.assertEqual([round(loss, 5) for loss in fast.losses], [round(loss, 5) for loss in losses])

    def test_fast_numerics_with_what_programs_do(self):
        """zero_grad() in a micro-batch, another scale, layers that only some micro-batches use, parameters of 16 bits."""
        class Parts(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second, self.bits16 = nn.Linear(10, 3), nn.Linear(10, 3), nn.Linear(10, 3, dtype=torch.bfloat16)

            def forward(self, x, v):
                out = self.bits16(x.to(torch.bfloat16)).float()
                return out + (self.first if v == 0 else self.second)(x)

        results = []
        for numerics in ("fast", "exact"):
            run = start(numerics=numerics)
            model = Parts()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            run.register(model=model, optimizer=optimizer)
            for step in run.steps(3):
                for x, y in step.micro_batches(data()):
                    optimizer.zero_grad()
                    v = step.micro_batch
                    step.backward(cross_entropy(model(x, v), y), scale=2.0**v)
                    optimizer.zero_grad()
                step.commit()
            run.close()
            results.append({name: value.float() for name, value in model.state_dict().items()})
        self.close_to(*results, tolerance=1e-5)
        # Its last micro-batches have no samples.
        short = [Trained(numerics=numerics, dataset=data(33), micro_batches=32, samples_per_step=32) for numerics in ("fast", "exact")]
        self.close_to(short[0].state(), short[1].state())

    def test_gradient_checkpointing(self):
        from torch.utils.checkpoint import checkpoint

        class Checkpointed(nn.Module):
            def __init__(self, reentrant):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(10, 10) for _ in range(2)])
                self.out = nn.Linear(10, 3)
                self.reentrant = reentrant

            def block(self, x):
                for layer in self.layers:
                    x = torch.dropout(layer(x), 0.1, self.training).tanh()
                return x

            def forward(self, x):
                x = x.clone().requires_grad_()
                for _ in range(2):  # with use_reentrant, each gradient arrives in two parts
                    x = self.block(x) if self.reentrant is None else checkpoint(self.block, x, use_reentrant=self.reentrant)
                return self.out(x)

        plain, new, old = (Trained(lambda: Checkpointed(kind)).state() for kind in (None, False, True))
        self.same(new, plain)
        self.close_to(old, plain, 1e-5)

    def test_a_channels_last_model(self):
        def build():
            layers = nn.Sequential(nn.Unflatten(1, (2, 5, 1)), nn.Conv2d(2, 4, (3, 1)), nn.Flatten(), nn.Linear(12, 3))
            return layers.to(memory_format=torch.channels_last)

        trained = Trained(build)
        self.assertFalse(trained.model[1].weight.is_contiguous())
        model, _ = by_hand(trained)
        self.close_to(trained.model.state_dict(), model.state_dict(), 1e-5)

    def test_python_and_numpy_random_numbers_are_of_the_micro_batch(self):
        import numpy

        def train(seed):
            drawn = []
            run = start()
            model = net()
            run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
            with interruptions(seed, 0.1):
                for step in run.steps(3):
                    for x, y in step.micro_batches(data()):
                        numbers = (random.random(), float(numpy.random.rand()), torch.rand(()).item(), step.random_seed)
                        drawn.append((step.number, step.micro_batch, *numbers))
                        step.backward(cross_entropy(model(x), y))
                    random.seed(len(drawn) + step.attempt)  # as if this worker had computed other micro-batches
                    torch.manual_seed(len(drawn) + step.attempt)
                    if step.commit():
                        drawn.append((step.number, -1, random.random(), float(numpy.random.rand()), torch.rand(()).item()))
            run.close()
            return set(drawn)

        drawn = train(1)
        self.assertEqual(drawn, train(2))
        self.assertEqual(len(drawn), 3 * 5)
        self.assertEqual(len({numbers[2:] for numbers in drawn}), 3 * 5)

    def test_an_average_of_the_weights_is_state(self):
        from torch.optim.swa_utils import AveragedModel

        run = start()
        model = net()
        average = AveragedModel(model)
        run.register(model=model, optimizer=adamw(model), average=average)
        for step in run.steps(3):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model(x), y))
            if step.commit():
                average.update_parameters(model)
        self.assertEqual(average.n_averaged, 3)
        run.close()

    def test_compiled_models(self):
        trained = []
        for backend in ("eager", None):
            run = start()
            model = noisy_net()
            compiled = torch.compile(model, backend=backend) if backend else model
            run.register(model=compiled, optimizer=adamw(model))
            for step in run.steps(3):
                for x, y in step.micro_batches(data()):
                    step.backward(cross_entropy(compiled(x), y))
                step.commit()
            run.close()
            trained.append(model.state_dict())
        self.same(*trained)

    def test_without_the_agent_nothing_is_kept_alive(self):
        trained = Trained()
        gc.collect()
        self.assertFalse(trained.model[0].weight._post_accumulate_grad_hooks)


class EarlyEnd(Case):
    """run.finish(), which ends a run before its last step."""

    STEPS = 6

    def train(self, finish=None, leave=False, folder="", steps=STEPS):
        """Finishes after the step `finish`, and leaves the loop at once if `leave`. Returns the steps of this process and the state."""
        run = start(checkpoint_folder=folder)
        self.addCleanup(run.close)
        model = noisy_net()
        optimizer = adamw(model)
        run.register(model=model, optimizer=optimizer)
        seen = []
        for step in run.steps(steps):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model(x), y))
            if not step.commit():
                self.fails("before a step was committed", run.finish)
                continue
            seen.append(step.number)
            if step.number == finish:
                run.finish()
                if leave:
                    break
        moments = {(i, name): value.tolist() for i, of in optimizer.state_dict()["state"].items() for name, value in of.items()}
        state = {**{name: value.tolist() for name, value in model.state_dict().items()}, **moments}
        run.close()
        return seen, state

    def test_has_the_state_of_a_run_of_so_many_steps(self):
        for last in (0, 2, self.STEPS - 1):
            seen, state = self.train(steps=last + 1)
            self.assertEqual(seen, list(range(last + 1)))
            for leave in (False, True):
                with self.subTest(last=last, leave=leave):
                    self.assertEqual(self.train(finish=last, leave=leave), (seen, state))

    def test_is_part_of_a_checkpoint(self):
        for leave in (False, True):
            with self.subTest(leave=leave):
                folder = self.folder()
                seen, state = self.train(finish=3, leave=leave, folder=folder)
                self.assertEqual(seen, [0, 1, 2, 3])
                self.assertEqual(self.train(finish=3, folder=folder), ([], state))
                self.assertEqual(self.train(folder=folder), ([], state), "though this program would go on")

    def test_comes_after_interruptions(self):
        expected = self.train(finish=3)
        places = collections.Counter()
        for seed in range(6):
            with self.subTest(seed=seed), interruptions(seed) as counts:
                self.assertEqual(self.train(finish=3), expected)
                places.update(counts)
        self.assertGreater(sum(places.values()), 20)

    def test_needs_a_committed_step(self):
        run = start()
        self.addCleanup(run.close)
        model = net()
        run.register(model=model, optimizer=adamw(model))
        self.fails("run.finish() was called before a step was committed", run.finish)
        for step in run.steps(1):
            self.fails("run.finish() was called before a step was committed", run.finish)
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model(x), y))
                self.fails("run.finish() was called before a step was committed", run.finish)
            step.commit()


class LargeBuffers(Case):
    class Counting(nn.Module):
        def __init__(self, change):
            super().__init__()
            self.layer = nn.Linear(10, 3)
            self.register_buffer("large", torch.zeros(70_000))
            self.register_buffer("mask", torch.ones(70_000), persistent=False)
            self.change = change

        def forward(self, x):
            self.change(self, x)
            return self.layer(x)

    def train(self, change, running=()):
        run = start()
        model = self.Counting(change)
        run.register(model=model, optimizer=adamw(model), running=running)
        for step in run.steps(2):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model(x), y))
            step.commit()
        run.close()
        return model

    def test_are_constants_unless_named(self):
        def add(model, x):
            model.large += x.mean().detach()

        def assign(model, x):
            model.large = model.large + x.mean().detach()

        for change in (add, assign):
            self.fails('buffers={"model.large": "mean"}', self.train, change)
            means = [data()[0][_native.samples(7, SAMPLES, 32, 4, step, v)].mean() for step in range(2) for v in range(4)]
            large = self.train(change, ["model.large"]).large
            self.assertFalse(large.requires_grad)
            torch.testing.assert_close(large[0], torch.stack(means).sum() / 4)
        self.fails("names no buffer of a registered model: model.lage", self.train, add, ["model.lage"])


class SignOfZero(Case):
    def test_is_that_of_before_after_a_micro_batch(self):
        """Only a worker that computes such a micro-batch would have it, and its state would have another hash."""
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            buffers = Buffers(2)
            module = nn.Module()
            module.register_buffer("last", torch.zeros(3, dtype=dtype))
            buffers.register("model", module, set(), 0)
            buffers.begin_step()
            module.last.fill_(-0.0)
            buffers.take_changes(1.0, lambda tensor, values: self.fail("a change of nothing"))
            buffers.restore()
            self.assertEqual(torch.signbit(module.last).tolist(), [False] * 3)


class IntegerBuffers(Case):
    class Counting(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.layer = nn.Linear(10, 3)
            self.register_buffer("count", torch.zeros(2, dtype=torch.int64))
            self.register_buffer("seen", torch.tensor(False))
            self.counting = count

        def forward(self, x):
            self.count += self.counting(x)
            self.seen.fill_(True)
            return self.layer(x)

    def train(self, count):
        run = start()
        model = self.Counting(count)
        run.register(model=model, optimizer=adamw(model))
        for step in run.steps(3):
            for x, y in step.micro_batches(data()):
                step.backward(cross_entropy(model(x), y))
            step.commit()
        run.close()
        return model

    def test_change_by_what_a_micro_batch_changes(self):
        model = self.train(lambda x: torch.tensor([1, 1000]))
        self.assertEqual(model.count.tolist(), [3, 3000])
        self.assertTrue(model.seen)

    def test_that_change_unequally_on_two_workers_are_refused(self):
        buffers = Buffers(2)
        module = self.Counting(None)
        buffers.register("model", module, set(), 0)
        for mean, after in ((0.999, 1), (0.5, None), (1.4, None)):
            buffers.begin_step()
            call = functools.partial(buffers.finish_step, lambda tensor: torch.full((2 - tensor,), mean if tensor == 0 else 0.0))
            if after is None:
                self.fails("model.count did not change equally", call)
            else:
                call()
                self.assertEqual(module.count.tolist(), [after, after])

    def test_of_which_one_micro_batch_differs_on_another_worker_are_refused(self):
        """The mean of eight changes is near an integer then."""
        for count, odd, refused in ((1, 1, False), (1, 2, True), (1000, 1001, True)):
            buffers = Buffers(8)
            module = self.Counting(None)
            buffers.register("model", module, set(), 0)
            buffers.begin_step()
            mean = torch.tensor([7 * count + odd, 8 * count]) / 8
            call = functools.partial(buffers.finish_step, lambda tensor: mean if tensor == 0 else torch.zeros(1))
            if refused:
                self.fails("model.count did not change equally", call)
            else:
                call()

    def test_that_change_unequally_on_one_worker_are_refused(self):
        """Also by -1 and -2, which have the same hash in Python."""
        buffers = Buffers(8)
        module = self.Counting(None)
        buffers.register("model", module, set(), 0)
        buffers.begin_step()
        module.count -= 1
        buffers.take_changes(1.0, lambda tensor, values: None)
        buffers.restore()
        module.count -= 2
        self.fails("model.count did not change equally", buffers.take_changes, 1.0, lambda tensor, values: None)

    def test_that_change_unequally_are_refused(self):
        self.fails("model.count did not change equally", self.train, lambda x: (x > 0).sum())
        self.fails("model.count changed by 1000000000", self.train, lambda x: 10**9)


class Mistakes(Case):
    def setUp(self):
        self.run_ = start()
        self.addCleanup(self.run_.close)
        self.model = net()
        self.optimizer = adamw(self.model)

    def loop(self, body, commit=True, **objects):
        self.run_.register(**(objects or {"model": self.model, "optimizer": self.optimizer}))
        for step in self.run_.steps(2):
            for x, y in step.micro_batches(data()):
                body(step, x, y)
            if commit:
                step.commit()

    def loss(self, x, y):
        return cross_entropy(self.model(x), y)

    def test_settings(self):
        self.fails("micro_batches is 0", rm.init, micro_batches=0)
        self.fails("use 36", rm.init, micro_batches=12, samples_per_step=32)
        self.fails("seed is -1", rm.init, micro_batches=1, seed=-1)
        self.fails("exact, exact64, fast", rm.init, micro_batches=1, numerics="precise")
        self.fails("threads is 0", rm.init, micro_batches=1, threads=0)

    def test_register(self):
        register = self.run_.register
        self.fails("model.float()", register, model=net().double())
        self.fails("weight is torch.complex64", register, model=nn.Linear(2, 2, dtype=torch.complex64))
        self.fails("meta device", register, model=nn.Linear(2, 2, device="meta"))
        self.fails("has no shape yet", register, model=nn.LazyLinear(2))
        self.fails("LBFGS", register, optimizer=torch.optim.LBFGS(self.model.parameters()))
        self.fails("no state_dict() and load_state_dict()", register, thing=3)
        register(model=self.model)
        self.fails("model is registered already", register, model=self.model)

    def test_an_optimizer_of_another_model(self):
        self.fails("no registered model has", self.loop, None, model=net(), optimizer=self.optimizer)

    def test_nothing_to_train(self):
        self.fails("nothing to train", self.loop, None, model=net().requires_grad_(False))

    def test_no_backward(self):
        self.fails("did not call step.backward(loss)", self.loop, lambda step, x, y: self.loss(x, y))

    def test_backward_of_the_loss_itself(self):
        self.fails("call step.backward(loss) instead", self.loop, lambda step, x, y: self.loss(x, y).backward())

    def test_a_loss_that_is_none(self):
        self.fails("got float", self.loop, lambda step, x, y: step.backward(1.0))

    def test_a_loss_of_another_shape(self):
        self.fails("got shape (8, 3)", self.loop, lambda step, x, y: step.backward(self.model(x)))

    def test_a_loss_without_a_gradient(self):
        self.fails("requires_grad False", self.loop, lambda step, x, y: step.backward(self.loss(x, y).detach()))

    def test_no_commit(self):
        self.fails("end the loop with step.commit()", self.loop, lambda step, x, y: step.backward(self.loss(x, y)), commit=False)

    def test_a_break(self):
        self.run_.register(model=self.model, optimizer=self.optimizer)
        for step in self.run_.steps(2):
            self.fails("micro-batches were not computed", step.commit)
            for x, y in step.micro_batches(data()):
                step.backward(self.loss(x, y))
                self.fails("commit after the loop", step.commit)
                break
            self.fails("no break", step.commit)
            self.fails("iterated twice", lambda: list(step.micro_batches(data())))
            break

    def test_the_optimizer_in_a_micro_batch(self):
        def body(step, x, y):
            step.backward(self.loss(x, y))
            for parameter in self.model.parameters():
                parameter.grad = torch.ones_like(parameter)
            self.optimizer.step()

        self.fails("changed in micro-batch 0: parameters change in step.commit() only", self.loop, body)

    def test_sparse_gradients(self):
        model = nn.EmbeddingBag(10, 3, sparse=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def body(step, x, y):
            step.backward(cross_entropy(model(torch.zeros(len(y), 1, dtype=torch.int64)), y))

        self.fails("sparse=False", self.loop, body, model=model, optimizer=optimizer)

    def test_a_parameter_that_is_unfrozen(self):
        self.model[0].requires_grad_(False)

        def body(step, x, y):
            step.backward(self.loss(x, y))
            self.model[0].requires_grad_(True)

        self.fails("model.0.bias was frozen", self.loop, body)

    def test_clip_norm(self):
        self.run_.register(model=self.model, optimizer=self.optimizer)
        for step in self.run_.steps(1):
            for x, y in step.micro_batches(data()):
                step.backward(self.loss(x, y))
            self.fails("greater than 0", step.commit, clip_norm=0.0)
            break

    def test_late_calls(self):
        def body(step, x, y):
            step.backward(self.loss(x, y))
            self.fails("register everything before", self.run_.register, late={})
            self.fails("call it before, in the same step", self.run_.audit, lambda: None)
            self.fails("one loop over its steps", lambda: next(self.run_.steps(1)))

        self.loop(body)

    def test_a_gradient_that_is_not_finite_ends_the_process(self):
        def body(step, x, y):
            step.backward(self.loss(x, y) * float("inf"))

        printed = io.StringIO()
        with redirect_stderr(printed), self.assertRaises(rm.Failed) as caught:
            self.loop(body)
        self.assertEqual(caught.exception.code, 64)
        self.assertIn("is not finite", printed.getvalue())
        self.assertIsInstance(caught.exception, SystemExit)


class MemoryOfSums(Case):
    """Where gradients are summed, by the devices of the parameters. No machine here has a GPU, so these only name one."""

    def choose(self, *devices, plugin=__file__, current=0):
        parameters = {f"p{i}": types.SimpleNamespace(device=torch.device(name)) for i, name in enumerate(devices)}
        with (
            mock.patch.object(_native, "plugin", lambda: pathlib.Path(plugin)),
            mock.patch.object(torch.cuda, "current_device", lambda: current),
        ):
            return _tensors.memory_of_sums(parameters)

    def test_is_that_of_the_parameters(self):
        self.assertEqual(self.choose("cpu", "cpu"), torch.device("cpu"))
        self.assertEqual(self.choose("cuda:0", "cuda:0"), torch.device("cuda:0"))
        self.assertEqual(self.choose("cuda:1", current=1), torch.device("cuda:1"))

    def test_is_the_cpu_for_several_gpus_and_other_devices(self):
        self.assertEqual(self.choose("cuda:0", "cuda:1"), torch.device("cpu"))
        self.assertEqual(self.choose("mps"), torch.device("cpu"))

    def test_plugin_is_next_to_the_library(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("RINGMASTER_DEVICE_PLUGIN", None)
            library = pathlib.Path(_native.library()._name).resolve()
            self.assertEqual(_native.plugin(), library.parent / "libringmaster_cuda.so")
            os.environ["RINGMASTER_DEVICE_PLUGIN"] = "/elsewhere/x.so"
            self.assertEqual(_native.plugin(), pathlib.Path("/elsewhere/x.so"))

    def test_is_the_cpu_without_the_plugin(self):
        with self.assertWarnsRegex(UserWarning, "/nowhere/x.so does not exist, so gradients are copied to the CPU"):
            self.assertEqual(self.choose("cuda:0", plugin="/nowhere/x.so"), torch.device("cpu"))

    def test_cannot_be_of_two_kinds(self):
        self.fails("p1 is on cuda:0, and p0 on the CPU", self.choose, "cpu", "cuda:0")

    def test_is_of_the_current_device(self):
        self.fails("call torch.cuda.set_device(1) before run.steps(...)", self.choose, "cuda:1")


if __name__ == "__main__":
    unittest.main()
