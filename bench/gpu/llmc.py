# SPDX-License-Identifier: Apache-2.0
"""llm.c beside ours: train_gpt2cu, built by whoever runs the benchmark (make train_gpt2cu USE_CUDNN=1 NO_MULTI_GPU=1), on
random tokens that are written here in its format of shards.

Same shape, batch, optimizer and clip; float masters, no recomputation; with and without GELU fused to the products, of
which the quicker counts. Two things cannot be made equal: it takes its own first weights and rows of tokens that follow
each other, so its losses are only near ours, not the same curve; and it sums gradients in bf16. So it is shown, and is no
part of a goal.
"""

import array
import pathlib
import random
import re
import statistics
import subprocess

HOW = "llm.c: left out; --llmc FOLDER names a folder with train_gpt2cu (make train_gpt2cu USE_CUDNN=1 NO_MULTI_GPU=1)"
FUSIONS = (0, 2)  # -ge: no GELU in the products, or forward and backward
SHARD_MAGIC, SHARD_VERSION, SHARD_HEADER = 20240520, 1, 256
STEP = re.compile(r"^step\s+(?P<step>\d+)/\d+ \| loss (?P<loss>[-+.\w]+) .*\| lr \S+ \| (?P<ms>[0-9.]+) ms \|", re.MULTILINE)


def write_shards(folder: pathlib.Path, vocabulary, tokens):
    """Two files of random tokens: 256 int32 (magic, version, count), then a uint16 for each token."""
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
    """Its arguments: no validation but the one batch that cannot be turned off, no samples, no checkpoints."""
    context = shape["context"]
    flags = {"-i": shards / "train.bin", "-j": shards / "val.bin", "-e": f"d{shape['layers']}", "-b": samples, "-t": context,
             "-d": samples * context, "-x": steps, "-l": 3e-4, "-k": "constant", "-u": 0, "-c": 0.1, "-w": 1, "-f": 1,
             "-r": 0, "-z": 0, "-ge": fusion, "-v": steps + 1, "-m": 1, "-s": 0, "-h": 0, "-n": 0, "-pn": 1}
    return [str(part) for pair in ((program,), *flags.items()) for part in pair]


def parse(output, warm_up, steps):
    """(median seconds of the steps after warm_up, last loss); ValueError when there are not all of them."""
    seen = [(int(each["step"]), float(each["loss"]), float(each["ms"])) for each in STEP.finditer(output)]
    if [number for number, _, _ in seen] != list(range(1, warm_up + steps + 1)):
        raise ValueError(f"{len(seen)} steps could be read of its output, not {warm_up + steps}")
    return statistics.median(ms for _, _, ms in seen[warm_up:]) / 1e3, seen[-1][1]


def speed(folder, shards, shape, samples, warm_up, steps, fusion):
    """((median seconds, last loss), "") or (None, why)."""
    program = pathlib.Path(folder).resolve() / "train_gpt2cu"
    if not program.exists():
        return None, f"{program} is not there"
    # It is run where it lies: it looks for a tokenizer there, and does without.
    done = subprocess.run(command(program, shards, shape, samples, warm_up + steps, fusion), cwd=program.parent,
                          capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines() or [""]
        return None, f"exit code {done.returncode}: {words[-1]}"
    try:
        return parse(done.stdout, warm_up, steps), ""
    except ValueError as error:
        return None, str(error)
