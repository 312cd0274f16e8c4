# SPDX-License-Identifier: Apache-2.0
"""Notices changes of parameters that leave no trace in their version: those by `parameter.data`."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import torch

from ._buffers import same_bits

_FIRST = 1 << 24  # elements that are compared in each of the first micro-batches, in which modules initialize themselves
_FIRST_MICRO_BATCHES = 4
_LATER = 1 << 16  # in a later one
_MOST = 16  # tensors in a later one


class Watch:
    """Copies some of the tensors before a micro-batch, and compares them after it; other ones each time. Not thread-safe."""

    def __init__(self, tensors: Sequence[Tuple[str, torch.Tensor]]) -> None:
        self._tensors = [(name, value) for name, value in tensors if value.numel() > 0]
        self._next = 0
        self._micro_batches = 0
        self._copies: List[Tuple[str, torch.Tensor, torch.Tensor]] = []

    @torch.no_grad()
    def begin_micro_batch(self) -> None:
        left = _FIRST if self._micro_batches < _FIRST_MICRO_BATCHES else _LATER
        self._micro_batches += 1
        self._copies = []
        for _ in range(len(self._tensors) if left == _FIRST else min(_MOST, len(self._tensors))):
            name, value = self._tensors[self._next]
            if self._copies and value.numel() > left:
                break
            part = value.detach().reshape(-1)[:_FIRST] if value.is_contiguous() else value.detach()
            self._copies.append((name, part, part.clone()))
            left -= part.numel()
            self._next = (self._next + 1) % len(self._tensors)

    @torch.no_grad()
    def changed(self) -> Optional[str]:
        """Returns the name of a tensor that the micro-batch has changed; None: no such change was found."""
        found = next((name for name, value, before in self._copies if not same_bits(value, before)), None)
        self._copies = []
        return found
