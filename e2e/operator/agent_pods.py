# SPDX-License-Identifier: Apache-2.0
"""Real agents and trainers in place of the pods of fake nodes, for tests of jobs that train."""

import random
import signal
import sys

from rendezvous_test import Agent

# A pod is there for this long after its deletion: its agent, which is asked to end, leaves meanwhile.
LEAVING_MS = 20_000


class AgentPods:
    """Does for the pods of one job what kubelets would do: starts the agent of each pod that runs, asks that of a deleted one
    to end, and reports how agents ended and what they wrote about it. A test waits by wait(), which does that meanwhile."""

    def __init__(self, rig, name, folder, **variables):
        self.rig = rig
        self.name = name
        self.folder = folder
        self.variables = {"RINGMASTER_TRAINER": "", **variables}  # of the agents
        self.agents = {}  # by the uid of the pod

    def sync(self):
        for pod in self.rig.pods(self.name):
            uid = pod["metadata"]["uid"]
            agent = self.agents.get(uid)
            code = agent.process.poll() if agent else None
            if pod["status"].get("phase") != "Running":
                continue
            if agent is None:
                if "deletionTimestamp" not in pod["metadata"]:
                    self.agents[uid] = Agent(self.rig, pod, self.folder, **self.variables)
            elif code is not None:
                words = agent.folder / "last-words"
                self.rig.cluster.pod_exit("default", pod["metadata"]["name"], code if code >= 0 else 128 - code,
                                          words.read_text() if words.exists() else "")
            elif "deletionTimestamp" in pod["metadata"]:
                agent.process.send_signal(signal.SIGTERM)

    def wait(self, condition, what, timeout_s):
        """Returns what the condition returns once that is true, and shows the agents' logs when it does not become so in time."""
        def with_agents():
            self.sync()
            return condition()
        try:
            return self.rig.cluster.wait(with_agents, what, timeout_s, every_s=0.3)
        except AssertionError:
            print(self.rig.cluster.kubectl("get", "tj,pods"), self.logs()[-6000:], file=sys.stderr)
            raise

    def end(self):
        for agent in self.agents.values():
            agent.end()

    def logs(self):
        return "\n".join(f"--- {agent.folder.name}\n{agent.log}" for agent in self.agents.values())


def training(folder, steps, width=32):
    """Writes a text to the folder, and returns `spec.training` of a small model that is trained on it."""
    words = random.Random(1)
    (folder / "text.txt").write_text(" ".join(words.choice(("the", "of", "and", "a")) for _ in range(6000)))
    return {"device": "cpu", "model": {"kind": "gpt", "layers": 2, "heads": 2, "width": width, "context": 32},
            "data": {"kind": "text", "path": f"{folder}/text.txt"},
            "batch": {"samplesPerStep": 16, "microBatches": 8}, "steps": steps,
            "optimizer": {"kind": "sgd", "learningRate": "0.01"}}


def leaving(manifest):
    """Lets the job's pods exist for LEAVING_MS after their deletion."""
    manifest["spec"]["workers"]["template"]["metadata"] = {
        "annotations": {"e2e.ringmaster.dev/stop-after-ms": str(LEAVING_MS)}}
    return manifest
