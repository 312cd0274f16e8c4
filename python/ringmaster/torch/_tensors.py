# SPDX-License-Identifier: Apache-2.0
"""Tensors as arrays of the state, and back."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Mapping, Optional

import torch

from .. import _native
from .._errors import Error
from .._state import Array, numpy_as_array, numpy_from_array

TYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.complex128: "C128", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.uint16: "U16",
    torch.uint32: "U32", torch.uint64: "U64",
}  # fmt: skip
DTYPES = {name: dtype for dtype, name in TYPES.items()}


def is_shared(value: torch.Tensor) -> bool:
    """Returns whether another tensor has the memory of `value`, or may have it, because this version of PyTorch does not tell."""
    return _owners(value) != _owners(torch.empty(1))


def _owners(value: torch.Tensor) -> int:
    count = getattr(torch._C, "_storage_Use_Count", None)
    return -id(value) if count is None else int(count(value.untyped_storage()._cdata))


def memory_of_sums(parameters: Mapping[str, torch.Tensor]) -> torch.device:
    """Returns where the gradients of the parameters, by name, are summed: on their GPU if they are all on one, else on the CPU."""
    places: Dict[torch.device, str] = {}
    for name, parameter in parameters.items():
        places.setdefault(parameter.device, name)
    gpus = [device for device in places if device.type == "cuda"]
    cpu = torch.device("cpu")
    if gpus and cpu in places:
        raise Error(
            f"{places[gpus[0]]} is on {gpus[0]}, and {places[cpu]} on the CPU: gradients are summed in one kind of memory, so "
            "move all trained parameters to one device"
        )
    if len(places) != 1 or not gpus:
        return cpu
    if not _native.has_plugin():
        return cpu
    if torch.cuda.current_device() != gpus[0].index:
        raise Error(
            f"the parameters are on {gpus[0]}, and the current device is cuda:{torch.cuda.current_device()}: call "
            f"torch.cuda.set_device({gpus[0].index}) before run.steps(...)"
        )
    return gpus[0]


def as_array(value: Any) -> Optional[Array]:
    """Returns the array that a tensor or an array of NumPy is, None for another value.

    The array is the memory of the tensor itself if that is contiguous and on the CPU, else a copy.
    """
    if not isinstance(value, torch.Tensor):
        return numpy_as_array(value)
    if value.layout != torch.strided or value.dtype not in TYPES or value.is_meta:
        raise Error(f"a tensor of {value.dtype}, {value.layout}, on {value.device} cannot be stored")
    held = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
    return Array(
        type=TYPES[value.dtype],
        shape=tuple(value.shape),
        address=held.data_ptr(),
        bytes=held.numel() * held.element_size(),
        owner=held,
        notes={} if value.device.type == "cpu" else {"device": value.device.type},
    )


def view(array: Array) -> torch.Tensor:
    """Returns a tensor on the CPU over the memory of `array`, which must outlive it."""
    dtype = DTYPES.get(array.type)
    if dtype is None:
        raise Error(f"this version of PyTorch has no type for an array of {array.type}")
    elements = array.bytes // dtype.itemsize
    if elements == 0:
        return torch.empty(array.shape, dtype=dtype)
    memory = (ctypes.c_ubyte * array.bytes).from_address(array.address)
    return torch.frombuffer(memory, dtype=dtype, count=elements).view(array.shape)


def from_array(array: Array) -> Any:
    """Returns a copy as a tensor, or as an array of NumPy if it was one."""
    if array.notes.get("of") is not None:
        return numpy_from_array(array)
    return view(array).clone().to(array.notes.get("device", "cpu"))
