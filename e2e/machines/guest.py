# SPDX-License-Identifier: Apache-2.0
"""Runs commands in a virtual machine. init starts it there; machine.py talks to it over a virtio port.

One JSON object per line. In: {"id": N, "command": TEXT}. Out: {"ready": true} once, {"id": N, "output": TEXT} while the
command runs, {"id": N, "code": N} after its end; a command that a signal ended has the negative number of the signal.
Commands run at the same time, each in bash and in a process group. The machine ends when the port closes.
"""

import glob
import json
import os
import pathlib
import subprocess
import sys
import threading
import time


def modules_folder():
    for word in pathlib.Path("/proc/cmdline").read_text().split():
        if word.startswith("MODULES="):
            return word.removeprefix("MODULES=")
    raise SystemExit("the kernel's command line has no MODULES")


class Port:
    def __init__(self, path):
        self._file = os.open(path, os.O_RDWR)
        self._lock = threading.Lock()

    def send(self, **message):
        data = (json.dumps(message) + "\n").encode()
        with self._lock:
            while data:
                data = data[os.write(self._file, data):]

    def lines(self):
        pending = b""
        while data := os.read(self._file, 65536):
            *lines, pending = (pending + data).split(b"\n")
            yield from lines


def run(port, identity, command):
    with subprocess.Popen(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        while data := os.read(process.stdout.fileno(), 65536):
            port.send(id=identity, output=data.decode(errors="replace"))
    port.send(id=identity, code=process.returncode)


def main():
    folder = modules_folder()
    os.environ["MODULES"] = folder
    for module in ("virtio_console", "virtio_net"):
        subprocess.run(["modprobe", "-d", folder, module], check=True)
    while not (found := glob.glob("/dev/vport*p1")):
        time.sleep(0.01)
    port = Port(found[0])
    port.send(ready=True)
    for line in port.lines():
        request = json.loads(line)
        threading.Thread(target=run, args=(port, request["id"], request["command"]), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
