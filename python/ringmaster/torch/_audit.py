# SPDX-License-Identifier: Apache-2.0
"""Computes a micro-batch twice, and finds the first tensor whose bits differ."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

from .. import _native
from . import _tensors


def audit(
    compute: Callable[[], torch.Tensor], objects: Mapping[str, Any], seed: Callable[[], None]
) -> Optional[str]:
    """Returns the name of the first tensor that differs: outputs of modules in the order of the forward pass, then the loss, then
    gradients in the order of the backward pass, then buffers. Leaves gradients and buffers as they were.
    """
    models = {name: value for name, value in objects.items() if isinstance(value, torch.nn.Module)}
    first = _trace(compute, models, seed)
    second = _trace(compute, models, seed)
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
) -> List[Tuple[str, int]]:
    """Returns names and hashes of tensors, in the order in which they are computed."""
    trace: List[Tuple[str, int]] = []
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


def _hash(tensor: Optional[torch.Tensor]) -> int:
    if tensor is None or tensor.layout != torch.strided:
        return 0
    array = _tensors.as_array(tensor)
    return 0 if array is None else _native.hash_memory(array.address, array.bytes)
