#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the same GPT-2 step by PyTorch, in JSON lines for bench/gpu/run.

    torch_gpt2.py curve --folder F ...    the losses of the steps whose weights and tokens bench_gpu wrote to F
    torch_gpt2.py speed --folder F ...    the median time of a step, from those weights and with those tokens

CUDA events time a step with its copy of tokens and its update; losses are read after all steps. The first step, which
compiles, is the first of the warm-up steps.
"""

import argparse
import json
import pathlib
import statistics
import time

import torch

from torch_step import VARIANTS, Training


def read_batches(flags, count):
    """Return (inputs, targets) of each step, pinned when there is a GPU."""
    shape = (flags.samples, flags.context)
    size = 2 * shape[0] * shape[1]
    path = flags.folder / "tokens.i32"
    tape = torch.from_file(str(path), shared=False, size=path.stat().st_size // 4, dtype=torch.int32)
    batches = [each.clone() for each in tape[: count * size].view(count, 2, *shape)]
    if flags.device.startswith("cuda"):
        batches = [each.pin_memory() for each in batches]
    return [(each[0], each[1]) for each in batches]


def timed(training, batches):
    """Return the seconds of each step, and the losses, which stay on the device."""
    if not training.on_gpu:
        times, losses = [], []
        for batch in batches:
            before = time.perf_counter()
            losses.append(training.step(batch))
            times.append(time.perf_counter() - before)
        return times, losses
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(batches) + 1)]
    marks[0].record()
    losses = []
    for batch, mark in zip(batches, marks[1:]):
        losses.append(training.step(batch))
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / 1e3 for a, b in zip(marks, marks[1:])], losses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["curve", "speed"])
    parser.add_argument("--variant", choices=VARIANTS, default="eager")
    parser.add_argument("--device", default="cuda")
    for name in ("layers", "heads", "width", "context", "vocabulary", "samples", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    flags = parser.parse_args()
    training = Training(VARIANTS[flags.variant], flags, json.loads((flags.folder / "layout.json").read_text()))
    before = flags.warm_up if flags.mode == "speed" else 0
    batches = read_batches(flags, before + flags.steps)
    with training.attention():
        begin = time.perf_counter()
        losses = [training.step(batches[0])]
        float(losses[0])
        facts = {"variant": flags.variant, "first_s": time.perf_counter() - begin, "policy": training.policy(),
                 "torch": torch.__version__}
        if flags.mode == "curve":
            attention = "not seen"
            for number, batch in enumerate(batches[1:], 1):
                if number == 1:
                    loss, attention = training.watched_step(batch)
                else:
                    loss = training.step(batch)
                losses.append(loss)
            print(json.dumps({**facts, "attention": attention}))
            for number, loss in enumerate(losses, 1):
                print(json.dumps({"step": number, "loss": float(loss)}))
            return
        for batch in batches[1:before]:
            training.step(batch)
        times, losses = timed(training, batches[max(before, 1):])
        if not times:
            parser.error("speed: the first step compiles and does not count; with --warm-up 0 there must be another one")
        print(json.dumps({**facts, "median_s": statistics.median(times), "mean_s": sum(times) / len(times),
                          "loss": float(losses[-1])}))


if __name__ == "__main__":
    main()
