# SPDX-License-Identifier: Apache-2.0
"""The compiled part of the process group: built once for each release of PyTorch, whose C++ interface is only stable within one."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, Iterator, List

import torch
from torch.utils import cpp_extension

from ..._errors import Error

_FOLDER = pathlib.Path(__file__).resolve().parent
_UNITS = ("lanes.cpp", "process_group.cpp")
_NAME = "_ringmaster_process_group"
_FLAGS = ("-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread", f"-DRM_MODULE={_NAME}")


def _header_folder() -> pathlib.Path:
    """Returns the folder of ringmaster_group.h: in the package, or in the source tree."""
    package = _FOLDER.parents[1]
    folders = [package / "include", package.parents[1] / "include"]
    for folder in folders:
        if (folder / "ringmaster_group.h").is_file():
            return folder
    raise Error(
        "ringmaster_group.h was found in none of: "
        + ", ".join(map(str, folders))
        + ". Install the wheel of ringmaster"
    )


def _sources() -> List[pathlib.Path]:
    headers = _header_folder()
    return sorted([*_FOLDER.glob("*.h"), *_FOLDER.glob("*.cpp")]) + [
        headers / "ringmaster.h",
        headers / "ringmaster_group.h",
    ]


def _compiler() -> List[str]:
    return shlex.split(os.environ.get("CXX", "")) or ["c++"]


def _compile(unit: str, output: str) -> List[str]:
    includes = [
        str(_FOLDER),
        str(_header_folder()),
        *cpp_extension.include_paths(),
        sysconfig.get_paths()["include"],
    ]
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [
        *_compiler(),
        *_FLAGS,
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        *(f"-isystem{folder}" for folder in includes),
        "-c",
        str(_FOLDER / unit),
        "-o",
        output,
    ]


def _link(objects: List[str], output: str) -> List[str]:
    libraries = ("torch_python", "torch", "torch_cpu", "c10", "dl")
    return [
        *_compiler(),
        "-shared",
        "-pthread",
        *objects,
        *(f"-L{folder}" for folder in cpp_extension.library_paths()),
        *(f"-l{library}" for library in libraries),
        "-o",
        output,
    ]


def _run(commands: List[List[str]]) -> None:
    """Runs commands of the compiler at the same time. Errors: one fails."""
    try:
        running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    except FileNotFoundError as error:
        raise Error(
            f"the compiler {_compiler()[0]} was not found. Install g++ 12 or later or clang 14 or later, set CXX, or run "
            "`python -m ringmaster.torch.process_group` where there is a compiler, and set RINGMASTER_CACHE"
        ) from error
    messages = [(process.communicate()[1], process.returncode) for process in running]
    failed = [message for message, code in messages if code]
    if failed:
        raise Error("the process group does not compile:\n" + "\n".join(message[-8000:] for message in failed))


def path() -> pathlib.Path:
    """Returns where the module is, or will be: RINGMASTER_CACHE, or ringmaster in the user's cache, has a folder for each build."""
    cache = os.environ.get("RINGMASTER_CACHE") or (
        pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ringmaster"
    )
    key = hashlib.sha256()
    for text in (torch.__version__, torch.__file__, sysconfig.get_config_var("SOABI") or "", *_compiler(), *_FLAGS):
        key.update(text.encode() + b"\0")
    for source in _sources():
        key.update(source.read_bytes() + b"\0")
    folder = f"process_group-torch-{torch.__version__}-{key.hexdigest()[:16]}"
    return pathlib.Path(cache) / folder / f"{_NAME}.so"


@contextlib.contextmanager
def _locked(file: pathlib.Path) -> Iterator[None]:
    """Lets one process of this machine in. The lock of a process that dies is free."""
    with open(file, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build() -> pathlib.Path:
    """Compiles the module, unless it is there, and returns its path. Takes one to two minutes."""
    module = path()
    if module.is_file():
        return module
    try:
        module.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error(f"{module.parent} cannot be created: {error}. RINGMASTER_CACHE names another folder") from error
    with _locked(module.parent / "lock"), tempfile.TemporaryDirectory(dir=module.parent) as folder:
        if module.is_file():
            return module
        print(
            f"ringmaster: compiling the process group for PyTorch {torch.__version__}, once, into {module.parent}",
            file=sys.stderr,
            flush=True,
        )
        objects = [os.path.join(folder, unit + ".o") for unit in _UNITS]
        _run([_compile(unit, output) for unit, output in zip(_UNITS, objects)])
        output = os.path.join(folder, module.name)
        _run([_link(objects, output)])
        os.replace(output, module)
    return module


def load() -> Any:
    """Returns the compiled module."""
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(build()))
    spec = importlib.util.spec_from_file_location(_NAME, loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
