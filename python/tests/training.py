# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the adapters: the package under test, and interruptions of steps."""

import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PACKAGE))

from ringmaster import _native  # noqa: E402


class Case(unittest.TestCase):
    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def fails(self, text, call, *arguments, **named):
        """Expects a ringmaster.Error whose message contains `text`."""
        from ringmaster import Error

        with self.assertRaises(Error) as caught:
            call(*arguments, **named)
        self.assertIn(text, str(caught.exception))


def program(text, *arguments, **environment):
    """Runs a program with the package, and returns the finished process."""
    variables = {**os.environ, "PYTHONPATH": str(PACKAGE), **environment}
    return subprocess.run(
        [sys.executable, "-B", "-c", text, *arguments], env=variables, capture_output=True, text=True, timeout=300
    )


@contextlib.contextmanager
def interruptions(seed, probability=0.2):
    """Interrupts steps at random, as lost workers do: around and in a micro-batch, and when the sums are reduced."""
    decide = random.Random(seed)
    places = {"begin_micro_batch": probability, "add": probability / 10, "end_micro_batch": probability, "reduce": probability}
    real = {name: getattr(_native.Handle, name) for name in places}
    counts = dict.fromkeys(places, 0)

    def replace(name):
        def call(self, *arguments):
            if decide.random() < places[name]:
                counts[name] += 1
                return None if name == "reduce" else _native.REPEAT
            return real[name](self, *arguments)

        return call

    for name in places:
        setattr(_native.Handle, name, replace(name))
    try:
        yield counts
    finally:
        for name, method in real.items():
            setattr(_native.Handle, name, method)
