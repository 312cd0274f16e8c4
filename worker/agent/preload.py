# SPDX-License-Identifier: Apache-2.0
"""A spare: a Python that has imported the modules of launch.preload, and waits to become a rank of the next incarnation.

    python [OPTIONS] preload.py MODULES SCRIPT ARGS...
    python [OPTIONS] preload.py MODULES -m MODULE ARGS...

The agent runs it with a socket as standard input. It writes one byte when the modules are imported. Then the agent sends the
environment of the rank, as the kernel has it (NAME=value, NUL, ...), and ends its side. What follows is as if Python had been
started with the rest of the command: the same __main__, sys.argv, sys.path and exit codes.
"""

import importlib
import os
import pkgutil
import sys
import types


def find_target(words):
    """Returns (is a module, its name or path, sys.argv of the program)."""
    if words[0] == "-m":
        return True, words[1], ["-m", *words[2:]]
    return False, words[0], words


def is_folder(target):
    """Whether Python runs the __main__ of this folder, or of this archive."""
    return pkgutil.get_importer(target) is not None


def set_path(is_module, target):
    """Makes sys.path[0] what it would be: Python has set it to the folder of this file."""
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
        return
    if is_module:
        sys.path[0] = os.getcwd()
    elif is_folder(target):
        sys.path[0] = os.path.abspath(target)
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(target))


def wait_for_order():
    """Returns the environment of the rank; None: it is not needed."""
    os.write(0, b"r")
    order = b""
    while part := os.read(0, 1 << 16):
        order += part
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return dict(os.fsdecode(variable).split("=", 1) for variable in order.split(b"\0") if b"=" in variable) or None


def run(is_module, target, argv):
    sys.argv = argv
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if "__annotations__" in globals():  # before Python 3.14
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    if is_module or is_folder(target):
        import runpy
        runpy._run_module_as_main(target if is_module else "__main__", alter_argv=is_module)
        return
    from importlib.machinery import SourceFileLoader
    target = os.path.abspath(target)
    main.__file__ = target
    main.__cached__ = None
    main.__loader__ = SourceFileLoader("__main__", target)
    with open(target, "rb") as source:
        code = compile(source.read(), target, "exec")
    exec(code, main.__dict__)


def strip(error):
    """Removes the frames of this file: the traceback is that of the program."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return error.with_traceback(traceback)


def start():
    modules, (is_module, target, argv) = sys.argv[1], find_target(sys.argv[2:])
    set_path(is_module, target)
    for name in modules.split(","):
        importlib.import_module(name)
    environment = wait_for_order()
    if environment is None:
        return
    os.environ.clear()
    os.environ.update(environment)
    try:
        run(is_module, target, argv)
    except Exception as error:
        sys.excepthook(type(error), strip(error), error.__traceback__)
        sys.exit(1)


start()
