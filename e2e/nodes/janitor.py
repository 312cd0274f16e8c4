"""Cleans up after an owner, however that ended: "janitor.py FOLDER CGROUP". Its standard input is a pipe from the owner,
which says "keep" there when the folder is to stay, and otherwise nothing until it ends."""

import pathlib
import shutil
import signal
import sys
import time

from cgroups import Cgroup

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)  # it ends when there is nothing left to do
folder, cgroup = sys.argv[1:]
keep = sys.stdin.read() == "keep"
gone = Cgroup(cgroup).remove()
if not keep:
    for _ in range(100):  # the control plane's own supervisor may still be at it
        shutil.rmtree(folder, ignore_errors=True)
        if not pathlib.Path(folder).exists():
            break
        time.sleep(0.1)
sys.exit(0 if gone else 1)
