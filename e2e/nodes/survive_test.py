# SPDX-License-Identifier: Apache-2.0
"""A training job on real nodes survives the loss of pods and nodes. Its weights stay bit-identical."""

import contextlib
import os
import pathlib
import signal
import time
import unittest

from on_nodes import NAMESPACE
from training import TrainingTest

STEPS = 2000  # enough that training outlasts the replacement of the lost workers


class Survive(TrainingTest):
    def victim(self, pods):
        """Returns a node with workers and without an operator, and the names of its workers."""
        operators = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        spared = {pod["spec"]["nodeName"] for pod in operators if pod["status"]["phase"] == "Running"}
        nodes = sorted({pod["spec"]["nodeName"] for pod in pods.values()} - spared)
        self.assertTrue(nodes, "no node has workers, and not the operator")
        return nodes[0], sorted(name for name, pod in pods.items() if pod["spec"]["nodeName"] == nodes[0])

    def lose(self, name, lose, find):
        """Loses a node: the job continues, the operator replaces the workers on other nodes, and the node returns. Nothing
        is charged, because the job did not cause the failure."""
        pods = self.start(name, steps=STEPS, health={"unreachableNodeSeconds": 5})
        node, lost = self.victim(pods)
        print(f"{self.id()}: losing {node} with {' '.join(lost)}", flush=True)
        lost_at = time.time()
        lose(node)
        back = self.enterContext(contextlib.ExitStack())
        back.callback(find, node)
        self.goes_on(name)
        self.rig.wait(name, lambda _: self.replaced(name, pods, lost, node), f"{' '.join(lost)} run elsewhere")
        self.rig.wait_full(name, 4)
        self.cluster.wait(lambda: self.condition(node, "Ready") != "True", f"{node} is known to be lost")
        back.pop_all().close()  # the node comes back while the others train
        self.assertNotEqual(self.rig.status(name)["phase"], "Succeeded", "it was over before the node came back: more steps")
        self.cluster.wait(lambda: not self.rig.nodes.processes(node, "ringmaster"), "the old workers are gone", 60)
        status = self.finish(name, STEPS)
        self.assertGreaterEqual(status["restarts"]["total"], 1)
        others = {other: pod for other, pod in pods.items() if other not in lost}
        self.untouched(name, others)
        self.print_pause(name, lost_at, others)
        self.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")

    def condition(self, node, kind):
        conditions = self.cluster.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
        return {condition["type"]: condition["status"] for condition in conditions}[kind]

    def first_process(self, pod):
        """Returns the pid, on this machine, of the first process of a pod's container."""
        node = self.cluster.get("pod", pod)["spec"]["nodeName"]
        for pid, _ in self.rig.nodes.processes(node, "ringmaster-agen"):
            if f"RINGMASTER_POD={pod}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text():
                return pid
        raise AssertionError(f"no agent of {pod} runs on {node}")

    def replaced(self, name, pods, lost, node):
        now = self.rig.pods(name)
        return all(pod in now and now[pod]["metadata"]["uid"] != pods[pod]["metadata"]["uid"] and
                   now[pod]["spec"].get("nodeName") not in (None, node) and now[pod]["status"]["phase"] == "Running"
                   for pod in lost)

    def test_node_powered_off(self):
        self.lose("powered-off", self.rig.nodes.power_off, self.rig.nodes.boot)

    def test_node_cut_off(self):
        self.lose("cut-off", self.rig.nodes.cut, self.rig.nodes.heal)

    def test_node_frozen(self):
        self.lose("frozen", self.rig.nodes.freeze, self.rig.nodes.thaw)

    def test_node_drained(self):
        pods = self.start("drained", steps=STEPS)
        node, moved = self.victim(pods)
        self.addCleanup(self.cluster.kubectl, "uncordon", node)
        self.cluster.kubectl("drain", node, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=60s")
        self.rig.wait("drained", lambda _: self.replaced("drained", pods, moved, node), f"{' '.join(moved)} run elsewhere")
        status = self.finish("drained", STEPS, counted=0)
        self.assertEqual(status["goodput"]["lostSeconds"]["redone"], 0, "a step was lost")

    def test_pod_deleted_by_force(self):
        """A deletion by a user is not counted as a failure."""
        self.lose_pod("pod-deleted", lambda pod: self.cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force"),
                      counted=0)

    def test_pod_killed(self):
        victim, status = self.lose_pod("pod-killed", lambda pod: os.kill(self.first_process(pod), signal.SIGKILL),
                                       charged=1, counted=1)
        self.assertEqual((status["lastFailure"]["pod"], status["lastFailure"]["exitCode"]), (victim, 137))

    def lose_pod(self, name, lose, **counts):
        """Loses one of four pods, which the operator replaces while the others train. Returns its name and the final status."""
        pods = self.start(name, steps=STEPS)
        victim = f"{name}-1-2"
        lost_at = time.time()
        lose(victim)
        self.goes_on(name)
        self.rig.wait(name, lambda _: self.rig.uids(name).get(victim) not in
                      (None, pods[victim]["metadata"]["uid"]), "the pod is replaced")
        self.rig.wait_full(name, 4)
        others = {other: pod for other, pod in pods.items() if other != victim}
        self.untouched(name, others)
        status = self.finish(name, STEPS, **counts)
        self.print_pause(name, lost_at, others)
        return victim, status

    def test_trainer_killed(self):
        pods = self.start("trainer-killed")
        self.cluster.kubectl("exec", "trainer-killed-1-1", "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
        self.goes_on("trainer-killed")
        status = self.finish("trainer-killed", counted=0)  # its agent starts a new trainer in the same pod
        self.assertEqual(status["lastFailure"]["exitCode"], 137)
        self.assertIn("trainer-killed-1-1 ended with exit code 137",
                      self.cluster.kubectl("events", "--for", "tj/trainer-killed"))
        self.untouched("trainer-killed", pods)
        victim = "trainer-killed-1-1"
        noticed = self.rig.logged(victim, " lost evidence=") + self.rig.logged(victim, " ended code=137")
        self.print_pause("trainer-killed", min(noticed), set(pods) - {victim})


if __name__ == "__main__":
    unittest.main()
