# SPDX-License-Identifier: Apache-2.0
"""Buffers that micro-batches change, such as the running mean of a BatchNorm, combined over all micro-batches of a step.

Each micro-batch starts with the values from before the step, and what it changes is added to the sums. What a buffer becomes is
its policy:

    mean      the mean over the micro-batches; an integer buffer, such as num_batches_tracked, must change equally in all of them,
              and changes once per step. The default.
    sum       the changes of all micro-batches are added: counters
    min, max  the least or the largest value of a micro-batch, by element: observers of a range
    last      the value of the last micro-batch of the step: queues, and values that belong together
    constant  no micro-batch may change it; the default of large buffers
    discard   what micro-batches change is not kept
"""

from __future__ import annotations

import dataclasses
from typing import Callable, List, Mapping, Optional, Set

import torch

from .. import _run
from .._errors import Error

# A larger buffer is a constant, such as an attention mask, unless it belongs to a normalization layer: summing it would
# cost memory and time in each step.
LARGEST = 65536
_NORMALIZATION = (torch.nn.modules.batchnorm._NormBase,)
POLICIES = ("mean", "sum", "min", "max", "last", "constant", "discard")
_MOST_SLOTS = 1 << 20  # elements of the sums that a buffer may take whose policy needs the value of each micro-batch
# Classes of torch.ao.quantization by the policies of their buffers. Ranges that move, histograms and what follows from them belong
# together, so they are of one micro-batch.
_LAST = ("FakeQuantizeBase", "HistogramObserver", "MovingAverageMinMaxObserver", "MovingAveragePerChannelMinMaxObserver")
_RANGE = ("MinMaxObserver", "PerChannelMinMaxObserver")


