# SPDX-License-Identifier: Apache-2.0
"""Training with ringmaster.numpy in a world of one worker: linear regression, whose gradient is known."""

import os
import unittest

from training import Case, interruptions, program

import numpy as np

import ringmaster.numpy as rm
from ringmaster import _native

SIZE = 40
GENERATOR = np.random.default_rng(2)
X = GENERATOR.normal(size=(SIZE, 5)).astype(np.float32)
Y = (X @ GENERATOR.normal(size=(5, 2)) + 1).astype(np.float32)


def zeros():
    return {"layer": {"w": np.zeros((5, 2), np.float32), "b": np.zeros(2, np.float32)}, "scale": np.ones((), np.float32)}


def loss_and_gradients(parameters, x, y):
    """Returns the mean over samples of |scale * (x w + b) - y|^2 / 2 and its gradient. x: (n, 5), y: (n, 2)."""
    w, b, scale = parameters["layer"]["w"], parameters["layer"]["b"], parameters["scale"]
    linear = x @ w + b
    error = (scale * linear - y) / len(x)
    loss = float((error**2).sum() * len(x) / 2)
    return loss, {"layer": {"w": scale * x.T @ error, "b": scale * error.sum(0)}, "scale": (error * linear).sum()}


def walk(tree):
    return {f"{a}.{b}": v for a, rest in tree.items() for b, v in (rest.items() if isinstance(rest, dict) else [("", rest)])}


def train(steps=6, folder="", clip_norm=None, data=None, seed=3, parameters=None):
    run = rm.init(micro_batches=4, samples_per_step=16, seed=seed, checkpoint_folder=folder)
    parameters = zeros() if parameters is None else parameters
    momentum = {"v": [np.zeros_like(v) for v in walk(parameters).values()], "steps": 0}
    run.register(parameters=parameters, momentum=momentum)

    def update(gradients):
        for i, (p, g) in enumerate(zip(walk(parameters).values(), walk(gradients).values())):
            momentum["v"][i] = 0.9 * momentum["v"][i] + g
            p -= np.float32(0.1) * momentum["v"][i].astype(np.float32)
        momentum["steps"] += 1

    losses = []
    for step in run.steps(steps):
        for batch in step.micro_batches((X, Y) if data is None else data):
            x, y = batch if isinstance(batch, tuple) else (batch["x"], batch["y"])
            step.add(*loss_and_gradients(parameters, x, y))
        if step.commit(update, clip_norm=clip_norm, learning_rate=0.1):
            losses.append(step.loss)
    run.close()
    return parameters, momentum, losses


