# SPDX-License-Identifier: Apache-2.0
"""Weights in files of the format safetensors."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import torch

from .. import _safetensors
from .._errors import Error
from .._state import Array
from . import _tensors


def _named(model: torch.nn.Module) -> Tuple[Dict[str, torch.Tensor], Dict[str, str]]:
    """Returns the tensors of state_dict, tied ones once, and the other names of tied ones with the name of the first."""
    tensors: Dict[str, torch.Tensor] = {}
    aliases: Dict[str, str] = {}
    first: Dict[Any, str] = {}
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            continue  # an extra state, which is no weight
        key = (value.device, value.data_ptr(), tuple(value.shape), value.stride()) if value.numel() else name
        if key in first:
            aliases[name] = first[key]
        else:
            first[key] = name
            tensors[name] = value
    return tensors, aliases


def export(model: torch.nn.Module, path: _safetensors.Path) -> None:
    """Writes the weights of a model, with the names of its state_dict, and replaces an existing file when all is written.

    Tied weights are stored once. The metadata has their other names, as safetensors.torch.save_model writes them.
    """
    tensors, aliases = _named(model)
    arrays: Dict[str, Array] = {}
    for name, value in tensors.items():
        array = _tensors.as_array(value)
        assert array is not None
        arrays[name] = array
    _safetensors.write(path, arrays, {"format": "pt", **aliases})


def load(model: torch.nn.Module, path: _safetensors.Path) -> None:
    """Loads weights into a model: a file of safetensors, or a folder of Hugging Face with one or several.

    Each name of the model's state_dict must be in the file with the same shape, and the other way round; of tied weights, one
    name suffices. The types may differ: values are converted. Errors: all names and shapes that differ, listed.
    """
    entries, metadata = _safetensors.open_weights(path)
    tensors, aliases = _named(model)
    expected = {
        name: tuple(value.shape)
        for name, value in model.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
    groups: Dict[str, list[str]] = {name: [name] for name in tensors}
    for alias, name in aliases.items():
        groups[name].append(alias)
    optional = [
        name for group in groups.values() if any(other in entries for other in group) for name in group
    ]
    _safetensors.compare(expected, entries, optional, path)
    with torch.no_grad():
        for name, group in groups.items():
            entry = entries[next(other for other in group if other in entries)]
            dtype = _tensors.DTYPES.get(entry.type)
            if dtype is None:
                raise Error(
                    f"{path}: {name} has the type {entry.type}, which this version of PyTorch does not have"
                )
            data = entry.read()
            if data:
                tensors[name].copy_(torch.frombuffer(data, dtype=dtype).view(entry.shape))
