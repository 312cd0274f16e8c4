# SPDX-License-Identifier: Apache-2.0
"""The state of a program as named arrays plus canonical JSON: no pickle, so loading a checkpoint runs no code of its author.

Equal states have equal bytes: the keys of a dict are sorted, and the order in which a worker inserted them does not matter.
A value that JSON does not have is an object with one key that starts with "$":

    {"$array": NAME, "shape": [2, 3], ...}  an array of the event, "$tuple", "$set", "$bytes" (base64), "$deque", "$ordered"
    (an OrderedDict), "$counter" (a Counter) and "$dict" (keys that are not all strings, as [key, value] pairs).
"""

from __future__ import annotations

import base64
import collections
import ctypes
import dataclasses
import importlib
import json
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from . import _native
from ._errors import Error


# Types that checkpoints do not have, and those as which they are stored: complex numbers as two floats.
STORED = {"C64": "F32", "C128": "F64", "F8_E4M3": "U8", "F8_E5M2": "U8"}


@dataclasses.dataclass
class Array:
    """One array in memory, contiguous, in row-major order."""

    type: str  # as in safetensors: F32, BF16, I64, U8, ...
    shape: Tuple[int, ...]
    address: int
    bytes: int
    owner: object = None  # keeps the memory
    parameter: bool = False
    notes: Dict[str, Any] = dataclasses.field(default_factory=dict)  # what else its value needs, as JSON

    def view(self) -> memoryview:
        """Returns its bytes, without a copy. The memory must outlive the view."""
        return memoryview((ctypes.c_ubyte * self.bytes).from_address(self.address)).cast("B")


AsArray = Callable[[Any], Optional[Array]]  # Returns the array that a value is, None if it is something else
FromArray = Callable[[Array], Any]  # Returns the value; the memory is valid during the call only


class Encoder:
    """Turns values into JSON, and collects the arrays among them."""

    def __init__(self, as_array: AsArray) -> None:
        self.arrays: Dict[str, Array] = {}
        self._as_array = as_array
        self._parents: List[int] = []  # the containers around the current value

    def encode(self, value: Any, name: str) -> Any:
        """Returns `value` as JSON. Its arrays are named NAME.KEY.INDEX... Errors: a value that has no form without code."""
        if value is None or isinstance(value, (bool, str)):
            return value
        if type(value) in (int, float):
            return value
        if id(value) in self._parents:
            raise Error(f"the state {name} contains itself")
        self._parents.append(id(value))
        try:
            array = self._as_array(value)
            if array is not None:
                return self.add(array, name)
            return self._container(value, name)
        finally:
            self._parents.pop()

    def add(self, array: Array, name: str) -> Any:
        """Returns the JSON that refers to `array`, which becomes part of the state."""
        # Two paths can give one name, such as {"a.b": x, "a": {"b": y}}.
        while name in self.arrays:
            name += "'"
        self.arrays[name] = array
        stored = {"type": array.type} if array.type in STORED else {}
        return {"$array": name, "shape": list(array.shape), **stored, **array.notes}

    def _items(self, values: Any, name: str) -> List[Any]:
        return [self.encode(item, f"{name}.{index}") for index, item in enumerate(values)]

    def _container(self, value: Any, name: str) -> Any:
        if isinstance(value, collections.Counter):
            return {"$counter": self._pairs(value, name, ordered=False)}
        if isinstance(value, collections.OrderedDict):
            return {"$ordered": self._pairs(value, name, ordered=True)}
        if type(value) is dict:
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {key: self.encode(value[key], f"{name}.{key}") for key in sorted(value)}
            return {"$dict": self._pairs(value, name, ordered=False)}
        if type(value) is list:
            return self._items(value, name)
        if isinstance(value, tuple) and (type(value) is tuple or not hasattr(value, "_fields")):
            return {"$tuple": self._items(value, name)}
        if isinstance(value, (set, frozenset)):
            return {"$set": sorted(self._items(sorted(value, key=repr), name), key=_text)}
        if isinstance(value, collections.deque):
            return {"$deque": self._items(value, name), "maxlen": value.maxlen}
        if isinstance(value, (bytes, bytearray)):
            return {"$bytes": base64.b64encode(bytes(value)).decode()}
        kind = type(value)
        raise Error(
            f"the state {name} is a {kind.__module__}.{kind.__qualname__}, which cannot be stored without running code when it "
            "is loaded: keep numbers, strings, arrays and containers of them in the state, or leave this object out of it"
        )

    def _pairs(self, value: Mapping[Any, Any], name: str, *, ordered: bool) -> List[Any]:
        keys = list(value)
        encoded = {id(key): self.encode(key, f"the key {key!r} of {name}") for key in keys}
        if not ordered:
            keys.sort(key=lambda key: _text(encoded[id(key)]))
        return [[encoded[id(key)], self.encode(value[key], f"{name}.{key}")] for key in keys]


