# SPDX-License-Identifier: Apache-2.0
"""The loop over steps that all frameworks share. An adapter (ringmaster.torch, .jax, .numpy) says what tensors and state are.

The library decides what happens next (rm_next). `Run.steps` answers its questions about the state, and yields a Step whenever
this worker is to compute its share of one. A step that is interrupted is yielded again, so user code has no special case.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import dataclasses
import math
import operator
import os
import random
import sys
import types
import weakref
from typing import Any, Callable, Container, Generic, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Type, TypeVar

from . import _data, _generators, _native, _state, _stream
from ._errors import EXIT_DEVICE, EXIT_MEMORY, Error, Stopped, describe_exception, is_transient

_STAMP = "stamp of the data"  # the tensor that has the bits of Source.stamp, by which workers notice that their data differ
_STAMP_BITS = 48
_TRANSPORTS = ("auto", "shm", "ucx")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor whose values are averaged over the micro-batches of a step."""

    name: str
    elements: int
    in_norm: bool = True  # whether it is a gradient, which counts in the gradient norm


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to train, equal on all workers. `init` of the adapters documents the fields."""

    micro_batches: int
    samples_per_step: Optional[int] = None
    seed: int = 0
    numerics: str = "exact"
    checkpoint_folder: Optional[str] = None
    checkpoint_every: Optional[int] = None
    checkpoint_keep: Optional[int] = None
    data_fingerprint: str = ""
    transport: Optional[str] = None
    drop_last: bool = False
    digests: Optional[str] = None

    @property
    def records_digests(self) -> bool:
        """Whether the library hashes gradients, which it needs in the memory of the host."""
        return bool(os.environ.get("RINGMASTER_DIGESTS") if self.digests is None else self.digests)

    def __post_init__(self) -> None:
        # Also of NumPy, for example.
        for name in ("micro_batches", "samples_per_step", "seed", "checkpoint_every", "checkpoint_keep"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _integer(name, value))

    def check(self) -> None:
        """Errors: a value out of range, by its name."""
        if not 1 <= self.micro_batches <= 65536:
            raise Error(f"micro_batches is {self.micro_batches}: it is 1 to 65536")
        if self.samples_per_step is not None:
            if self.samples_per_step < 1:
                raise Error(f"samples_per_step is {self.samples_per_step}: it is at least 1")
            if self.samples_per_step % self.micro_batches != 0:
                raise Error(
                    f"samples_per_step is {self.samples_per_step}, which is not a multiple of micro_batches, "
                    f"{self.micro_batches}: use {-(-self.samples_per_step // self.micro_batches) * self.micro_batches}"
                )
        if not 0 <= self.seed < 2**64:
            raise Error(f"seed is {self.seed}: it is 0 to 2**64 - 1")
        if self.numerics not in _native.NUMERICS:
            raise Error(f"numerics is {self.numerics!r}: it is one of {', '.join(_native.NUMERICS)}")
        if self.checkpoint_every is not None and self.checkpoint_every < 0:
            raise Error(f"checkpoint_every is {self.checkpoint_every}: it is at least 0")
        if self.checkpoint_keep is not None and self.checkpoint_keep < 1:
            raise Error(f"checkpoint_keep is {self.checkpoint_keep}: it is at least 1")
        if not isinstance(self.data_fingerprint, str):
            raise Error(f"data_fingerprint is {self.data_fingerprint!r}: it is a string")
        if self.transport not in (None, *_TRANSPORTS):
            raise Error(f"transport is {self.transport!r}: it is one of {', '.join(_TRANSPORTS)}")


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise Error(f"{name} is {value!r}: it is an integer") from None


class Step:
    """One attempt at a step: this worker's share of its micro-batches, then the commit."""

    def __init__(self, run: "Run[Any]", event: _native.Event) -> None:
        self.number: int = event.step  # 0 for the first
        self.attempt: int = event.attempt  # 0 the first time that this worker attempts the step
        self.micro_batch: Optional[int] = None  # the current one, inside of the loop over them
        self.samples: List[int] = []  # indices of its samples in the dataset
        self.loss: Optional[float] = (
            None  # after the commit: mean over the samples of the step, equal on all workers
        )
        self.gradient_norm: Optional[float] = None  # after the commit: Euclidean, before clipping
        self.weight: Optional[float] = (
            None  # after the commit: sum of the weights of the micro-batches, or their number if they have none
        )
        self._run = run
        self._share = range(event.first, event.end)
        self._iterated = False  # micro_batches was called
        self._complete = False  # the whole share is in the sums
        self._interrupted = False  # the step must be attempted again
        self._committed = False
        self._last_micro_batch = 0  # of the step that has samples
        self._weight = 1.0  # of the current micro-batch in the mean over the samples of the step
        self._given_weight: Optional[float] = None  # by the program, in its place
        self._micro_batch_loss: Optional[float] = None

    def micro_batches(
        self, data: Any, *, collate_fn: Optional[Callable[[List[Any]], Any]] = None, num_workers: int = 0
    ) -> Iterator[Any]:
        """Yields the batches of this worker's share of the step. It ends early when the step is interrupted.

        data: one of
          arrays             a tuple or dict of them, or one, whose first dimension is the samples: yields their rows
          map-style dataset  len(data) and data[index]: yields collate_fn([data[i], ...])
          DataLoader         of PyTorch: its dataset in the order of its sampler, collate_fn and num_workers
          function           fn(step, micro_batch): yields what it returns, which must depend on its arguments only
          iterable dataset   its samples in its order, which must be the same whenever it is iterated over: yields collate_fn of
                             them. Each worker reads all of it; one that starts or joins at a later step does so from the beginning
        num_workers: processes that read ahead; map-style datasets of PyTorch only.
        """
        source = self._run._cached_source(data, collate_fn, num_workers)
        def stamp(step: int) -> Optional[int]:
            return self._run._stamp(source, step)

        for v in self._next_micro_batch(source.size, stamp, source.order):
            batch = source.read(self.number, v, self.samples)
            # Whether another process read the samples makes no difference.
            self._run._seed_micro_batch(self.number, v)
            yield batch

    def indices(self, size: int) -> Iterator[List[int]]:
        """Yields, for each micro-batch of this worker's share, the indices of its samples in a dataset of `size`."""
        for v in self._next_micro_batch(size, lambda step: size):
            self._run._seed_micro_batch(self.number, v)
            yield self.samples

    @property
    def random_seed(self) -> int:
        """The seed of the random numbers of the current micro-batch, 64 bits: a hash of (seed, step, micro-batch)."""
        return _native.random_seed(self._run.settings.seed, self.number, self._current())

    @property
    def epoch(self) -> int:
        """The pass over the dataset that this step belongs to, from 0. Known from the first micro-batch of the run on."""
        return self.number // self._steps_per_epoch()

    @property
    def ends_epoch(self) -> bool:
        """Whether this step takes the last samples of its epoch."""
        return (self.number + 1) % self._steps_per_epoch() == 0

    def _steps_per_epoch(self) -> int:
        run = self._run
        size = run._committed_size if run._dataset_size is None else run._dataset_size
        if size is None:
            raise Error(
                "the epoch is unknown: the data has no length, or step.micro_batches(dataset) was not called yet"
            )
        return run.steps_per_epoch(size)

    def _current(self) -> int:
        if self.micro_batch is None:
            raise Error(
                "no micro-batch is being computed: call this inside of the loop over step.micro_batches(...)"
            )
        return self.micro_batch

    def _next_micro_batch(
        self, size: Optional[int], stamp: Callable[[int], Optional[int]], order: Optional[_data.Order] = None
    ) -> Iterator[int]:
        """Yields the micro-batches that must be computed, and adds each to the sums when its code is done."""
        if self._interrupted:  # by an exchange before the micro-batches
            return
        if self._iterated:
            raise Error(
                f"the micro-batches of step {self.number} are iterated twice: one loop computes all of the share"
            )
        self._iterated = True
        run = self._run
        run._begin_micro_batches()
        run._check_size(self.number, size)
        self._last_micro_batch = run._last_micro_batch(self.number, size)
        if self._share:
            run._set_stamp(stamp(self.number))
        for v in self._share:
            status = run._native.begin_micro_batch(v)
            if status == _native.SKIP:
                continue
            if status == _native.REPEAT:
                self._interrupted = True
                return
            self.samples, self._weight = run._samples(self.number, v, size, order)
            self._micro_batch_loss = self._given_weight = None
            if size is None or self.samples:
                self.micro_batch = v
                run._begin_micro_batch()
                yield v
                if not self._interrupted:
                    if self._micro_batch_loss is None:
                        raise Error(f"the code of micro-batch {v} did not call step.{run._add_call}")
                    run._end_micro_batch(self)
                run._restore()
                self.micro_batch = None
            if (
                run._add_floats(self, run._stamp_tensor, run._stamp_bits)
                and run._native.end_micro_batch(self._micro_batch_loss or 0.0, self._given_weight)
                == _native.REPEAT
            ):
                self._interrupted = True
            if self._interrupted:
                return
        self._complete = True

    def _add(self, tensor: int, address: int) -> bool:
        """Adds values to the sums, (elements) float32 at `address`. Returns False if the step was interrupted."""
        if not self._interrupted and self._run._native.add(tensor, address) == _native.REPEAT:
            self._interrupted = True
        return not self._interrupted

    def _check_first_loss(self) -> None:
        self._current()
        if self._micro_batch_loss is not None:
            raise Error(
                f"step.{self._run._add_call} was called twice in micro-batch {self.micro_batch}: call it once, with the sum of "
                "the losses"
            )

    def _set_weight(self, weight: Any) -> None:
        """weight: of the current micro-batch in the mean over the step, instead of that of its samples; None: that one."""
        value = None if weight is None else float(weight)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise Error(
                f"step.{self._run._add_call}: the weight of micro-batch {self.micro_batch} is {value}: it is finite and at least 0, "
                "such as the number of tokens whose loss counts"
            )
        if self._micro_batch_loss is not None and value != self._given_weight:
            raise Error(
                f"step.{self._run._add_call}: the weight of micro-batch {self.micro_batch} is {value}, and in an earlier call "
                f"{self._given_weight}: all calls in a micro-batch have the same weight"
            )
        self._given_weight = value

    @property
    def _factor(self) -> float:
        """By which the loss and the gradients of the current micro-batch are multiplied. 0: it has none."""
        return self._weight if self._given_weight is None else self._given_weight

    def _add_loss(self, loss: float) -> None:
        counted = loss * self._factor if self._factor > 0 else 0.0
        self._micro_batch_loss = (self._micro_batch_loss or 0.0) + counted

    def _set_loss(self, loss: float) -> None:
        self._check_first_loss()
        self._add_loss(loss)

    def _reduce(self) -> bool:
        """Reduces the sums over all workers. Returns False if the step must be attempted again."""
        if self._committed:
            raise Error(f"step {self.number} is committed already")
        if self._interrupted:
            return False
        if self.loss is not None:
            return True
        if self.micro_batch is not None:
            raise Error(
                f"step {self.number} cannot be committed in micro-batch {self.micro_batch}: commit after the loop over the "
                "micro-batches, and let the loop run to its end (no break)"
            )
        if not self._complete:
            raise Error(
                f"step {self.number} cannot be committed: its micro-batches were not computed (step.micro_batches)"
            )
        result = self._run._native.reduce()
        if result is None:
            self._interrupted = True
            return False
        self.loss, self.gradient_norm, self.weight = result
        self._run._check_equal_stamps()
        self._run._seed_micro_batch(self.number, self._run.settings.micro_batches)
        return True

    def _commit(self, learning_rate: float) -> None:
        assert self.gradient_norm is not None
        self._run._committed_size = self._run._dataset_size
        self._run._native.committed(learning_rate, self.gradient_norm)
        self._committed = True
        self._run._committed_steps += 1