class Training(Case):
    def same(self, one, other):
        for name, value in walk(one).items():
            np.testing.assert_array_equal(value, walk(other)[name], name)

    def test_equals_a_loop_by_hand(self):
        for clip_norm in (None, 0.5):
            parameters, momentum, losses = train(clip_norm=clip_norm)
            expected, v = zeros(), [0, 0, 0]
            for step in range(6):
                indices = sum((_native.samples(3, SIZE, 16, 4, step, i) for i in range(4)), [])
                loss, gradients = loss_and_gradients(expected, X[indices], Y[indices])
                self.assertAlmostEqual(loss, losses[step], places=4)
                leaves = list(walk(gradients).values())
                norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in leaves))
                factor = min(1.0, clip_norm / norm) if clip_norm else 1.0
                for i, p in enumerate(walk(expected).values()):
                    v[i] = 0.9 * v[i] + factor * leaves[i]
                    p -= (0.1 * v[i]).astype(np.float32)
            for name, value in walk(expected).items():
                np.testing.assert_allclose(walk(parameters)[name], value, rtol=2e-4, atol=1e-5, err_msg=name)
            self.assertEqual(momentum["steps"], 6)
            self.assertLess(losses[-1], losses[0])

    def test_interruptions_change_no_bit(self):
        expected, _, _ = train()
        for seed in range(10):
            with interruptions(seed) as counts:
                self.same(train()[0], expected)
            self.assertGreater(sum(counts.values()), 0)

    def test_a_run_that_is_continued_has_the_same_bits(self):
        whole, whole_momentum, _ = train(7)
        folder = self.folder()
        train(3, folder)
        parameters = zeros()
        held = parameters["layer"]["w"]
        continued, momentum, losses = train(7, folder, parameters=parameters)
        self.assertEqual(len(losses), 4)
        self.same(continued, whole)
        self.assertIs(continued["layer"]["w"], held, "the arrays of the program are those that were loaded")
        self.assertEqual(momentum["steps"], 7)
        for one, other in zip(momentum["v"], whole_momentum["v"]):
            np.testing.assert_array_equal(one, other)

    def test_forms_of_data(self):
        expected, _, _ = train()
        self.same(train(data={"x": X, "y": Y})[0], expected)
        self.same(train(data=list(zip(X, Y)))[0], expected)
        self.same(train(data=[{"x": x, "y": y} for x, y in zip(X, Y)])[0], expected)

    def test_the_seed_decides_the_order(self):
        self.assertNotEqual(train(seed=3)[2], train(seed=4)[2])

    def test_state_that_cannot_be_stored_is_found_after_the_first_step(self):
        run = rm.init(micro_batches=2, samples_per_step=4)
        self.addCleanup(run.close)
        run.register(parameters={"w": np.zeros(3, np.float32)}, more={"when": lambda: 0})
        committed = []

        def loop():
            for step in run.steps(5):
                for _ in step.micro_batches(X):
                    step.add(0.0, {"w": np.zeros(3)})
                if step.commit(lambda gradients: None):
                    committed.append(step.number)

        self.fails("the state more.when is a builtins.function", loop)
        self.assertEqual(committed, [0])

    def test_workers_compare_the_kernels_and_threads_of_the_blas(self):
        text = "import ringmaster.numpy as rm; print(rm.init(micro_batches=1)._device())"
        one, two = (program(text, OPENBLAS_NUM_THREADS=n, OMP_NUM_THREADS=n, MKL_NUM_THREADS=n).stdout for n in "12")
        self.assertRegex(one, r"^numpy \d\S* .*threads 1$")
        self.assertEqual(program(text, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1").stdout, one)
        if (len(os.sched_getaffinity(0))) > 1:
            self.assertEqual(two, one.replace("threads 1", "threads 2"))
        if "openblas" in one:
            other = program(text, OPENBLAS_CORETYPE="Nehalem").stdout
            self.assertIn(" openblas Nehalem ", other)

    def test_settings(self):
        for text, wrong in (
            ("micro_batches is 4.0: it is an integer", {"micro_batches": 4.0}),
            ("seed is '1': it is an integer", {"seed": "1"}),
            ("checkpoint_every is -1: it is at least 0", {"checkpoint_every": -1}),
            ("checkpoint_keep is 0: it is at least 1", {"checkpoint_keep": 0}),
            ("data_fingerprint is 3: it is a string", {"data_fingerprint": 3}),
            ("transport is 'tcp': it is one of auto, shm, ucx", {"transport": "tcp"}),
        ):
            self.fails(text, rm.init, **{"micro_batches": 4, **wrong})
        run = rm.init(micro_batches=np.int64(4), seed=np.uint32(3), checkpoint_keep=np.int8(2), transport="shm")
        self.addCleanup(run.close)
        self.assertEqual(run.settings.seed, 3)
        self.fails("the number of steps is 2.5: it is an integer", lambda: next(run.steps(2.5)))

    def test_mistakes(self):
        run = rm.init(micro_batches=2, samples_per_step=4)
        self.addCleanup(run.close)
        self.fails("cannot change in place", run.register, rate=0.1)
        self.fails("nothing to train", lambda: next(run.steps(1)))
        for value, text in ((np.zeros(2), "float64"), (np.zeros(0, np.float32), "parameters"), (np.zeros(2, int), "int64")):
            run = rm.init(micro_batches=2, samples_per_step=4)
            self.addCleanup(run.close)
            run.register(parameters={"w": value})
            self.fails(text if len(value) else "the parameter w is empty", lambda: next(run.steps(1)))
        run = rm.init(micro_batches=2, samples_per_step=4)
        self.addCleanup(run.close)
        run.register(parameters={"w": np.zeros(3, np.float32)})
        for step in run.steps(1):
            if step.attempt == 0:  # its sums get their range from this attempt, and it is repeated
                for _ in step.micro_batches(X):
                    step.add(0.0, {"w": np.zeros(3)})
                self.assertFalse(step.commit(lambda gradients: None))
                continue
            self.fails("call this inside of the loop", lambda: step.random_seed)
            for _ in step.micro_batches(X):
                shapes = "the gradients have the shapes [(2,)], and the parameters have [(3,)]"
                self.fails(shapes, step.add, 0, {"w": np.zeros(2)})
                step.add(0.0, {"w": np.zeros(3)})
                self.fails("called twice", step.add, 0.0, {"w": np.zeros(3)})
            self.fails("greater than 0", step.commit, lambda gradients: None, clip_norm=-1.0)
            self.assertTrue(step.commit(lambda gradients: None))
            self.fails("is committed already", step.commit, lambda gradients: None)


if __name__ == "__main__":
    unittest.main()