@dataclasses.dataclass
class _Buffer:
    name: str
    module: torch.nn.Module  # whose buffer it is
    key: str  # name in the module
    tensor: int  # index in the sums; -1: a constant
    start: torch.Tensor  # copy of the value before the step; of a constant: `live`
    live: torch.Tensor  # the buffer itself
    policy: str = "mean"
    named: bool = False  # the program or PyTorch has chosen the policy
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
        self.averaged: Set[str] = set()  # names of those that became a mean without being asked for it

    def register(
        self,
        prefix: str,
        module: torch.nn.Module,
        running: Set[str],
        first_tensor: int,
        policies: Optional[Mapping[str, str]] = None,
    ) -> List[_run.Tensor]:
        """Adds the buffers of a module. running: names of large ones that are no constants. policies: by name.

        Returns their tensors, which have indices from `first_tensor` on.
        """
        tensors: List[_run.Tensor] = []
        for path, part in module.named_modules():
            for key, value in part._buffers.items():
                if value is None or id(value) in self._seen or value.numel() == 0:
                    continue
                self._seen.add(id(value))
                name = ".".join(filter(None, (prefix, path, key)))
                chosen = (policies or {}).get(name) or _policy_of(part, key)
                small = value.numel() <= LARGEST or isinstance(part, _NORMALIZATION) or name in running
                summable = not value.is_complex() and value.layout == torch.strided
                policy = chosen or ("mean" if small and summable else "constant")
                if not summable and policy not in ("constant", "discard"):
                    raise Error(f"the buffer {name} of {value.dtype} is constant, or its changes are discarded: it cannot be {policy}")
                combined = policy not in ("constant", "discard")
                index = first_tensor + len(tensors) if combined else -1
                named = chosen is not None or name in running or type(part).__module__.startswith("torch.")
                self._buffers.append(_Buffer(name, part, key, index, value, value, policy, named))
                if combined:
                    tensors.append(_run.Tensor(name, self._slots(name, policy, value.numel()), in_norm=False))
        return tensors

    def _slots(self, name: str, policy: str, elements: int) -> int:
        """Returns how many elements of the sums a buffer takes."""
        if policy == "last":
            return 2 * elements
        if policy not in ("min", "max"):
            return elements
        slots = 2 * elements * self._micro_batches
        if slots > _MOST_SLOTS:
            raise Error(
                f"the buffer {name} has {elements} elements: the policy {policy} takes two numbers for each of them and for each "
                f"micro-batch of a step, {slots} in all, and {_MOST_SLOTS} is the limit"
            )
        return slots

    def names(self) -> Set[str]:
        return {buffer.name for buffer in self._buffers}

    def begin_step(self) -> None:
        """Keeps the values from before the step."""
        for buffer in self._buffers:
            buffer.live = buffer.value()
            buffer.start = buffer.live if buffer.policy == "constant" else buffer.live.detach().clone()
            buffer.version = buffer.live._version
            buffer.change = None
        self._started = True

    @torch.no_grad()
    def restore(self) -> None:
        """Gives all buffers the values from before the step."""
        if not self._started:
            return
        for buffer in self._buffers:
            if buffer.policy != "constant":
                # The micro-batch may have assigned another tensor.
                buffer.module._buffers[buffer.key] = buffer.live
                if not same_bits(buffer.live, buffer.start):
                    buffer.live.copy_(buffer.start)

    @torch.no_grad()
    def take_changes(
        self, weight: float, add: Callable[[int, torch.Tensor], None], v: int = 0, last: bool = True
    ) -> None:
        """Passes what micro-batch v changed, times its weight, to add(tensor, float32 (elements)). last: it is that of the step."""
        for buffer in self._buffers:
            value = buffer.value().detach()
            if buffer.policy == "discard":
                continue
            if buffer.policy in ("min", "max", "last"):
                if (buffer.policy != "last" or last) and not _same(value, buffer.start):
                    add(buffer.tensor, self._values_of(buffer, value, 0 if buffer.policy == "last" else v))
            elif buffer.policy == "sum":
                change = self._checked(buffer, _wide(value) - _wide(buffer.start), self._micro_batches)
                if change.any():
                    add(buffer.tensor, change.to(torch.float32).reshape(-1))
            elif buffer.policy == "constant":
                if buffer.module._buffers[buffer.key] is not buffer.live or value._version != buffer.version:
                    raise Error(
                        f"the buffer {buffer.name} changed in a micro-batch, but it is taken for a constant, as are buffers of more "
                        f"than {LARGEST} elements, of which it has {value.numel()}, and complex ones: choose its policy, as in "
                        f'run.register(..., buffers={{"{buffer.name}": "mean"}})'
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

    def _checked(self, buffer: _Buffer, values: torch.Tensor, terms: int = 1) -> torch.Tensor:
        """Returns the values. Errors: the sums would round integers."""
        if buffer.start.is_floating_point():
            return values
        largest = int(values.abs().max())
        if largest >= min(self._limit, 2**23 // terms):
            raise Error(
                f"the integer buffer {buffer.name} has changes or values of {largest}, which the sums would round: make it "
                "floating-point, or count in registered state after step.commit()"
            )
        return values

    def _values_of(self, buffer: _Buffer, value: torch.Tensor, slot: int) -> torch.Tensor:
        """Returns values, and 1 for each that changed, in a slot of (slots, 2, elements), float32, flat."""
        wide = _wide(value).reshape(-1)
        changed = (value != buffer.start).reshape(-1) & wide.isfinite()
        wide = self._checked(buffer, torch.where(changed, wide, 0))
        count = 1 if buffer.policy == "last" else self._micro_batches
        slots = torch.zeros(count, 2, value.numel(), device=value.device)
        slots[slot, 0] = wide.to(torch.float32)
        slots[slot, 1] = changed.to(torch.float32)
        return slots.reshape(-1)

    def _combined(self, buffer: _Buffer, means: torch.Tensor) -> torch.Tensor:
        """Returns the value after the step. means: over the micro-batches, of which one at most has added to a slot."""
        slots = (means * self._micro_batches).view(-1, 2, buffer.start.numel())
        if not buffer.start.is_floating_point():
            slots = slots.round()
        values, changed = slots[:, 0], slots[:, 1] > 0.5
        start = _wide(buffer.start).reshape(-1)
        if buffer.policy == "last":
            return torch.where(changed[0], values[0].to(start.dtype), start)
        everywhere = torch.where(changed, values.to(start.dtype), start)
        least = torch.cat([everywhere, start[None]])
        return least.amin(0) if buffer.policy == "min" else least.amax(0)

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
            means = mean(buffer.tensor).to(buffer.live.device)
            if not means.any():
                continue
            if buffer.policy in ("min", "max", "last"):
                buffer.live.copy_(self._combined(buffer, means).view(buffer.start.shape))
                continue
            change = means.view(buffer.start.shape)
            if buffer.policy == "sum":
                total = _wide(buffer.start) + (change * self._micro_batches if buffer.live.is_floating_point() else
                                               (change * self._micro_batches).round())  # fmt: skip
                buffer.live.copy_(total)
                continue
            if not buffer.named and buffer.live.is_floating_point():
                self.averaged.add(buffer.name)
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


def _policy_of(part: torch.nn.Module, key: str) -> Optional[str]:
    """Returns the policy of a buffer of a module of torch.ao; None: it has the default."""
    kinds = {kind.__name__ for kind in type(part).__mro__ if kind.__module__.startswith("torch.ao.")}
    if kinds.intersection(_LAST):
        return "last"
    if kinds.intersection(_RANGE) and key in ("min_val", "max_val"):
        return key[:3]
    return None


def _wide(value: torch.Tensor) -> torch.Tensor:
    if value.is_floating_point():
        return value if value.dtype == torch.float64 else value.to(torch.float32)
    return value.to(torch.float64)


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
