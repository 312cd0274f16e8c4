# SPDX-License-Identifier: Apache-2.0
"""Virtual machines for tests: a kernel that loads modules and knows RDMA, with the files of this machine.

    with machines(2) as (first, second):
        first.run("uname -r")                      # returns the output; MachineError when it fails
        job = second.start("ringmaster run ...")   # runs while the test does something else
        second.power_off()

Needs root and e2e/machines/build. README.md has the details. Machine is thread-safe, except power_off.
"""

import contextlib
import json
import os
import pathlib
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from supervisor import die_with

HERE = pathlib.Path(__file__).resolve().parent
BOOT_TIMEOUT_S = 900  # 20 s are usual; the lowest priority leaves little on a busy machine


class MachineError(Exception):
    """A machine did not boot, or a command failed. The message has the reason and the output."""


class NotBuilt(Exception):
    pass


def kernel():
    """Returns the folder that e2e/machines/build made."""
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuilt(done.stderr.strip())
    return pathlib.Path(done.stdout.strip())


class Command:
    """A command that runs in a machine."""

    def __init__(self, text):
        self.text = text
        self.code = None
        self._parts = []
        self._changed = threading.Condition()

    @property
    def output(self):
        return "".join(self._parts)

    def wait(self, timeout_s=120):
        """Returns the exit code."""
        self.wait_for(lambda: self.code is not None, timeout_s)
        return self.code

    def wait_for_output(self, text, timeout_s=120):
        self.wait_for(lambda: text in self.output or self.code is not None, timeout_s)
        if text not in self.output:
            raise MachineError(f"{self.text}: ended with {self.code} and without {text!r}:\n{self.output}")

    def wait_for(self, condition, timeout_s):
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise MachineError(f"{self.text}: not done in {timeout_s} s; so far:\n{self.output}")

    def handle(self, message):
        with self._changed:
            if "output" in message:
                self._parts.append(message["output"])
            else:
                self.code = message["code"]
            self._changed.notify_all()


class Machine:
    """One virtual machine: one processor in software emulation, this machine's files, and eth0 to its peer if it has one.

    The thread that creates it must not end before it: the kernel ends QEMU with that thread, however it ends.
    """

    def __init__(self, name, folder, memory="3G", link=None):
        self.name = name
        self.folder = pathlib.Path(folder)
        self.console = self.folder / f"{name}.console"
        self._commands = {}
        self._lock = threading.Lock()
        self._ready = queue.Queue()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / f"{name}.port"))
        self._listener.listen()
        self._connection = None
        self._folder_of_kernel = kernel()
        parent = os.getpid()

        def prepare():
            die_with(parent)
            os.nice(19)

        with open(self.folder / f"{name}.qemu", "wb") as errors:
            self._process = subprocess.Popen(self._arguments(memory, link), stdin=subprocess.DEVNULL, stdout=errors,
                                             stderr=subprocess.STDOUT, preexec_fn=prepare)
        threading.Thread(target=self._read, daemon=True).start()

    def _arguments(self, memory, link):
        build = self._folder_of_kernel
        # Software emulation: /dev/kvm exists on some machines without working.
        arguments = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", memory, "-nodefaults",
                     "-display", "none", "-no-reboot", "-serial", f"file:{self.console}", "-kernel", build / "vmlinuz",
                     "-initrd", build / "initrd.gz", "-append",
                     f"console=ttyS0 quiet panic=-1 no_timer_check nowatchdog rcupdate.rcu_cpu_stall_suppress=1 GUEST={HERE}/guest.py MODULES={build}",
                     "-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap",
                     "-device", "virtio-serial", "-chardev", f"socket,id=port,path={self.folder}/{self.name}.port",
                     "-device", "virtserialport,chardev=port,name=ringmaster", "-device", "virtio-rng-pci",
                     "-qmp", f"unix:{self.folder}/{self.name}.qmp,server=on,wait=off"]
        if link:
            here, there, address = link
            arguments += ["-netdev", f"dgram,id=eth0,local.type=unix,local.path={here},remote.type=unix,remote.path={there}",
                          "-device", f"virtio-net-pci,netdev=eth0,mac={address}"]
        return arguments

    def _read(self):
        self._connection, _ = self._listener.accept()
        with self._connection.makefile("rb") as lines:
            with contextlib.suppress(OSError):
                for line in lines:
                    message = json.loads(line)
                    if "ready" in message:
                        self._ready.put(True)
                    else:
                        self._commands[message["id"]].handle(message)
        for command in list(self._commands.values()):
            if command.code is None:
                command.handle({"output": f"\n{self.name} ended"})
                command.handle({"code": -1})

    @property
    def pid(self):
        return self._process.pid

    def wait_ready(self):
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while True:
            with contextlib.suppress(queue.Empty):
                self._ready.get(timeout=0.2)
                return self
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise MachineError(f"{self.name} did not boot in {BOOT_TIMEOUT_S} s or ended with {self._process.poll()}:\n"
                                   f"{(self.folder / f'{self.name}.qemu').read_text()}{self._console_end()}")

    def _console_end(self):
        return self.console.read_text(errors="replace")[-3000:] if self.console.exists() else ""

    def start(self, command):
        """Starts a command of bash and returns it."""
        with self._lock:
            identity = len(self._commands)
            started = self._commands[identity] = Command(command)
            self._connection.sendall((json.dumps({"id": identity, "command": command}) + "\n").encode())
        return started

    def run(self, command, timeout_s=120):
        """Returns the output of a command that must succeed."""
        done = self.start(command)
        if code := done.wait(timeout_s):
            raise MachineError(f"{self.name}: {command}: exit code {code}:\n{done.output}\n{self._console_end()}")
        return done.output

    def monitor(self, command, **arguments):
        """Sends a command of QEMU's machine protocol, such as set_link(name="eth0", up=False), stop or cont."""
        with socket.socket(socket.AF_UNIX) as qmp:
            qmp.connect(str(self.folder / f"{self.name}.qmp"))
            with qmp.makefile("rw") as lines:
                lines.readline()
                for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                    lines.write(json.dumps(request) + "\n")
                    lines.flush()
                    while "event" in (answer := json.loads(lines.readline())):
                        pass
                    if "error" in answer:
                        raise MachineError(f"{self.name}: {command}: {answer['error']['desc']}")

    def power_off(self):
        """Ends the machine at once."""
        self._process.kill()
        self._process.wait()
        self._listener.close()


@contextlib.contextmanager
def machines(count, memory="3G"):
    """Boots one or two machines. Each has an interface eth0, fd00:9::1 and fd00:9::2, which connects two machines; of one
    machine it leads nowhere."""
    if os.geteuid() != 0:
        raise MachineError("machines need root: they see all files of this machine, and tests load modules in them")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-machines-"))
    started = []
    try:
        for index in range(1, count + 1):
            link = (folder / f"wire-{index}", folder / f"wire-{3 - index}", f"52:54:00:09:00:0{index}") if count == 2 else None
            started.append(Machine(f"machine-{index}", folder, memory, link))
        for index, machine in enumerate(started, 1):
            machine.wait_ready()
            if count == 1:
                machine.run("modprobe -d $MODULES veth && ip link add eth0 type veth peer name eth0-peer && "
                            "ip link set eth0-peer up")
            machine.run(f"ip addr add fd00:9::{index}/64 nodad dev eth0 && ip link set eth0 up")
        yield started
    finally:
        for machine in started:
            machine.power_off()
        if sys.exc_info()[0] is None or not os.environ.get("RINGMASTER_KEEP_MACHINES"):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"the consoles of the machines are kept in {folder}", file=sys.stderr)
