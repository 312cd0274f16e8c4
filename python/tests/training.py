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
    """Interrupts steps at random, as lost workers do: before a micro-batch, or when the sums are reduced."""
    decide = random.Random(seed)
    begin, reduce = _native.Handle.begin_micro_batch, _native.Handle.reduce
    counts = {"begin": 0, "reduce": 0}

    def interrupted(where):
        # Two in a row would need more attempts than some tests count.
        if decide.random() >= probability:
            return False
        counts[where] += 1
        return True

    def begin_or_not(self, v):
        return _native.REPEAT if interrupted("begin") else begin(self, v)

    def reduce_or_not(self):
        return None if interrupted("reduce") else reduce(self)

    _native.Handle.begin_micro_batch, _native.Handle.reduce = begin_or_not, reduce_or_not
    try:
        yield counts
    finally:
        _native.Handle.begin_micro_batch, _native.Handle.reduce = begin, reduce
