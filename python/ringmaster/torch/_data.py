# SPDX-License-Identifier: Apache-2.0
"""Datasets of PyTorch: tensors, map-style datasets, and processes that read ahead."""

from __future__ import annotations

import ctypes
import functools
import os
import pickle
import random
import signal
import sys
from typing import Any, Callable, Iterator, List, Optional, Sequence, Set, Tuple

import torch
import torch.multiprocessing
import torch.utils.data

from .. import _data, _generators, _native, _stream
from .._errors import Error, Remote, describe_exception
from . import _tensors

_PR_SET_PDEATHSIG = 1
_Key = Tuple[int, int, List[int]]  # step, micro-batch, samples
_COMPARE = -1  # the step of a key that asks for the stamp of the dataset


def take(arrays: Sequence[Any], indices: Sequence[int]) -> List[Any]:
    """Returns the rows `indices` of tensors and of arrays of NumPy."""
    rows = torch.as_tensor(indices, dtype=torch.int64)
    # index_select does what array[rows] does, in half the time.
    return [
        array.index_select(0, rows.to(array.device)) if isinstance(array, torch.Tensor) else array[list(indices)]
        for array in arrays
    ]


def is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return isinstance(value, torch.Tensor) or (numpy is not None and isinstance(value, numpy.ndarray))


def is_stream(data: Any) -> bool:
    return isinstance(data, torch.utils.data.IterableDataset) or _stream.is_stream(data)


def source(
    data: Any,
    collate: Optional[Callable[[List[Any]], Any]],
    num_workers: int,
    keys_from: Callable[[int, int, int], Iterator[_Key]],
    seed: "Seeder",
    order: Optional[_data.Order] = None,
) -> _data.Source:
    """Returns the source that `data` is; with an order, of a map-style dataset.

    keys_from(size, step, v): this worker's micro-batches from (step, v) on, of a dataset of `size`, if its share stays as it is.
    """
    if order is not None:
        assert collate is not None
        if num_workers > 0:
            return _ReadAhead(data, collate, num_workers, keys_from, seed, order)
        samples = _data.Samples(data, collate)
        samples.size, samples.order = order.size, order
        return samples
    if isinstance(data, torch.utils.data.TensorDataset) and collate is None and num_workers == 0:
        data = data.tensors
    if collate is None and num_workers == 0 and _data.is_arrays(data, is_array):
        return _data.Arrays(data, take)
    if callable(data) and not hasattr(data, "__getitem__"):
        if collate is not None or num_workers != 0:
            raise Error(
                "step.micro_batches(fn) takes neither collate_fn nor num_workers: fn returns the batch itself"
            )
        return _data.Function(data)
    collate = collate or torch.utils.data.default_collate
    if num_workers == 0:
        return _data.Samples(data, collate)
    return _ReadAhead(data, collate, num_workers, keys_from, seed)


class _Fetcher(torch.utils.data.Dataset[Any]):
    """Maps the key of a micro-batch to its batch; runs in the processes that read ahead."""

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[List[Any]], Any],
        seeder: "Seeder",
        micro_batches: int,
        ignored: Optional[Callable[[], Set[int]]] = None,
    ) -> None:
        """ignored: returns the generators that are state, by id; only for a fetcher that runs in the trainer."""
        self._dataset = dataset
        self._collate = collate
        self._seeding = _data.Seeding(seeder, seeder.number, _no_state, micro_batches)
        self._held = _generators.Held([("dataset", dataset), ("collate", collate)], ignored or _no_state)

    def __getitem__(self, key: _Key) -> Any:
        step, v, indices = key
        try:
            if step == _COMPARE:
                return _data.contents_of(self._dataset, self._seeding, self._held, _tensors.as_array)
            return self._seeding.run(
                self._held, step, v, lambda: _data.fetch(self._dataset, self._collate, indices)
            )
        except Exception as error:
            return _Raised(error)


def _no_state() -> Set[int]:
    return _generators.ignored_of(())


class _Raised:
    """An exception of the code that reads a batch, on its way to the trainer.

    PyTorch would raise one of the same type there, without its errno, and with a place in PyTorch.
    """

    def __init__(self, error: Exception) -> None:
        self._report = describe_exception(error)
        self._text = f"{type(error).__name__}: {error}"
        try:
            self._error = pickle.dumps(error)
        except Exception:  # whatever the exception holds
            self._error = b""

    def reraise(self) -> None:
        error: Exception
        try:
            error = pickle.loads(self._error)
        except Exception:  # also of a type whose constructor takes other arguments
            error = RuntimeError(self._text)
        raise error from Remote(self._report)


class _Keys(torch.utils.data.Sampler[_Key]):
    def __init__(self, keys_from: Callable[[int, int, int], Iterator[_Key]], size: int) -> None:
        self._keys_from = keys_from
        self._size = size
        self.start = (0, 0)

    def __iter__(self) -> Iterator[_Key]:
        if self.start[0] == _COMPARE:
            return iter([(_COMPARE, 0, [])])
        return self._keys_from(self._size, *self.start)


