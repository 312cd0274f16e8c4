# SPDX-License-Identifier: Apache-2.0
"""Cleans up after an owner, however that ended: "janitor.py FOLDER CGROUP". Its standard input is a pipe from the owner,
until that ends. There it names the network cables that it has made here, and says "keep" when the folder is to stay.

A cable would go by itself with the namespace of its other end. But that may live on for minutes, without any process in it:
the kernel still says goodbye to connections with nodes that are gone."""

import pathlib
import shutil
import signal
import subprocess
import sys
import time

from cgroups import Cgroup

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)  # it ends when there is nothing left to do
folder, cgroup = sys.argv[1:]
cables = sys.stdin.read().split()
keep = "keep" in cables
for cable in cables:
    if cable != "keep":  # it may be gone; first of all, before it could be somebody else's of the same name
        subprocess.run(["ip", "link", "delete", cable], stderr=subprocess.DEVNULL, check=False)
gone = Cgroup(cgroup).remove()
if not keep:
    for _ in range(100):  # the control plane's own supervisor may still be at it
        shutil.rmtree(folder, ignore_errors=True)
        if not pathlib.Path(folder).exists():
            break
        time.sleep(0.1)
sys.exit(0 if gone else 1)
