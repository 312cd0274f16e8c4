# SPDX-License-Identifier: Apache-2.0
"""The programs of the package: where they are, and the commands that pip installs for them."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import NoReturn

from ._errors import Error

_PACKAGE = pathlib.Path(__file__).resolve().parent


def find(name: str) -> pathlib.Path:
    """Returns the path of a program: in the folder RINGMASTER_BIN, in the package, in a build of the source tree, on the PATH."""
    chosen = os.environ.get("RINGMASTER_BIN")
    build = _PACKAGE.parents[1] / "build/release/bin"
    for folder in [pathlib.Path(chosen)] if chosen else [_PACKAGE / "bin", build]:
        if os.access(folder / name, os.X_OK):
            return folder / name
    on_path = shutil.which(name)
    # A script of pip that starts this program through this package has no program behind it either.
    if on_path and not chosen and pathlib.Path(on_path).parent != pathlib.Path(sys.argv[0]).parent:
        return pathlib.Path(on_path)
    raise Error(
        f"the program {name} was not found: install the wheel of ringmaster, build it (scripts/build release {name}), or "
        "set RINGMASTER_BIN to the folder that has it"
    )


def _become(name: str) -> NoReturn:
    try:
        program = find(name)
        os.execv(program, [sys.argv[0], *sys.argv[1:]])
    except (Error, OSError) as error:
        sys.exit(f"{name}: {error}")


def ringmaster() -> NoReturn:
    """Becomes the command line. Named kubectl-ringmaster, it is the plugin of kubectl."""
    _become("ringmaster")


def worker() -> NoReturn:
    _become("ringmaster-worker")


def agent() -> NoReturn:
    _become("ringmaster-agent")
