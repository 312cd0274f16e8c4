# SPDX-License-Identifier: Apache-2.0
"""Weights of micro-batches, epochs and their schedulers, and datasets whose last step is dropped, with one worker."""

import copy
import unittest
import warnings

from training import Case, interruptions, program

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import lr_scheduler

import ringmaster.torch as rm
from ringmaster.torch import _schedulers

SAMPLES, CONTEXT, WORDS = 46, 6, 11  # with steps of 8, the last one of an epoch has 6


def texts():
    """Tokens, shape (SAMPLES, CONTEXT), and labels: -100 where a sample has ended. Every fifth sample has no label."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(WORDS, (SAMPLES, CONTEXT), generator=generator)
    lengths = torch.randint(1, CONTEXT + 1, (SAMPLES, 1), generator=generator)
    lengths[::5] = 0
    return tokens, torch.where(torch.arange(CONTEXT) < lengths, (tokens * 3 + 1) % WORDS, -100)


def net():
    return nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, WORDS))


def loss_of(model, tokens, labels, reduction="mean"):
    return cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction=reduction)


class Trained:
    """A finished run whose steps are means over labels. A micro-batch has one sample."""

    def __init__(self, steps=12, scale=1.0, scaler=None, **options):
        run = rm.init(**{"micro_batches": 8, "samples_per_step": 8, "seed": 3, **options})
        self.model = net()
        self.initial = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.9)
        run.register(model=self.model, optimizer=optimizer, **({"scaler": scaler} if scaler else {}))
        self.samples, self.losses, self.weights, self.norms = [], [], [], []
        for step in run.steps(steps):
            samples = []
            for tokens, labels in step.micro_batches(texts()):
                samples += step.samples
                named = {} if scaler else {"scale": scale}
                step.backward(loss_of(self.model, tokens, labels), weight=(labels != -100).sum(), **named)
            if step.commit():
                self.samples.append(samples)
                self.losses.append(step.loss)
                self.weights.append(step.weight)
                self.norms.append(step.gradient_norm)
        run.close()


class Weights(Case):
    def test_equal_a_loop_over_whole_steps(self):
        for options in ({}, {"numerics": "exact64"}, {"numerics": "fast"}):
            with self.subTest(**options):
                trained = Trained(**options)
                tokens, labels = texts()
                model = copy.deepcopy(trained.initial)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
                for step, samples in enumerate(trained.samples):
                    loss = loss_of(model, tokens[samples], labels[samples])
                    optimizer.zero_grad()
                    loss.backward()
                    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
                    optimizer.step()
                    self.assertAlmostEqual(trained.losses[step], loss.item(), places=5)
                    self.assertAlmostEqual(trained.norms[step], norm.item(), places=5)
                    self.assertEqual(trained.weights[step], (labels[samples] != -100).sum())
                for one, other in zip(trained.model.parameters(), model.parameters()):
                    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

    def test_interruptions_change_no_bit(self):
        expected = Trained()
        for seed in range(3):
            with interruptions(seed) as counts:
                trained = Trained()
            self.assertTrue(any(counts.values()))
            self.assertEqual((trained.losses, trained.weights), (expected.losses, expected.weights))
            for one, other in zip(trained.model.parameters(), expected.model.parameters()):
                self.assertTrue(torch.equal(one, other))

    def test_a_scale_changes_no_bit(self):
        expected = Trained()
        for options in ({"scale": 1024.0}, {"scaler": torch.amp.GradScaler("cpu", init_scale=1024.0)}):
            trained = Trained(**options)
            for one, other in zip(trained.model.parameters(), expected.model.parameters()):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)

    def loop(self, weight, steps=2, **objects):
        run = rm.init(micro_batches=2, samples_per_step=4, seed=1)
        self.addCleanup(run.close)
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
        run.register(model=model, optimizer=optimizer, **{name: build(optimizer) for name, build in objects.items()})
        before, committed = copy.deepcopy(model.state_dict()), []
        for step in run.steps(steps):
            for tokens, labels in step.micro_batches(texts()):
                step.backward(loss_of(model, tokens, tokens), weight=weight(step))
            if step.commit():
                committed.append(step)
        return before, model, optimizer, committed

    def test_a_step_without_weight_changes_nothing(self):
        schedule = lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda steps: 1 / (1 + steps))  # noqa: E731
        before, model, optimizer, steps = self.loop(lambda step: 0, scheduler=schedule)
        self.assertEqual([(step.loss, step.weight, step.skipped) for step in steps], [(0, 0, True)] * 2)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.1)

    def test_that_are_none_are_refused(self):
        for weight in (-1, float("nan"), float("inf")):
            self.fails("it is finite and at least 0", self.loop, lambda step: weight)

    def test_in_some_micro_batches_only(self):
        with self.assertRaises(rm.Failed) as caught:
            self.loop(lambda step: 3 if step.micro_batch == 0 else None)
        self.assertIn("some micro-batches have a weight and some do not", caught.exception.message)


class Epochs(Case):
    def steps(self, schedule=None, steps=12, build=None, **options):
        run = rm.init(micro_batches=4, samples_per_step=8, seed=1, **options)
        self.addCleanup(run.close)
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        run.register(model=model, optimizer=optimizer, scheduler=build(optimizer) if build else lr_scheduler.StepLR(optimizer, 1, 0.5))
        seen = []
        for step in run.steps(steps):
            samples = []
            for tokens, _ in step.micro_batches(texts()):
                samples += step.samples
                step.backward(loss_of(model, tokens, tokens))
            named = {} if schedule is None else {"schedule": schedule(step)}
            if step.commit(**named):
                seen.append((step.epoch, step.ends_epoch, samples))
        self.rate = optimizer.param_groups[0]["lr"]
        return run, seen

    def test_a_scheduler_that_counts_epochs(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run, seen = self.steps(lambda step: step.ends_epoch)
        self.assertEqual(run.steps_per_epoch(SAMPLES), 6)
        self.assertEqual([epoch for epoch, _, _ in seen], [0] * 6 + [1] * 6)
        self.assertEqual([end for _, end, _ in seen], ([False] * 5 + [True]) * 2)
        self.assertEqual(self.rate, 0.25)
        self.assertEqual(sorted(sum((samples for _, _, samples in seen[:6]), [])), list(range(SAMPLES)))

    def test_without_the_last_step(self):
        run, seen = self.steps(lambda step: step.ends_epoch, steps=10, drop_last=True)
        self.assertEqual(run.steps_per_epoch(SAMPLES), 5)
        self.assertEqual([end for _, end, _ in seen], ([False] * 4 + [True]) * 2)
        self.assertTrue(all(len(samples) == 8 for _, _, samples in seen))
        epochs = [set(sum((samples for _, _, samples in seen[begin : begin + 5]), [])) for begin in (0, 5)]
        self.assertEqual([len(epoch) for epoch in epochs], [40, 40])
        self.assertNotEqual(*epochs)
        self.fails("none is left", run.steps_per_epoch, 7)

    def test_the_last_micro_batch_is_the_last_one_with_samples(self):
        for drop_last in (False, True):
            run, _ = self.steps(lambda step: step.ends_epoch, steps=1, drop_last=drop_last)
            for step in range(12):
                filled = [v for v in range(4) if run._samples(step, v, SAMPLES)[0]]
                self.assertEqual(run._last_micro_batch(step, SAMPLES), filled[-1], (drop_last, step))

    def test_a_scheduler_that_looks_like_one_of_epochs_is_named(self):
        with self.assertWarnsRegex(UserWarning, r"scheduler\.step\(\) after each step, and in 40 steps the learning rate falls"):
            self.steps(steps=40)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.steps(lambda step: True, steps=40)
            self.steps(steps=40, build=lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 40))

    def test_which_schedulers_look_like_it(self):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        of_epochs = [
            lr_scheduler.StepLR(optimizer, 30, 0.1), lr_scheduler.ExponentialLR(optimizer, 0.95),
            lr_scheduler.MultiStepLR(optimizer, [30, 60, 80]), lr_scheduler.CosineAnnealingLR(optimizer, 90),
            lr_scheduler.PolynomialLR(optimizer, 90),
            lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(optimizer, 30, 0.1)]),
            lr_scheduler.SequentialLR(
                optimizer, [lr_scheduler.LinearLR(optimizer, 0.1, 1, 5), lr_scheduler.CosineAnnealingLR(optimizer, 85)], [5]
            ),
        ]  # fmt: skip
        of_steps = [
            lr_scheduler.StepLR(optimizer, 30000, 0.1), lr_scheduler.ExponentialLR(optimizer, 0.9999),
            lr_scheduler.MultiStepLR(optimizer, [30000, 60000]), lr_scheduler.CosineAnnealingLR(optimizer, 90000),
            lr_scheduler.PolynomialLR(optimizer, 90000), lr_scheduler.LinearLR(optimizer, 0.1, 1, 100),
            lr_scheduler.LambdaLR(optimizer, lambda step: 1.0), lr_scheduler.OneCycleLR(optimizer, 1.0, 90000),
            lr_scheduler.SequentialLR(
                optimizer, [lr_scheduler.LinearLR(optimizer, 0.1, 1, 500), lr_scheduler.CosineAnnealingLR(optimizer, 89500)], [500]
            ),
        ]  # fmt: skip
        for scheduler in of_epochs:
            self.assertIsNotNone(_schedulers.counts_epochs(scheduler, 90000), type(scheduler).__name__)
        for scheduler in of_steps:
            self.assertIsNone(_schedulers.counts_epochs(scheduler, 90000), type(scheduler).__name__)

    def test_the_epoch_is_unknown_before_the_data_is(self):
        run = rm.init(micro_batches=2, samples_per_step=4, seed=1)
        self.addCleanup(run.close)
        model = net()
        run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
        step = next(iter(run.steps(1)))
        self.fails("the epoch is unknown", lambda: step.epoch)


class OneSample(Case):
    def test_a_batch_norm_names_the_remedy(self):
        text = """
import torch, ringmaster.torch as rm
run = rm.init(micro_batches=2, samples_per_step=4, seed=1)
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
run.register(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
for step in run.steps(4):
    for x in step.micro_batches(torch.zeros(5, 3)):
        step.backward(model(x).sum())
    step.commit()
"""
        ended = program(text)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("ringmaster: a batch normalization needs more than one value per channel", ended.stderr)
        self.assertIn("drop_last=True", ended.stderr)
        self.assertEqual(program(text.replace("seed=1", "seed=1, drop_last=True")).returncode, 0)


if __name__ == "__main__":
    unittest.main()
