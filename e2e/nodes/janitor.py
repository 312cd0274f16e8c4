# SPDX-License-Identifier: Apache-2.0
"""Cleans up after an owner, however that ended: "janitor.py FOLDER CGROUP". Standard input is a pipe from the owner. On it the
owner names the network interfaces that it created on this machine, and sends "keep" to keep the folder.

The kernel removes an interface with the namespace of its peer. But that namespace may exist for minutes after its last
process, while the kernel closes connections to lost nodes, so the janitor removes the interfaces."""

import pathlib
import shutil
import signal
import subprocess
import sys
import time

from cgroups import Cgroup

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)  # it ends when its work is done
folder, cgroup = sys.argv[1:]
words = sys.stdin.read().split()
keep = "keep" in words
for interface in words:
    # The interface may be gone already. Remove it first, before another owner creates one with the same name.
    if interface != "keep":
        subprocess.run(["ip", "link", "delete", interface], stderr=subprocess.DEVNULL, check=False)
gone = Cgroup(cgroup).remove()
if not keep:
    for _ in range(100):  # the supervisor of the control plane may still write to it
        shutil.rmtree(folder, ignore_errors=True)
        if not pathlib.Path(folder).exists():
            break
        time.sleep(0.1)
sys.exit(0 if gone else 1)
