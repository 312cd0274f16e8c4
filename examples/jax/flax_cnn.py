#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network with dropout on Fashion-MNIST, in Flax and Optax.

  pip install flax optax
  python3 examples/jax/flax_cnn.py      one worker

To train it with several workers, name it in the command of examples/jax/job.yaml. The data is the Debian package
dataset-fashion-mnist; --data names another folder with its four files.
"""

import argparse

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import ringmaster.jax as rm
from mlp import dataset


class Cnn(nn.Module):
    """Maps images (N, 784) to scores (N, 10)."""

    @nn.compact
    def __call__(self, x, train=False):
        x = x.reshape(-1, 28, 28, 1)
        x = nn.relu(nn.Conv(16, (3, 3), strides=2)(x))
        x = nn.relu(nn.Conv(32, (3, 3), strides=2)(x)).reshape(x.shape[0], -1)
        x = nn.Dropout(0.2, deterministic=not train)(x)
        return nn.Dense(10)(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()

    run = rm.init(micro_batches=8, samples_per_step=128, seed=1)
    images, labels = dataset(arguments.data, "train")
    held_out = [values[:1000] for values in dataset(arguments.data, "t10k")]
    model = Cnn()
    parameters = model.init(jax.random.key(1), images[:1])["params"]
    rates = optax.cosine_decay_schedule(4e-3, arguments.steps)
    optimizer = optax.adamw(rates, weight_decay=0.01)
    run.register(parameters=parameters, optimizer=optimizer.init(parameters))

    def loss_fn(parameters, x, y, key):
        scores = model.apply({"params": parameters}, x, train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

    @jax.jit
    def update(state, gradients):
        changes, rest = optimizer.update(gradients, state["optimizer"], state["parameters"])
        return {"parameters": optax.apply_updates(state["parameters"], changes), "optimizer": rest}

    gradient = rm.value_and_grad(loss_fn)
    for step in run.steps(arguments.steps):
        for x, y in step.micro_batches((images, labels)):
            step.add(*gradient(run.state["parameters"], x, y, step.key()))
        done = step.number + 1
        rate = float(rates(step.number))
        committed = step.commit(lambda gradients: update(run.state, gradients), clip_norm=1.0, learning_rate=rate)
        if committed and run.rank == 0 and (done % 25 == 0 or done == arguments.steps):
            scores = model.apply({"params": run.state["parameters"]}, held_out[0])
            loss = optax.softmax_cross_entropy_with_integer_labels(scores, held_out[1]).mean()
            accuracy = float((scores.argmax(1) == held_out[1]).mean())
            run.validated(loss, accuracy)
            print(f"step {done}: loss {step.loss:.4f}, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
