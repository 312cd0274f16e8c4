# SPDX-License-Identifier: Apache-2.0
"""Training of JAX code over pytrees. The state is values that `update` replaces.

import jax, optax, ringmaster.jax as rm

run = rm.init(micro_batches=8, samples_per_step=64, seed=1)
optimizer = optax.adamw(3e-4)
parameters = create(jax.random.key(1))
run.register(parameters=parameters, optimizer=optimizer.init(parameters))
gradient = rm.value_and_grad(loss_fn)               # loss_fn(parameters, x, y, key)

@jax.jit
def update(state, gradients):
    changes, rest = optimizer.update(gradients, state["optimizer"], state["parameters"])
    return {"parameters": optax.apply_updates(state["parameters"], changes), "optimizer": rest}

for step in run.steps(1000):
    for x, y in step.micro_batches((X, Y)):
        step.add(*gradient(run.state["parameters"], x, y, step.key()))
    step.commit(lambda gradients: update(run.state, gradients), clip_norm=1.0)
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import jax
import jaxlib
import numpy

from . import _native, _run, _state, _trees
from ._errors import Error, Failed, Retry, Stopped

__all__ = ["Error", "Failed", "Retry", "Run", "Step", "Stopped", "init", "value_and_grad"]


def value_and_grad(loss_fn: Callable[..., Any]) -> Callable[..., Tuple[Any, Any]]:
    """Returns a compiled function of the arguments of `loss_fn` that returns its value and its gradient by the first argument."""
    compiled: Callable[..., Tuple[Any, Any]] = jax.jit(jax.value_and_grad(loss_fn))
    return compiled


class Step(_trees.Step):
    """One attempt at a step: this worker's share of its micro-batches, then the commit."""

    def key(self) -> Any:
        """Returns the key of the random numbers of the current micro-batch: a hash of (seed, step, micro-batch)."""
        # jax.random.key takes 32 bits unless 64-bit types are enabled.
        seed = self.random_seed
        return jax.random.fold_in(jax.random.key(seed & 0x7FFFFFFF), seed >> 32)


