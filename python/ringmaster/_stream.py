# SPDX-License-Identifier: Apache-2.0
"""Iterable datasets: a stream of samples, whose cursor is the number of steps that were committed."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Optional, Tuple

from . import _data, _generators
from ._errors import Error


class Stream(_data.Source):
    """Step s takes samples [s * samples_per_step, (s + 1) * samples_per_step) of the stream, in its order.

    After its last sample the stream begins again; one that has `set_epoch` gets the number of the pass before. Each worker
    iterates over all of it, and makes batches of its own micro-batches only. The samples of one step are kept, since a micro-batch
    may be needed again, or by another worker's share. The generators of random numbers are seeded before each micro-batch is
    read, so a stream that draws from them yields the same samples on all workers and after a restart. They are seeded once more
    before the collate function runs, so a batch is the same whether or not its samples had to be read again.
    """

    def __init__(
        self,
        data: Any,
        collate: Callable[[List[Any]], Any],
        samples: int,
        micro_batches: int,
        heartbeat: Callable[[], None],
    ) -> None:
        """samples: of a micro-batch."""
        self._data = data
        self._collate = collate
        self._samples = samples
        self._micro_batches = micro_batches
        self._heartbeat = heartbeat
        self._begin()

    def roots(self) -> List[Tuple[str, Any]]:
        return [("collate", self._collate)]  # _read seeds those of the stream

    def stamp(self, step: int) -> Optional[int]:
        self._go_to(step)
        return _data.stamp_of(self._read(0)[0], self._as_array)

    def read(self, step: int, v: int, indices: Any) -> Any:
        self._go_to(step)
        self._read(v)
        # The collate function has another seed: reading the samples draws numbers, and kept samples draw none.
        return self._seeding.run(self._held, step, self._seeding.collate(v), lambda: self.get(step, v, indices))

    def get(self, step: int, v: int, indices: Any) -> Any:
        self._go_to(step)
        # A collate_fn may change dicts and lists.
        return self._collate([type(s)(s) if type(s) in (dict, list) else s for s in self._read(v)])

    def _begin(self) -> None:
        self._step = 0
        self._samples_of: List[List[Any]] = []  # the micro-batches of _step that were read
        self._passes = 0
        self._searched = -1  # the number of passes when generators were searched for
        self._generators: _generators.Found = []
        self._iterator: Iterator[Any] = iter(())

    def _go_to(self, step: int) -> None:
        if step < self._step:  # the job went back to an older state
            self._begin()
        while self._step < step:
            self._read(self._micro_batches - 1)
            self._samples_of = []
            self._step += 1
            self._heartbeat()

    def _read(self, v: int) -> List[Any]:
        """Returns the samples of a micro-batch of the current step."""
        while len(self._samples_of) <= v:
            number = self._seeding.number(self._step, len(self._samples_of))
            self._seeding.seed(self._step, len(self._samples_of))
            if self._passes != self._searched:  # iter() may have created generators
                self._searched = self._passes
                self._generators = _generators.find([("dataset", self._data)], self._seeding.ignored())
            _generators.seed_all(self._generators, number)
            self._samples_of.append([self._next() for _ in range(self._samples)])
        return self._samples_of[v]

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
