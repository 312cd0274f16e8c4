# SPDX-License-Identifier: Apache-2.0
"""The objects that a program registers: which of their parameters are trained, and what their state is."""

from __future__ import annotations

import sys
import warnings
from typing import Any, Collection, Dict, List, Mapping, Optional, Tuple

import torch

from .. import _generators, _native, _state
from .._errors import Error
from . import _foreign, _tensors

Named = List[Tuple[str, torch.nn.Parameter]]
_TRAINED_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def check(name: str, value: Any) -> Any:
    """Returns the object to register for `value`. Errors: it cannot be registered."""
    where = f"run.register({name}=...)"
    if not name.isidentifier():
        raise Error(f"{where}: the name must be an identifier")
    _foreign.check(where, value)
    if isinstance(value, torch.nn.Module):
        if type(value).__name__ in ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel"):
            raise Error(
                f"{where}: pass the module without {type(value).__name__}: Ringmaster reduces the gradients itself"
            )
        _check_parameters(where, value)
        return getattr(value, "_orig_mod", value)  # of torch.compile: names without its prefix
    if isinstance(value, torch.optim.LBFGS):
        raise Error(
            f"{where}: LBFGS calls the model several times in a step; use an optimizer whose step() takes no closure"
        )
    if isinstance(value, dict) or _generators.is_generator(value):
        return value
    if not callable(getattr(value, "state_dict", None)) or not callable(
        getattr(value, "load_state_dict", None)
    ):
        raise Error(
            f"{where}: {type(value).__name__} has no state_dict() and load_state_dict(): give it both, or register a dict of its "
            "values"
        )
    if callable(getattr(value, "get_last_lr", None)) and not steps_by_itself(value):
        warnings.warn(
            f"ringmaster: {where}: step.commit() does not step {type(value).__name__}, which is no scheduler of PyTorch that goes by "
            "steps alone: call its step() when step.commit() has returned True",
            stacklevel=3,
        )
    return value


def check_schedulers(objects: Mapping[str, Any]) -> None:
    """Errors: a scheduler is registered that another registered one steps, so it would be stepped twice."""
    owners: Dict[int, str] = {}
    for name, value in objects.items():
        for child in getattr(value, "_schedulers", ()) if steps_by_itself(value) else ():
            owners[id(child)] = name
    for name, value in objects.items():
        if id(value) in owners:
            raise Error(
                f"run.register({name}=...): {owners[id(value)]} is a {type(objects[owners[id(value)]]).__name__} that steps it, and "
                f"step.commit() would step it once more: register {owners[id(value)]} only"
            )


def _check_parameters(where: str, module: torch.nn.Module) -> None:
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if torch.nn.parameter.is_lazy(value):
            raise Error(
                f"{where}: {name} has no shape yet: run a batch through the model before it is registered"
            )
        if value.is_meta:
            raise Error(
                f"{where}: {name} is on the meta device and has no values: load or initialize the weights first"
            )
        if hasattr(value, "placements"):
            raise Error(
                f"{where}: {name} is sharded (DTensor): every worker of Ringmaster has whole parameters"
            )
        if value.dtype not in _tensors.TYPES or value.layout != torch.strided:
            raise Error(
                f"{where}: {name} is a tensor of {value.dtype}, {value.layout}, which cannot be stored: keep it outside of the model, "
                "or in another type"
            )
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.dtype == torch.float64:
            raise Error(
                f"{where}: {name} is float64, and gradients are summed as float32: convert the model by model.float()"
            )
        if parameter.dtype not in _TRAINED_TYPES:
            raise Error(
                f"{where}: {name} is {parameter.dtype}: trained parameters are float32, bfloat16 or float16"
            )


def steps_by_itself(value: Any) -> bool:
    """Returns whether `value` is a scheduler that goes by steps alone."""
    return isinstance(value, torch.optim.lr_scheduler.LRScheduler) and not isinstance(
        value, torch.optim.lr_scheduler.ReduceLROnPlateau
    )


