# SPDX-License-Identifier: Apache-2.0
"""Evaluation in the loop: all workers compute a part of the batches, and get the same exact sums."""

from __future__ import annotations

import fractions
import io
import json
import math
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from .._errors import Error

_MOST = 65536  # bytes that the library gathers at once: RM_MAX_GATHER
Gather = Callable[[bytes], Optional[List[bytes]]]


class Sum:
    """An exact sum of numbers, which does not depend on their order."""

    def __init__(self) -> None:
        self.finite = fractions.Fraction(0)
        self.other = 0.0  # the sum of those that are not finite, which is one of inf, -inf and nan
        self.whole = True  # all were integers

    def add(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            value = value.item()
        if not isinstance(value, int):
            self.whole = False
            value = float(value)
            if not math.isfinite(value):
                self.other += value
                return
        self.finite += fractions.Fraction(value)

    def join(self, other: "Sum") -> None:
        self.finite += other.finite
        self.other += other.other
        self.whole = self.whole and other.whole

    def value(self) -> float:
        if self.other != 0:  # also of nan
            return self.other
        return int(self.finite) if self.whole else float(self.finite)

    def encode(self) -> Any:
        return [hex(self.finite.numerator), hex(self.finite.denominator), self.other.hex(), self.whole]

    @staticmethod
    def decode(encoded: Any) -> "Sum":
        found = Sum()
        numerator, denominator, other, found.whole = encoded
        found.finite = fractions.Fraction(int(numerator, 16), int(denominator, 16))
        found.other = float.fromhex(other)
        return found


class Evaluation:
    """The batches of this worker, and what all workers found. Iterate over it once, then ask for the results.

        evaluation = run.evaluate(dataset, batch_size=64)
        for x, y in evaluation:
            evaluation.add(loss=..., count=len(x))
        sums = evaluation.sums()
    """

    def __init__(
        self, batches: Iterator[Tuple[int, Any]], gather: Optional[Gather], finish: Callable[[], None]
    ) -> None:
        """batches: this worker's, by number. gather: None: this worker has all. finish: called after the last batch."""
        self._batches = batches
        self._gather = gather
        self._finish = finish
        self._sums: Dict[str, Sum] = {}
        self._collected: List[Tuple[int, Any]] = []
        self._batch: Optional[int] = None
        self._iterated = False

    def __iter__(self) -> Iterator[Any]:
        if self._iterated:
            raise Error("an evaluation is iterated over once: call run.evaluate(...) again")
        for self._batch, batch in self._batches:
            yield batch
        self._batch = None
        self._iterated = True
        self._finish()

    def add(self, **values: Any) -> None:
        """Adds numbers of the current batch to the sums of these names: a loss times its samples, or how many were right."""
        self._check_in_batch("add")
        for name, value in values.items():
            self._sums.setdefault(name, Sum()).add(value)

    def collect(self, value: Any) -> None:
        """Adds a value of the current batch, such as its predictions: tensors, numbers, text, and lists and dicts of them."""
        self._check_in_batch("collect")
        assert self._batch is not None
        self._collected.append((self._batch, value))

    def sums(self) -> Optional[Dict[str, float]]:
        """Returns the sums over all batches: exact, rounded once, and equal on all workers. None: the step was interrupted, and is
        attempted again."""
        every = self._exchange({name: value.encode() for name, value in self._sums.items()}, _as_json, json.loads)
        if every is None:
            return None
        total: Dict[str, Sum] = {}
        for part in every:
            for name, encoded in part.items():
                total.setdefault(name, Sum()).join(Sum.decode(encoded))
        return {name: total[name].value() for name in sorted(total)}

    def collected(self) -> Optional[List[Any]]:
        """Returns what was collected, in the order of the batches, on all workers. None: as for `sums`."""
        every = self._exchange(self._collected, _pack, _unpack)
        if every is None:
            return None
        return [value for _, value in sorted((pair for part in every for pair in part), key=lambda pair: int(pair[0]))]

    def _check_in_batch(self, call: str) -> None:
        if self._batch is None:
            raise Error(f"evaluation.{call} was called outside of the loop over the evaluation")

    def _exchange(
        self, mine: Any, pack: Callable[[Any], bytes], unpack: Callable[[bytes], Any]
    ) -> Optional[Sequence[Any]]:
        if not self._iterated:
            raise Error("the results of an evaluation are known after the loop over it: let it run to its end (no break)")
        if self._gather is None:
            return [unpack(pack(mine))]
        data = pack(mine)
        lengths = self._gather(len(data).to_bytes(8, "little"))
        if lengths is None:
            return None
        sizes = [int.from_bytes(length, "little") for length in lengths]
        every = [b""] * len(sizes)
        for begin in range(0, max(sizes), _MOST):
            share = min(_MOST, max(sizes) - begin)
            parts = self._gather(data[begin : begin + share].ljust(share, b"\0"))
            if parts is None:
                return None
            every = [whole + part for whole, part in zip(every, parts)]
        return [unpack(whole[:size]) for whole, size in zip(every, sizes)]


def _as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _pack(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _unpack(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def first_number(micro_batches: int) -> int:
    """Returns what stands for the first batch in place of a micro-batch, in seeds: training uses none from there on."""
    return 4 * micro_batches + 4
