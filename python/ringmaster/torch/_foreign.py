# SPDX-License-Identifier: Apache-2.0
"""Objects of Accelerate and Lightning, which reduce gradients and step optimizers by themselves: they are refused by name."""

from __future__ import annotations

from typing import Any, Optional

import torch

from .._errors import Error

# Modules whose classes wrap what a program gives them, by the package. A LightningModule of the user is a module as any other.
_WRAPPERS = {
    "accelerate": "Accelerate",
    "lightning.fabric.wrappers": "Lightning Fabric",
    "lightning_fabric.wrappers": "Lightning Fabric",
    "lightning.pytorch.core.optimizer": "Lightning",
    "pytorch_lightning.core.optimizer": "Lightning",
}
_PREPARE = {
    "Accelerate": "accelerator.prepare(...)",
    "Lightning Fabric": "fabric.setup(...) and fabric.setup_dataloaders(...)",
    "Lightning": "the Trainer",
}


def package_of(value: Any) -> Optional[str]:
    """Returns the package that has wrapped the object, for people; None: none has."""
    for base in type(value).__mro__:
        module = base.__module__ or ""
        for wrapper, name in _WRAPPERS.items():
            if module == wrapper or module.startswith(wrapper + "."):
                return name
    return None


def check(where: str, value: Any) -> None:
    """Errors: `value` is a wrapper. where: what the program called, for the message."""
    name = package_of(value)
    if name is not None:
        raise Error(
            f"{where}: this {type(value).__name__} is a wrapper of {name}, which reduces gradients and steps optimizers by itself, "
            f"while the loop over run.steps does so exactly: pass the object that {_PREPARE[name]} was given, and leave that call out"
        )


def check_process_group() -> None:
    """Errors: the program has a process group of several processes, of which Ringmaster knows nothing."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return
    world = distributed.get_world_size()
    if world > 1:
        raise Error(
            f"torch.distributed has a process group of {world} processes ({distributed.get_backend()}), as Accelerate, Lightning and "
            "DistributedDataParallel create it. Workers of Ringmaster may come and go, which a process group does not bear: leave out "
            "init_process_group, Accelerator() or Fabric.launch(), and train in the loop over run.steps; or start the program with "
            "spec.launch.kind: ranks, without ringmaster.torch"
        )
