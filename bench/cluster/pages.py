# SPDX-License-Identifier: Apache-2.0
"""What trainers in pods on this machine's test nodes are doing, without asking anybody: the page that each shares with its
agent (worker/agent/shared_page.h) is mapped here, so a commit is seen within a millisecond, also on a node that is cut off."""

import contextlib
import dataclasses
import mmap
import os
import pathlib
import struct

FIELDS = struct.Struct("<QQq")  # heartbeat, generation, step
OFFSET = 56                     # of the first of them: magic 8, mutex 40, ready 4, activity 4
MAGIC = struct.pack("<Q", 0x52494E474D535431)


class Page:
    def __init__(self, memory):
        self._memory = memory

    def read(self):
        """(generation, step)"""
        _, generation, step = FIELDS.unpack_from(self._memory, OFFSET)
        return generation, step


def environment_of(pid):
    with contextlib.suppress(OSError):
        raw = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return dict(part.split("=", 1) for part in raw.split("\0") if "=" in part)
    return {}


def page_of(agent):
    """Of the trainer that this agent has now; None: there is none, or the agent is gone."""
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
    page: Page  # of its trainer; None: it has none


def workers_of(rig, job):
    """{pod: Worker} of those that run now."""
    found = {}
    for node in rig.nodes.status()["nodes"]:
        for pid, _ in rig.nodes.processes(node, "ringmaster-agen"):
            pod = environment_of(pid).get("RINGMASTER_POD", "")
            if pod.rsplit("-", 2)[0] == job:
                found[pod] = Worker(node, pid, page_of(pid))
    return found
