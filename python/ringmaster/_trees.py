# SPDX-License-Identifier: Apache-2.0
"""Run and Step of frameworks whose user code computes gradients itself: ringmaster.numpy and ringmaster.jax."""

from __future__ import annotations

import abc
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar

from . import _data, _native, _run, _state, _stream
from ._errors import Error


class Step(_run.Step):
    """One attempt at a step: this worker's share of its micro-batches, then the commit."""

    _run: "Run[Any]"

    def add(self, loss: Any, gradients: Any, *, weight: Optional[float] = None) -> None:
        """Adds the gradient of the current micro-batch to the sums. Once per micro-batch.

        loss: a number, the mean over the samples of the micro-batch. gradients: arrays in the structure of the parameters.
        weight: of the micro-batch in the means over the step, for example the number of its tokens; default: the number of its
                samples. All micro-batches of a step have one, or none. With 0, loss and gradients are ignored.
        """
        self._run._add(self, loss, gradients, weight)

    def commit(
        self, update: Callable[[Any], Any], clip_norm: Optional[float] = None, *, learning_rate: float = 0.0
    ) -> bool:
        """Reduces the gradients over all workers, and updates the state by `update`.

        update: is called with the mean of the gradients over the samples of the step, in the structure of the parameters, equal
                on all workers. See `init` for what it returns.
        clip_norm: scales the gradient to this Euclidean norm if it is larger.
        learning_rate: for reports.
        Returns False if the step was interrupted and nothing has changed: run.steps then yields it again.
        """
        return self._run._commit(self, update, clip_norm, learning_rate)


StepT = TypeVar("StepT", bound=Step)


