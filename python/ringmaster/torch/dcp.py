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
import dataclasses
import errno
import os
import re
import time
import uuid
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Union

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.checkpoint.filesystem import FileSystem

from .._errors import Error

__all__ = ["load", "save"]

Path = Union[str, "os.PathLike[str]"]
_METADATA = ".metadata"
_STALE_S = 24 * 3600.0
Optimizers = Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]


def save(folder: Path, *, model: torch.nn.Module, optimizer: Optional[Optimizers] = None) -> None:
    """Writes weights and the state of the optimizers. The folder is complete when it has the file .metadata.

    Call it on one worker, usually rank 0: the others hold the same state. It uses no process group. A folder that has a checkpoint
    keeps it until the new one is complete, and also when a save fails or its process dies. Errors: the folder cannot be written.
    """
    state = _state(model, optimizer)
    writer = _Writer(folder)
    before = _files_of(folder)
    try:
        with _alone():
            dcp.save(state, storage_writer=writer, no_dist=True)  # type: ignore[attr-defined, unused-ignore]
    except BaseException as error:  # CheckpointException is not an Exception
        if not writer.fs.replaced:  # else .metadata may name the new files
            _remove(folder, writer.is_mine)
        causes = [cause for cause, _ in getattr(error, "failures", {}).values() if isinstance(cause, OSError)]
        if causes or isinstance(error, OSError):
            raise Error(f"{folder} cannot be written: {causes[0] if causes else error}") from None
        raise
    after = _files_of(folder)
    _remove(folder, lambda name: name not in after and (name in before or _is_left_over(folder, name)))


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


class _Files(FileSystem):
    """Replaces a file at once, where PyTorch removes it first."""

    replaced = False  # whether .metadata may be the new one

    def rm_file(self, path: Path) -> None:
        if not os.fspath(path).endswith(_METADATA):
            super().rm_file(path)

    def rename(self, path: Path, new_path: Path) -> None:
        self.replaced = True  # before, because Ctrl-C may come right after the replacement
        try:
            os.replace(path, new_path)
        except OSError:
            self.replaced = False
            raise
        folder = os.open(os.path.dirname(new_path), os.O_RDONLY)
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):  # of file systems without fsync of folders
                raise
        finally:
            os.close(folder)


class _Writer(dcp.FileSystemWriter):  # type: ignore[name-defined, misc, unused-ignore]
    """Writes files of names that no checkpoint in the folder has, so that each stays whole until .metadata names the others."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.fs = _Files()
        self._unique = uuid.uuid4().hex

    def prepare_global_plan(self, plans: List[Any]) -> List[Any]:
        def renamed(plan: Any) -> Any:
            prefix = f"__{self._unique}{plan.storage_data.prefix}"
            return dataclasses.replace(plan, storage_data=dataclasses.replace(plan.storage_data, prefix=prefix))

        return [renamed(plan) for plan in super().prepare_global_plan(plans)]

    def is_mine(self, name: str) -> bool:
        return name.startswith(f"__{self._unique}") or name == f"{_METADATA}.tmp"


def _files_of(folder: Path) -> Set[str]:
    """Returns the names of the files of the checkpoint in the folder; none if it has no whole one."""
    try:
        data = dcp.FileSystemReader(folder).read_metadata().storage_data  # type: ignore[attr-defined, unused-ignore]
    except Exception:  # what else reading a damaged pickle raises
        return set()
    return {part.relative_path for part in (data or {}).values()}


def _is_left_over(folder: Path, name: str) -> bool:
    """Returns whether a save that died long ago has left the file."""
    if not re.fullmatch(r"__[0-9a-f]{32}__\d+_\d+\.distcp", name):
        return False
    with contextlib.suppress(OSError):
        return os.stat(os.path.join(folder, name)).st_mtime < time.time() - _STALE_S
    return False


def _remove(folder: Path, unwanted: Callable[[str], bool]) -> None:
    with contextlib.suppress(OSError):
        for name in filter(unwanted, os.listdir(folder)):
            with contextlib.suppress(OSError):
                os.remove(os.path.join(folder, name))


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
        warnings.filterwarnings("ignore", "Detected an existing checkpoint")
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
