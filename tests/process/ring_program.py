# SPDX-License-Identifier: Apache-2.0
"""A training program without a framework, for the tests of user programs: ranks meet at MASTER_ADDR:MASTER_PORT, sum a
number in each step, and rank 0 writes a checkpoint of every step and reports it.

    ring_program.py CHECKPOINT STEPS [FAULT]

FAULT happens in rank 1, in an incarnation that starts at step 0: `exit` (exit code 1, every time), `import` (an import
error, every time), `orphan` (starts a process in another session, writes its pid to CHECKPOINT.orphan, dies of
SIGKILL), `stubborn` (every rank ignores SIGTERM), `hang` (blocks after some steps), `stop` (stops itself after some
steps). `mute` blocks at once, and no rank reports anything. `compute` computes for a while before the first step.
With `endless`, rank 1 does not end. With `report`, `trainer` and `kubeflow`, rank 0 reports by the Python package, as the
Trainer of Hugging Face does, and as its callback for Kubeflow Trainer does. `preload` imports a slow module, and blocks after
some steps. `place`: every rank prints a line and
writes its variables to CHECKPOINT.INCARNATION.RANK, and the last one fails after some steps. `save`: on SIGTERM, every rank
writes CHECKPOINT.saved.RANK with the help of a process that SIGTERM ends. `signals`: every rank waits for SIGNALS before it
ends, and writes CHECKPOINT.signals.RANK.

While CHECKPOINT.hold exists, every rank waits after the step that the file names: the test decides when the program continues.
"""

import datetime
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SIGNALS = [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
VARIABLES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "RINGMASTER_SLOT", "CUDA_VISIBLE_DEVICES",
             "RINGMASTER_ATTEMPT", "RINGMASTER_STOP_SECONDS"]


def receive(connection):
    data = b""
    while len(data) < 8:
        part = connection.recv(8 - len(data))
        if not part:
            sys.exit("a peer is lost")
        data += part
    return int.from_bytes(data, "big")


def meet():
    """Returns the connections: rank 0 has one to every other rank, which has one to rank 0."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if RANK == 0:
        listener = socket.create_server(address, backlog=WORLD)
        return [listener.accept()[0] for _ in range(WORLD - 1)]
    while True:
        try:
            return [socket.create_connection(address)]
        except ConnectionRefusedError:
            pass  # rank 0 does not listen yet


def total(connections, number):
    """Returns the sum over all ranks."""
    if RANK == 0:
        number = (number + sum(receive(connection) for connection in connections)) % 2**64
        for connection in connections:
            connection.sendall(number.to_bytes(8, "big"))
        return number
    connections[0].sendall(number.to_bytes(8, "big"))
    return receive(connections[0])


def part(step, rank):
    """This rank's share of a step: some milliseconds of work."""
    seed = f"{step} {rank}".encode()
    return int.from_bytes(hashlib.pbkdf2_hmac("sha256", seed, b"", 8000)[:7], "big")


def fail(fault, checkpoint):
    if fault == "exit":
        sys.exit("the data is broken")
    if fault == "import":
        import a_module_that_is_missing  # noqa: F401
    if fault == "orphan":
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        checkpoint.with_suffix(".orphan").write_text(str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "mute":
        checkpoint.with_suffix(".orphan").write_text("")
        signal.pause()


def fail_later(fault, step):
    if fault in ("hang", "preload") and step == 50:
        signal.pause()
    if fault == "stop" and step == 50:
        os.kill(os.getpid(), signal.SIGSTOP)


def report_place(checkpoint):
    print(f"rank {RANK} is here")
    place = {name: os.environ.get(name) for name in VARIABLES}
    checkpoint.with_suffix(f".{os.environ['RINGMASTER_INCARNATION']}.{RANK}").write_text(json.dumps(place))


def say(text):
    """Writes a line in one piece: others write into the same file."""
    sys.stdout.flush()
    os.write(1, f"{text}\n".encode())


def save_on_sigterm(checkpoint):
    helper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])

    def save(*_):
        say(f"rank {RANK} saves")
        try:
            state = f"without its helper: {helper.wait(0.5)}"
        except subprocess.TimeoutExpired:
            state = "saved"
        checkpoint.with_suffix(f".saved.{RANK}").write_text(state)
        say(f"rank {RANK} has saved")
        sys.exit(1)

    signal.signal(signal.SIGTERM, save)


