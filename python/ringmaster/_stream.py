# SPDX-License-Identifier: Apache-2.0
"""Iterable datasets: a stream of samples, whose cursor is the number of steps that were committed."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Optional

from . import _data, _native, _state
from ._errors import Error

_STAMP_MASK = 2**48 - 1


class Stream(_data.Source):
    """Step s takes samples [s * samples_per_step, (s + 1) * samples_per_step) of the stream, in its order.

    After its last sample the stream begins again; one that has `set_epoch` gets the number of the pass before. Each worker
    iterates over all of it, and makes batches of its own micro-batches only. The samples of one step are kept, since a micro-batch
    may be needed again, or by another worker's share. The global generators of random numbers are seeded for each micro-batch
    that is read, so a stream that draws from them yields the same samples on all workers, and once more after a restart.
    """

    def __init__(
        self,
        data: Any,
        collate: Callable[[List[Any]], Any],
        samples: int,
        micro_batches: int,
        seed: Callable[[int, int], None],
        heartbeat: Callable[[], None],
        as_array: _state.AsArray,
    ) -> None:
        """samples: of a micro-batch. seed(step, v): seeds the random numbers of a micro-batch."""
        self._data = data
        self._collate = collate
        self._samples = samples
        self._micro_batches = micro_batches
        self._seed = seed
        self._heartbeat = heartbeat
        self._as_array = as_array
        self._begin()

    def stamp(self, step: int) -> Optional[int]:
        self._go_to(step)
        return _native.hash_bytes(_canonical(self._read(0)[0], self._as_array)) & _STAMP_MASK

    def get(self, step: int, v: int, indices: Any) -> Any:
        self._go_to(step)
        # A collate_fn may change dicts and lists.
        return self._collate([type(s)(s) if type(s) in (dict, list) else s for s in self._read(v)])

    def _begin(self) -> None:
        self._step = 0
        self._held: List[List[Any]] = []  # of the micro-batches of _step that were read
        self._passes = 0
        self._iterator: Iterator[Any] = iter(())

    def _go_to(self, step: int) -> None:
        if step < self._step:  # the job went back to an older state
            self._begin()
        while self._step < step:
            self._read(self._micro_batches - 1)
            self._held = []
            self._step += 1
            self._heartbeat()

    def _read(self, v: int) -> List[Any]:
        """Returns the samples of a micro-batch of the current step."""
        while len(self._held) <= v:
            self._seed(self._step, len(self._held))
            self._held.append([self._next() for _ in range(self._samples)])
        return self._held[v]

    def _next(self) -> Any:
        for sample in self._iterator:
            return sample
        if hasattr(self._data, "set_epoch"):
            self._data.set_epoch(self._passes)
        self._passes += 1
        self._iterator = iter(self._data)
        for sample in self._iterator:
            return sample
        raise Error(
            f"{type(self._data).__name__} yields no sample in pass {self._passes}: each call of iter() begins again"
        )


def is_stream(data: Any) -> bool:
    """Returns whether `data` can be iterated over again and again, and is not a map-style dataset."""
    if callable(data) or hasattr(data, "__next__") or not hasattr(data, "__iter__"):
        return False
    # Streams of Hugging Face have items, which are columns.
    return not (hasattr(data, "__getitem__") and hasattr(data, "__len__"))


def _canonical(value: Any, as_array: _state.AsArray) -> bytes:
    """Returns bytes that are equal for equal samples. Of objects other than arrays, numbers, text and containers only the type."""
    if isinstance(value, (list, tuple)):
        return b"(" + b",".join(_canonical(part, as_array) for part in value) + b")"
    if isinstance(value, dict):
        return b"{" + b",".join(_canonical(part, as_array) for item in value.items() for part in item) + b"}"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value).encode(errors="backslashreplace")
    try:
        array = as_array(value)
    except Error:  # of a kind that is no state, such as a sparse tensor
        array = None
    if array is None:
        return type(value).__qualname__.encode()
    return f"{array.type}{array.shape}".encode() + bytes(array.view())
