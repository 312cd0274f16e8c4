# SPDX-License-Identifier: Apache-2.0
"""Training whose gradients are arrays of NumPy, from whatever computes them.

import numpy as np, ringmaster.numpy as rm

run = rm.init(micro_batches=8, samples_per_step=64, seed=1)
parameters = {"w": np.zeros((10, 1), np.float32)}
run.register(parameters=parameters)

def update(gradients):
    parameters["w"] -= 0.1 * gradients["w"]

for step in run.steps(100):
    for x, y in step.micro_batches((X, Y)):
        step.add(*loss_and_gradients(parameters, x, y))
    step.commit(update, clip_norm=1.0)
"""

from __future__ import annotations

import ctypes
import itertools
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy

from . import _native, _run, _state, _trees
from ._errors import Error, Failed, Retry, Stopped
from ._trees import Step

__all__ = ["Error", "Failed", "Retry", "Run", "Step", "Stopped", "init"]


class Run(_trees.Run[Step]):
    """A training job, as this worker sees it. One thread at a time."""

    def __init__(self, settings: _run.Settings) -> None:
        super().__init__(settings)
        self._objects: Dict[str, Any] = {}

    def register(self, *, parameters: Optional[Mapping[str, Any]] = None, **objects: Any) -> None:
        """Names what is state: it is in checkpoints, and a joining worker gets it.

        parameters: arrays by name, in nested dicts; float32, float16 or bfloat16. They are trained: `update` of step.commit
                    changes them in place, or replaces them in their dict, from the gradients that it is called with.
        objects: by a name that stays the same, each a dict, a list or an object with state_dict() and load_state_dict(), of
                 arrays, numbers, strings and containers of them.
        """
        if parameters is not None:
            objects = {"parameters": parameters, **objects}
        self._check_new_names(objects, self._objects)
        for name, value in objects.items():
            if not isinstance(value, (dict, list)) and not hasattr(value, "load_state_dict"):
                raise Error(
                    f"run.register({name}=...): {type(value).__name__} cannot change in place: register a dict, a list, or an "
                    "object with state_dict() and load_state_dict()"
                )
            self._objects[name] = value

    def _make_step(self, event: _native.Event) -> Step:
        return Step(self, event)

    def _parameters(self) -> Any:
        return self._objects.get("parameters")

    def _leaves(self, tree: Any) -> List[Tuple[str, Any]]:
        return list(_walk(tree, ""))

    def _like_parameters(self, leaves: Sequence[Any]) -> Any:
        return _rebuild(self._parameters(), iter(leaves))

    def _apply(self, update: Callable[[Any], Any], gradients: Any) -> None:
        update(gradients)

    def _fingerprint(self) -> Mapping[str, str]:
        return _trees.mapping_fingerprint(self, f"numpy {numpy.__version__}", self._objects)

    def _device(self) -> str:
        return f"numpy {numpy.__version__} {_blas()}"

    def _describe(self, encoder: _state.Encoder) -> Any:
        state = {}
        for name, value in self._objects.items():
            content = value if isinstance(value, (dict, list)) else value.state_dict()
            state[name] = encoder.encode(content, name)
        for name, array in encoder.arrays.items():
            array.parameter = name.startswith("parameters.")
        return state

    def _load(self, state: Any, decoder: _state.Decoder) -> None:
        _run.check_same_names(state, self._objects)
        for name, value in self._objects.items():
            if isinstance(value, (dict, list)):
                _adopt(value, state[name], name, decoder)
            else:
                value.load_state_dict(decoder.decode(state[name]))


def _blas() -> str:
    """Returns the kernels and threads of the BLAS that NumPy has loaded: "openblas SkylakeX threads 2". Results can depend on both."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line}
    for path in sorted(paths, key=lambda path: ("numpy" not in path, path)):  # SciPy brings another one
        name = os.path.basename(path)
        if "openblas" in name:
            library = ctypes.CDLL(path)
            for prefix, suffix in itertools.product(("scipy_openblas", "openblas"), ("64_", "")):
                core = getattr(library, f"{prefix}_get_corename{suffix}", None)
                threads = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                if core and threads:
                    core.restype = ctypes.c_char_p
                    return f"openblas {core().decode()} threads {threads()}"
        threads = getattr(ctypes.CDLL(path), "MKL_Get_Max_Threads", None) if "mkl_rt" in name else None
        if threads:
            return f"mkl threads {threads()}"
    return f"threads {os.environ.get('OMP_NUM_THREADS') or len(os.sched_getaffinity(0))}"


def _walk(tree: Any, path: str) -> Any:
    """Yields (path, array) in the order of sorted keys."""
    if not isinstance(tree, Mapping):
        yield path, numpy.asarray(tree)
        return
    for key in sorted(tree):
        yield from _walk(tree[key], f"{path}.{key}" if path else str(key))


def _rebuild(tree: Any, leaves: Any) -> Any:
    if not isinstance(tree, Mapping):
        return next(leaves)
    built = {key: _rebuild(tree[key], leaves) for key in sorted(tree)}
    return {key: built[key] for key in tree}


def _adopt(old: Any, state: Any, name: str, decoder: _state.Decoder) -> None:
    """Gives a dict or list, which user code holds, the contents of an encoded state. Of a dict it decodes one value at a time: all
    of them together would take the memory of the state once more. Arrays keep their memory where their shape allows it."""
    if not isinstance(old, dict) or not _is_plain(state):
        _replace(old, decoder.decode(state), name)
        return
    _remove_others(old, state, name)
    for key, item in state.items():
        here = old.get(key)
        if isinstance(here, dict) and _is_plain(item):
            _adopt(here, item, f"{name}.{key}", decoder)
        else:
            _replace_value(old, key, decoder.decode(item), name)


def _is_plain(state: Any) -> bool:
    """Returns whether an encoded value is a dict whose keys are those of the value."""
    return isinstance(state, dict) and not any(key.startswith("$") for key in state)


def _replace(old: Any, new: Any, name: str) -> None:
    """As _adopt, of values."""
    if isinstance(old, dict) and isinstance(new, dict):
        _remove_others(old, new, name)
        for key, value in new.items():
            _replace_value(old, key, value, name)
    elif isinstance(old, list) and isinstance(new, list):
        old[:] = new
    else:
        raise Error(
            f"the state {name} is a {type(new).__name__}, and this program's is a {type(old).__name__}"
        )


def _remove_others(old: Dict[Any, Any], new: Mapping[Any, Any], name: str) -> None:
    if name == "parameters" and set(old) != set(new):
        raise Error(f"the state has the parameters {sorted(new)}, and this program has {sorted(old)}")
    for key in [key for key in old if key not in new]:
        del old[key]


def _replace_value(old: Dict[Any, Any], key: Any, value: Any, name: str) -> None:
    here = old.get(key)
    if isinstance(here, dict) and isinstance(value, dict):
        _replace(here, value, f"{name}.{key}")
    elif isinstance(here, numpy.ndarray) and isinstance(value, numpy.ndarray):
        if name.split(".")[0] == "parameters" and (here.shape, here.dtype) != (value.shape, value.dtype):
            raise Error(
                f"the state has {name}.{key} as {value.dtype} {value.shape}, and this program as {here.dtype} {here.shape}"
            )
        if (here.shape, here.dtype) == (value.shape, value.dtype):
            here[...] = value
        else:
            old[key] = value
    else:
        old[key] = value


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

    The arguments are those of ringmaster.torch.init. The function that step.commit gets changes the parameters in place, and
    returns nothing.
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
