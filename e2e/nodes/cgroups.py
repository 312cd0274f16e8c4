# SPDX-License-Identifier: Apache-2.0
"""The cgroups of nodes in every mounted hierarchy: one subtree per owner, with one subtree per node.

Processes of a node are in NODE/system, its pods in NODE/kubepods. Written for version 1, version 2 and both at once
(hybrid); run with version 1 and hybrid.
"""

import contextlib
import os
import pathlib
import signal
import time

CONTROLLERS = "+cpu +cpuset +memory +pids +io"


def hierarchies():
    """Returns (mount point, controllers) of each hierarchy. The list of version 2 is empty."""
    found = []
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if kind == "cgroup":
            found.append((pathlib.Path(point), options.split(",")))
        elif kind == "cgroup2":
            found.append((pathlib.Path(point), []))
    return found


class Cgroup:
    """A subtree with the same name in every hierarchy."""

    def __init__(self, name):
        self.name = name
        self._places = [(point / name, controllers) for point, controllers in hierarchies()]

    def child(self, name):
        return Cgroup(f"{self.name}/{name}")

    def create(self, weight=1):
        """Creates the subtrees. weight: the share of the CPUs under contention, in units of a default process."""
        for place, controllers in self._places:
            place.mkdir(parents=True, exist_ok=True)
            if "cpu" in controllers:
                (place / "cpu.shares").write_text(str(1024 * weight))
            if "cpuset" in controllers:
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (place / file).write_text((place.parent / file).read_text())
            if not controllers:
                with contextlib.suppress(OSError):  # in another hierarchy on a hybrid system
                    (place.parent / "cgroup.subtree_control").write_text(CONTROLLERS)
                    (place / "cpu.weight").write_text(str(100 * weight))

    def enter(self):
        """Moves this process into the cgroup. Runs in a child before its exec."""
        for place, _ in self._places:
            (place / "cgroup.procs").write_text(str(os.getpid()))

    def freeze(self, frozen):
        for place, controllers in self._places:
            if "freezer" in controllers:
                (place / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
                return
        for place, controllers in self._places:
            if not controllers:
                (place / "cgroup.freeze").write_text("1" if frozen else "0")

    def pids(self):
        found = set()
        for place, _ in self._places:
            for folder, _, _ in os.walk(place):
                with contextlib.suppress(OSError):
                    found.update(map(int, (pathlib.Path(folder) / "cgroup.procs").read_text().split()))
        return found

    def _thaw_all(self):
        for place, _ in self._places:
            for folder, _, files in os.walk(place):
                for file, text in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                    if file in files:
                        with contextlib.suppress(OSError):
                            (pathlib.Path(folder) / file).write_text(text)

    def remove(self, timeout_s=20):
        """Kills all processes in it, and removes it. Returns False on a timeout."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._thaw_all()  # a frozen process does not handle SIGKILL
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for place, _ in self._places:
                for folder, _, _ in os.walk(place, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(folder)
            if not any(place.exists() for place, _ in self._places):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