def trained(objects: Mapping[str, Any]) -> Tuple[Named, Named]:
    """Returns the trained parameters in the order in which backward finishes them, and those that optimizers have but are frozen.

    Errors: an optimizer has a parameter that no registered model has.
    """
    named = named_parameters(objects)
    names = {id(parameter): name for name, parameter in named}
    found = [parameter for _, parameter in named]
    optimizers = {name: value for name, value in objects.items() if isinstance(value, torch.optim.Optimizer)}
    optimized = set()
    for name, optimizer in optimizers.items():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimized.add(id(parameter))
                if id(parameter) not in names:
                    raise Error(
                        f"the optimizer {name} has a parameter of shape {tuple(parameter.shape)} that no registered model "
                        "has: register the model, and create the optimizer from the model that is registered"
                    )
    chosen = [p for p in found if not optimizers or id(p) in optimized]
    first_is_last = [p for p in reversed(chosen) if p.numel() > 0]
    return (
        [(names[id(p)], p) for p in first_is_last if p.requires_grad],
        [(names[id(p)], p) for p in first_is_last if not p.requires_grad],
    )


def named_parameters(objects: Mapping[str, Any]) -> Named:
    """Returns the parameters of the registered models, tied ones once, in the order of the models."""
    found: Dict[int, Tuple[str, torch.nn.Parameter]] = {}
    for name, value in objects.items():
        if isinstance(value, torch.nn.Module):
            for path, parameter in value.named_parameters():
                found.setdefault(id(parameter), (f"{name}.{path}", parameter))
    return list(found.values())


# ---- state ----


