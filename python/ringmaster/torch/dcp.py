# SPDX-License-Identifier: Apache-2.0
"""Folders of torch.distributed.checkpoint (DCP), for programs that train elsewhere: with DistributedDataParallel, FSDP or alone.

import ringmaster.torch.dcp

if run.rank == 0:
    ringmaster.torch.dcp.save("out/dcp", model=model, optimizer=optimizer)

A folder holds {"model": ..., "optimizer": ...} as torch.distributed.checkpoint.state_dict.get_state_dict returns them, with the names
of the parameters. Ringmaster's own checkpoints (rm.init(checkpoint_folder=...)) are what a run continues from. Needs PyTorch 2.3.
"""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from typing import Any, Dict, Iterator, Optional, Sequence, Union

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states

from .._errors import Error

__all__ = ["load", "save"]

Path = Union[str, "os.PathLike[str]"]
Optimizers = Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]


def save(folder: Path, *, model: torch.nn.Module, optimizer: Optional[Optimizers] = None) -> None:
    """Writes weights and the state of the optimizers. The folder is complete when it has the file .metadata.

    Call it on one worker, usually rank 0: the others hold the same state. It uses no process group.
    """
    with _alone():
        dcp.save(_state(model, optimizer), checkpoint_id=folder, no_dist=True)  # type: ignore[attr-defined, unused-ignore]


def load(folder: Path, *, model: torch.nn.Module, optimizer: Optional[Optimizers] = None) -> None:
    """Loads weights and the state of the optimizers that `save`, or a program on any number of ranks, has written.

    Call it on all workers before run.steps. Errors: names that are missing in the folder, and shapes that differ. Nothing has been
    loaded then.

    The folder must come from someone you trust: torch.distributed.checkpoint keeps its metadata, and values that are no tensors,
    as pickles, and reading one can run code of its author.
    """
    # The arrays of the program stay as they are until all is read.
    expected = copy.deepcopy(_state(model, optimizer))
    _compare(folder, expected)
    with _alone():
        dcp.load(expected, checkpoint_id=folder, no_dist=True)  # type: ignore[attr-defined, unused-ignore]
    if optimizer is None:
        states.set_model_state_dict(model, expected["model"])
    else:
        states.set_state_dict(
            model, optimizer, model_state_dict=expected["model"], optim_state_dict=expected["optimizer"]
        )


def _state(model: torch.nn.Module, optimizer: Optional[Optimizers]) -> Dict[str, Any]:
    if optimizer is None:
        return {"model": states.get_model_state_dict(model)}
    optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
    # PyTorch gives an optimizer that has not stepped yet a state of zeros. It must not stay: the other workers have none.
    fresh = [one for one in optimizers if not one.state]
    of_model, of_optimizer = states.get_state_dict(model, optimizers)
    for one in fresh:
        one.state.clear()
    return {"model": of_model, "optimizer": of_optimizer}


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")
        yield


def _compare(folder: Path, expected: Dict[str, Any]) -> None:
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict

    try:
        found = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata  # type: ignore[attr-defined, unused-ignore]
    except (OSError, ValueError, EOFError) as error:
        raise Error(f"{folder} is no folder of torch.distributed.checkpoint: {error}") from None
    problems = []
    for name, value in flatten_state_dict(expected)[0].items():
        entry = found.get(name)
        if entry is None:
            problems.append(f"{name} is missing")
        elif isinstance(value, torch.Tensor) and tuple(getattr(entry, "size", ())) != tuple(value.shape):
            problems.append(
                f"{name} has the shape {tuple(getattr(entry, 'size', ()))}, and the program's {tuple(value.shape)}"
            )
    if problems:
        shown = "; ".join(problems[:10]) + (f"; and {len(problems) - 10} more" if len(problems) > 10 else "")
        raise Error(f"{folder} does not fit this program: {shown}")
