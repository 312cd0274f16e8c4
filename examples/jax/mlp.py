#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A network of two layers with dropout on Fashion-MNIST in JAX, without further libraries: pytrees and SGD with momentum.

  ringmaster run examples/jax/job.yaml      four workers: kill any of them, and the weights end with the same bits
  python3 examples/jax/mlp.py               one worker

The data is the Debian package dataset-fashion-mnist; --data names another folder with its four files.
"""

import argparse
import gzip
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

import ringmaster.jax as rm

HIDDEN = 128
RATE = 0.1


def read(folder, name):
    """Returns an array of an IDX file: uint8, (60000, 28, 28) for the images of the training set."""
    data = gzip.decompress((pathlib.Path(folder) / f"{name}.gz").read_bytes())
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def dataset(folder, name):
    """Returns images, float32 (N, 784) from -1 to 1, and their classes, int32 (N)."""
    images = read(folder, f"{name}-images-idx3-ubyte").reshape(-1, 784)
    return images.astype(np.float32) / 127.5 - 1, read(folder, f"{name}-labels-idx1-ubyte").astype(np.int32)


def build(key):
    one, two = jax.random.split(key)
    return {
        "hidden": {"w": jax.random.normal(one, (784, HIDDEN)) * 784**-0.5, "b": jnp.zeros(HIDDEN)},
        "out": {"w": jax.random.normal(two, (HIDDEN, 10)) * HIDDEN**-0.5, "b": jnp.zeros(10)},
    }


def forward(parameters, x, key=None):
    """Maps images (N, 784) to scores (N, 10). key: of the dropout; None: without."""
    hidden = jax.nn.relu(x @ parameters["hidden"]["w"] + parameters["hidden"]["b"])
    if key is not None:
        hidden = jnp.where(jax.random.bernoulli(key, 0.9, hidden.shape), hidden / 0.9, 0)
    return hidden @ parameters["out"]["w"] + parameters["out"]["b"]


def loss_fn(parameters, x, y, key=None):
    scores = jax.nn.log_softmax(forward(parameters, x, key))
    return -jnp.mean(jnp.take_along_axis(scores, y[:, None], 1))


@jax.jit
def update(state, gradients):
    """Returns the next state: the whole of what is registered."""
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
    parameters = jax.tree.map(lambda p, m: p - RATE * m, state["parameters"], momentum)
    return {"parameters": parameters, "momentum": momentum}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()

    run = rm.init(micro_batches=8, samples_per_step=128, seed=1)
    images, labels = dataset(arguments.data, "train")
    held_out = [values[:1000] for values in dataset(arguments.data, "t10k")]
    parameters = build(jax.random.key(1))
    run.register(parameters=parameters, momentum=jax.tree.map(jnp.zeros_like, parameters))
    gradient = rm.value_and_grad(loss_fn)

    for step in run.steps(arguments.steps):
        for x, y in step.micro_batches((images, labels)):
            step.add(*gradient(run.state["parameters"], x, y, step.key()))
        done = step.number + 1
        committed = step.commit(lambda gradients: update(run.state, gradients), clip_norm=1.0, learning_rate=RATE)
        if committed and run.rank == 0 and (done % 50 == 0 or done == arguments.steps):
            accuracy = (forward(run.state["parameters"], held_out[0]).argmax(1) == held_out[1]).mean().item()
            run.validated(loss_fn(run.state["parameters"], *held_out), accuracy)
            print(f"step {done}: loss {step.loss:.4f}, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
