# SPDX-License-Identifier: Apache-2.0
"""The registered state apart from tensors of models, as of the last commit: what an attempt changes in it is taken back.

Code at the top of a step may set learning rates or draw from a registered generator. If the attempt is interrupted, the worker's
state must be the one of the last commit again, because that is what the members compare, and the next attempt changes it again.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import torch

from .. import _generators
from .._errors import Error
from ._buffers import LARGEST
from ._objects import named_parameters

_Restore = Callable[[], None]


class Undo:
    """take at the start of an attempt, put_back after one that did not commit. Not thread-safe."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self._objects = objects
        self._large: Dict[str, bool] = {}  # objects whose state is too large to be copied in each step
        self._taken: Dict[str, Any] = {}
        self._before_micro_batches: Dict[str, Any] = {}

    def take(self) -> None:
        self._taken = self._values()
        self._before_micro_batches = {}

    def begin_micro_batches(self) -> None:
        self._before_micro_batches = self._values()

    def check_micro_batches(self) -> None:
        """Errors: micro-batches have changed registered state, which then depends on the worker's share."""
        for name, value in self._before_micro_batches.items():
            if not self._large.get(name, False) and not _equal(value, self._value(name)):
                raise Error(
                    f"{name} was changed in the loop over the micro-batches, so its state would depend on this worker's share of them: "
                    "change registered state before that loop, or when step.commit() has returned True"
                )

    def put_back(self) -> None:
        """Gives all objects the values that `take` saw."""
        for name, value in self._taken.items():
            if not self._large.get(name, False) and not _equal(value, self._value(name)):
                self._set(name, value)

    def _values(self) -> Dict[str, Any]:
        return {
            name: self._value(name)
            for name, value in self._objects.items()
            if not isinstance(value, torch.nn.Module) and not self._large.get(name, False)
        }

    def _value(self, name: str) -> Any:
        """Returns a copy of an object's state; None: it is too large."""
        value = self._objects[name]
        if isinstance(value, torch.optim.Optimizer):
            return [{k: _copied(v) for k, v in group.items() if k != "params"} for group in value.param_groups]
        if isinstance(value, torch.Generator):
            return value.get_state()
        if _generators.is_generator(value):
            return copy.deepcopy(_generators.get_state(value))
        state = value if isinstance(value, dict) else value.state_dict()
        if name not in self._large:
            self._large[name] = _elements(state) > LARGEST
        if self._large[name]:
            return None
        try:
            return copy.deepcopy(state)
        except Exception:  # of a value that cannot be copied, and is no state: the first description names it
            self._large[name] = True
            return None

    def _set(self, name: str, state: Any) -> None:
        value = self._objects[name]
        if isinstance(value, torch.optim.Optimizer):
            if len(value.param_groups) != len(state):
                raise Error(
                    f"{name} was given another number of groups in a step that was interrupted: create all groups before run.steps(...)"
                )
            for group, before in zip(value.param_groups, state):
                for key in [key for key in group if key != "params" and key not in before]:
                    del group[key]
                for key, old in before.items():
                    here = group.get(key)
                    if isinstance(here, torch.Tensor) and isinstance(old, torch.Tensor):
                        with torch.no_grad():
                            here.copy_(old)
                    else:
                        group[key] = old
        elif isinstance(value, torch.Generator):
            value.set_state(state)
        elif _generators.is_generator(value):
            _generators.set_state(value, state)
        elif isinstance(value, dict):
            value.clear()
            value.update(copy.deepcopy(state))
        elif state is not None:
            value.load_state_dict(copy.deepcopy(state))


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return copy.copy(value) if isinstance(value, (list, dict)) else value


def _elements(state: Any) -> int:
    """Returns how many numbers a state has, roughly."""
    if isinstance(state, torch.Tensor):
        return state.numel()
    if isinstance(state, dict):
        return sum(_elements(part) for part in state.values()) + len(state)
    if isinstance(state, (list, tuple, set, frozenset)):
        return sum(_elements(part) for part in state) + len(state)
    if isinstance(state, (str, bytes)):
        return len(state) // 8
    return int(getattr(state, "size", 1)) if hasattr(state, "dtype") else 1


def _equal(one: Any, other: Any) -> bool:
    """Returns whether two states are equal; a NaN equals a NaN."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return torch.equal(one, other) or (one.is_floating_point() and bool(torch.equal(one.nan_to_num(), other.nan_to_num())))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other))
    if hasattr(one, "dtype"):  # of NumPy
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, float):
        return one == other or (one != one and other != other)
    try:
        return bool(one == other)
    except Exception:  # of a type of the user, whose copies differ anyway
        return False


Groups = List[Tuple[str, List[int]]]


def groups_of(objects: Mapping[str, Any]) -> Groups:
    """Returns the parameters, by id, of each group of each optimizer."""
    return [
        (name, [id(parameter) for parameter in group["params"]])
        for name, value in objects.items()
        if isinstance(value, torch.optim.Optimizer)
        for group in value.param_groups
    ]


def added_parameter(objects: Mapping[str, Any], before: Groups) -> Optional[str]:
    """Returns what an optimizer trains now and did not when run.steps was called, for a message; None: nothing."""
    now = groups_of(objects)
    if now == before:
        return None
    names = {id(parameter): name for name, parameter in named_parameters(objects)}
    known = {(name, key) for name, keys in before for key in keys}
    for name, keys in now:
        for key in keys:
            if (name, key) not in known:
                return f"{names.get(key, 'a parameter that no registered model has')} was added to {name}"
    return "the groups of an optimizer have changed"
