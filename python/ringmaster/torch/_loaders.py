# SPDX-License-Identifier: Apache-2.0
"""A torch.utils.data.DataLoader taken apart: its dataset, how samples become batches, and the order that its sampler yields."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch.utils.data
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from .. import _data, _generators, _native, _run
from .._errors import Error
from . import _data as _datasets

_EPOCHS = 2**31 - 1  # in place of the micro-batch: what seeds the order of an epoch


class Order(_data.Order):
    """The order of samples in each epoch that a sampler yields, drawn from (seed, epoch), whatever was drawn before."""

    def __init__(self, sampler: Any, samples: int, seed: int) -> None:
        """samples: of the dataset."""
        self.size = len(sampler)
        self._sampler = sampler
        self._samples = samples
        self._seed = seed
        self._generators = _generators.find([("sampler", sampler)], _generators.ignored_of(()))
        self._epochs: Dict[int, List[int]] = {}
        self._stamps: Dict[int, int] = {}  # of the same epochs

    def __call__(self, epoch: int) -> Sequence[int]:
        if type(self._sampler) is SequentialSampler:
            return range(self.size)
        if epoch not in self._epochs:
            if len(self._epochs) > 1:
                oldest = min(self._epochs)
                del self._epochs[oldest]
                self._stamps.pop(oldest, None)
            self._epochs[epoch] = self._draw(epoch)
        return self._epochs[epoch]

    def stamp(self, epoch: int) -> int:
        order = self(epoch)
        if isinstance(order, range):
            return 0
        if epoch not in self._stamps:  # each step asks, and the order of an epoch may be long
            self._stamps[epoch] = _native.hash_bytes(repr(order).encode()) & _data.STAMP_MASK
        return self._stamps[epoch]

    def _draw(self, epoch: int) -> List[int]:
        number = _native.random_seed(self._seed, epoch, _EPOCHS)
        _datasets.seed_all(number)
        _generators.seed_all(self._generators, number)
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        name = type(self._sampler).__name__
        order = [int(index) for index in itertools.islice(self._sampler, self.size + 1)]
        if len(order) != self.size:
            raise Error(
                f"the sampler {name} has the length {self.size}, and yields {'more' if len(order) > self.size else len(order)} samples"
            )
        if not all(0 <= index < self._samples for index in order):
            raise Error(f"the sampler {name} yields samples that the dataset, of {self._samples}, does not have")
        return order


@dataclasses.dataclass
class Parts:
    dataset: Any
    collate: Callable[[List[Any]], Any]
    num_workers: int
    order: Optional[Order]  # None: a permutation in each epoch, or that of a stream


def parts_of(loader: "DataLoader[Any]", settings: _run.Settings) -> Parts:
    """Errors: what the loader does and step.micro_batches cannot do, by name."""

    def refuse(what: str, instead: str) -> Error:
        return Error(
            f"step.micro_batches(DataLoader): {what}. {instead}, or pass the dataset: "
            "step.micro_batches(dataset, collate_fn=..., num_workers=...)"
        )

    if loader.worker_init_fn is not None:
        raise refuse("its worker_init_fn would not be called", "Ringmaster seeds all generators that it finds: leave it out")
    if isinstance(loader.dataset, IterableDataset):
        if loader.batch_size is None:
            raise refuse("it has batch_size=None", "Give it a batch_size")
        _check_batch(loader.batch_size, loader.drop_last, settings, refuse)
        return Parts(loader.dataset, loader.collate_fn, loader.num_workers, None)
    batches = loader.batch_sampler
    if batches is None:
        raise refuse("it has batch_size=None", "Give it a batch_size")
    if type(batches) is not BatchSampler:
        raise refuse(
            f"its batch_sampler, a {type(batches).__name__}, chooses which samples make a batch, and Ringmaster divides each step into "
            "micro-batches of equal size",
            "Give the loader a sampler that yields samples",
        )
    _check_batch(batches.batch_size, batches.drop_last, settings, refuse)
    sampler, samples = batches.sampler, _data.length(loader.dataset)
    order = None
    if isinstance(sampler, DistributedSampler):
        raise refuse("its DistributedSampler leaves samples to other processes, and Ringmaster divides them itself", "Leave the sampler out")
    if not (type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == samples):
        if not hasattr(sampler, "__len__"):
            raise refuse(f"its sampler, a {type(sampler).__name__}, has no length, so an epoch has none", "Define __len__")
        order = Order(sampler, samples, settings.seed)
    return Parts(loader.dataset, loader.collate_fn, loader.num_workers, order)


def check_evaluated(loader: "DataLoader[Any]") -> None:
    """Errors: the loader reads other samples than each of its dataset once, by name."""
    if isinstance(loader.dataset, IterableDataset):
        return  # a stream, which run.evaluate refuses
    sampler: Any = loader.sampler
    each_once = type(sampler) is SequentialSampler or (type(sampler) is RandomSampler and not sampler.replacement)
    if not each_once or len(sampler) != _data.length(loader.dataset):
        what = f"its sampler, a {type(sampler).__name__}, would be ignored"
    elif loader.drop_last:
        what = "its drop_last=True would be ignored"
    elif loader.worker_init_fn is not None:
        what = "its worker_init_fn would not be called"
    else:
        return
    raise Error(
        f"run.evaluate(DataLoader): {what}, since run.evaluate reads each sample of the dataset once. Leave it out; to evaluate some "
        "samples, pass torch.utils.data.Subset(dataset, indices)"
    )


def _check_batch(
    size: int, drop_last: bool, settings: _run.Settings, refuse: Callable[[str, str], Error]
) -> None:
    if settings.samples_per_step is not None:
        of_micro_batch = settings.samples_per_step // settings.micro_batches
        if size not in (of_micro_batch, settings.samples_per_step):
            raise refuse(
                f"it has batches of {size}, and a micro-batch has {of_micro_batch} samples (samples_per_step / micro_batches of rm.init)",
                f"Create it with batch_size={of_micro_batch}",
            )
    if drop_last and not settings.drop_last:
        raise refuse("it has drop_last=True, and the run has not", "Add it: rm.init(..., drop_last=True)")