class Run(_run.Run[StepT], Generic[StepT]):
    """A training job, as this worker sees it. One thread at a time."""

    def __init__(self, settings: _run.Settings) -> None:
        super().__init__(settings)
        self._shapes: List[Tuple[int, ...]] = []  # of the parameters, by tensor

    # ---- what an adapter defines ----

    @abc.abstractmethod
    def _leaves(self, tree: Any) -> List[Tuple[str, Any]]:
        """Returns the arrays of a structure, with the path of each, in the order of the parameters."""

    @abc.abstractmethod
    def _like_parameters(self, leaves: Sequence[Any]) -> Any:
        """Returns arrays, float32, in the structure of the parameters."""

    @abc.abstractmethod
    def _parameters(self) -> Any:
        """Returns what is trained, None if nothing was registered."""

    @abc.abstractmethod
    def _apply(self, update: Callable[[Any], Any], gradients: Any) -> None:
        """Updates the state."""

    # ---- what the loop asks ----

    def _tensors(self) -> List[_run.Tensor]:
        import numpy

        leaves = [] if self._parameters() is None else self._leaves(self._parameters())
        self._shapes = [tuple(leaf.shape) for _, leaf in leaves]
        tensors = []
        for path, leaf in leaves:
            kind = str(leaf.dtype)
            if kind not in ("float32", "float16", "bfloat16"):
                raise Error(
                    f"the parameter {path} is {kind}, and gradients are summed as float32: convert it to float32"
                )
            if leaf.size == 0:
                raise Error(f"the parameter {path} is empty: leave it out")
            tensors.append(_run.Tensor(f"parameters.{path}", int(numpy.prod(leaf.shape, dtype=numpy.int64))))
        return tensors

    def _as_array(self, value: Any) -> Optional[_state.Array]:
        return _state.numpy_as_array(value)

    def _from_array(self, array: _state.Array) -> Any:
        return _state.numpy_from_array(array)

    def _source(
        self, data: Any, collate: Optional[Callable[[List[Any]], Any]], num_workers: int
    ) -> _data.Source:
        if num_workers != 0:
            raise Error("num_workers is for datasets of PyTorch")
        if callable(data) and not hasattr(data, "__getitem__"):
            return _data.Function(data)
        if collate is None and _data.is_arrays(data, lambda value: hasattr(value, "shape")):
            return _data.Arrays(data, _take)
        if _stream.is_stream(data):
            return self._stream(data, collate or _stack)
        return _data.Samples(data, collate or _stack)

    def _hash(self, tree: Any) -> int:
        """Returns a hash of the values of a structure."""
        seed = 0
        for _, leaf in self._leaves(tree):
            array = self._as_array(leaf)
            assert array is not None
            seed = _native.hash_memory(array.address, array.bytes, seed)
        return seed

    # ---- a step ----

    def _add(self, step: Step, loss: Any, gradients: Any, weight: Optional[float]) -> None:
        import numpy

        step._check_first_loss()
        step._set_weight(weight)
        leaves = self._leaves(gradients)
        shapes = [tuple(numpy.shape(leaf)) for _, leaf in leaves]
        if shapes != self._shapes:
            raise Error(
                f"step.add: the gradients have the shapes {shapes}, and the parameters have {self._shapes}"
            )
        step._set_loss(float(loss))
        if step._factor == 0:  # they may be 0 / 0
            return
        self._add_gradients(step, [leaf for _, leaf in leaves])

    def _add_gradients(self, step: Step, gradients: Sequence[Any]) -> None:
        """Adds the gradients, by tensor, times the weight of the micro-batch."""
        import numpy

        for tensor, gradient in enumerate(gradients):
            values = numpy.ascontiguousarray(gradient, dtype=numpy.float32)
            if step._factor != 1.0:
                values = values * numpy.float32(step._factor)
            step._add(tensor, values.ctypes.data)

    def _mean_gradients(self) -> List[Any]:
        """Returns the means over the micro-batches, by tensor, float32. REQUIRES: the step is reduced."""
        import numpy

        means = [numpy.empty(shape, numpy.float32) for shape in self._shapes]
        for tensor, values in enumerate(means):
            self._native.gradient(tensor, values.ctypes.data)
        return means

    def _commit(
        self, step: Step, update: Callable[[Any], Any], clip_norm: Optional[float], learning_rate: float
    ) -> bool:
        import numpy

        if clip_norm is not None and not clip_norm > 0:
            raise Error(f"step.commit(clip_norm={clip_norm}): the norm is greater than 0")
        if not step._reduce():
            return False
        assert step.gradient_norm is not None
        gradients = self._mean_gradients()
        if clip_norm is not None and step.gradient_norm > clip_norm:
            factor = numpy.float32(clip_norm / step.gradient_norm)
            gradients = [values * factor for values in gradients]
        self._apply(update, self._like_parameters(gradients))
        step._commit(learning_rate)
        return True


def mapping_fingerprint(run: Run[Any], framework: str, objects: Mapping[str, Any]) -> Dict[str, str]:
    """Returns what must be equal on all workers when they start, by name."""
    shapes = [[path, str(leaf.dtype), list(leaf.shape)] for path, leaf in run._leaves(run._parameters())]
    return {
        "versions": framework,
        "parameters-shapes": _state.to_bytes(shapes).decode(),
        "parameters-values": f"{run._hash(run._parameters()):016x}",
        "state": ", ".join(sorted(objects)),
    }


def _take(arrays: Sequence[Any], indices: Sequence[int]) -> List[Any]:
    import numpy

    rows = numpy.asarray(indices, dtype=numpy.int64)
    return [array[rows] for array in arrays]


def _stack(samples: List[Any]) -> Any:
    """Returns the samples as one batch: tuples and dicts by field, arrays and numbers with a new first dimension."""
    import numpy

    first = samples[0]
    if isinstance(first, tuple):
        return tuple(_stack([sample[i] for sample in samples]) for i in range(len(first)))
    if isinstance(first, dict):
        return {key: _stack([sample[key] for sample in samples]) for key in first}
    return numpy.stack([numpy.asarray(sample) for sample in samples])
