# SPDX-License-Identifier: Apache-2.0
"""A small program that trains through ringmaster.numpy, for kill_schedules: numpy_program.py mlp STEPS

Two layers with dropout, gradients by hand, and an optimizer of momentum with a schedule.
"""

import sys

import numpy as np

import ringmaster.numpy as rm

INPUTS, HIDDEN, CLASSES = 16, 32, 5
GENERATOR = np.random.default_rng(2)
Y = np.arange(250) % CLASSES  # 250: the last step of an epoch is short
X = (GENERATOR.normal(size=(250, INPUTS)) + GENERATOR.normal(size=(CLASSES, INPUTS))[Y]).astype(np.float32)


def loss_and_gradients(parameters, x, y, random):
    """Returns the mean over the samples of the cross entropy of a micro-batch, and its gradients. x: (B, INPUTS), y: (B)."""
    hidden = np.tanh(x @ parameters["in"] + parameters["bias"])
    kept = (random.random(hidden.shape) < 0.9).astype(np.float32)
    scores = (hidden * kept) @ parameters["out"]
    exponentials = np.exp(scores - scores.max(1, keepdims=True))
    shares = exponentials / exponentials.sum(1, keepdims=True)
    rows = np.arange(len(y))
    loss = float(-np.log(shares[rows, y]).mean())
    shares[rows, y] -= 1
    shares /= len(y)
    back = (shares @ parameters["out"].T) * kept * (1 - hidden * hidden)
    return loss, {"in": x.T @ back, "bias": back.sum(0), "out": (hidden * kept).T @ shares}


def mlp(steps):
    run = rm.init(micro_batches=6, samples_per_step=48, seed=14)
    draw = np.random.default_rng(0).normal
    parameters = {"in": draw(size=(INPUTS, HIDDEN)) * 0.3, "bias": np.zeros(HIDDEN), "out": draw(size=(HIDDEN, CLASSES)) * 0.3}
    parameters = {name: value.astype(np.float32) for name, value in parameters.items()}
    momentum = {name: np.zeros_like(value) for name, value in parameters.items()}
    done = {"steps": 0}
    run.register(parameters=parameters, momentum=momentum, done=done)

    def update(gradients):
        rate = np.float32(0.1 * min(1.0, (done["steps"] + 1) / 20))
        done["steps"] += 1
        for name, value in parameters.items():
            momentum[name][...] = np.float32(0.9) * momentum[name] + gradients[name]
            value -= rate * momentum[name]

    for step in run.steps(steps):
        for x, y in step.micro_batches((X, Y)):
            step.add(*loss_and_gradients(parameters, x, y, np.random.default_rng(step.random_seed)))
        step.commit(update, clip_norm=1.0)


if __name__ == "__main__":
    {"mlp": mlp}[sys.argv[1]](int(sys.argv[2]))