def collect_signals(checkpoint):
    """Returns a function that waits until each of SIGNALS has come."""
    reader, writer = os.pipe()
    for number in SIGNALS:
        signal.signal(number, lambda number, _: os.write(writer, bytes([number])))

    def wait():
        received = b""
        while len(received) < len(SIGNALS):
            received += os.read(reader, 1)
        checkpoint.with_suffix(f".signals.{RANK}").write_text(json.dumps(sorted(received)))

    return wait


def post(step, steps, loss):
    with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
        token = file.read().strip()
    metrics = {"loss": loss, "epoch": step / steps, "current_step": step, "total_steps": steps}
    status = {"lastUpdatedTime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
              "progressPercentage": min(int(step / steps * 100), 99),
              "estimatedRemainingSeconds": steps - step,
              "metrics": [{"name": str(key), "value": str(value)} for key, value in metrics.items()]}
    data = json.dumps({"trainerStatus": status}).encode("utf-8")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], data=data, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=5, context=None) as response:
        assert response.status == 200 and json.load(response)["trainerStatus"] == status


def report(fault, step, steps, loss):
    if fault == "report":
        import ringmaster
        assert ringmaster.report(step, loss, total_steps=steps, samples=WORLD)
    elif fault == "trainer":
        bar = f"\r {step / steps:3.0%}|##        | {step}/{steps} [00:10<01:30,  5.00it/s]"
        print(bar, "\r", " " * len(bar), "\r", sep="", end="", file=sys.stderr)
        print(f"{{'loss': {loss}, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': {step / steps}}}")
        print(bar, end="", file=sys.stderr)
    elif fault == "kubeflow":
        post(step, steps, loss)
    elif fault != "mute":
        print(json.dumps({"step": step, "loss": loss, "total_steps": steps, "samples": WORLD}))


def held(checkpoint, step):
    try:
        return step > int(checkpoint.with_suffix(".hold").read_text() or 0)  # empty while the test writes it
    except FileNotFoundError:
        return False


def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        part(0, 0)


def main():
    checkpoint, steps, fault = pathlib.Path(sys.argv[1]), int(sys.argv[2]), (sys.argv + [""])[3]
    if fault == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if fault == "preload":
        import slow_module
        checkpoint.with_suffix(f".{os.environ['RINGMASTER_INCARNATION']}.{RANK}").write_text(slow_module.IMPORTED_BY)
    first, state = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, 0)
    if fault == "place":
        report_place(checkpoint)
    if fault == "save":
        save_on_sigterm(checkpoint)
    wait_for_signals = collect_signals(checkpoint) if fault == "signals" else None
    orphaned = checkpoint.with_suffix(".orphan").exists()
    if fault == "compute":
        compute(6)
    connections = meet()
    if RANK == 1 and first == 0 and not orphaned:
        fail(fault, checkpoint)
    for step in range(first + 1, steps + 1):
        while held(checkpoint, step):
            time.sleep(0.01)
        if RANK == 1 and first == 0:
            fail_later(fault, step)
        if RANK == WORLD - 1 and first == 0 and fault == "place" and step == 50:
            sys.exit("its disk is full")
        state = (state * 31 + total(connections, part(step, RANK))) % 2**61
        if RANK == 0:
            # First the report: a step whose checkpoint is missing is done and reported again.
            report(fault, step, steps, state / 2**61)
            fresh = checkpoint.with_suffix(".tmp")
            fresh.write_text(json.dumps([step, state]))
            fresh.rename(checkpoint)
    if RANK == 1 and fault == "endless":
        signal.pause()
    if wait_for_signals:
        wait_for_signals()


main()
