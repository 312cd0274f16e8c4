# SPDX-License-Identifier: Apache-2.0
"""Buffers that micro-batches change, such as the running mean of a BatchNorm, combined over all micro-batches of a step.

Each micro-batch starts with the values from before the step, and what it changes is added to the sums. So a floating-point
buffer becomes the mean over the micro-batches. An integer buffer, such as num_batches_tracked, must change equally in all
of them, and changes once per step.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, List, Optional, Set

import torch

from .. import _run
from .._errors import Error

# A larger buffer is a constant, such as an attention mask, unless it belongs to a normalization layer: summing it would
# cost memory and time in each step.
LARGEST = 65536
_NORMALIZATION = (torch.nn.modules.batchnorm._NormBase,)


@dataclasses.dataclass
class _Buffer:
    name: str
    module: torch.nn.Module  # whose buffer it is
    key: str  # name in the module
    tensor: int  # index in the sums; -1: a constant
    start: torch.Tensor  # copy of the value before the step; of a constant: `live`
    live: torch.Tensor  # the buffer itself
    version: int = 0  # of `live`, if it is a constant
    change: Optional[torch.Tensor] = None  # of an integer buffer, in an earlier micro-batch of the step

    def value(self) -> torch.Tensor:
        value = self.module._buffers.get(self.key)
        if value is None or value.shape != self.start.shape or value.dtype != self.start.dtype:
            raise Error(
                f"the buffer {self.name} was removed, or its shape or type changed: they must stay as registered"
            )
        return value


class Buffers:
    """begin_step; take_changes and restore after each micro-batch; finish_step after a step that all workers computed.

    Not thread-safe. Invariant: outside of micro-batches, the buffers have their values from before the step.
    """

    def __init__(self, micro_batches: int) -> None:
        # Of changes of integers. The sums keep 30 bits less the logarithm of the number of terms, and up to four bits of headroom;
        # their terms are float32, which has each integer up to 2**24.
        self._limit = 2 ** max(1, min(24, 26 - (micro_batches - 1).bit_length()))
        self._micro_batches = micro_batches
        self._buffers: List[_Buffer] = []
        self._seen: Set[int] = set()
        self._started = False

    def register(
        self, prefix: str, module: torch.nn.Module, running: Set[str], first_tensor: int
    ) -> List[_run.Tensor]:
        """Adds the buffers of a module. running: names of large ones that are no constants.

        Returns their tensors, which have indices from `first_tensor` on.
        """
        tensors: List[_run.Tensor] = []
        for path, part in module.named_modules():
            for key, value in part._buffers.items():
                if value is None or id(value) in self._seen or value.numel() == 0:
                    continue
                self._seen.add(id(value))
                name = ".".join(filter(None, (prefix, path, key)))
                small = value.numel() <= LARGEST or isinstance(part, _NORMALIZATION) or name in running
                combined = small and not value.is_complex() and value.layout == torch.strided
                index = first_tensor + len(tensors) if combined else -1
                self._buffers.append(_Buffer(name, part, key, index, value, value))
                if combined:
                    tensors.append(_run.Tensor(name, value.numel(), in_norm=False))
        return tensors

    def names(self) -> Set[str]:
        return {buffer.name for buffer in self._buffers}

    def begin_step(self) -> None:
        """Keeps the values from before the step."""
        for buffer in self._buffers:
            buffer.live = buffer.value()
            buffer.start = buffer.live.detach().clone() if buffer.tensor >= 0 else buffer.live
            buffer.version = buffer.live._version
            buffer.change = None
        self._started = True

    @torch.no_grad()
    def restore(self) -> None:
        """Gives all buffers the values from before the step."""
        if not self._started:
            return
        for buffer in self._buffers:
            if buffer.tensor >= 0:
                # The micro-batch may have assigned another tensor.
                buffer.module._buffers[buffer.key] = buffer.live
                if not same_bits(buffer.live, buffer.start):
                    buffer.live.copy_(buffer.start)

    @torch.no_grad()
    def take_changes(self, weight: float, add: Callable[[int, torch.Tensor], None]) -> None:
        """Passes what a micro-batch changed, times its weight, to add(tensor, float32 (elements))."""
        for buffer in self._buffers:
            value = buffer.value().detach()
            if buffer.tensor < 0:
                if buffer.module._buffers[buffer.key] is not buffer.live or value._version != buffer.version:
                    raise Error(
                        f"the buffer {buffer.name} changed in a micro-batch, but has {value.numel()} elements, and buffers of "
                        f"more than {LARGEST} are taken for constants: name it in "
                        f'run.register(..., running=["{buffer.name}"])'
                    )
            elif value.is_floating_point():
                if not _same(value, buffer.start):
                    add(
                        buffer.tensor,
                        (_wide(value) - _wide(buffer.start)).to(torch.float32).mul_(weight).reshape(-1),
                    )
            else:
                change = self._integer_change(buffer, value)
                if change.any():
                    add(buffer.tensor, change.mul_(weight).reshape(-1))

    def _integer_change(self, buffer: _Buffer, value: torch.Tensor) -> torch.Tensor:
        change = value.to(torch.int64) - buffer.start.to(torch.int64)
        if buffer.change is not None and not torch.equal(buffer.change, change):
            raise Error(_unequal(buffer.name))
        buffer.change = change
        largest = int(change.abs().max())
        if largest >= self._limit:
            raise Error(
                f"the integer buffer {buffer.name} changed by {largest} in a micro-batch, and the sums carry changes below "
                f"{self._limit}: make it floating-point, or count in registered state after step.commit()"
            )
        return change.to(torch.float32)

    @torch.no_grad()
    def finish_step(self, mean: Callable[[int], torch.Tensor]) -> None:
        """Gives all buffers their values after the step. mean(tensor): of the changes, float32 (elements) on the CPU."""
        for buffer in self._buffers:
            if buffer.tensor < 0:
                continue
            change = mean(buffer.tensor).view(buffer.start.shape).to(buffer.live.device)
            if not change.any():
                continue
            if buffer.live.is_floating_point():
                buffer.live.copy_(_wide(buffer.start) + change)
                continue
            rounded = change.round()
            # If one micro-batch differs by 1, the mean differs by half of 1 / micro_batches or more, as the last step of an epoch
            # weighs them. That of large changes is rounded.
            tolerance = min(0.25, 0.25 / self._micro_batches + 0.25 * float(change.abs().max()) / self._limit)
            if (change - rounded).abs().max() > tolerance:
                raise Error(_unequal(buffer.name))
            buffer.live.copy_(buffer.start.to(torch.int64) + rounded.to(torch.int64))
        self._started = False


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value if value.dtype == torch.float64 else value.to(torch.float32)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether the values have the same bits: 0.0 differs from -0.0, as in the hashes of the state."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return torch.equal(a.view(bits), b.view(bits))


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether the values are equal; a NaN equals a NaN."""
    return torch.equal(a, b) or (a.is_floating_point() and bool(((a == b) | (a.isnan() & b.isnan())).all()))


def _unequal(name: str) -> str:
    return (
        f"the integer buffer {name} did not change equally in all micro-batches of a step, so its value would depend on their "
        "order: make it floating-point, which becomes the mean over the micro-batches, or count in registered state after "
        "step.commit()"
    )
