# SPDX-License-Identifier: Apache-2.0
"""Compile the process group for the installed release of PyTorch, and print where it is."""

from . import build

print(build())
