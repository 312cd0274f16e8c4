# SPDX-License-Identifier: Apache-2.0
"""A GradScaler with ringmaster.torch in a world of one worker: the same scales as PyTorch's own loop, and no bit by interruptions."""

import math
import unittest

from training import Case, interruptions

import torch
from torch import nn

import ringmaster.torch as rm

STEPS = 9
HALF = 65504.0  # the largest number of float16


class Gradient(torch.autograd.Function):
    """Passes its input on, and gradients as float16, in which large ones become infinity."""

    @staticmethod
    def forward(_context, value):
        return value.clone()

    @staticmethod
    def backward(_context, gradient):
        return gradient.half().float()


class Net(nn.Module):
    """The gradient of `first` is in float16 on its way. `second` does not notice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.tensor([1.0, -2.0]))
        self.second = nn.Parameter(torch.tensor([0.5]))

    def forward(self, x):
        return (Gradient.apply(self.first) * x).sum() + self.second.sum()


def batch(_step, v):
    """Values of which those of micro-batch 2 are the largest."""
    return torch.tensor([1.0, 4.0 if v == 2 else 2.0])


def scaler(**options):
    return torch.amp.GradScaler("cpu", **{"init_scale": 2.0**16, "growth_interval": 2, **options})


class Trained:
    def __init__(self, steps=STEPS, scale=None, data=batch, commit=None, **options):
        self.model, self.scaler = Net(), scale or scaler()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=2.0**-4, momentum=0.5)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, gamma=0.5)
        run = rm.init(micro_batches=4, seed=7, **options)
        run.register(model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, scaler=self.scaler)
        self.scales, self.skipped, self.norms, self.losses = [], [], [], []
        for step in run.steps(steps):
            scale = self.scaler.get_scale()
            for x in step.micro_batches(data):
                step.backward(self.model(x))
            if (commit or type(step).commit)(step):
                self.scales.append(scale)
                self.skipped.append(step.skipped)
                self.norms.append(step.gradient_norm)
                self.losses.append(step.loss)
        run.close()

    def state(self):
        return [*self.model.state_dict().values(), torch.tensor(self.scales), torch.tensor(self.skipped)]


def by_hand():
    """Returns the weights and scales of PyTorch's own loop, with whole steps as batches."""
    model, scale = Net(), scaler()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-4, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    scales = []
    for step in range(STEPS):
        scales.append(scale.get_scale())
        optimizer.zero_grad()
        for v in range(4):
            scale.scale(model(batch(step, v)) / 4).backward()
        before = model.second.item()
        scale.step(optimizer)
        scale.update()
        if model.second.item() != before:
            scheduler.step()
    return model, scales


class GradScaling(Case):
    def same(self, one, other):
        for a, b in zip(one, other, strict=True):
            self.assertTrue(torch.equal(a, b), f"{a} is not {b}")

    def test_scales_and_weights_are_those_of_pytorch(self):
        trained = Trained()
        model, scales = by_hand()
        # A quarter of 4.0 is the largest gradient by hand, and 4.0 that of a micro-batch: so the scale starts a quarter lower.
        self.assertEqual(trained.scales[:4], [2.0**16, 2.0**15, 2.0**14, 2.0**13])
        self.assertEqual(trained.skipped[:4], [True, True, True, False])
        quarter = Trained(scale=scaler(init_scale=2.0**14))
        self.assertEqual([4 * scale for scale in quarter.scales], scales)
        self.assertIn(True, quarter.skipped[2:], "the scale grows until a gradient is not finite again")
        self.same(quarter.model.state_dict().values(), model.state_dict().values())

    def test_a_skipped_step_changes_only_the_scale(self):
        trained = Trained(steps=1)
        self.assertEqual(trained.skipped, [True])
        self.same(trained.model.state_dict().values(), Net().state_dict().values())
        self.assertEqual((trained.scheduler.last_epoch, dict(trained.optimizer.state)), (0, {}))
        self.assertEqual(trained.norms, [1.0], "of the parameter whose gradient is finite")

    def test_a_forward_pass_that_overflows_is_skipped(self):
        """As with PyTorch, and interruptions change nothing."""

        def data(step, v):
            return torch.tensor([math.inf, 1.0]) if step == 2 and v == 1 else torch.tensor([1.0, 1.0])

        trained = Trained(steps=4, scale=scaler(init_scale=1.0), data=data)
        self.assertEqual(trained.skipped, [False, False, True, False])
        self.assertEqual(trained.scales, [1.0, 1.0, 2.0, 1.0])
        self.assertTrue(all(map(math.isfinite, trained.losses)), trained.losses)
        for seed in range(3):
            with self.subTest(seed=seed), interruptions(seed):
                self.same(Trained(steps=4, scale=scaler(init_scale=1.0), data=data).state(), trained.state())

    def test_gradients_are_unscaled(self):
        gradients = []

        def commit(step):
            if not step.reduce():
                return False
            gradients.append([parameter.grad.clone() for parameter in step._run._objects["model"].parameters()])
            return step.commit(clip_norm=1.0)

        trained = Trained(steps=2, scale=scaler(init_scale=2.0**10), commit=commit)
        self.assertEqual(trained.skipped, [False, False])
        self.same(gradients[0], [torch.tensor([1.0, 2.5]), torch.tensor([1.0])])
        self.assertAlmostEqual(trained.norms[0], math.sqrt(1 + 2.5**2 + 1))

    def test_interruptions_change_no_bit(self):
        expected = Trained().state()
        for numerics in ("exact", "exact64"):
            for seed in range(4):
                with self.subTest(seed=seed, numerics=numerics), interruptions(seed) as counts:
                    self.same(Trained(numerics=numerics).state(), expected)
                    self.assertTrue(any(counts.values()))

    def test_the_scale_is_in_checkpoints(self):
        folder = self.folder()
        expected = Trained(checkpoint_folder="")
        first = Trained(steps=5, checkpoint_folder=folder)
        # What this GradScaler starts with must not matter.
        rest = Trained(scale=scaler(init_scale=2.0**16), checkpoint_folder=folder)
        self.assertEqual(first.scales + rest.scales, expected.scales)
        self.assertEqual(first.skipped + rest.skipped, expected.skipped)
        self.same(rest.model.state_dict().values(), expected.model.state_dict().values())

    def test_one_that_is_not_enabled_does_nothing(self):
        trained = Trained(steps=2, scale=scaler(enabled=False))
        self.assertEqual((trained.scales, trained.skipped), ([1.0, 1.0], [False, False]))

    def test_the_largest_scale_stays(self):
        trained = Trained(steps=3, scale=scaler(init_scale=2.0**127, growth_interval=1), data=lambda step, v: torch.zeros(2))
        self.assertEqual((trained.scales, trained.skipped), ([2.0**127] * 3, [False] * 3))

    def test_mistakes(self):
        for infinity in (HALF * 2.0**30, math.nan):
            self.fails("not finite, whatever the loss is multiplied by", Trained, steps=99, scale=scaler(init_scale=2.0**-20),
                       data=lambda step, v: torch.tensor([infinity, 0.0]))
        run = rm.init(micro_batches=1)
        self.addCleanup(run.close)
        model = Net()
        run.register(model=model, scaler=scaler())
        self.fails("scaler is a GradScaler already", run.register, other=scaler())
        for step in run.steps(1):
            for x in step.micro_batches(batch):
                self.fails("the registered GradScaler chooses the scale", step.backward, model(x), scale=2.0)
                step.backward(model(x))
            step.commit()


if __name__ == "__main__":
    unittest.main()