StepT = TypeVar("StepT", bound=Step)


class Run(abc.ABC, Generic[StepT]):
    """A training job, as this worker sees it. One thread at a time."""

    _add_call = "add(loss, gradients)"  # what the code of a micro-batch must call, for messages

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self.settings = settings
        self.rank = 0  # of this worker; may change with each step
        self.world = 1  # workers
        self.generation = 0  # of the membership: grows whenever workers leave or join
        self.attempt = int(os.environ.get("RINGMASTER_ATTEMPT") or 0)  # of the job
        self._native = _native.Handle(settings.transport)
        # An agent takes the end of a run for the end of the process, which may still have weights to write.
        self._finalizer = weakref.finalize(self, self._native.close)
        if self._native.has_agent():
            self._finalizer.detach()
        self._committed_steps = 0  # by this process
        self._joined = False
        self._total = 0  # steps
        self._in_loop = False  # over the steps
        self._finish_requested = False
        self._yielded: Optional[StepT] = None  # the step that the loop is at
        self._kept: List[Any] = []  # memory that the library reads
        self._sources: List[Tuple[Tuple[Any, ...], _data.Source]] = []
        self._dataset_size: Optional[int] = None
        self._committed_size: Optional[int] = None  # of the dataset with which the state was trained
        self._generators: _generators.Found = []  # that are seeded like the global ones
        self._given_generators: _generators.Found = []  # by `rng`
        self._stamp_tensor = -1
        self._stamp_bits = (ctypes.c_float * _STAMP_BITS)()  # of the step's data; 0 if nothing is known of it
        _watch_exceptions(self)
        self._seed(settings.seed)

    # ---- for user code ----

    def steps(self, total: int) -> Iterator[StepT]:
        """Yields steps until `total` are committed, of this run and of the one that its checkpoint continues.

        A step that is interrupted is yielded again; the first step always is, because its gradients set the range of the
        exact sums. When the job stops early, such as on Ctrl-C, the program ends here with the exit code that continues it.

        Early stopping: see `finish`.
        """
        if self._joined:
            raise Error("run.steps was called before: a run has one loop over its steps")
        total = _integer("the number of steps", total)
        if total < 1:
            raise Error(f"run.steps({total}): a run has at least one step")
        self._joined = True
        self._find_generators()
        self._total = total
        self._join(total)
        described = False
        while (event := self._next_step()) is not None:
            self._kept = []
            step = self._make_step(event)
            self._begin_step(step)
            self._yielded = step
            self._in_loop = True
            # What the code draws before the micro-batches is the same on all workers and in each attempt.
            self._seed_micro_batch(step.number, self.settings.micro_batches + 1)
            try:
                yield step
            except GeneratorExit:
                # By break or return, or by an exception, which looks the same from here.
                if self._finish_requested and self._native.open:
                    self._leave_early()
                raise
            if not step._committed and not step._interrupted:
                raise Error(
                    f"step {step.number} was computed, but not committed: end the loop with step.commit()"
                )
            self._restore()
            if not step._committed:
                self._take_back()
            if step._committed and not described:
                # State that cannot be stored fails here, rather than hours later at a checkpoint, a joining worker or the end.
                self._describe(_state.Encoder(self._as_array))
                described = True

    def _next_step(self) -> Optional[_native.Event]:
        """Answers what the library asks about the state. Returns the next step to compute; None: the run has ended."""
        while True:
            event = self._native.next()
            self.rank, self.world, self.generation = event.rank, event.world, event.generation
            if event.kind == _native.EVENT_DESCRIBE:
                self._answer_describe()
            elif event.kind == _native.EVENT_LOAD:
                self._answer_load(event)
            elif event.kind == _native.EVENT_STEP:
                return event
            else:
                self._kept = []
                self._in_loop = False
                self._close_sources()
                if not event.finished:
                    raise Stopped(self._native.exit_code())
                return None

    def steps_per_epoch(self, size: int) -> int:
        """Returns how many steps an epoch of a dataset of `size` has; the last one may have fewer samples, unless drop_last."""
        if self.settings.samples_per_step is None:
            raise Error("an epoch has a length only with init(samples_per_step=...)")
        size, per_step = _integer("the size of the dataset", size), self.settings.samples_per_step
        if not self.settings.drop_last:
            return -(-size // per_step)
        if size < per_step:
            raise Error(
                f"the dataset has {size} samples, and init(drop_last=True) drops steps with fewer than {per_step}: none is left"
            )
        return size // per_step

    def finish(self) -> None:
        """Ends the run after the step that was committed last, as if it were the last one. The loop over the steps then ends.

        Call it after step.commit() has returned True, on all workers after the same step: decide it by what is equal on all, such
        as step.loss. Otherwise the job fails with a message that says so.
        """
        if self._yielded is None or not self._yielded._committed:
            raise Error(
                "run.finish() was called before a step was committed: call it in the loop, if step.commit() returned True"
            )
        self._native.finish()
        self._finish_requested = True

    def _leave_early(self) -> None:
        """The code has left the loop after `finish`: takes part in the last exchange, or ends the process."""
        try:
            self._restore()
            event = self._next_step()
            if event is not None:
                raise Error(f"the loop was left early, but the run went back to step {event.step}")
        except SystemExit as error:  # all of these would be lost: Python prints them, and continues after the loop
            _exit_now(error.code if isinstance(error.code, int) else 1)
        except BaseException as error:
            _on_exception(type(error), error, error.__traceback__)
            _exit_now(1)

    def rng(self, kind: str = "numpy") -> Any:
        """Returns a new generator of random numbers, which is seeded for each micro-batch like the global ones.

        kind: "numpy", a numpy.random.Generator; "python", a random.Random; "torch", a torch.Generator of the CPU. Call it before
        run.steps, in the same order on all workers. What a dataset holds may be any of them.
        """
        if self._joined:
            raise Error("run.rng was called in the loop over the steps: create all generators before run.steps(...)")
        generator = _generators.create(kind)
        path = f"run.rng.{len(self._given_generators)}"
        self._given_generators.append((path, generator))
        _generators.seed_all([(path, generator)], self.settings.seed)
        return generator

    def validated(self, loss: float, accuracy: float = math.nan) -> None:
        """Reports what validation samples say about the current weights. The call of rank 0 counts."""
        self._native.validated(float(loss), float(accuracy))

    def heartbeat(self) -> None:
        """Shows that the program makes progress, within a micro-batch or an evaluation that takes minutes. Thread-safe."""
        self._native.heartbeat()

    @property
    def leaving(self) -> Optional[float]:
        """The seconds in which this worker must have left, once its node is drained or preempted; None before. Thread-safe.

        It is the most: the stop of the pod may grant less than the grace period of the job, and the worker does not know.

        The loop over the steps ends here after the current step, by SystemExit, and the other workers continue. So a program
        looks at this before it begins what takes long, such as an upload. It may differ between workers: decide nothing by it
        that all must do alike.
        """
        return self._native.leaving()

    def close(self) -> None:
        """Leaves the job. The end of the process does so as well, and should follow."""
        self._close_sources()
        self._finalizer.detach()
        self._native.close()

    def __enter__(self: "RunT") -> "RunT":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: object
    ) -> None:
        if value is not None:
            _report_exception(self, value)
        self.close()

    # ---- what an adapter defines ----

    @abc.abstractmethod
    def _make_step(self, event: _native.Event) -> StepT: ...

    @abc.abstractmethod
    def _tensors(self) -> List[Tensor]:
        """Returns the tensors that are reduced, in the order in which backward finishes them."""

    @abc.abstractmethod
    def _fingerprint(self) -> Mapping[str, str]:
        """Returns what all workers must have in common, by name."""

    @abc.abstractmethod
    def _device(self) -> str:
        """Returns what computes, such as "torch 2.15.0 cpu": other devices may give other bits."""

    @abc.abstractmethod
    def _describe(self, encoder: _state.Encoder) -> Any:
        """Returns the state as JSON of the encoder, and adds its arrays to it."""

    @abc.abstractmethod
    def _load(self, state: Any, decoder: _state.Decoder) -> None:
        """Adopts a state that _describe returned, possibly of another worker."""

    @abc.abstractmethod
    def _as_array(self, value: Any) -> Optional[_state.Array]:
        """Returns the array that a value of the state is, None if it is something else."""

    @abc.abstractmethod
    def _from_array(self, array: _state.Array) -> Any:
        """Returns a copy of an array of the state as a value."""

    @abc.abstractmethod
    def _source(
        self, data: Any, collate: Optional[Callable[[List[Any]], Any]], num_workers: int
    ) -> _data.Source:
        """Returns the source of samples that `data` is."""

    def _gpu(self) -> Optional[int]:
        """Returns the number of the GPU whose memory has the gradients; None: the host's memory has them."""
        return None

    def _add_floats(self, step: Step, tensor: int, values: "ctypes.Array[ctypes.c_float]") -> bool:
        """Adds values of the host's memory to the sums. Returns False if the step was interrupted."""
        return step._add(tensor, ctypes.addressof(values))

    def _mean_floats(self, tensor: int, elements: int) -> List[float]:
        """Returns the mean of a small tensor over the micro-batches. REQUIRES: the step is reduced."""
        means = (ctypes.c_float * elements)()
        self._native.gradient(tensor, ctypes.addressof(means))
        return list(means)

    def _begin_step(self, step: StepT) -> None:
        """Prepares an attempt at a step."""

    def _begin_micro_batches(self) -> None:
        """Prepares the loop over the micro-batches of a step."""

    def _begin_micro_batch(self) -> None:
        """Prepares a micro-batch."""

    def _take_back(self) -> None:
        """Undoes what an attempt that did not commit has changed in the state apart from its micro-batches."""

    def _end_micro_batch(self, step: StepT) -> None:
        """Adds what the micro-batch changed to the sums."""

    def _restore(self) -> None:
        """Undoes what micro-batches changed in the state, apart from a commit. May be called at any time between them."""

    def _seed(self, seed: int) -> None:
        """Seeds the global generators of random numbers."""
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed & 0xFFFFFFFF)

    def _hint(self, error: BaseException) -> str:
        """Returns what to do about a mistake in the program, as a sentence without capital; empty: unknown."""
        return ""

    def _exit_code(self, error: BaseException) -> Optional[int]:
        """Returns the exit code for an exception that a restart may resolve, None for a mistake in the program."""
        # Threads need memory, and a place in the limits of the container.
        no_thread = isinstance(error, RuntimeError) and str(error).startswith("can't start new thread")
        if isinstance(error, MemoryError) or no_thread:
            return EXIT_MEMORY
        return EXIT_DEVICE if is_transient(error, self._committed_steps > 0) else None

    # ---- state by name ----

    def _check_new_names(self, names: Iterable[str], registered: Container[str]) -> None:
        """Errors: run.register comes too late, or one of the names is registered already."""
        if self._joined:
            raise Error(
                "run.register was called in the loop over the steps: register everything before run.steps(...)"
            )
        for name in names:
            if name in registered:
                raise Error(f"run.register: {name} is registered already: use another name")

    # ---- the loop ----

    def _seed_number(self, step: int, v: int) -> int:
        return _native.random_seed(self.settings.seed, step, v)

    def _seed_globals(self, step: int, v: int) -> None:
        self._seed(self._seed_number(step, v))

    def _seed_micro_batch(self, step: int, v: int) -> None:
        """Seeds all generators that the code of a micro-batch may use. v: of the micro-batch, or a larger number."""
        number = self._seed_number(step, v)
        self._seed(number)
        _generators.seed_all(self._generators, number)

    def _state_objects(self) -> Iterable[Any]:
        """Returns the objects that are state, of which generators are left as they are."""
        return ()

    def _generator_roots(self) -> Sequence[Tuple[str, Any]]:
        """Returns the objects, by path, that may hold generators which the code of a micro-batch uses."""
        return ()

    def _ignored_generators(self) -> Set[int]:
        return _generators.ignored_of(self._state_objects())

    def _find_generators(self) -> None:
        main = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
        own = [(f"__main__.{name}", value) for name, value in main.items() if _generators.is_generator(value)]
        roots = [*self._given_generators, *own, *self._generator_roots()]
        self._generators = _generators.find(roots, self._ignored_generators())

    def _join(self, total: int) -> None:
        tensors = self._tensors()
        if not tensors:
            raise Error("there is nothing to train: call run.register(...) before run.steps(...)")
        self._stamp_tensor = len(tensors)
        tensors = [*tensors, Tensor(_STAMP, _STAMP_BITS, in_norm=False)]
        settings = self.settings
        folder = settings.checkpoint_folder
        gpu = self._gpu()
        common = dict(self._fingerprint())
        if settings.drop_last:
            common["drop-last"] = "True"
        fingerprint = "".join(f"{name}: {value}\n" for name, value in common.items())
        config = _native.Config(
            steps=total,
            micro_batches=settings.micro_batches,
            numerics=_native.NUMERICS[settings.numerics],
            samples_per_step=settings.samples_per_step or 0,
            seed=settings.seed,
            fingerprint=fingerprint.encode(),
            data_fingerprint=settings.data_fingerprint.encode() or None,
            device_fingerprint=self._device().encode(),
            checkpoint_folder=None if folder is None else os.fsencode(folder),
            checkpoint_every_steps=-1 if settings.checkpoint_every is None else settings.checkpoint_every,
            checkpoint_keep=settings.checkpoint_keep or 0,
            device=_native.DEVICE_HOST if gpu is None else _native.DEVICE_CUDA,
            device_ordinal=gpu or 0,
            digest_folder=None if settings.digests is None else os.fsencode(settings.digests),
        )
        self._native.join(
            config, [(t.name, t.elements, 0 if t.in_norm else _native.NOT_IN_NORM) for t in tensors]
        )

    def _answer_describe(self) -> None:
        encoder = _state.Encoder(self._as_array)
        state = {"format": 1, "dataset size": self._committed_size, "state": self._describe(encoder)}
        arrays = encoder.arrays
        self._native.describe(
            [(name, _state.STORED.get(array.type, array.type), array.address, array.bytes,
              _native.PARAMETER if array.parameter else 0)
             for name, array in arrays.items()],
            _state.to_bytes(state),
        )  # fmt: skip
        self._kept = list(arrays.values())

    def _answer_load(self, event: _native.Event) -> None:
        arrays = {}
        for i in range(event.array_count):
            array = event.arrays[i]
            arrays[array.name.decode()] = _state.Array(
                type=array.type.decode(), shape=(), address=array.data or 0, bytes=array.bytes
            )
        state = _state.from_bytes(ctypes.string_at(event.meta, event.meta_bytes))
        if not isinstance(state, dict) or state.get("format") != 1:
            raise Error("the state is of a newer version of the package: install that version")
        decoder = _state.Decoder(arrays, self._from_array)
        self._kept = []
        self._load(state["state"], decoder)
        self._check_loaded(state["state"], arrays)
        self._committed_size = state["dataset size"]

    def _check_loaded(self, state: Any, arrays: Mapping[str, _state.Array]) -> None:
        """Errors: the program does not have the state that was loaded, so this worker would differ from the others."""
        hashes = _state.Hashes(self._as_array)
        here = self._describe(hashes)
        found = None
        for name, (size, value) in hashes.hashes.items():
            loaded = arrays.get(name)
            if loaded is None or (size, value) != (
                loaded.bytes,
                _native.hash_memory(loaded.address, loaded.bytes),
            ):
                found = name
                break
        if found is None:
            where = _state.difference(here, state, "state")
            found = None if where is None else where.partition(".")[2] or "state"
        if found is not None:
            raise Error(
                f"after loading, {found} of the state is not what was loaded: a load_state_dict() must restore exactly what "
                "state_dict() returned, or leave the value out of both"
            )

    def _check_size(self, step: int, size: Optional[int]) -> None:
        """Checks the number of samples of the dataset; None: unknown."""
        self._dataset_size = size
        if size is None:
            return
        if self.settings.samples_per_step is None:
            raise Error(
                "the dataset has samples, but init(samples_per_step=...) does not say how many a step takes"
            )
        if self._committed_size is not None and size != self._committed_size:
            raise Error(
                f"the dataset has {size} samples, but step {step} was reached with {self._committed_size}, and their order "
                "depends on it: continue with the same dataset, or start a new job from exported weights"
            )

    def _set_stamp(self, stamp: Optional[int]) -> None:
        self._stamp_bits[:] = [float((stamp or 0) >> bit & 1) for bit in range(_STAMP_BITS)]

    def _check_equal_stamps(self) -> None:
        """Checks that all workers have the same data. REQUIRES: the step is reduced."""
        means = self._mean_floats(self._stamp_tensor, _STAMP_BITS)
        tolerance = 0.25 / self.settings.micro_batches  # sums of floats are rounded
        # One without a share of the step has no stamp of it, so it looks only at whether the others agree.
        if all(min(mean, 1 - mean) <= tolerance for mean in means):
            return
        if self._dataset_size is not None:
            raise Error(
                f"the dataset has {self._dataset_size} samples on this worker, and another size or other samples on another worker: "
                "give all workers the same data. If they have the same, but reading a sample twice gives other values, make it depend "
                "on the generators of random numbers that Ringmaster seeds, or set init(data_fingerprint=...), which is compared instead"
            )
        raise Error(
            "workers have different data: a stream begins this step with another sample on another worker, or is a dataset there. "
            "Give all workers the same data, in the same order whenever it is iterated over"
        )

    def _stream(self, data: Any, collate: Callable[[List[Any]], Any]) -> _data.Source:
        """Returns the source that an iterable dataset is."""
        settings = self.settings
        if settings.samples_per_step is None:
            raise Error(
                "the dataset has samples, but init(samples_per_step=...) does not say how many a step takes"
            )
        samples = settings.samples_per_step // settings.micro_batches
        return _stream.Stream(data, collate, samples, settings.micro_batches, self.heartbeat)

    def _stamp(self, source: _data.Source, step: int) -> Optional[int]:
        stamp = source.stamp(step)
        if stamp is None or source.order is None or self.settings.samples_per_step is None:
            return stamp
        epoch, _, _ = self._place(step, source.order.size, self.settings.samples_per_step)
        return stamp ^ source.order.stamp(epoch)

    def _samples(
        self, step: int, v: int, size: Optional[int], order: Optional[_data.Order] = None
    ) -> Tuple[List[int], float]:
        """Returns the samples of a micro-batch, and its weight, so that the mean over micro-batches is that over samples."""
        per_step = self.settings.samples_per_step
        if size is None or per_step is None:
            return [], 1.0
        whole = -(-size // per_step)  # steps of an epoch with all samples
        epoch, place, of_step = self._place(step, size, per_step)
        indices = _native.samples(
            self.settings.seed, size, per_step, self.settings.micro_batches, epoch * whole + place, v
        )
        if order is not None:
            begin = place * per_step + v * (per_step // self.settings.micro_batches)
            indices = list(order(epoch)[begin : begin + len(indices)])
        return indices, len(indices) * self.settings.micro_batches / of_step

    def _place(self, step: int, size: int, per_step: int) -> Tuple[int, int, int]:
        """Returns the epoch of a step, its place in the epoch, and how many samples it takes."""
        epoch, place = divmod(step, self.steps_per_epoch(size))
        return epoch, place, min(per_step, size - place * per_step)

    def _last_micro_batch(self, step: int, size: Optional[int]) -> int:
        """Returns the last micro-batch of a step that has samples."""
        per_step = self.settings.samples_per_step
        if size is None or per_step is None:
            return self.settings.micro_batches - 1
        _, _, of_step = self._place(step, size, per_step)
        return -(-of_step // (per_step // self.settings.micro_batches)) - 1

    def _cached_source(
        self, data: Any, collate: Optional[Callable[[List[Any]], Any]], num_workers: int
    ) -> _data.Source:
        """Returns the source that `data` is. The arguments of the last call have theirs already."""
        # A tuple of arrays is a new object in each call.
        parts = tuple(data) if isinstance(data, tuple) else (data,)
        key = (parts, type(data), collate, num_workers)
        for cached, source in self._sources:
            if (
                len(cached[0]) == len(parts)
                and all(a is b for a, b in zip(cached[0], parts))
                and cached[1:] == key[1:]
            ):
                return source
        source = self._source(data, collate, num_workers)
        seeding = _data.Seeding(
            self._seed_globals, self._seed_number, self._ignored_generators, self.settings.micro_batches
        )
        # A fingerprint says more than samples, and may be equal though a worker keeps its data in another form.
        source.prepare(seeding, self._as_array, compare=self.settings.data_fingerprint == "")
        if len(self._sources) >= 8:  # a new object in each step, such as a lambda
            self._sources.pop(0)[1].close()
        self._sources.append((key, source))
        return source

    def _close_sources(self) -> None:
        for _, source in self._sources:
            source.close()
        self._sources.clear()


RunT = TypeVar("RunT", bound=Run[Any])


def check_same_names(state: Iterable[str], registered: Iterable[str]) -> None:
    """Errors: a state has other names than the program registers."""
    if set(state) != set(registered):
        raise Error(
            f"the state has {', '.join(sorted(state))}, and this program registers {', '.join(sorted(registered))}: "
            "register the same names"
        )


# ---- exceptions of user code ----

_watched: Optional["weakref.ReferenceType[Run[Any]]"] = None  # the run whose program this process is
_previous_hook = sys.excepthook


def _watch_exceptions(run: Run[Any]) -> None:
    global _watched, _previous_hook
    _watched = weakref.ref(run)
    if sys.excepthook is not _on_exception:
        _previous_hook = sys.excepthook
        sys.excepthook = _on_exception


def _on_exception(
    kind: Type[BaseException], value: BaseException, trace: Optional[types.TracebackType]
) -> None:  # pragma: no cover - runs at the end of a process
    """Prints the traceback as usual, then ends the job with it, or this process with the code of a fault."""
    _previous_hook(kind, value, trace)
    run = _watched() if _watched is not None else None
    if run is None or not run._native.open:
        return
    hint = run._hint(value)
    if hint:
        print(f"ringmaster: {hint}", file=sys.stderr)
    code = _report_exception(run, value)
    if code is not None:
        _exit_now(code)


def _report_exception(run: Run[Any], error: BaseException) -> Optional[int]:
    """Ends the job because of a mistake in its program. Returns the exit code of the process; None: Python's own."""
    if (
        not isinstance(error, Exception) or not run._native.open
    ):  # SystemExit and KeyboardInterrupt are no mistakes
        return None
    code = run._exit_code(error)
    if code is not None:
        return code
    hint = run._hint(error)
    run._native.fail(describe_exception(error) + (f"; {hint}" if hint else ""))
    return run._native.exit_code()


def _exit_now(code: int) -> None:
    """Ends the process without the handlers of its end: after a fault they may wait forever, for example for a lost process."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
