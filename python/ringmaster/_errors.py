# SPDX-License-Identifier: Apache-2.0
"""What calls of this package raise."""

from __future__ import annotations


class Error(Exception):
    """A mistake in the calling program. The message names the place, the reason and the remedy."""


class Failed(SystemExit):
    """This process cannot continue: the message is printed, and the process ends with the code that the job expects.

    A program need not catch it. It is a SystemExit, so `except Exception` does not catch it by accident.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code)
        self.message = message


class Stopped(SystemExit):
    """The job stops here, with a checkpoint: the same command continues it. Code after the loop over the steps is not run."""