class Hashes(Encoder):
    """An encoder that keeps the hashes of arrays only."""

    def __init__(self, as_array: AsArray) -> None:
        super().__init__(as_array)
        self.hashes: Dict[str, Tuple[int, int]] = {}  # bytes and hash

    def add(self, array: Array, name: str) -> Any:
        reference = super().add(array, name)
        kept = reference["$array"]
        self.hashes[kept] = (array.bytes, _native.hash_memory(array.address, array.bytes))
        self.arrays[kept] = dataclasses.replace(array, owner=None, address=0, bytes=0)
        return reference


def difference(one: Any, other: Any, name: str) -> Optional[str]:
    """Returns the name of the first value that differs in two states as JSON, apart from where arrays are; None: none does."""
    if isinstance(one, dict) and isinstance(other, dict):
        if "$array" in one and "$array" in other:
            keys = ("$array", "shape", "type")
            return None if all(one.get(key) == other.get(key) for key in keys) else name
        for key in sorted({*one, *other}):
            if key not in one or key not in other:
                return f"{name}.{key}"
            found = difference(one[key], other[key], name if key.startswith("$") else f"{name}.{key}")
            if found is not None:
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (a, b) in enumerate(zip(one, other)):
            found = difference(a, b, f"{name}.{index}")
            if found is not None:
                return found
        return None
    # NaN is not equal to itself.
    return None if _text(one) == _text(other) else name


class Decoder:
    """Turns the JSON of an Encoder back into values."""

    def __init__(self, arrays: Mapping[str, Array], from_array: FromArray) -> None:
        self.used: Set[str] = set()  # the names of the arrays that were decoded
        self._arrays = arrays
        self._from_array = from_array

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        tag = next((key for key in value if key.startswith("$")), None)
        if tag is None:
            return {key: self.decode(item) for key, item in value.items()}
        content = value[tag]
        if tag == "$array":
            return self._from_array(self.array(value))
        if tag == "$bytes":
            return base64.b64decode(content)
        if tag == "$deque":
            return collections.deque(self.decode(content), maxlen=value.get("maxlen"))
        if tag in ("$tuple", "$set"):
            items = self.decode(content)
            return tuple(items) if tag == "$tuple" else set(items)
        if tag in ("$dict", "$ordered", "$counter"):
            pairs = {self.decode(key): self.decode(item) for key, item in content}
            if tag == "$dict":
                return pairs
            return collections.OrderedDict(pairs) if tag == "$ordered" else collections.Counter(pairs)
        raise Error(
            f"the state has a value of the unknown form {tag}: a newer version of the package wrote it"
        )

    def array(self, value: Mapping[str, Any]) -> Array:
        """Returns the array that {"$array": ...} refers to, with its shape and notes."""
        name = value["$array"]
        array = self._arrays.get(name)
        if array is None:
            raise Error(f"the state has no array {name}, to which it refers: it is damaged")
        self.used.add(name)
        notes = {key: item for key, item in value.items() if key not in ("$array", "shape", "type")}
        kind = value.get("type", array.type)
        if kind != array.type and STORED.get(kind) != array.type:
            raise Error(f"the array {name} of the state is of {array.type}, not of {kind}: it is damaged")
        return dataclasses.replace(array, type=kind, shape=tuple(value["shape"]), notes=notes)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def to_bytes(value: Any) -> bytes:
    """Returns canonical JSON: equal values have equal bytes."""
    return _text(value).encode()


def from_bytes(data: bytes) -> Any:
    return json.loads(data)


# ---- arrays of NumPy

_NUMPY_TYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "complex128": "C128",
}  # fmt: skip


def numpy_as_array(value: Any) -> Optional[Array]:
    """Returns the array that a numpy.ndarray or a scalar of NumPy is; None for other values, and when NumPy is not in use."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
        return None
    kind = _NUMPY_TYPES.get(value.dtype.name)
    if kind is None or not value.dtype.isnative:
        raise Error(
            f"an array of NumPy of type {value.dtype} cannot be stored: convert it to one of {', '.join(_NUMPY_TYPES)}"
        )
    held = numpy.ascontiguousarray(value)
    return Array(
        type=kind,
        shape=tuple(value.shape),
        address=held.ctypes.data,
        bytes=held.nbytes,
        owner=held,
        notes={"of": "numpy" if isinstance(value, numpy.ndarray) else "numpy scalar"},
    )


def numpy_from_array(array: Array) -> Any:
    """Returns a copy as an array or a scalar of NumPy."""
    import numpy

    name = next((name for name, kind in _NUMPY_TYPES.items() if kind == array.type), None)
    if name is None:
        raise Error(f"NumPy has no type for an array of {array.type}")
    if name == "bfloat16":
        # It comes with JAX.
        dtype = numpy.dtype(importlib.import_module("ml_dtypes").bfloat16)
    else:
        dtype = numpy.dtype(name)
    value = numpy.frombuffer(array.view(), dtype=dtype).reshape(array.shape).copy()
    return value[()] if array.notes.get("of") == "numpy scalar" else value
