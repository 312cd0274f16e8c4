# SPDX-License-Identifier: Apache-2.0
"""Training with ringmaster.jax in a world of one worker. Exits with 77 (skipped) where JAX is not installed."""

import functools
import os
import sys
import unittest

from training import Case, interruptions, program

import numpy as np

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    print("skipped: this Python has no JAX (scripts/setup-frameworks)")
    sys.exit(77)

import ringmaster.jax as rm
from ringmaster import _native

SIZE = 40
GENERATOR = np.random.default_rng(2)
X = GENERATOR.normal(size=(SIZE, 5)).astype(np.float32)
Y = (X @ GENERATOR.normal(size=(5, 2)) + 1).astype(np.float32)


def loss_fn(parameters, x, y, key):
    hidden = jnp.tanh(x @ parameters["w"][0])
    hidden = jnp.where(jax.random.bernoulli(key, 0.9, hidden.shape), hidden, 0)
    return jnp.mean((hidden @ parameters["w"][1] + parameters["b"] - y) ** 2)


gradient = rm.value_and_grad(loss_fn)


@functools.partial(jax.jit)
def updated(state, gradients):
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
    parameters = jax.tree.map(lambda p, m: p - 0.1 * m, state["parameters"], momentum)
    return {"parameters": parameters, "momentum": momentum, "count": state["count"] + 1}


def start_values():
    one, two = jax.random.split(jax.random.key(0))
    parameters = {
        "w": [jax.random.normal(one, (5, 8)) * 0.3, jax.random.normal(two, (8, 2)) * 0.3],
        "b": jnp.zeros(2),
    }
    return {"parameters": parameters, "momentum": jax.tree.map(jnp.zeros_like, parameters), "count": jnp.zeros((), jnp.int32)}


def train(steps=5, folder="", clip_norm=None):
    run = rm.init(micro_batches=4, samples_per_step=16, seed=3, checkpoint_folder=folder)
    run.register(**start_values())
    losses = []
    for step in run.steps(steps):
        for x, y in step.micro_batches((X, Y)):
            step.add(*gradient(run.state["parameters"], x, y, step.key()))
        if step.commit(lambda gradients: updated(run.state, gradients), clip_norm=clip_norm):
            losses.append(step.loss)
    run.close()
    return run.state, losses


def same(one, other):
    return jax.tree.structure(one) == jax.tree.structure(other) and all(
        a.dtype == b.dtype and bool((a == b).all()) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other))
    )


class Training(Case):
    def test_equals_a_loop_by_hand(self):
        state, losses = train()
        expected = start_values()
        for step in range(5):
            gradients = []
            weights = []
            for v in range(4):
                indices = np.array(_native.samples(3, SIZE, 16, 4, step, v), dtype=np.int64)
                if not len(indices):
                    continue
                seed = _native.random_seed(3, step, v)
                key = jax.random.fold_in(jax.random.key(seed & 0x7FFFFFFF), seed >> 32)
                gradients.append(gradient(expected["parameters"], X[indices], Y[indices], key)[1])
                weights.append(len(indices))
            mean = jax.tree.map(lambda *g: sum(w * v for w, v in zip(weights, g)) / sum(weights), *gradients)
            expected = updated(expected, mean)
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(expected)):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        self.assertEqual(state["count"], 5)
        self.assertLess(losses[-1], losses[0])

    def test_interruptions_change_no_bit(self):
        expected, _ = train(clip_norm=0.5)
        for seed in range(5):
            with interruptions(seed):
                self.assertTrue(same(train(clip_norm=0.5)[0], expected))

    def test_a_run_that_is_continued_has_the_same_bits(self):
        whole, _ = train(6)
        folder = self.folder()
        train(2, folder)
        continued, losses = train(6, folder)
        self.assertEqual(len(losses), 4)
        self.assertTrue(same(continued, whole))

    def test_mistakes(self):
        run = rm.init(micro_batches=4, samples_per_step=16)
        self.addCleanup(run.close)
        run.register(**start_values())
        self.fails("parameters is registered already", run.register, parameters=1)
        for step in run.steps(1):
            self.fails("call this inside of the loop", step.key)
            for x, y in step.micro_batches((X, Y)):
                step.add(*gradient(run.state["parameters"], x, y, step.key()))
            while step.number == 0 and step.attempt == 1:
                self.fails("must return the whole state", step.commit, lambda gradients: {"parameters": gradients})
                return
            step.commit(lambda gradients: updated(run.state, gradients))
        self.fail("the first step was not attempted twice")

    def test_workers_compare_threads_and_flags(self):
        text = "import ringmaster.jax as rm; print(rm.init(micro_batches=1)._device())"
        plain = program(text, JAX_PLATFORMS="cpu").stdout
        self.assertRegex(plain, rf"^jax \S+ jaxlib \S+ cpu threads {len(os.sched_getaffinity(0))}$")
        flags = "--xla_dump_to=/nowhere --xla_cpu_max_isa=AVX2"
        other = program(text, JAX_PLATFORMS="cpu", PJRT_NPROC="7", XLA_FLAGS=flags).stdout
        self.assertRegex(other, r" threads 7 --xla_cpu_max_isa=AVX2$")

    def test_keys_cannot_be_stored(self):
        run = rm.init(micro_batches=1, samples_per_step=1, checkpoint_folder=self.folder())
        self.addCleanup(run.close)
        run.register(parameters=jnp.zeros(1), key=jax.random.key(0))
        with self.assertRaisesRegex(rm.Error, "key_data"):
            for step in run.steps(1):
                for _ in step.micro_batches(X):
                    step.add(0.0, jnp.ones(1))
                step.commit(lambda gradients: run.state)


if __name__ == "__main__":
    unittest.main()
