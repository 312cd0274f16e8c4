# SPDX-License-Identifier: Apache-2.0
"""A small program that trains through ringmaster.jax, for kill_schedules: jax_program.py mlp STEPS

Two layers with dropout and an optimizer of momentum, as pytrees.
"""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np

import ringmaster.jax as rm

INPUTS, HIDDEN, CLASSES = 16, 32, 5
GENERATOR = np.random.default_rng(2)
Y = np.arange(250) % CLASSES  # 250: the last step of an epoch is short
X = (GENERATOR.normal(size=(250, INPUTS)) + GENERATOR.normal(size=(CLASSES, INPUTS))[Y]).astype(np.float32)


def loss_fn(parameters, x, y, key):
    hidden = jnp.tanh(x @ parameters["in"] + parameters["bias"])
    hidden = jnp.where(jax.random.bernoulli(key, 0.9, hidden.shape), hidden, 0)
    scores = jax.nn.log_softmax(hidden @ parameters["out"])
    return -jnp.mean(jnp.take_along_axis(scores, y[:, None], 1))


@functools.partial(jax.jit)
def updated(state, gradients):
    rate = 0.1 * jnp.minimum(1.0, (state["count"] + 1) / 20)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
    parameters = jax.tree.map(lambda p, m: p - rate * m, state["parameters"], momentum)
    return {"parameters": parameters, "momentum": momentum, "count": state["count"] + 1}


def mlp(steps):
    run = rm.init(micro_batches=6, samples_per_step=48, seed=14)
    one, two = jax.random.split(jax.random.key(0))
    parameters = {"in": jax.random.normal(one, (INPUTS, HIDDEN)) * 0.3, "bias": jnp.zeros(HIDDEN),
                  "out": jax.random.normal(two, (HIDDEN, CLASSES)) * 0.3}
    run.register(parameters=parameters, momentum=jax.tree.map(jnp.zeros_like, parameters), count=jnp.zeros((), jnp.int32))
    gradient = rm.value_and_grad(loss_fn)
    for step in run.steps(steps):
        for x, y in step.micro_batches((X, Y)):
            step.add(*gradient(run.state["parameters"], x, y, step.key()))
        step.commit(lambda gradients: updated(run.state, gradients), clip_norm=1.0)


if __name__ == "__main__":
    {"mlp": mlp}[sys.argv[1]](int(sys.argv[2]))
