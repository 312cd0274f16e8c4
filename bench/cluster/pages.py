# SPDX-License-Identifier: Apache-2.0
"""Reads the progress of trainers on this machine's test nodes from the page that each shares with its agent
(worker/agent/trainer/shared_page.h): a commit is visible within a millisecond, also on a node that is cut off."""

import contextlib
import dataclasses
import mmap
import os
import pathlib
import struct

FIELDS = struct.Struct("<QQq")  # heartbeat, generation, step
OFFSET = 56                     # of the first field: magic 8, mutex 40, ready 4, activity 4
MAGIC = struct.pack("<Q", 0x52494E474D535431)


class Page:
    def __init__(self, memory):
        self._memory = memory

    def read(self):
        """Returns (generation, step)."""
        _, generation, step = FIELDS.unpack_from(self._memory, OFFSET)
        return generation, step


def environment_of(pid):
    with contextlib.suppress(OSError):
        raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return dict(part.split("=", 1) for part in raw.split("\0") if "=" in part)
    return {}


def page_of(agent):
    """Maps the page of the agent's current trainer; None: it has none, or the agent has ended."""
    with contextlib.suppress(OSError, ValueError):
        for entry in pathlib.Path(f"/proc/{agent}/fd").iterdir():
            if not os.readlink(entry).startswith("/memfd:ringmaster-slot"):
                continue
            file = os.open(entry, os.O_RDONLY)
            try:
                memory = mmap.mmap(file, OFFSET + FIELDS.size, mmap.MAP_SHARED, mmap.PROT_READ)
            finally:
                os.close(file)
            return Page(memory) if memory[:8] == MAGIC else None
    return None


@dataclasses.dataclass
class Worker:
    node: str
    agent: int  # pid of the pod's first process, as this machine sees it
    page: Page  # the trainer's; None: no trainer runs


def workers_of(rig, job):
    """Returns {pod: Worker} for the running workers."""
    found = {}
    for node in rig.nodes.status()["nodes"]:
        for pid, _ in rig.nodes.processes(node, "ringmaster-agen"):
            pod = environment_of(pid).get("RINGMASTER_POD", "")
            if pod.rsplit("-", 2)[0] == job:
                found[pod] = Worker(node, pid, page_of(pid))
    return found
