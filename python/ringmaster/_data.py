# SPDX-License-Identifier: Apache-2.0
"""Where the samples of a micro-batch come from: arrays, a map-style dataset, or a function. Streams: _stream.py."""

from __future__ import annotations

import abc
import dataclasses
import os
from typing import Any, Callable, List, Optional, Sequence, Set, Tuple

from . import _generators, _native, _state
from ._errors import Error

STAMP_MASK = 2**48 - 1
_COMPARED = 4  # samples of a dataset, whose contents all workers compare


@dataclasses.dataclass
class Seeding:
    """How the random numbers of the code that reads samples are seeded."""

    seed: Callable[[int, int], None]  # seeds the global generators of a micro-batch
    number: Callable[[int, int], int]  # returns its seed, 64 bits
    ignored: Callable[[], Set[int]]  # the generators that are state, by id
    micro_batches: int

    def run(self, held: _generators.Held, step: int, v: int, read: Callable[[], Any]) -> Any:
        """Returns read(), with the global generators and those that were found seeded for (step, v)."""
        self.seed(step, v)
        return held.run(self.number(step, v), lambda: self.seed(step, v), read)

    # Beyond the micro-batches of a step: what else draws random numbers.

    def collate(self, v: int) -> int:
        return self.micro_batches + 2 + v

    def comparison(self) -> int:
        return 2 * self.micro_batches + 2


class Order(abc.ABC):
    """Which sample is at each place of an epoch, in place of a permutation."""

    size: int  # samples of an epoch

    @abc.abstractmethod
    def __call__(self, epoch: int) -> Sequence[int]: ...

    @abc.abstractmethod
    def stamp(self, epoch: int) -> int:
        """Returns a number that differs for other orders, below 2**48."""


class Source(abc.ABC):
    """Thread-safety: not thread-safe."""

    size: Optional[int] = None  # samples; None: unknown, or a function decides what a micro-batch is
    order: Optional[Order] = None  # None: a permutation
    _stamp: Optional[int] = None

    def prepare(self, seeding: Seeding, as_array: _state.AsArray, compare: bool) -> None:
        """Called once, before the others. compare: whether the stamp depends on contents, rather than on the size alone."""
        self._seeding = seeding
        self._as_array = as_array
        self._compare = compare
        self._held = _generators.Held(self.roots(), seeding.ignored)

    def roots(self) -> List[Tuple[str, Any]]:
        """Returns the objects, by name, whose code reads samples and may hold generators of random numbers."""
        return []

    def read(self, step: int, v: int, indices: Sequence[int]) -> Any:
        """Returns the batch of micro-batch v of a step, whatever random numbers were drawn before."""
        return self._seeding.run(self._held, step, v, lambda: self.get(step, v, indices))

    def stamp(self, step: int) -> Optional[int]:
        """Returns a number that differs for other data of this step, below 2**48: equal on all workers. None: nothing does."""
        if not self._compare or self.size is None:
            return self.size
        if self._stamp is None:
            self._stamp = self.contents()
        return self._stamp

    def contents(self) -> Optional[int]:
        """Returns the stamp of a dataset with a size."""
        return self.size

    @abc.abstractmethod
    def get(self, step: int, v: int, indices: Sequence[int]) -> Any:
        """Returns the batch of micro-batch v of a step, which has the samples `indices`."""

    def close(self) -> None:
        """Ends processes that the source started."""


class Function(Source):
    def __init__(self, function: Callable[[int, int], Any]) -> None:
        self._function = function

    def roots(self) -> List[Tuple[str, Any]]:
        return [("function", self._function)]

    def get(self, step: int, v: int, indices: Sequence[int]) -> Any:
        return self._function(step, v)


class Arrays(Source):
    """A tuple, a dict or a single one of arrays, whose first dimension is the samples."""

    def __init__(self, data: Any, take: Callable[[List[Any], Sequence[int]], List[Any]]) -> None:
        """take(arrays, indices): returns the rows `indices` of each array."""
        arrays = _arrays_of(data)
        sizes = sorted({int(array.shape[0]) for array in arrays})
        if len(sizes) != 1:
            raise Error(
                f"the arrays of the dataset have different numbers of samples (their first dimension): {sizes}"
            )
        self.size = sizes[0]
        self._data = data
        self._take = take

    def read(self, step: int, v: int, indices: Sequence[int]) -> Any:
        return self.get(step, v, indices)  # it draws nothing

    def contents(self) -> Optional[int]:
        assert self.size is not None
        rows = self._take(_arrays_of(self._data), compared(self.size))
        return stamp_of([self.size, rows], self._as_array)

    def get(self, step: int, v: int, indices: Sequence[int]) -> Any:
        rows = self._take(_arrays_of(self._data), indices)
        if isinstance(self._data, tuple):
            return tuple(rows)
        if isinstance(self._data, dict):
            return dict(zip(self._data, rows))
        return rows[0]


