# SPDX-License-Identifier: Apache-2.0
"""Training of a PyTorch model that loses nothing when workers die, join or leave, with the same bits on any number of workers.

import torch, ringmaster.torch as rm

run = rm.init(micro_batches=8, samples_per_step=64, seed=1)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
run.register(model=model, optimizer=optimizer)
for step in run.steps(1000):
    for x, y in step.micro_batches(dataset):
        step.backward(loss_fn(model(x), y))
    if step.commit(clip_norm=1.0) and run.rank == 0:
        print(step.number, step.loss)
"""

from __future__ import annotations

import os
from typing import Optional

import torch

from .. import _run as _base
from .._errors import Error, Failed, Retry, Stopped
from ._run import Run, Step
from ._weights import export, load

__all__ = ["Error", "Failed", "Retry", "Run", "Step", "Stopped", "export", "init", "load"]


def init(
    *,
    micro_batches: int,
    samples_per_step: Optional[int] = None,
    seed: int = 0,
    numerics: str = "exact",
    threads: int = 1,
    deterministic: bool = True,
    checkpoint_folder: Optional[str] = None,
    checkpoint_every: Optional[int] = None,
    checkpoint_keep: Optional[int] = None,
    data_fingerprint: str = "",
    transport: Optional[str] = None,
    drop_last: bool = False,
    digests: Optional[str] = None,
) -> Run:
    """Connects with the job, and seeds all random numbers, so that every worker builds the same model. Call it first.

    In `ringmaster run` or a pod, this process becomes a worker of the job. Elsewhere it trains alone.

    micro_batches: into which a step is divided, for any number of workers: at least the largest number of workers.
    samples_per_step: of all workers together, a multiple of micro_batches; needed if step.micro_batches gets a dataset.
    seed: 0 to 2**64 - 1, of the weights, the order of the samples, and the random numbers in micro-batches.
    numerics: "exact"; "exact64", for hundreds of micro-batches; or "fast", whose last bits depend on the number of workers.
    threads: of an operation on CPUs. The result of an operation can depend on it, so all workers need the same.
    deterministic: makes PyTorch refuse operations that have no deterministic implementation (torch.use_deterministic_algorithms).
    checkpoint_folder: for checkpoints; "": none; by default the one of the job, and none for a process alone.
    checkpoint_every: steps between two checkpoints; 0: only at the end; by default as the job says.
    checkpoint_keep: number of checkpoints to keep; by default as the job says.
    data_fingerprint: any text that is equal on workers with the same data.
    transport: "auto", "shm" or "ucx"; by default as the job says.
    drop_last: leaves out the last step of an epoch if it has fewer samples than the others. The samples it would have differ from
               epoch to epoch. Without it, a micro-batch may have a single sample, which a BatchNorm may refuse.
    digests: a folder in which each worker records a hash of every gradient of each micro-batch, and of its state after each step,
             for `ringmaster compare`; "": none; by default the environment's RINGMASTER_DIGESTS, which `ringmaster run --digests`
             sets. Steps then take longer, and gradients on a GPU are summed on the CPU.
    """
    settings = _base.Settings(
        micro_batches=micro_batches,
        samples_per_step=samples_per_step,
        seed=seed,
        numerics=numerics,
        checkpoint_folder=checkpoint_folder,
        checkpoint_every=checkpoint_every,
        checkpoint_keep=checkpoint_keep,
        data_fingerprint=data_fingerprint,
        transport=transport,
        drop_last=drop_last,
        digests=digests,
    )
    settings.check()
    if threads < 1:
        raise Error(f"threads is {threads}: it is at least 1")
    torch.set_num_threads(threads)
    if deterministic:
        # cuBLAS reads it when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        # Filling memory that is written anyway costs time, and changes no result of a correct program.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False  # it chooses algorithms by measurement
    return Run(settings)
