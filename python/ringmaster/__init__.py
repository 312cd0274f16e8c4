# SPDX-License-Identifier: Apache-2.0
"""What a training program says to Ringmaster. It needs nothing but Python, and does nothing elsewhere."""

from .report import report

__all__ = ["report"]
