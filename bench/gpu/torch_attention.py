#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure PyTorch's scaled_dot_product_attention, forward and backward, causal, in bf16, by each of its backends, in JSON
lines for bench/gpu/run: a ceiling for the attention of a step. Queries, keys and values are interleaved as the product before
them writes them; random numbers; the median of CUDA events.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
WARM_UPS, RUNS = 3, 9


def median_ms(on_gpu, enqueue):
    times = []
    for _ in range(WARM_UPS + RUNS):
        if on_gpu:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            enqueue()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            before = time.perf_counter()
            enqueue()
            times.append(1e3 * (time.perf_counter() - before))
    return statistics.median(times[WARM_UPS:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    for name in ("samples", "context", "heads", "width"):
        parser.add_argument(f"--{name}", type=int, required=True)
    flags, _ = parser.parse_known_args()  # ignores the other dimensions of the model
    on_gpu = flags.device.startswith("cuda")
    torch.manual_seed(1)
    packed = torch.randn(flags.samples, flags.context, 3, flags.heads, flags.width // flags.heads, device=flags.device,
                         dtype=torch.bfloat16)
    inputs = [part.transpose(1, 2).detach().requires_grad_() for part in packed.unbind(2)]
    gradient = torch.randn(flags.samples, flags.context, flags.heads, flags.width // flags.heads, device=flags.device,
                           dtype=torch.bfloat16).transpose(1, 2)
    for name, backend in BACKENDS.items():
        try:
            with sdpa_kernel([backend]):
                def forward():
                    return F.scaled_dot_product_attention(*inputs, is_causal=True)

                forward_ms = median_ms(on_gpu, forward)
                mixed = forward()
                backward_ms = median_ms(on_gpu, lambda: torch.autograd.grad(mixed, inputs, gradient, retain_graph=True))
        except RuntimeError as error:
            print(json.dumps({"backend": name, "why": str(error).splitlines()[0][:120]}))
            continue
        print(json.dumps({"backend": name, "forward_ms": forward_ms, "backward_ms": backward_ms}))


if __name__ == "__main__":
    main()
