# SPDX-License-Identifier: Apache-2.0
"""Trains arrays through ringmaster.numpy or ringmaster.torch; when it resumes, prints how much memory that took at most.

    program.py numpy|torch PARAMETERS FOLDER        by itself, for bench/checkpoint/run

The state is the parameters and two moments for each. The first start trains one step; the second one resumes, and compares its peak
of memory with what it has when it begins the next step.
"""

import pathlib
import sys

LAYERS = 12


def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(field + ":"))


def report(kind, elements):
    state = elements * LAYERS * 3 * 4
    more = memory("VmHWM") - memory("VmRSS")
    print(f"{kind} resumes: {more / 1e6:.1f} MB more than later, for a state of {state / 1e6:.1f} MB: {more / state:.3f} times the state")


def with_numpy(elements, folder, resumes):
    import numpy as np

    import ringmaster.numpy as rm

    run = rm.init(micro_batches=1, samples_per_step=1, checkpoint_folder=folder)
    parameters = {f"layer{i}": np.ones(elements, np.float32) for i in range(LAYERS)}
    moments = {f"{kind}{i}": np.ones(elements, np.float32) for kind in "mv" for i in range(LAYERS)}
    run.register(parameters=parameters, moments=moments)
    for step in run.steps(2 if resumes else 1):
        if resumes:
            return report("numpy", elements)
        for _ in step.micro_batches((np.ones((1, 1), np.float32),)):
            step.add(0.0, parameters)
        step.commit(lambda gradients: None)


def with_torch(elements, folder, resumes):
    import torch

    import ringmaster.torch as rm

    run = rm.init(micro_batches=1, samples_per_step=1, checkpoint_folder=folder)
    model = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(elements)) for _ in range(LAYERS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    run.register(model=model, optimizer=optimizer)
    for step in run.steps(2 if resumes else 1):
        if resumes:
            return report("torch", elements)
        for (x,) in step.micro_batches(torch.utils.data.TensorDataset(torch.ones(1, 1))):
            step.backward(sum(parameter.sum() for parameter in model) * x.sum())
        step.commit()


def main():
    kind, parameters, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    resumes = any(pathlib.Path(folder).glob("step-*"))
    {"numpy": with_numpy, "torch": with_torch}[kind](parameters // LAYERS, folder, resumes)


if __name__ == "__main__":
    main()
