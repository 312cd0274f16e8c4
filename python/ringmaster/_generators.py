# SPDX-License-Identifier: Apache-2.0
"""Generators of random numbers that the objects of a program hold: a numpy.random.Generator in a dataset, for example.

The global generators are seeded for each micro-batch. A private one would go on from where this worker left it, so its numbers
would depend on the worker's share. Those that can be found are seeded as well, each from the same seed and its path.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from typing import Any, Callable, Dict, Iterable, Iterator, List, Sequence, Set, Tuple

from . import _native
from ._errors import Error

_DEEPEST = 6  # attributes of attributes
_MOST = 20_000  # objects that one search looks at
_LONGEST = 64  # of a container, of whose items generators are searched
# Their attributes hold no generator, or are many.
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), type, types.ModuleType)

Found = List[Tuple[str, Any]]  # path and generator


def is_generator(value: Any) -> bool:
    """Returns whether `value` draws random numbers: of Python, NumPy or PyTorch."""
    if isinstance(value, random.Random):
        return True
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState)):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Generator)


def seed_one(generator: Any, seed: int) -> None:
    """Seeds a generator with 64 bits. Errors: it cannot be seeded."""
    if isinstance(generator, random.SystemRandom):
        raise Error("random.SystemRandom takes its numbers from the system and cannot be seeded: use random.Random")
    if isinstance(generator, random.Random):
        generator.seed(seed)
        return
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(generator, numpy.random.Generator):
        bits = generator.bit_generator
        bits.state = type(bits)(seed).state
    elif numpy is not None and isinstance(generator, numpy.random.RandomState):
        generator.seed(seed & 0xFFFFFFFF)
    else:
        generator.manual_seed(seed)


def find(roots: Sequence[Tuple[str, Any]], ignored: Set[int]) -> Found:
    """Returns the generators that `roots` hold: in attributes, containers, closures and arguments of functools.partial, and in the
    module of a function or a class that names them. Each once, in an order that depends on the program alone.

    ignored: by id, those that are state, and the global ones.
    """
    search = _Search(ignored)
    for path, value in roots:
        search.begin()
        search.visit(value, path, 0)
    return search.found


def ignored_of(values: Iterable[Any]) -> Set[int]:
    """Returns the ids of the global generators, and of those among `values`, which are state."""
    ignored = {id(value) for value in values if is_generator(value)}
    ignored.add(id(random._inst))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        ignored.add(id(numpy.random.mtrand._rand))
    torch = sys.modules.get("torch")
    if torch is not None:
        ignored.add(id(torch.default_generator))
    return ignored


class _Search:
    def __init__(self, ignored: Set[int]) -> None:
        self.found: Found = []
        self._seen: Set[int] = set(ignored)
        self._classes: Dict[type, Found] = {}
        self._left = _MOST

    def begin(self) -> None:
        self._left = _MOST

    def visit(self, value: Any, path: str, depth: int) -> None:
        if isinstance(value, _PLAIN) or id(value) in self._seen or depth > _DEEPEST or self._left <= 0:
            return
        self._seen.add(id(value))
        self._left -= 1
        if is_generator(value):
            self.found.append((path, value))
            return
        for name, part in self._parts(value):
            self.visit(part, f"{path}.{name}", depth + 1)

    def _parts(self, value: Any) -> Iterator[Tuple[str, Any]]:
        if isinstance(value, dict):
            if len(value) <= _LONGEST:
                yield from ((str(key), part) for key, part in value.items())
        elif isinstance(value, (list, tuple, set, frozenset)):
            if len(value) <= _LONGEST and not isinstance(value, (set, frozenset)):
                yield from ((str(index), part) for index, part in enumerate(value))
        elif isinstance(value, functools.partial):
            yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
        elif isinstance(value, types.MethodType):
            yield from (("__self__", value.__self__), ("__func__", value.__func__))
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        else:
            attributes = getattr(value, "__dict__", None)
            if isinstance(attributes, dict):
                yield from ((str(key), part) for key, part in list(attributes.items()))
            for key in getattr(type(value), "__slots__", ()):
                if isinstance(key, str) and hasattr(value, key):
                    yield key, getattr(value, key)
            yield from self._of_class(type(value))

    def _of_class(self, kind: type) -> Found:
        if kind not in self._classes:
            found: Found = []
            for base in kind.__mro__:
                for name, part in list(vars(base).items()):
                    if is_generator(part):
                        found.append((name, part))
                    elif isinstance(part, types.FunctionType):
                        found += self._named_globals(part)
            self._classes[kind] = found
        return self._classes[kind]

    def _of_function(self, function: types.FunctionType) -> Iterator[Tuple[str, Any]]:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        for index, part in enumerate(function.__defaults__ or ()):
            yield f"default{index}", part
        yield from (function.__kwdefaults__ or {}).items()
        yield from self._named_globals(function)

    def _named_globals(self, function: types.FunctionType) -> Iterator[Tuple[str, Any]]:
        for name in function.__code__.co_names:
            part = function.__globals__.get(name)
            if is_generator(part):
                yield name, part


def get_state(generator: Any) -> Any:
    """Returns the state of a generator of Python or NumPy, as values that a state may have."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    return generator.get_state(legacy=False)


def set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def create(kind: str) -> Any:
    """Returns a new generator. kind: "numpy", "python" or "torch"."""
    if kind == "python":
        return random.Random(0)
    if kind == "numpy":
        import numpy

        return numpy.random.Generator(numpy.random.PCG64(0))
    if kind == "torch":
        import torch

        return torch.Generator()
    raise Error(f'run.rng({kind!r}): the kind is "numpy", "python" or "torch"')


def seed_all(found: Found, seed: int) -> None:
    """Seeds each generator from `seed`, 64 bits, and its path."""
    for path, generator in found:
        seed_one(generator, _native.hash_bytes(path.encode(errors="replace"), seed))


class Held:
    """The generators of a source of samples. They are searched for when it is first read, and again after that, because a dataset
    may create one in its first sample; the samples are then read once more. Not thread-safe.
    """

    def __init__(self, roots: Sequence[Tuple[str, Any]], ignored: Callable[[], Set[int]]) -> None:
        self._roots = list(roots)
        self._ignored = ignored
        self._found: Found = []
        self._complete = False

    def run(self, seed: int, reseed: Callable[[], None], read: Callable[[], Any]) -> Any:
        """Returns read(), with all generators seeded. reseed(): seeds the global generators."""
        if not self._complete:
            self._found = find(self._roots, self._ignored())
        seed_all(self._found, seed)
        value = read()
        if not self._complete:
            self._complete = True
            more = find(self._roots, self._ignored())
            if [path for path, _ in more] != [path for path, _ in self._found]:
                self._found = more
                reseed()
                seed_all(more, seed)
                value = read()
        return value

    def __getstate__(self) -> Dict[str, Any]:
        return {"_roots": self._roots, "_ignored": _nothing, "_found": [], "_complete": False}


def _nothing() -> Set[int]:
    return set()
