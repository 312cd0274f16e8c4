# SPDX-License-Identifier: Apache-2.0
"""Computes a micro-batch twice, also on all workers, and finds the first tensor whose bits differ."""

from __future__ import annotations

import os
import struct
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from .. import _native
from . import _tensors

_TEXT = 200  # bytes of a name in the first exchange
_PIECE = 4096  # tensors in one exchange


def audit(
    compute: Callable[[], torch.Tensor], objects: Mapping[str, Any], seed: Callable[[], None]
) -> Optional[str]:
    """Returns the name of the first tensor that differs: outputs of modules in the order of the forward pass, then the loss, then
    gradients in the order of the backward pass, then buffers. Leaves gradients and buffers as they were.
    """
    return _compare(*_twice(compute, objects, seed))


def audit_all(
    compute: Callable[[], torch.Tensor],
    objects: Mapping[str, Any],
    seed: Callable[[], None],
    gather: Callable[[bytes], Optional[List[bytes]]],
) -> Optional[str]:
    """As `audit`, and compares all workers; all return the same. gather: returns what each rank passed; None: interrupted."""
    trace, again = _twice(compute, objects, seed)
    found = (_compare(trace, again) or "").encode()[: _TEXT - 1]
    worker = os.environ.get("RINGMASTER_POD", "").encode()[: _TEXT - 1]
    hashes = [_native.hash_bytes(name.encode(), bits) for name, bits in trace]
    whole = _native.hash_bytes(struct.pack(f"={len(hashes)}Q", *hashes))
    every = gather(struct.pack(f"=qQ{_TEXT}s{_TEXT}s", len(hashes), whole, found, worker))
    if every is None:
        return None
    heads = [struct.unpack(f"=qQ{_TEXT}s{_TEXT}s", head) for head in every]
    pods = [head[3].rstrip(b"\0").decode(errors="replace") for head in heads]
    workers = [f"{pod} (rank {rank})" if pod else f"rank {rank}" for rank, pod in enumerate(pods)]
    for worker_name, head in zip(workers, heads):
        if text := head[2].rstrip(b"\0").decode(errors="replace"):
            return f"{text} differs when {worker_name} computes it again"
    if len({head[1] for head in heads}) == 1:
        return None
    for begin in range(0, max(head[0] for head in heads), _PIECE):
        piece = hashes[begin : begin + _PIECE]
        every = gather(struct.pack(f"={_PIECE}Q", *piece, *[0] * (_PIECE - len(piece))))
        if every is None:
            return None
        columns = zip(*[struct.unpack(f"={_PIECE}Q", values) for values in every])
        for index, column in enumerate(columns, begin):
            if len(set(column)) > 1:
                name = trace[index][0] if index < len(trace) else ""
                names = gather(struct.pack(f"={_TEXT}s", name.encode()[: _TEXT - 1]))
                if names is None:
                    return None
                # A worker that computes fewer tensors has no name for it; all take that of the first rank that has one.
                known = (text.rstrip(b"\0").decode(errors="replace") for text in names)
                return f"{next(filter(None, known))} differs between workers: {_sides(column, workers)}"
    return None


def _sides(column: Sequence[int], workers: Sequence[str]) -> str:
    sides: Dict[int, List[str]] = {}
    for bits, worker in zip(column, workers):
        sides.setdefault(bits, []).append(worker)
    ordered = sorted(sides.values(), key=len, reverse=True)
    return "; ".join(", ".join(side) for side in ordered)


_Trace = List[Tuple[str, int]]


def _twice(
    compute: Callable[[], torch.Tensor], objects: Mapping[str, Any], seed: Callable[[], None]
) -> Tuple[_Trace, _Trace]:
    models = {name: value for name, value in objects.items() if isinstance(value, torch.nn.Module)}
    return _trace(compute, models, seed), _trace(compute, models, seed)


def _compare(first: _Trace, second: _Trace) -> Optional[str]:
    for (name, bits), (other_name, other_bits) in zip(first, second):
        if name != other_name:
            return f"{name}: the other time, {other_name} came instead"
        if bits != other_bits:
            return name
    if len(first) != len(second):
        return max(first, second, key=len)[min(len(first), len(second))][0]
    return None


def _trace(
    compute: Callable[[], torch.Tensor], models: Mapping[str, torch.nn.Module], seed: Callable[[], None]
) -> _Trace:
    """Returns names and hashes of tensors, in the order in which they are computed."""
    trace: _Trace = []
    handles: List[Any] = []
    parameters = {
        f"{name}.{path}": p for name, model in models.items() for path, p in model.named_parameters()
    }
    buffers = {f"{name}.{path}": b for name, model in models.items() for path, b in model.named_buffers()}
    gradients: Dict[str, Optional[torch.Tensor]] = {name: p.grad for name, p in parameters.items()}
    values = {name: b.detach().clone() for name, b in buffers.items()}

    def watch_output(name: str) -> Callable[[Any, Any, Any], None]:
        def record(module: Any, inputs: Any, output: Any) -> None:
            for index, tensor in enumerate(_tensors_in(output)):
                trace.append((f"output {index} of {name}", _hash(tensor)))

        return record

    def watch_gradient(name: str) -> Callable[[torch.Tensor], None]:
        return lambda p: trace.append((f"gradient of {name}", _hash(p.grad)))

    try:
        for name, model in models.items():
            for path, part in model.named_modules():
                handles.append(part.register_forward_hook(watch_output(f"{name}.{path}" if path else name)))
        for name, parameter in parameters.items():
            parameter.grad = None
            if parameter.requires_grad:
                watch = parameter.register_post_accumulate_grad_hook
                handles.append(watch(watch_gradient(name)))  # type: ignore[no-untyped-call]
        seed()
        loss = compute()
        trace.append(("the loss", _hash(loss)))
        loss.backward()  # type: ignore[no-untyped-call]
        trace.extend((f"buffer {name}", _hash(b)) for name, b in buffers.items())
    finally:
        for handle in handles:
            handle.remove()
        for name, parameter in parameters.items():
            parameter.grad = gradients[name]
        with torch.no_grad():
            for name, b in buffers.items():
                if _changed(b, values[name]):
                    b.copy_(values[name])
    return trace


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)


def _changed(value: torch.Tensor, before: torch.Tensor) -> bool:
    """Returns False if the bits are equal. Then nothing may be written, which counts as a change of a constant."""
    if value.layout != torch.strided or _tensors.as_array(before) is None:
        return True
    return _hash(value) != _hash(before)


def _hash(tensor: Optional[torch.Tensor]) -> int:
    if tensor is None or tensor.layout != torch.strided:
        return 0
    array = _tensors.as_array(tensor)
    return 0 if array is None else _native.hash_memory(array.address, array.bytes)
