# SPDX-License-Identifier: Apache-2.0
"""A rank of launch_kills, or with --launch COUNT a launcher that starts so many ranks in separate sessions, as torchrun
does. A rank holds the lock of its number while it lives, and continues from the step that it has written."""

import fcntl
import os
import pathlib
import select
import signal
import subprocess
import sys

STEP_S = 0.03


def launch(count, arguments):
    pod = int(os.environ.get("RINGMASTER_RANK") or os.environ["RANK"])
    ranks = [subprocess.Popen([sys.executable, "-S", __file__, *arguments], start_new_session=True,
                              env={**os.environ, "RANK": str(pod * count + local)}) for local in range(count)]

    def stop(*_):
        for rank in ranks:
            rank.terminate()

    signal.signal(signal.SIGTERM, stop)
    codes = [rank.wait() for rank in ranks]
    return next((1 for code in codes if code != 0), 0)


def number():
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "RINGMASTER_RANK"):
        if name in os.environ:
            return os.environ[name]
    raise SystemExit("no rank")


def train(folder, steps):
    rank = number()
    lock = open(folder / f"lock.{rank}", "a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with open(folder / "twice", "a") as out:
            out.write(f"rank {rank} pid {os.getpid()} parent {os.getppid()}\n")
        return 1
    done = folder / f"done.{rank}"
    step = int(done.read_text()) if done.exists() else 0
    while step < steps:
        select.select([], [], [], STEP_S)
        step += 1
        partial = folder / f"partial.{rank}"
        partial.write_text(str(step))
        partial.rename(done)
        print(f'{{"step": {step}, "total_steps": {steps}}}', flush=True)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--launch":
        sys.exit(launch(int(sys.argv[2]), sys.argv[3:]))
    sys.exit(train(pathlib.Path(sys.argv[1]), int(sys.argv[2])))
