# SPDX-License-Identifier: Apache-2.0
"""The transport of Ringmaster as a backend of torch.distributed. Importing this module registers it.

import torch.distributed as dist
import ringmaster.torch.process_group

dist.init_process_group("ringmaster")

It carries CPU tensors, and fails instead of hanging when a rank dies. It knows nothing of micro-batches: a program
that shall survive the death of a rank uses ringmaster.torch.

The first use compiles a module for the installed release of PyTorch; `python -m ringmaster.torch.process_group`
does so in advance, for example in the build of an image.
"""

from __future__ import annotations

import atexit
import datetime
import os
from typing import Any, Optional

import torch.distributed as dist

from ... import _native
from ..._errors import Error
from . import _build

__all__ = ["build", "register"]

_module: Optional[Any] = None

build = _build.build


def _create(store: Any, rank: int, world: int, timeout: datetime.timedelta) -> Any:
    global _module
    if _module is None:
        library = _native.library()  # checks that it is one of this release
        _module = _build.load()
        _module.library = library._name
        atexit.register(_module.close_all)
    return _module.create(
        _module.library, os.environ.get("RINGMASTER_TRANSPORT", ""), store, rank, world, timeout
    )


def register() -> None:
    """Registers the backend "ringmaster". The import of this module calls it; another call changes nothing."""
    if not dist.is_available():
        raise Error("this PyTorch was built without torch.distributed")
    if "ringmaster" not in dist.Backend.backend_list:
        dist.Backend.register_backend("ringmaster", _create, devices=["cpu"])


register()