class Known:
    """What the objects had when run.steps was called."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self.parameters = {id(parameter): name for name, parameter in named_parameters(objects)}
        self._tensors = {
            name: frozenset(_module_tensors(value))
            for name, value in objects.items()
            if isinstance(value, torch.nn.Module)
        }

    def tensors(self, name: str, module: torch.nn.Module) -> Dict[str, torch.Tensor]:
        """Returns the tensors of a model that are state. Buffers that `forward` has created since are none, if a checkpoint of
        PyTorch lacks them, too. Errors: others were created.
        """
        tensors = _module_tensors(module)
        known = self._tensors.get(name)
        if known is None:
            return tensors
        transient = _transient(module)
        for path in tensors:
            if path not in known and path not in transient:
                raise Error(
                    f"{name}.{path} was created after run.steps(...) was called, so a worker that joins does not have it: create it "
                    "with the model, or register it with persistent=False if it is no state"
                )
        return {path: value for path, value in tensors.items() if path in known}


def describe(name: str, value: Any, encoder: _state.Encoder, known: Optional[Known] = None) -> Any:
    """Returns the state of an object as JSON of the encoder, and adds its arrays to it."""
    known = known or Known({name: value})
    if isinstance(value, torch.nn.Module):
        return _describe_module(name, value, encoder, known.tensors(name, value))
    if isinstance(value, torch.Generator):
        return encoder.encode(value.get_state(), name)
    if _generators.is_generator(value):
        return encoder.encode(_generators.get_state(value), name)
    if isinstance(value, dict):
        return encoder.encode(value, name)
    state = _plain(value.state_dict())
    if isinstance(value, torch.optim.Optimizer) and (order := _Order.of(value, state, known.parameters)):
        return {"parameters": order.names, "state": encoder.encode(order.to_names(state), name)}
    return encoder.encode(state, name)


def _plain(state: Any) -> Any:
    # Modules and some schedulers return an OrderedDict, whose order is that of the code.
    return dict(state) if isinstance(state, dict) else state


def _module_tensors(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """Returns parameters and buffers by name; tied ones once. Constants that a checkpoint of PyTorch lacks are left out."""
    from ._buffers import LARGEST

    tensors: Dict[str, torch.Tensor] = dict(module.named_parameters())
    transient = _transient(module)
    tensors.update(
        (name, value)
        for name, value in module.named_buffers()
        if name not in transient or value.numel() <= LARGEST
    )
    return tensors


def _transient(module: torch.nn.Module) -> Collection[str]:
    """Returns the names of buffers that a checkpoint of PyTorch lacks."""
    return {
        f"{path}.{key}" if path else key
        for path, part in module.named_modules()
        for key in part._non_persistent_buffers_set
    }


def _extra_states(module: torch.nn.Module) -> Dict[str, Tuple[torch.nn.Module, Any]]:
    own = torch.nn.Module.get_extra_state
    return {
        path: (part, part.get_extra_state())
        for path, part in module.named_modules()
        if type(part).get_extra_state is not own
    }


def _describe_module(
    name: str, module: torch.nn.Module, encoder: _state.Encoder, found: Mapping[str, torch.Tensor]
) -> Any:
    tensors = {}
    for path, value in found.items():
        array = _tensors.as_array(value)
        assert array is not None
        array.parameter = isinstance(value, torch.nn.Parameter)
        array.notes = {}  # a worker's model may be on another kind of device
        tensors[path] = encoder.add(array, f"{name}.{path}")
    extra = {
        path: encoder.encode(state, f"{name}.{path}._extra_state")
        for path, (_, state) in _extra_states(module).items()
    }
    return {"tensors": tensors, "extra": extra}


def load(
    name: str, value: Any, state: Any, decoder: _state.Decoder, known: Optional[Known] = None
) -> None:
    """Adopts a state that `describe` returned."""
    known = known or Known({name: value})
    try:
        if isinstance(value, torch.nn.Module):
            _load_module(name, value, state, decoder, known.tensors(name, value))
            return
        if isinstance(value, torch.optim.Optimizer) and isinstance(state, dict) and "parameters" in state:
            order = _Order.of(value, value.state_dict(), known.parameters)
            if order is None or order.names != state["parameters"]:
                raise Error(_other_parameters(name, order.names if order else [], state["parameters"]))
            _load_optimizer(value, order.from_names(decoder.decode(state["state"])))
            return
        decoded = decoder.decode(state)
        if isinstance(value, torch.Generator):
            value.set_state(decoded)
        elif _generators.is_generator(value):
            _generators.set_state(value, decoded)
        elif isinstance(value, dict):
            value.clear()
            value.update(decoded)
        elif isinstance(value, torch.optim.Optimizer):
            _load_optimizer(value, decoded)
        else:
            value.load_state_dict(decoded)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise Error(
            f"the state of {name} does not fit this program's {type(value).__name__}: {error}"
        ) from error


def _load_module(
    name: str,
    module: torch.nn.Module,
    state: Any,
    decoder: _state.Decoder,
    tensors: Mapping[str, torch.Tensor],
) -> None:
    arrays = {path: decoder.array(entry) for path, entry in state["tensors"].items()}
    problems = [f"  {path}: not in the state" for path in tensors if path not in arrays]
    problems += [f"  {path}: not in this program's model" for path in arrays if path not in tensors]
    for path, array in arrays.items():
        value = tensors.get(path)
        if value is None:
            continue
        here = (_tensors.TYPES.get(value.dtype), tuple(value.shape))
        if here != (array.type, array.shape):
            problems.append(f"  {path}: {array.type} {array.shape} in the state, {here[0]} {here[1]} here")
    if problems:
        raise Error(f"the state of {name} does not fit this program's model:\n" + "\n".join(problems[:20]))
    with torch.no_grad():
        for path, array in arrays.items():
            tensors[path].copy_(_tensors.view(array))
    for path, (part, _) in _extra_states(module).items():
        part.set_extra_state(decoder.decode(state["extra"][path]))


class _Order:
    """The parameters of an optimizer in the order of the models, and the names that they have there.

    A state_dict counts the parameters of all groups. That order may differ between workers, for example if a group was built from a
    set, whose order follows from PYTHONHASHSEED. So the state that members compare and exchange has the order of the models.
    """

    def __init__(self, names: List[List[str]], to: Dict[int, int], order: List[List[int]]) -> None:
        self.names = names  # by group
        self._to = to  # from an index in state_dict to one in the order of the models
        self._order = order  # by group: indices in the group, in the order of the models

    @staticmethod
    def of(optimizer: torch.optim.Optimizer, state: Any, known: Mapping[int, str]) -> "Optional[_Order]":
        """Returns None if the state does not have the form that optimizers of PyTorch have, or a parameter has no name."""
        groups = [group["params"] for group in optimizer.param_groups]
        sizes = [len(group) for group in groups]
        starts = [sum(sizes[:g]) for g in range(len(sizes))]
        usual = [list(range(start, start + size)) for start, size in zip(starts, sizes)]
        try:
            if [group["params"] for group in state["param_groups"]] != usual or type(state["state"]) is not dict:
                return None
        except (KeyError, TypeError):
            return None
        if any(id(parameter) not in known for group in groups for parameter in group):
            return None
        ranks = {key: rank for rank, key in enumerate(known)}
        order = [sorted(range(len(group)), key=lambda i: ranks[id(group[i])]) for group in groups]
        names = [[known[id(group[i])] for i in indices] for group, indices in zip(groups, order)]
        to = {
            start + i: start + place for start, indices in zip(starts, order) for place, i in enumerate(indices)
        }
        return _Order(names, to, order)

    def to_names(self, state: Dict[str, Any]) -> Dict[str, Any]:
        """Returns a state_dict in the order of the models."""
        return self._moved(state, self._to, lambda values, indices: [values[i] for i in indices])

    def from_names(self, state: Dict[str, Any]) -> Dict[str, Any]:
        """Returns a state_dict in the order of the optimizer."""
        back = {place: i for i, place in self._to.items()}

        def scatter(values: List[Any], indices: List[int]) -> List[Any]:
            return [value for _, value in sorted(zip(indices, values), key=lambda pair: pair[0])]

        return self._moved(state, back, scatter)

    def _moved(self, state: Dict[str, Any], moves: Dict[int, int], move: Any) -> Dict[str, Any]:
        groups = []
        for group, indices in zip(state["param_groups"], self._order):
            names = group.get("param_names")  # of an optimizer that was given named parameters
            if isinstance(names, list) and len(names) == len(indices):
                group = {**group, "param_names": move(names, indices)}
            groups.append(group)
        entries = {moves.get(key, key): value for key, value in state["state"].items()}
        return {**state, "state": entries, "param_groups": groups}


def _other_parameters(name: str, here: List[List[str]], there: List[List[str]]) -> str:
    if len(here) != len(there):
        return f"the state of {name} has {len(there)} groups of parameters, and this program's has {len(here)}"
    for index, (ours, theirs) in enumerate(zip(here, there)):
        odd = sorted(set(ours) ^ set(theirs))
        if odd:
            return f"group {index} of {name} has other parameters in the state: {', '.join(odd[:5])} only on one side"
    return f"the groups of {name} have their parameters in another order in the state"


def _load_optimizer(optimizer: torch.optim.Optimizer, state: Any) -> None:
    groups, entries_by_parameter = optimizer.param_groups, optimizer.state
    held = list(groups)
    optimizer.load_state_dict(state)
    # load_state_dict replaces the groups, to which the code of the program may hold references.
    for old, new in zip(held, optimizer.param_groups):
        if old is new:
            continue
        for key, value in old.items():
            loaded = new.get(key)
            if isinstance(value, torch.Tensor) and isinstance(loaded, torch.Tensor) and key != "params":
                with torch.no_grad():
                    new[key] = value.copy_(loaded)
        old.clear()
        old.update(new)
    groups[:] = held
    optimizer.param_groups = groups
    if optimizer.state is not entries_by_parameter:
        loaded_entries = dict(optimizer.state)
        entries_by_parameter.clear()
        entries_by_parameter.update(loaded_entries)
        optimizer.state = entries_by_parameter
    # load_state_dict converts to the type of the parameter, but the state may be more precise than a parameter of bfloat16.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, entries in state["state"].items():
        if not isinstance(index, int) or not isinstance(entries, dict):
            continue
        live = optimizer.state[parameters[index]]
        for key, value in entries.items():
            if isinstance(value, torch.Tensor) and live[key].dtype != value.dtype:
                live[key] = value


# ---- fingerprint ----


def fingerprint(objects: Mapping[str, Any]) -> Dict[str, str]:
    """Returns what must be equal on all workers when they start, by names that are short enough for a message."""
    known = Known(objects)
    values = {"versions": "torch {}, Python {}.{}".format(torch.__version__, *sys.version_info)}
    for name, value in objects.items():
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, torch.nn.Module):
            tensors = _module_tensors(value)
            shapes = {path: [str(t.dtype), list(t.shape), t.requires_grad] for path, t in tensors.items()}
            seed = 0
            for tensor in tensors.values():
                array = _tensors.as_array(tensor)
                assert array is not None
                seed = _native.hash_memory(array.address, array.bytes, seed)
            values[f"{name}-shapes"] = f"{_native.hash_bytes(_state.to_bytes(shapes)):016x}"
            values[f"{name}-values"] = f"{seed:016x}"
        elif isinstance(value, torch.optim.Optimizer):
            groups = [{k: v for k, v in group.items() if k != "params"} for group in value.param_groups]
            order = _Order.of(value, value.state_dict(), known.parameters)
            names = order.names if order else [len(group["params"]) for group in value.param_groups]
            groups = order.to_names({"state": {}, "param_groups": groups})["param_groups"] if order else groups
            encoded = _state.Encoder(_tensors.as_array).encode(groups, f"{name}.param_groups")
            values[name] = f"{kind} {_state.to_bytes([names, encoded]).decode()}"
        elif isinstance(value, torch.amp.GradScaler):
            values[name] = f"{kind} {_state.to_bytes(value.state_dict()).decode()}"
        else:
            values[name] = kind
    return values
