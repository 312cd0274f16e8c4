# SPDX-License-Identifier: Apache-2.0
"""A worker loses its node. The coordinator detects that first, the cluster some time later."""

import datetime
import os
import signal
import time
import unittest

from rendezvous_test import Agent
from rig import STEADY, Cluster, Rig, job
from supervisor import free_ports


class LostNode(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Unknown after 12 s without a heartbeat: later than the coordinator declares an agent unresponsive.
        cls.cluster = cls.enterClassContext(Cluster(nodes=3, node_grace_s=12))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        address = f"127.0.0.1:{free_ports(1)[0]}"
        cls.operator = cls.rig.start(rendezvous_address=address, rendezvous_advertise=address, **STEADY).wait_leading()

    def start(self, name, replicas, **spec):
        """Starts a gang with an agent for each worker; every worker takes a separate node."""
        container = {"name": "worker", "image": "registry.local/worker:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
        self.rig.apply(job(name, replicas=replicas, native=True, spec=spec,
                           workers={"min": 1, "template": {"spec": {"containers": [container]}}}))
        self.addCleanup(self.cluster.kubectl, "delete", "tj", name, "--timeout=180s")
        self.cluster.wait(lambda: self.rig.running(name, replicas), "the pods run")
        self.agents = {}
        for pod in self.rig.live(name):
            self.agent_of(pod)
        self.rig.wait_condition(name, "FabricReady")
        return self.rig.live(name)

    def agent_of(self, pod):
        agent = Agent(self.rig, pod, self.rig.folder)
        self.addCleanup(agent.end)
        self.agents[pod["metadata"]["uid"]] = agent

    def freeze(self, pod):
        agent = self.agents[pod["metadata"]["uid"]]
        os.killpg(agent.process.pid, signal.SIGSTOP)
        self.addCleanup(os.killpg, agent.process.pid, signal.SIGCONT)

    def replacement(self, name, lost):
        """Waits until the replacement pod has a node and returns it."""
        def made():
            return next((pod for pod in self.rig.live(name) if pod["metadata"]["name"] == lost["metadata"]["name"]
                         and pod["metadata"]["uid"] != lost["metadata"]["uid"] and "nodeName" in pod["spec"]), None)
        return self.cluster.wait(made, "a replacement pod")

    def test_the_loss_is_not_charged_and_nothing_lands_there(self):
        lost = self.start("loses", replicas=2)[1]
        node = lost["spec"]["nodeName"]
        self.addCleanup(self.cluster.find_node, node)
        self.cluster.lose_node(node)
        self.freeze(lost)
        made = self.replacement("loses", lost)
        self.assertNotEqual(made["spec"]["nodeName"], node)
        status = self.rig.status("loses")
        self.assertEqual((status["restarts"]["total"], status["restarts"].get("charged", 0)), (1, 0))
        self.agent_of(made)
        found = self.cluster.wait(lambda: self.rig.status("loses").get("excludedNodes"), "the node is excluded", 180)
        self.assertEqual([(item["name"], item["reason"]) for item in found], [(node, "NodeUnreachable")])
        status = self.rig.status("loses")
        self.assertEqual(status["lastFailure"]["reason"], "NodeUnreachable")
        self.assertEqual((status["restarts"]["total"], status["restarts"].get("charged", 0)), (1, 0))
        self.assertFalse(status["ledger"].get("suspects"))
        self.assertEqual(status["attempt"], 1)

    def unheard_for(self, node):
        """Returns for how many seconds the API server has not heard the node."""
        for condition in self.cluster.get("node", node)["status"]["conditions"]:
            if condition["type"] == "Ready" and condition["status"] == "Unknown":
                return time.time() - datetime.datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
        return 0

    def test_a_worker_that_the_coordinator_hears_is_not_lost_with_its_node(self):
        """As in an outage of the control plane, which makes all nodes unreachable."""
        limit_s = 2
        before = self.start("heard", replicas=2, health={"unreachableNodeSeconds": limit_s})
        lost = before[1]
        node = lost["spec"]["nodeName"]
        self.addCleanup(self.cluster.find_node, node)
        self.cluster.lose_node(node)
        self.cluster.wait(lambda: self.unheard_for(node) > 3 * limit_s, "the node is unreachable", 180)
        self.assertEqual([pod["metadata"]["uid"] for pod in self.rig.live("heard")], [pod["metadata"]["uid"] for pod in before])
        self.assertEqual(self.rig.status("heard").get("restarts", {}).get("total", 0), 0)
        self.freeze(lost)
        made = self.replacement("heard", lost)
        self.assertNotEqual(made["spec"]["nodeName"], node)
        self.assertEqual(self.rig.status("heard")["lastFailure"]["reason"], "NodeUnreachable")

    def test_without_another_node_the_worker_gets_the_lost_one_when_it_is_back(self):
        lost = self.start("back", replicas=3, health={"unreachableNodeSeconds": 2})[2]
        node = lost["spec"]["nodeName"]
        self.addCleanup(self.cluster.find_node, node)
        self.cluster.lose_node(node)
        self.freeze(lost)
        found = self.cluster.wait(lambda: self.rig.status("back").get("excludedNodes"), "the node is lost", 180)
        self.assertEqual([(item["name"], item["effect"]) for item in found], [(node, "PreferNoSchedule")])
        self.cluster.find_node(node)
        self.cluster.wait(lambda: self.rig.running("back", 3), "all pods run", 180)
        self.assertIn(node, [pod["spec"]["nodeName"] for pod in self.rig.live("back")])
        self.assertEqual(self.rig.status("back")["restarts"].get("charged", 0), 0)

    def test_without_other_capacity_the_worker_returns_to_the_node(self):
        lost = self.start("returns", replicas=3)[2]
        self.freeze(lost)
        made = self.replacement("returns", lost)
        self.assertEqual(made["spec"]["nodeName"], lost["spec"]["nodeName"])
        preferred = made["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(preferred[0]["preference"]["matchFields"],
                         [{"key": "metadata.name", "operator": "NotIn", "values": [lost["spec"]["nodeName"]]}])
        suspects = self.rig.status("returns")["ledger"]["suspects"]
        self.assertEqual([(item["pod"], item["charge"]) for item in suspects], [(lost["metadata"]["name"], True)])

    def test_a_worker_that_ends_because_a_peer_is_lost_is_not_charged(self):
        rig, c = self.rig, self.cluster
        container = {"name": "worker", "image": "registry.local/worker:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
        rig.apply(job("peers", replicas=2, workers={"template": {"spec": {"containers": [container]}}},
                      spec={"health": {"unreachableNodeSeconds": 5}}))
        self.addCleanup(c.kubectl, "delete", "tj", "peers", "--timeout=180s")
        c.wait(lambda: rig.running("peers", 2), "the pods run")
        nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in rig.live("peers")}
        lost = nodes["peers-1-1"]
        self.addCleanup(c.find_node, lost)
        c.lose_node(lost)
        c.pod_exit("default", "peers-1-0", 1, "connection reset by peer")
        c.wait(lambda: rig.status("peers").get("attempt") == 2 and rig.running("peers", 2), "the second attempt", 180)
        status = rig.status("peers")
        self.assertEqual((status["restarts"]["total"], status["restarts"].get("charged", 0)), (1, 0))
        self.assertEqual([(item["name"], item["reason"]) for item in status["excludedNodes"]], [(lost, "NodeUnreachable")])
        self.assertEqual((status["lastFailure"]["pod"], status["lastFailure"]["reason"]), ("peers-1-1", "NodeUnreachable"))
        self.assertFalse(status["ledger"].get("suspects"))
        self.assertNotIn(lost, [pod["spec"]["nodeName"] for pod in rig.live("peers")])


if __name__ == "__main__":
    unittest.main(verbosity=2)
