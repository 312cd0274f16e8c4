# SPDX-License-Identifier: Apache-2.0
"""A training program with a parameter server and without a framework: the processes find each other by TF_CONFIG alone,
as those of TensorFlow's ParameterServerStrategy do.

    ps_program.py CHECKPOINT STEPS [FAULT]

The chief sends each step to a worker, which works on it and adds its result to the parameter server. Only the chief ends:
it prints every step, writes CHECKPOINT, and ends with exit code 0 after STEPS. The evaluator writes what it was started
with to CHECKPOINT.evaluator, and fails. FAULT `stubborn`: the parameter server ignores SIGTERM. `broken`: it fails at
once, every time. `idle`: the evaluator waits instead, for a job that takes at least IDLE_S.
"""

import hashlib
import json
import os
import pathlib
import signal
import socket
import sys
import time

CONFIG = json.loads(os.environ["TF_CONFIG"])
CLUSTER, TASK = CONFIG["cluster"], CONFIG["task"]
CHECKPOINT, STEPS, FAULT = pathlib.Path(sys.argv[1]), int(sys.argv[2]), (sys.argv + [""])[3]
IDLE_S = 6


def address_of(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def ask(address, text):
    """Returns the answer; None when the process there is lost."""
    try:
        with socket.create_connection(address_of(address)) as connection:
            connection.sendall(text.encode() + b"\n")
            answer = connection.makefile().readline().strip()
    except OSError:
        return None
    return answer or None


def serve(answer):
    with socket.create_server(address_of(CLUSTER[TASK["type"]][TASK["index"]])) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                line = connection.makefile().readline().strip()
                if line:
                    connection.sendall(str(answer(line) or "").encode() + b"\n")


def parameter_server():
    if FAULT == "broken":
        sys.exit("the parameters do not fit")
    if FAULT == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    total = 0

    def add(line):
        nonlocal total
        total = (total + int(line)) % 2**61
        return total

    serve(add)


def worker():
    def work(line):
        value = int.from_bytes(hashlib.pbkdf2_hmac("sha256", line.encode(), b"", 8000)[:7], "big")
        return ask(CLUSTER["ps"][value % len(CLUSTER["ps"])], str(value))

    serve(work)


def chief():
    first = json.loads(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    begin = time.monotonic()
    for step in range(first + 1, STEPS + 1):
        turn = step
        # A lost worker is left out; one whose parameter server is lost has no answer either.
        while (total := ask(CLUSTER["worker"][turn % len(CLUSTER["worker"])], str(step))) is None:
            turn += 1
        while FAULT == "idle" and time.monotonic() < begin + IDLE_S * step / STEPS:
            ask(CLUSTER["worker"][turn % len(CLUSTER["worker"])], str(step))
        print(json.dumps({"step": step, "loss": int(total) / 2**61, "total_steps": STEPS, "samples": 1}), flush=True)
        fresh = CHECKPOINT.with_suffix(".tmp")
        fresh.write_text(json.dumps(step))
        fresh.rename(CHECKPOINT)


def evaluator():
    names = ["RANK", "WORLD_SIZE", "RINGMASTER_RANK", "RINGMASTER_ROLE", "RINGMASTER_ROLE_INDEX"]
    seen = {"config": CONFIG, "environment": {name: os.environ[name] for name in names if name in os.environ}}
    CHECKPOINT.with_suffix(".evaluator").write_text(json.dumps(seen))
    if FAULT == "idle":
        signal.pause()
    sys.exit("the evaluator has failed")


{"ps": parameter_server, "worker": worker, "chief": chief, "evaluator": evaluator}[TASK["type"]]()
