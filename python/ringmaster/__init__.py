# SPDX-License-Identifier: Apache-2.0
"""Ringmaster in Python. This module needs nothing but Python.

A training loop that loses nothing when workers die is in ringmaster.torch, ringmaster.jax and ringmaster.numpy. A program
with another loop reports its progress by `report`, which does nothing outside of Ringmaster.
"""

from ._errors import Error, Failed, Stopped
from .report import report

__all__ = ["Error", "Failed", "Stopped", "report"]
