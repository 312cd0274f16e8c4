# SPDX-License-Identifier: Apache-2.0
"""What the small programs of the tests share: arguments, lines of JSON about what happens, the images of Fashion-MNIST, faults."""

import argparse
import gzip
import json
import os
import pathlib
import sys
import time
import traceback

BATCH = 64  # of all workers together
SAMPLES = 20000  # of 60000: all of them are read at every start of a program
FAULT_STEP = 3


def say(**words):
    print(json.dumps({"time": round(time.time(), 6), **words}), flush=True)


def arguments(**further):
    """Parses --data FOLDER --checkpoints FOLDER --steps N [--step-seconds S] [--fail WHAT:RANK], and each of `further`: a list of
    choices or a default number."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--checkpoints", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, default=0, help="a pause after each step")
    parser.add_argument("--fail", default="", metavar="WHAT:RANK", help="import: that rank lacks a module; exit: it ends with exit code "
                        f"1 after step {FAULT_STEP} and later ones; raise: with an exception")
    for name, values in further.items():
        if isinstance(values, int):
            parser.add_argument(f"--{name}", type=int, default=values)
        else:
            parser.add_argument(f"--{name}", choices=values, default=values[0])
    return parser.parse_args()


def fail_to_import(wanted, rank):
    if wanted.fail == f"import:{rank}":
        import module_that_only_this_rank_lacks  # noqa: F401


def fail_at(step, wanted, rank):
    if wanted.fail == f"raise:{rank}" and step >= FAULT_STEP:
        raise ValueError("the data is broken")
    if wanted.fail == f"exit:{rank}" and step >= FAULT_STEP:
        print("the data is broken", file=sys.stderr, flush=True)
        sys.exit(1)


def run(main):
    """Runs a program of JAX or MPI, and ends at once when it fails or exits. The usual end of Python waits for the other processes, which
    wait for this one: with JAX for 300 s, with mpi4py for ever (its users start `python -m mpi4py`, or call Abort)."""
    try:
        main()
    except BaseException as error:
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)


def images(numpy, folder):
    """Returns pixels [SAMPLES, 784] from 0 to 1, and labels [SAMPLES]."""
    def read(name, header, size):
        with gzip.open(folder / name) as file:
            file.read(header)
            return numpy.frombuffer(file.read(SAMPLES * size), dtype=numpy.uint8)
    pixels = read("train-images-idx3-ubyte.gz", 16, 784).reshape(-1, 784).astype(numpy.float32) / 255
    return pixels, read("train-labels-idx1-ubyte.gz", 8, 1).astype(numpy.int32)


def share(step, rank, world, samples):
    """Returns the range of the samples of this worker in a step, which begin with 1."""
    first = (step - 1) * BATCH % (samples - BATCH) + rank * (BATCH // world)
    return slice(first, first + BATCH // world)


def replace(path, write):
    """Writes a file so that it is there whole or not at all. `write` gets the path of a temporary one."""
    fresh = path.with_name(f".{os.getpid()}-{path.name}")
    write(fresh)
    os.replace(fresh, path)


def finish(wanted, world, accuracy):
    """Writes what became of the training, for the test."""
    result = {"steps": wanted.steps, "world": world, "accuracy": round(float(accuracy), 4)}
    replace(wanted.checkpoints / "result.json", lambda path: path.write_text(json.dumps(result)))


def accuracy(numpy, first, second, pixels, labels):
    """Returns the part of the images that a network of two layers, [784, H] and [H, 10], puts into the right class."""
    return ((numpy.tanh(pixels @ first) @ second).argmax(1) == labels).mean()
