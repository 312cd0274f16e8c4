# SPDX-License-Identifier: Apache-2.0
"""The C interface of libringmaster (include/ringmaster.h) by ctypes: structs, functions, and statuses as exceptions."""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys
import threading
import warnings
from typing import List, Optional, Sequence, Tuple

from ._errors import Error, Failed

ABI_VERSION = 1

OK, REPEAT, SKIP, INVALID, FAILED = range(5)  # rm_status
NUMERICS = {"exact": 0, "exact64": 1, "fast": 2}  # rm_numerics
EVENT_STEP, EVENT_DESCRIBE, EVENT_LOAD, EVENT_END = range(1, 5)  # rm_event_kind
NOT_IN_NORM = 1  # rm_tensor.flags
DEVICE_HOST, DEVICE_CUDA = range(2)  # rm_device
PARAMETER = 1  # rm_array.flags


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("transport", ctypes.c_char_p)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("elements", ctypes.c_int64), ("flags", ctypes.c_uint32)]


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("steps", ctypes.c_int64),
        ("micro_batches", ctypes.c_int32),
        ("numerics", ctypes.c_int32),
        ("samples_per_step", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("fingerprint", ctypes.c_char_p),
        ("data_fingerprint", ctypes.c_char_p),
        ("device_fingerprint", ctypes.c_char_p),
        ("checkpoint_folder", ctypes.c_char_p),
        ("checkpoint_every_steps", ctypes.c_int64),
        ("checkpoint_keep", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("device_ordinal", ctypes.c_int32),
        ("digest_folder", ctypes.c_char_p),
    ]


class Array(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("kind", ctypes.c_int32),
        ("step", ctypes.c_int64),
        ("generation", ctypes.c_uint64),
        ("rank", ctypes.c_int32),
        ("world", ctypes.c_int32),
        ("first", ctypes.c_int32),
        ("end", ctypes.c_int32),
        ("attempt", ctypes.c_int32),
        ("finished", ctypes.c_int32),
        ("arrays", ctypes.POINTER(Array)),
        ("array_count", ctypes.c_int32),
        ("meta", ctypes.c_void_p),
        ("meta_bytes", ctypes.c_uint64),
    ]


class StepResult(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("loss", ctypes.c_double), ("gradient_norm", ctypes.c_double),
                ("weight", ctypes.c_double)]  # fmt: skip


_RUN = ctypes.c_void_p
_FLOATS = ctypes.c_void_p  # const float*, as an address
_SIGNATURES = {
    "rm_abi_version": (ctypes.c_uint32, []),
    "rm_version": (ctypes.c_char_p, []),
    "rm_open": (ctypes.c_int, [ctypes.POINTER(Options), ctypes.POINTER(_RUN)]),
    "rm_close": (None, [_RUN]),
    "rm_error": (ctypes.c_char_p, [_RUN]),
    "rm_exit_code": (ctypes.c_int32, [_RUN]),
    "rm_has_agent": (ctypes.c_int32, [_RUN]),
    "rm_join": (ctypes.c_int, [_RUN, ctypes.POINTER(Config), ctypes.POINTER(Tensor), ctypes.c_int32]),
    "rm_set_stream": (ctypes.c_int, [_RUN, ctypes.c_void_p]),
    "rm_synchronize": (ctypes.c_int, [_RUN]),
    "rm_fail": (ctypes.c_int, [_RUN, ctypes.c_char_p]),
    "rm_next": (ctypes.c_int, [_RUN, ctypes.POINTER(Event)]),
    "rm_describe": (
        ctypes.c_int,
        [_RUN, ctypes.POINTER(Array), ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint64],
    ),
    "rm_begin_micro_batch": (ctypes.c_int, [_RUN, ctypes.c_int32]),
    "rm_add": (ctypes.c_int, [_RUN, ctypes.c_int32, _FLOATS]),
    "rm_end_micro_batch": (ctypes.c_int, [_RUN, ctypes.c_double]),
    "rm_end_weighted_micro_batch": (ctypes.c_int, [_RUN, ctypes.c_double, ctypes.c_double]),
    "rm_reduce": (ctypes.c_int, [_RUN, ctypes.POINTER(StepResult)]),
    "rm_gradient": (ctypes.c_int, [_RUN, ctypes.c_int32, _FLOATS]),
    "rm_committed": (ctypes.c_int, [_RUN, ctypes.c_double, ctypes.c_double]),
    "rm_gather": (ctypes.c_int, [_RUN, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p]),
    "rm_finish": (ctypes.c_int, [_RUN]),
    "rm_validated": (ctypes.c_int, [_RUN, ctypes.c_double, ctypes.c_double]),
    "rm_heartbeat": (None, [_RUN]),
    "rm_leaving": (ctypes.c_double, [_RUN]),
    "rm_samples": (
        ctypes.c_int64,
        [
            ctypes.c_uint64,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_int32,
            ctypes.c_int64,
            ctypes.c_int32,
            ctypes.POINTER(ctypes.c_int64),
        ],
    ),
    "rm_random_seed": (ctypes.c_uint64, [ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32]),
    "rm_hash": (ctypes.c_uint64, [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]),
}

_library: Optional[ctypes.CDLL] = None
_path: Optional[pathlib.Path] = None  # of _library


def candidates() -> List[pathlib.Path]:
    """Returns where libringmaster.so may be: RINGMASTER_LIBRARY, in the package, in a build of the source tree."""
    chosen = os.environ.get("RINGMASTER_LIBRARY")
    if chosen:
        return [pathlib.Path(chosen)]
    package = pathlib.Path(__file__).resolve().parent
    build = package.parents[1] / "build"
    presets = ["release", "debug"]
    return [package / "lib/libringmaster.so"] + [
        build / preset / "lib/libringmaster.so" for preset in presets
    ]


def library() -> ctypes.CDLL:
    """Loads libringmaster.so once. Errors: it is nowhere, cannot be loaded, or has another ABI version."""
    global _library, _path
    if _library is not None:
        return _library
    paths = candidates()
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise Error(
            "libringmaster.so was not found in any of: "
            + ", ".join(map(str, paths))
            + ". Install the wheel of "
            "ringmaster, build the target ringmaster_shared, or set RINGMASTER_LIBRARY to the file"
        )
    try:
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype = result
            function.argtypes = arguments
            if name == "rm_abi_version" and function() != ABI_VERSION:
                raise Error(
                    f"{path} has ABI version {function()}, and this package needs {ABI_VERSION}: install the package "
                    "and the library of one release"
                )
    except (OSError, AttributeError) as error:
        raise Error(f"{path} cannot be used: {error}") from error
    _library, _path = loaded, path
    return loaded


def plugin() -> pathlib.Path:
    """Returns where the library finds the plugin that sums gradients on a GPU, whether or not the file exists."""
    library()
    chosen = os.environ.get("RINGMASTER_DEVICE_PLUGIN")
    if chosen:
        return pathlib.Path(chosen)
    assert _path is not None
    return _path.resolve().parent / "libringmaster_cuda.so"


def has_plugin() -> bool:
    """Returns whether gradients on a GPU can be summed there, and warns if not."""
    path = plugin()
    if not path.exists():
        warnings.warn(
            f"ringmaster: {path} does not exist, so gradients are copied to the CPU and summed there", stacklevel=3
        )
    return path.exists()


def samples(
    seed: int, dataset_size: int, samples_per_step: int, micro_batches: int, step: int, v: int
) -> List[int]:
    """Returns the indices of the samples of micro-batch v of a step; possibly none, in the last step of an epoch."""
    indices = (ctypes.c_int64 * max(1, samples_per_step // micro_batches))()
    count = library().rm_samples(seed, dataset_size, samples_per_step, micro_batches, step, v, indices)
    if count < 0:
        raise Error(
            f"no samples for step {step}, micro-batch {v}, of a dataset of {dataset_size} with {samples_per_step} samples "
            f"per step in {micro_batches} micro-batches"
        )
    return list(indices[:count])


def random_seed(seed: int, step: int, v: int) -> int:
    return int(library().rm_random_seed(seed, step, v))


def hash_memory(address: int, size: int, seed: int = 0) -> int:
    """Returns the XXH3 hash, 64 bits, of `size` bytes at `address`."""
    return int(library().rm_hash(address, size, seed))


def hash_bytes(data: bytes, seed: int = 0) -> int:
    return int(library().rm_hash(data, len(data), seed))


class Handle:
    """An rm_run. Not thread-safe, except `heartbeat` and `leaving`."""

    def __init__(self, transport: Optional[str]) -> None:
        self._library = library()
        self._process = os.getpid()
        self._run: Optional[int] = None
        self._heartbeat_mutex = threading.Lock()  # rm_heartbeat and rm_leaving must not run when rm_close does
        pointer = _RUN()
        options = Options(ctypes.sizeof(Options), transport.encode() if transport else None)
        status = self._library.rm_open(ctypes.byref(options), ctypes.byref(pointer))
        self._run = pointer.value
        if self._run is None:
            raise MemoryError("rm_open: out of memory")
        try:
            self._check(status)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Frees the run. A process that was forked from the one that opened it leaves it alone."""
        if os.getpid() != self._process:
            self._run = None
            return
        with self._heartbeat_mutex:
            run, self._run = self._run, None
            if run is not None:
                self._library.rm_close(run)

    @property
    def open(self) -> bool:
        return self._run is not None and os.getpid() == self._process

    def _check(self, status: int) -> int:
        """Returns OK, REPEAT or SKIP. Errors: Error for INVALID; Failed, with its message printed, for FAILED."""
        if status < INVALID:
            return status
        message = (self._library.rm_error(self._run) or b"").decode(errors="replace")
        if status == INVALID:
            raise Error(message)
        print(f"ringmaster: {message}", file=sys.stderr, flush=True)
        raise Failed(self.exit_code(), message)

    def _handle(self) -> int:
        run = self._run
        if run is None or os.getpid() != self._process:
            raise Error("the run is closed")
        return run

    def exit_code(self) -> int:
        return int(self._library.rm_exit_code(self._run)) if self.open else 1

    def has_agent(self) -> bool:
        return bool(self._library.rm_has_agent(self._handle()))

    def join(self, config: Config, tensors: Sequence[Tuple[str, int, int]]) -> None:
        """Joins the job. tensors: (name, elements, flags), in the order in which backward finishes them."""
        config.size = ctypes.sizeof(Config)
        described = (Tensor * len(tensors))(
            *[Tensor(name.encode(), elements, flags) for name, elements, flags in tensors]
        )
        self._check(self._library.rm_join(self._handle(), ctypes.byref(config), described, len(tensors)))

    def set_stream(self, stream: int) -> None:
        """Sets the CUDA stream, as an address, that computes gradients and uses their means. REQUIRES: joined."""
        self._check(self._library.rm_set_stream(self._handle(), stream))

    def synchronize(self) -> None:
        """Waits until the GPU has done the work of `add` and `gradient` so far. REQUIRES: joined."""
        self._check(self._library.rm_synchronize(self._handle()))

    def fail(self, message: str) -> None:
        """Ends the job with this message. The process should then end with exit_code()."""
        self._library.rm_fail(self._handle(), message.encode(errors="replace"))

    def next(self) -> Event:
        event = Event(size=ctypes.sizeof(Event))
        self._check(self._library.rm_next(self._handle(), ctypes.byref(event)))
        return event

    def describe(self, arrays: Sequence[Tuple[str, str, int, int, int]], meta: bytes) -> None:
        """Describes the state. arrays: (name, type, address, bytes, flags)."""
        described = (Array * len(arrays))(
            *[Array(name.encode(), kind.encode(), *rest) for name, kind, *rest in arrays]
        )
        self._check(self._library.rm_describe(self._handle(), described, len(arrays), meta, len(meta)))

    def begin_micro_batch(self, v: int) -> int:
        return self._check(self._library.rm_begin_micro_batch(self._handle(), v))

    def add(self, tensor: int, address: int) -> int:
        return self._check(self._library.rm_add(self._handle(), tensor, address))

    def gather(self, mine: bytes, world: int) -> Optional[List[bytes]]:
        """Returns what each rank passed, equally many bytes; None if the step was interrupted."""
        every = ctypes.create_string_buffer(len(mine) * world)
        if self._check(self._library.rm_gather(self._handle(), mine, len(mine), every)) != OK:
            return None
        return [every.raw[i : i + len(mine)] for i in range(0, len(every), len(mine))]

    def end_micro_batch(self, loss: float, weight: Optional[float] = None) -> int:
        if weight is None:
            return self._check(self._library.rm_end_micro_batch(self._handle(), loss))
        return self._check(self._library.rm_end_weighted_micro_batch(self._handle(), loss, weight))

    def reduce(self) -> Optional[Tuple[float, float, float]]:
        """Returns (loss, gradient norm, sum of the weights) of the step, or None if the step must be attempted again."""
        result = StepResult(size=ctypes.sizeof(StepResult))
        if self._check(self._library.rm_reduce(self._handle(), ctypes.byref(result))) != OK:
            return None
        return result.loss, result.gradient_norm, result.weight

    def gradient(self, tensor: int, address: int) -> None:
        self._check(self._library.rm_gradient(self._handle(), tensor, address))

    def committed(self, learning_rate: float, gradient_norm: float) -> None:
        self._check(self._library.rm_committed(self._handle(), learning_rate, gradient_norm))

    def finish(self) -> None:
        self._check(self._library.rm_finish(self._handle()))

    def validated(self, loss: float, accuracy: float) -> None:
        self._check(self._library.rm_validated(self._handle(), loss, accuracy))

    def heartbeat(self) -> None:
        with self._heartbeat_mutex:
            self._library.rm_heartbeat(self._handle())

    def leaving(self) -> Optional[float]:
        with self._heartbeat_mutex:
            seconds = float(self._library.rm_leaving(self._handle()))
        return None if seconds < 0 else seconds
