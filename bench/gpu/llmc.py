# SPDX-License-Identifier: Apache-2.0
"""Measures llm.c for comparison: train_gpt2cu, which the user of the benchmark builds (make train_gpt2cu USE_CUDNN=1
NO_MULTI_GPU=1), on random tokens that this module writes in llm.c's shard format.

Same shape, batch, optimizer and clipping; float masters, no recomputation; with and without GELU fused with the products,
of which the faster counts. Two things differ: llm.c initialises its weights itself and reads consecutive rows of tokens, so
its losses are near ours but not the same curve; and it sums gradients in bf16. Therefore its result is shown, but no goal
uses it.
"""

import array
import pathlib
import random
import re
import statistics
import subprocess

HOW = "llm.c: skipped; --llmc FOLDER names a folder with train_gpt2cu (make train_gpt2cu USE_CUDNN=1 NO_MULTI_GPU=1)"
FUSIONS = (0, 2)  # -ge: no GELU in the products, or forward and backward
SHARD_MAGIC, SHARD_VERSION, SHARD_HEADER = 20240520, 1, 256
STEP = re.compile(r"^step\s+(?P<step>\d+)/\d+ \| loss (?P<loss>[-+.\w]+) .*\| lr \S+ \| (?P<ms>[0-9.]+) ms \|", re.MULTILINE)


def write_shards(folder: pathlib.Path, vocabulary, tokens):
    """Write two files of random tokens: 256 int32 (magic, version, count), then a uint16 for each token."""
    if vocabulary > 1 << 16:
        raise ValueError(f"llm.c's shards have 16 bits for a token, and the vocabulary is {vocabulary}")
    for seed, name in enumerate(("train", "val"), 1):
        numbers = random.Random(seed)
        header = array.array("i", [SHARD_MAGIC, SHARD_VERSION, tokens] + [0] * (SHARD_HEADER - 3))
        body = array.array("H", (int(numbers.random() * vocabulary) for _ in range(tokens)))
        with open(folder / f"{name}.bin", "wb") as file:
            header.tofile(file)
            body.tofile(file)


def command(program, shards, shape, samples, steps, fusion):
    """Return its command line: no validation except the one batch that cannot be disabled, no samples, no checkpoints."""
    context = shape["context"]
    flags = {"-i": shards / "train.bin", "-j": shards / "val.bin", "-e": f"d{shape['layers']}", "-b": samples, "-t": context,
             "-d": samples * context, "-x": steps, "-l": 3e-4, "-k": "constant", "-u": 0, "-c": 0.1, "-w": 1, "-f": 1,
             "-r": 0, "-z": 0, "-ge": fusion, "-v": steps + 1, "-m": 1, "-s": 0, "-h": 0, "-n": 0, "-pn": 1}
    return [str(part) for pair in ((program,), *flags.items()) for part in pair]


def parse(output, warm_up, steps):
    """Return (median seconds of the steps after warm_up, last loss). Raises ValueError when a step is missing."""
    seen = [(int(each["step"]), float(each["loss"]), float(each["ms"])) for each in STEP.finditer(output)]
    if [number for number, _, _ in seen] != list(range(1, warm_up + steps + 1)):
        raise ValueError(f"{len(seen)} steps could be read of its output, not {warm_up + steps}")
    return statistics.median(ms for _, _, ms in seen[warm_up:]) / 1e3, seen[-1][1]


def speed(folder, shards, shape, samples, warm_up, steps, fusion):
    """Return ((median seconds, last loss), "") or (None, reason)."""
    program = pathlib.Path(folder).resolve() / "train_gpt2cu"
    if not program.exists():
        return None, f"{program} is not there"
    # It runs in its folder, where it searches a tokenizer that it does not need.
    done = subprocess.run(command(program, shards, shape, samples, warm_up + steps, fusion), cwd=program.parent,
                          capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines() or [""]
        return None, f"exit code {done.returncode}: {words[-1]}"
    try:
        return parse(done.stdout, warm_up, steps), ""
    except ValueError as error:
        return None, str(error)
