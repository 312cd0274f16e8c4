# SPDX-License-Identifier: Apache-2.0
"""A program that trains through ringmaster.numpy, for compared_runs: linear regression on 96 samples.

Takes JSON: steps; gate, a named pipe from which each worker reads a byte in each micro-batch of step `gate_step`; plant, a part of
[what, step, micro_batch] that computes something else: "gradient" and "loss" of a micro-batch, "update" of a step, "data", or
"worker", the update of a step by worker `odd` alone.
"""

import json
import os
import sys

import numpy as np

import ringmaster.numpy as rm

GENERATOR = np.random.default_rng(5)
X = GENERATOR.normal(size=(96, 6)).astype(np.float32)
Y = (X @ GENERATOR.normal(size=(6, 2))).astype(np.float32)


def main():
    wanted = json.loads(sys.argv[1])
    what, at, v = wanted.get("plant", ["", 0, 0])
    run = rm.init(micro_batches=4, samples_per_step=16, seed=3, digests=wanted.get("digests"))
    parameters = {"w": np.zeros((6, 2), np.float32), "b": np.zeros(2, np.float32)}
    momentum = {"w": np.zeros((6, 2), np.float32), "b": np.zeros(2, np.float32)}
    run.register(parameters=parameters, momentum=momentum)
    x = X.copy()
    if what == "data":
        x[v, 0] += 1
    number = 0

    def update(gradients):
        odd = what == "worker" and os.environ.get("RINGMASTER_POD") == wanted["odd"]
        for name, value in parameters.items():
            momentum[name][...] = np.float32(0.9) * momentum[name] + gradients[name]
            value -= np.float32(0.05) * momentum[name]
        if number == at and (what == "update" or odd):
            momentum["b"][0] += np.float32(1e-3)

    try:
        for step in run.steps(wanted["steps"]):
            number = step.number + 1
            for batch_x, batch_y in step.micro_batches((x, Y)):
                error = batch_x @ parameters["w"] + parameters["b"] - batch_y
                gradients = {"w": 2 * batch_x.T @ error / len(error), "b": 2 * error.mean(0)}
                loss = float(np.mean(error**2))
                if (number, step.micro_batch) == (at, v):
                    gradients["b"] += np.float32(1e-3) * (what == "gradient")
                    loss += 1e-3 * (what == "loss")
                if wanted.get("gate") and number == wanted["gate_step"]:
                    with open(wanted["gate"], "rb", buffering=0) as gate:
                        gate.read(1)
                step.add(loss, gradients)
            step.commit(update)
    except rm.Stopped:
        if run.leaving is not None:
            print(f"leaves within {run.leaving:.3f} s", flush=True)
        raise
    assert run.leaving is None, run.leaving


main()
