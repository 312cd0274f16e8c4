# SPDX-License-Identifier: Apache-2.0
"""A spare: a Python that has imported the modules of launch.preload, and waits to become a rank of the next incarnation.

    python [OPTIONS] preload.py MODULES SCRIPT ARGS...
    python [OPTIONS] preload.py MODULES -m MODULE ARGS...

The agent runs it with a socket as standard input. It writes one byte when the modules are imported. Then the agent sends the
environment of the rank, as the kernel has it (NAME=value, NUL, ...), and ends its side. What follows is as if Python had been
started with the rest of the command: the same __main__, sys.argv, sys.path, tracebacks and exit codes.
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


def devices():
    """Returns the devices that this process has open, such as GPUs. Terminals and the like do not count."""
    common = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts/", "/dev/shm/")
    found = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + entry)
        except OSError:  # the descriptor of listdir
            continue
        if path.startswith("/dev/") and not path.startswith(common):
            found.add(path)
    return sorted(found)


def set_score(score):
    """Sets by which the kernel chooses the process to kill when memory is short. Returns what it was before."""
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:
            before = file.read()
            file.write(score or before)
        return before
    except OSError:
        return None


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
    score = set_score("1000")  # the spare before the rank
    modules, (is_module, target, argv) = sys.argv[1], find_target(sys.argv[2:])
    if hasattr(sys, "orig_argv"):  # since Python 3.10
        del sys.orig_argv[-len(sys.argv):2 - len(sys.argv)]
    sys.argv = argv
    set_path(is_module, target)
    for name in modules.split(","):
        importlib.import_module(name)
    if opened := devices():
        sys.exit(f"importing {modules} opens {', '.join(opened)}, which the rank uses")
    environment = wait_for_order()
    if environment is None:
        return
    set_score(score)
    os.environ.clear()
    os.environ.update(environment)
    try:
        run(is_module, target, argv)
    except SystemExit:
        raise
    except BaseException as error:
        # Python prints the traceback without the frames of this file, and then ends as after any other error.
        sys.excepthook(type(error), strip(error), error.__traceback__)
        sys.excepthook = lambda *_: None
        raise


start()
