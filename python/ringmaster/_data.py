# SPDX-License-Identifier: Apache-2.0
"""Where the samples of a micro-batch come from: arrays, a map-style dataset, or a function. Streams: _stream.py."""

from __future__ import annotations

import abc
from typing import Any, Callable, List, Optional, Sequence

from ._errors import Error


class Source(abc.ABC):
    """Thread-safety: not thread-safe."""

    size: Optional[int] = None  # samples; None: unknown, or a function decides what a micro-batch is
    random: bool = True  # whether `get` may use random numbers

    def stamp(self, step: int) -> Optional[int]:
        """Returns a number that differs for other data of this step, below 2**48: equal on all workers. None: nothing does."""
        return self.size

    @abc.abstractmethod
    def get(self, step: int, v: int, indices: Sequence[int]) -> Any:
        """Returns the batch of micro-batch v of a step, which has the samples `indices`."""

    def close(self) -> None:
        """Ends processes that the source started."""


class Function(Source):
    def __init__(self, function: Callable[[int, int], Any]) -> None:
        self._function = function

    def get(self, step: int, v: int, indices: Sequence[int]) -> Any:
        return self._function(step, v)


class Arrays(Source):
    """A tuple, a dict or a single one of arrays, whose first dimension is the samples."""

    random = False

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

    def get(self, step: int, v: int, indices: Sequence[int]) -> Any:
        return fetch(self._dataset, self._collate, indices)


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
