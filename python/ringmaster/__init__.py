# SPDX-License-Identifier: Apache-2.0
"""Ringmaster in Python. This module needs nothing but Python.

A training loop that loses nothing when workers die is in ringmaster.torch, ringmaster.jax and ringmaster.numpy. A program
with another loop reports its progress by `report`, which does nothing outside of Ringmaster. `submit` starts a job.
"""

from ._errors import Error, Failed, Stopped
from ._job import Job, submit
from .report import report

__all__ = ["Error", "Failed", "Job", "Stopped", "report", "submit"]