class Run(_trees.Run[Step]):
    """A training job, as this worker sees it. One thread at a time."""

    def __init__(self, settings: _run.Settings) -> None:
        super().__init__(settings)
        self.state: Dict[str, Any] = {}  # what was registered, by name, as of the last step
        self._memory: Any = None  # the GPU whose memory has the sums; None: the host's memory has them

    def register(self, **values: Any) -> None:
        """Names what is state: it is in checkpoints, and a joining worker gets it.

        values: pytrees of arrays, by a name that stays the same. `parameters` is trained. run.state has the current values.
        """
        self._check_new_names(values, self.state)
        self.state.update(values)

    def _make_step(self, event: _native.Event) -> Step:
        return Step(self, event)

    def _parameters(self) -> Any:
        return self.state.get("parameters")

    def _leaves(self, tree: Any) -> List[Tuple[str, Any]]:
        return [(_path_name(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]]

    def _like_parameters(self, leaves: Sequence[Any]) -> Any:
        live, structure = jax.tree_util.tree_flatten(self._parameters())
        arrays = [jax.numpy.asarray(leaf, dtype=here.dtype) for leaf, here in zip(leaves, live)]
        return jax.tree_util.tree_unflatten(structure, arrays)

    def _apply(self, update: Callable[[Any], Any], gradients: Any) -> None:
        state = update(gradients)
        before, after = (str(jax.tree_util.tree_structure(value)) for value in (self.state, state))
        if before != after:
            raise Error(
                f"the update must return the whole state: it returned {after}, and the state is {before}"
            )
        self.state = dict(state)

    def _fingerprint(self) -> Mapping[str, str]:
        return _trees.mapping_fingerprint(self, f"jax {jax.__version__}", self.state)

    def _device(self) -> str:
        device = jax.devices()[0]
        text = f"jax {jax.__version__} jaxlib {jaxlib.__version__} {device.device_kind}"
        if device.platform != "cpu":
            return text
        # XLA takes as many threads as it may use CPUs. Its flags limit them and the instruction sets.
        threads = os.environ.get("PJRT_NPROC") or os.environ.get("NPROC") or len(os.sched_getaffinity(0))
        flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag.startswith("--xla_cpu")]
        return " ".join([text, f"threads {threads}", *sorted(flags)])

    def _gpu(self) -> Optional[int]:
        leaves = [leaf for _, leaf in self._leaves(self._parameters())]
        devices = {device for leaf in leaves if isinstance(leaf, jax.Array) for device in leaf.devices()}
        if len(devices) != 1 or not all(isinstance(leaf, jax.Array) for leaf in leaves):
            return None
        device = devices.pop()
        ordinal = _cuda_ordinal(device)
        if ordinal is None or self.settings.records_digests or not _native.has_plugin():
            return None
        self._memory = device
        return ordinal

    # XLA computes on streams that it does not name, so the two wait for each other.

    def _add_gradients(self, step: _trees.Step, gradients: Sequence[Any]) -> None:
        if self._memory is None:
            return super()._add_gradients(step, gradients)
        values = [jax.device_put(jax.numpy.asarray(leaf, jax.numpy.float32), self._memory) for leaf in gradients]
        if step._factor != 1.0:
            values = [value * numpy.float32(step._factor) for value in values]
        jax.block_until_ready(values)
        for tensor, value in enumerate(values):
            step._add(tensor, value.unsafe_buffer_pointer())
        self._native.synchronize()  # XLA may use the memory again when `values` is gone

    def _mean_gradients(self) -> List[Any]:
        if self._memory is None:
            return super()._mean_gradients()
        # No other code has seen these arrays, so none can notice that they change.
        means = [jax.numpy.zeros(shape, jax.numpy.float32, device=self._memory) for shape in self._shapes]
        jax.block_until_ready(means)
        for tensor, values in enumerate(means):
            self._native.gradient(tensor, values.unsafe_buffer_pointer())
        self._native.synchronize()
        return means

    def _add_floats(self, step: _run.Step, tensor: int, values: "ctypes.Array[ctypes.c_float]") -> bool:
        if self._memory is None:
            return super()._add_floats(step, tensor, values)
        held = jax.device_put(numpy.array(values, numpy.float32), self._memory).block_until_ready()
        step._add(tensor, held.unsafe_buffer_pointer())
        self._native.synchronize()
        return not step._interrupted

    def _mean_floats(self, tensor: int, elements: int) -> List[float]:
        if self._memory is None:
            return super()._mean_floats(tensor, elements)
        means = jax.numpy.zeros(elements, jax.numpy.float32, device=self._memory).block_until_ready()
        self._native.gradient(tensor, means.unsafe_buffer_pointer())
        self._native.synchronize()
        values: List[float] = means.tolist()
        return values

    def _as_array(self, value: Any) -> Optional[_state.Array]:
        if isinstance(value, jax.Array):
            if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
                raise Error("a key of JAX cannot be stored: keep jax.random.key_data(key) in the state")
            value = numpy.asarray(value)
        return _state.numpy_as_array(value)

    def _describe(self, encoder: _state.Encoder) -> Any:
        leaves = self._leaves(self.state)
        state = [[name, encoder.encode(leaf, name)] for name, leaf in leaves]
        for name, array in encoder.arrays.items():
            array.parameter = name.startswith("parameters.") or name == "parameters"
        return state

    def _load(self, state: Any, decoder: _state.Decoder) -> None:
        here = self._leaves(self.state)
        names = [name for name, _ in state]
        if names != [name for name, _ in here]:
            differing = sorted({name for name, _ in here} ^ set(names))
            raise Error(
                f"the state and this program's differ in {', '.join(differing[:10]) or 'their order'}"
            )
        leaves = []
        for (name, value), (_, leaf) in zip(state, here):
            loaded = decoder.decode(value)
            if isinstance(leaf, jax.Array):
                if (loaded.shape, loaded.dtype) != (leaf.shape, leaf.dtype):
                    raise Error(
                        f"the state has {name} as {loaded.dtype} {loaded.shape}, and this program as {leaf.dtype} {leaf.shape}"
                    )
                loaded = jax.device_put(loaded, leaf.sharding)
            leaves.append(loaded)
        self.state = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(self.state), leaves)


def _cuda_ordinal(device: Any) -> Optional[int]:
    """Returns the number that CUDA has for a device of JAX in this process; None: it is no device of CUDA."""
    if device.platform not in ("gpu", "cuda") or "cuda" not in device.client.platform_version.lower():
        return None
    return int(device.local_hardware_id)


def _path_name(path: Sequence[Any]) -> str:
    """Returns the keys of a path, joined by dots."""
    return ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path)


def init(
    *,
    micro_batches: int,
    samples_per_step: Optional[int] = None,
    seed: int = 0,
    numerics: str = "exact",
    checkpoint_folder: Optional[str] = None,
    checkpoint_every: Optional[int] = None,
    checkpoint_keep: Optional[int] = None,
    data_fingerprint: str = "",
    transport: Optional[str] = None,
    drop_last: bool = False,
    digests: Optional[str] = None,
) -> Run:
    """Connects with the job, and seeds the random numbers of Python and NumPy. Call it first.

    The arguments are those of ringmaster.torch.init. The function that step.commit gets returns the whole state, as run.state
    has it.
    """
    return Run(
        _run.Settings(
            micro_batches=micro_batches,
            samples_per_step=samples_per_step,
            seed=seed,
            numerics=numerics,
            checkpoint_folder=checkpoint_folder,
            checkpoint_every=checkpoint_every,
            checkpoint_keep=checkpoint_keep,
            data_fingerprint=data_fingerprint,
            transport=transport,
            drop_last=drop_last,
            digests=digests,
        )
    )