class _ReadAhead(_data.Source):
    """Reads the micro-batches that come next if this worker's share stays as it is; starts again when it changes."""

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[List[Any]], Any],
        num_workers: int,
        keys_from: Callable[[int, int, int], Iterator[_Key]],
        seed: "Seeder",
        order: Optional[_data.Order] = None,
    ) -> None:
        self.size = _data.length(dataset) if order is None else order.size
        self.order = order
        self._keys = _Keys(keys_from, self.size)
        self._loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
            _Fetcher(dataset, collate, seed, seed.micro_batches),
            sampler=self._keys,
            batch_size=None,
            collate_fn=_as_is,
            num_workers=num_workers,
            persistent_workers=True,
            # True if the program computes on a GPU.
            pin_memory=torch.cuda.is_initialized(),  # type: ignore[no-untyped-call]
            worker_init_fn=_die_with_this_process(),
        )
        self._expected: Iterator[_Key] = iter(())  # the keys of what _batches yields
        self._batches: Iterator[Any] = iter(())

    def read(self, step: int, v: int, indices: Sequence[int]) -> Any:
        return self.get(step, v, indices)  # the process that reads has seeded its generators

    def contents(self) -> Optional[int]:
        # Not in this process: a dataset may open its files at the first sample, and the processes must not share them.
        self._keys.start = (_COMPARE, 0)
        self._expected = iter(())
        stamp = next(iter(self._loader))
        return stamp if isinstance(stamp, int) else self.size

    def get(self, step: int, v: int, indices: Sequence[int]) -> Any:
        expected = next(self._expected, None)
        if expected is None or expected[:2] != (step, v):
            self._keys.start = (step, v)
            self._expected = iter(self._keys)
            next(self._expected)
            self._batches = iter(self._loader)
        batch = next(self._batches)
        if isinstance(batch, _Raised):
            batch.reraise()
        return batch

    def close(self) -> None:
        # The processes end with their iterator.
        self._batches = iter(())
        self._loader._iterator = None


def evaluated(
    dataset: Any,
    collate: Optional[Callable[[List[Any]], Any]],
    num_workers: int,
    keys: Sequence[_Key],
    seed: "Seeder",
    ignored: Callable[[], Set[int]],
) -> Iterator[Any]:
    """Yields the batches of these keys, whose random numbers depend on the key alone. The caller seeds what its loop draws.

    ignored: returns the generators that are state, by id.
    """
    if isinstance(dataset, torch.utils.data.TensorDataset) and collate is None:
        dataset = dataset.tensors
    if collate is None and num_workers == 0 and _data.is_arrays(dataset, is_array):
        arrays = _data.Arrays(dataset, take)
        for key in keys:
            yield arrays.get(*key)
        return
    fetcher = _Fetcher(
        dataset,
        collate or torch.utils.data.default_collate,
        seed,
        seed.micro_batches,
        ignored if num_workers == 0 else None,
    )
    loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
        fetcher,
        sampler=keys,
        batch_size=None,
        collate_fn=_as_is,
        num_workers=num_workers,
        worker_init_fn=_die_with_this_process(),
    )
    for batch in loader:
        if isinstance(batch, _Raised):
            batch.reraise()
        yield batch


def _as_is(batch: Any) -> Any:
    return batch


def _die_with_this_process() -> Callable[[int], None]:
    """Returns the function that a process that reads ahead runs first."""
    # The parent of processes of a fork server is that server, which ends soon after this process.
    forks = torch.multiprocessing.get_start_method() != "forkserver"
    return functools.partial(_die_with_parent, os.getpid() if forks else None)


def _die_with_parent(trainer: Optional[int], worker: int) -> None:
    """Without this, the process of a trainer that is killed would live on, and hold its memory, its sockets and its output."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if trainer is not None and os.getppid() != trainer:  # the trainer ended before the call took effect
        os._exit(1)


def lost_reader(error: RuntimeError) -> bool:
    """Returns whether the error says that a process that reads ahead is gone, for example killed because memory was short.

    An exception in such a process arrives as the same exception in the trainer.
    """
    return str(error).startswith("DataLoader worker (pid")


class Seeder:
    """Seeds the random numbers of a micro-batch, in the trainer and in the processes that read ahead for it."""

    def __init__(self, seed: int, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self._seed = seed

    def number(self, step: int, v: int) -> int:
        return _native.random_seed(self._seed, step, v)

    def __call__(self, step: int, v: int) -> None:
        seed_all(self.number(step, v))


def seed_all(seed: int) -> None:
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)  # more bits, as an array, take it ten times as long
    # torch.manual_seed formats the stack for each type of device that is not there: a millisecond or more in each micro-batch.
    kind = _accelerator()
    if kind not in ("", "cuda"):
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if kind == "cuda" and not torch.cuda._is_in_bad_fork():  # as in a process that reads ahead
        torch.cuda.manual_seed_all(seed)


@functools.lru_cache(maxsize=None)
def _accelerator() -> str:
    """Returns the type of device that this machine has apart from CPUs, "" for none, "?" if this version of PyTorch cannot say."""
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return "?"
    current = accelerator.current_accelerator() if accelerator.device_count() > 0 else None
    return "" if current is None else str(current.type)
