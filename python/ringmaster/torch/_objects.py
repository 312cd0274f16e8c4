# SPDX-License-Identifier: Apache-2.0
"""The objects that a program registers: which of their parameters are trained, and what their state is."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Mapping, Tuple

import torch

from .. import _native, _state
from .._errors import Error
from . import _tensors

Named = List[Tuple[str, torch.nn.Parameter]]
_TRAINED_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def check(name: str, value: Any) -> Any:
    """Returns the object to register for `value`. Errors: it cannot be registered."""
    where = f"run.register({name}=...)"
    if not name.isidentifier():
        raise Error(f"{where}: the name must be an identifier")
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
    if isinstance(value, (torch.Generator, dict)):
        return value
    if not callable(getattr(value, "state_dict", None)) or not callable(
        getattr(value, "load_state_dict", None)
    ):
        raise Error(
            f"{where}: {type(value).__name__} has no state_dict() and load_state_dict(): give it both, or register a dict of its "
            "values"
        )
    return value


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
    names: Dict[int, str] = {}
    found: List[torch.nn.Parameter] = []
    for name, value in objects.items():
        if isinstance(value, torch.nn.Module):
            for path, parameter in value.named_parameters():
                if id(parameter) not in names:
                    names[id(parameter)] = f"{name}.{path}"
                    found.append(parameter)
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


# ---- state ----


def describe(name: str, value: Any, encoder: _state.Encoder) -> Any:
    """Returns the state of an object as JSON of the encoder, and adds its arrays to it."""
    if isinstance(value, torch.nn.Module):
        return _describe_module(name, value, encoder)
    if isinstance(value, torch.Generator):
        return encoder.encode(value.get_state(), name)
    if isinstance(value, dict):
        return encoder.encode(value, name)
    return encoder.encode(_plain(value.state_dict()), name)


def _plain(state: Any) -> Any:
    # Modules and some schedulers return an OrderedDict, whose order is that of the code.
    return dict(state) if isinstance(state, dict) else state


def _module_tensors(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """Returns parameters and buffers by name; tied ones once. Constants that a checkpoint of PyTorch lacks are left out."""
    from ._buffers import LARGEST

    tensors: Dict[str, torch.Tensor] = dict(module.named_parameters())
    transient = {
        f"{path}.{key}" if path else key
        for path, part in module.named_modules()
        for key in part._non_persistent_buffers_set
    }
    tensors.update(
        (name, value)
        for name, value in module.named_buffers()
        if name not in transient or value.numel() <= LARGEST
    )
    return tensors


def _extra_states(module: torch.nn.Module) -> Dict[str, Tuple[torch.nn.Module, Any]]:
    own = torch.nn.Module.get_extra_state
    return {
        path: (part, part.get_extra_state())
        for path, part in module.named_modules()
        if type(part).get_extra_state is not own
    }


def _describe_module(name: str, module: torch.nn.Module, encoder: _state.Encoder) -> Any:
    tensors = {}
    for path, value in _module_tensors(module).items():
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


def load(name: str, value: Any, state: Any, decoder: _state.Decoder) -> None:
    """Adopts a state that `describe` returned."""
    try:
        if isinstance(value, torch.nn.Module):
            _load_module(name, value, state, decoder)
            return
        decoded = decoder.decode(state)
        if isinstance(value, torch.Generator):
            value.set_state(decoded)
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


def _load_module(name: str, module: torch.nn.Module, state: Any, decoder: _state.Decoder) -> None:
    tensors = _module_tensors(module)
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


def _load_optimizer(optimizer: torch.optim.Optimizer, state: Any) -> None:
    optimizer.load_state_dict(state)
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
            counts = [len(group["params"]) for group in value.param_groups]
            encoded = _state.Encoder(_tensors.as_array).encode(groups, f"{name}.param_groups")
            values[name] = f"{kind} {_state.to_bytes([counts, encoded]).decode()}"
        elif isinstance(value, torch.amp.GradScaler):
            values[name] = f"{kind} {_state.to_bytes(value.state_dict()).decode()}"
        else:
            values[name] = kind
    return values
