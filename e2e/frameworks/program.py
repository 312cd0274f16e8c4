# SPDX-License-Identifier: Apache-2.0
"""What the small programs of the tests share: arguments, lines of JSON about what happens, the images of Fashion-MNIST."""

import argparse
import gzip
import json
import os
import pathlib
import time

BATCH = 64  # of all workers together


def say(**words):
    print(json.dumps({"time": round(time.time(), 6), **words}), flush=True)


def arguments(**further):
    """Parses --data FOLDER --checkpoints FOLDER --steps N [--step-seconds S], and for each of `further` its choices."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--checkpoints", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, default=0, help="a pause after each step")
    for name, choices in further.items():
        parser.add_argument(f"--{name}", choices=choices, default=choices[0])
    return parser.parse_args()


def images(numpy, folder):
    """Returns pixels [60000, 784] from 0 to 1, and labels [60000]."""
    def read(name, header):
        return numpy.frombuffer(gzip.open(folder / name).read()[header:], dtype=numpy.uint8)
    pixels = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(numpy.float32) / 255
    return pixels, read("train-labels-idx1-ubyte.gz", 8).astype(numpy.int32)


def share(step, rank, world, samples):
    """Returns the range of the samples of this worker in a step, which begin with 1."""
    first = (step - 1) * BATCH % (samples - BATCH) + rank * (BATCH // world)
    return slice(first, first + BATCH // world)


def replace(path, write):
    """Writes a file so that it is there whole or not at all. `write` gets the path of a temporary one."""
    fresh = path.with_name(f".{os.getpid()}-{path.name}")
    write(fresh)
    os.replace(fresh, path)