class Samples(Source):
    """A map-style dataset: len(dataset) and dataset[index]."""

    def __init__(self, dataset: Any, collate: Callable[[List[Any]], Any]) -> None:
        self.size = length(dataset)
        self._dataset = dataset
        self._collate = collate

    def roots(self) -> List[Tuple[str, Any]]:
        return [("dataset", self._dataset), ("collate", self._collate)]

    def contents(self) -> Optional[int]:
        return contents_of(self._dataset, self._seeding, self._held, self._as_array)

    def get(self, step: int, v: int, indices: Sequence[int]) -> Any:
        return fetch(self._dataset, self._collate, indices)


def compared(size: int) -> List[int]:
    """Returns the indices of the samples that all workers compare."""
    return sorted({i * (size - 1) // max(1, _COMPARED - 1) for i in range(_COMPARED)})


def contents_of(
    dataset: Any, seeding: Seeding, held: _generators.Held, as_array: _state.AsArray
) -> Optional[int]:
    """Returns the stamp of a map-style dataset: of its `fingerprint`, if that is a text, else of some samples."""
    size = length(dataset)
    fingerprint = getattr(dataset, "fingerprint", None)
    if isinstance(fingerprint, str):
        return stamp_of([size, fingerprint], as_array)

    def read() -> Any:
        return fetch(dataset, list, compared(size))

    try:
        return stamp_of([size, seeding.run(held, 0, seeding.comparison(), read)], as_array)
    except Exception:  # of the code of the dataset: the micro-batch that has the sample reports it
        return size


def stamp_of(value: Any, as_array: _state.AsArray) -> int:
    return _native.hash_bytes(canonical(value, as_array)) & STAMP_MASK


def canonical(value: Any, as_array: _state.AsArray) -> bytes:
    """Returns bytes that are equal for equal samples. Of objects other than arrays, numbers, text and containers only the type;
    of an absolute path only its last part, because workers may keep their files in different folders.
    """
    if isinstance(value, (list, tuple)):
        return b"(" + b",".join(canonical(part, as_array) for part in value) + b")"
    if isinstance(value, dict):
        return b"{" + b",".join(canonical(part, as_array) for item in value.items() for part in item) + b"}"
    if isinstance(value, str) and value.startswith("/"):
        value = os.path.basename(value)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value).encode(errors="backslashreplace")
    try:
        array = as_array(value)
    except Error:  # of a kind that is no state, such as a sparse tensor
        array = None
    if array is None:
        return type(value).__qualname__.encode()
    return f"{array.type}{array.shape}".encode() + bytes(array.view())


def fetch(dataset: Any, collate: Callable[[List[Any]], Any], indices: Sequence[int]) -> Any:
    # Datasets that read many samples at once faster have __getitems__, as PyTorch's DataLoader knows it.
    get_many = getattr(dataset, "__getitems__", None)
    return collate(get_many(list(indices)) if get_many else [dataset[index] for index in indices])


def _arrays_of(data: Any) -> List[Any]:
    if isinstance(data, tuple):
        return list(data)
    if isinstance(data, dict):
        return list(data.values())
    return [data]


def is_arrays(data: Any, is_array: Callable[[Any], bool]) -> bool:
    """Returns whether `data` is arrays whose rows are the samples, rather than a sequence of samples."""
    arrays = _arrays_of(data)
    return bool(arrays) and all(is_array(array) and len(array.shape) > 0 for array in arrays)


def length(dataset: Any) -> int:
    """Errors: the dataset has no length or no items, so no permutation of its samples is defined."""
    if not hasattr(dataset, "__getitem__"):
        raise Error(
            f"{type(dataset).__name__} is neither a map-style dataset (it has no __getitem__) nor one that can be iterated over again "
            "and again. Or pass a function: step.micro_batches(fn), where fn(step, micro_batch) returns the batch and depends on "
            "nothing else"
        )
    try:
        size = len(dataset)
    except (TypeError, NotImplementedError) as error:
        raise Error(
            f"{type(dataset).__name__} has no length, so its samples cannot be shuffled and shared. Define __len__, or pass a "
            "function: step.micro_batches(fn), where fn(step, micro_batch) returns the batch"
        ) from error
    if size < 1:
        raise Error(f"{type(dataset).__name__} is empty")
    return size
