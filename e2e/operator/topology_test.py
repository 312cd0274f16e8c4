# SPDX-License-Identifier: Apache-2.0
"""scheduling.topology on a real API server and scheduler: in which domains the pods of a gang are, what is reported, and what
happens when no domain has room, or no node has the label."""

import json
import re
import unittest

from rendezvous_test import FAKE_TRAINER, Agent
from rig import STEADY, Cluster, Rig, job
from supervisor import free_ports

LEAF = "example.com/leaf"
LEAVES = {"small": ["node-0", "node-1"], "middle": ["node-2", "node-3", "node-4"], "large": ["node-5", "node-6", "node-7", "node-8"]}
LEAF_OF = {node: leaf for leaf, nodes in LEAVES.items() for node in nodes}
WHOLE_NODE = {"spec": {"terminationGracePeriodSeconds": 2, "containers": [
    {"name": "worker", "image": "registry.local/worker:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}}


def near(name, replicas, native=False, workers=None, gang="gate", **topology):
    """Each worker takes all GPUs of a node."""
    return job(name, replicas=replicas, native=native, workers={"template": WHOLE_NODE, **(workers or {})},
               spec={"scheduling": {"gang": gang, "topology": topology}})


class Topology(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=len(LEAF_OF)))
        for node, leaf in LEAF_OF.items():
            cls.cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {LEAF: leaf}}})
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        address = f"127.0.0.1:{free_ports(1)[0]}"
        cls.operator = cls.rig.start(rendezvous_address=address, rendezvous_advertise=address, **STEADY).wait_leading()

    def setUp(self):
        self.operator.must_live()

    def tearDown(self):
        self.cluster.kubectl("delete", "tj", "--all", "--timeout=180s")
        self.cluster.wait(lambda: not self.cluster.get("pods"), "no pods are left")

    def leaves(self, name):
        """Returns the leaf of each worker, by rank."""
        return [LEAF_OF[pod["spec"]["nodeName"]] for pod in self.rig.live(name)]

    def running(self, name, replicas):
        self.cluster.wait(lambda: self.rig.running(name, replicas), f"{replicas} workers of {name}")
        return self.leaves(name)

    def test_a_required_gang_gets_the_smallest_domain_that_has_room(self):
        rig = self.rig
        self.assertEqual(self.running(rig.apply(near("two", 2, required=LEAF)), 2), ["small"] * 2)
        self.assertEqual(self.running(rig.apply(near("four", 4, required=LEAF)), 4), ["large"] * 4)
        self.cluster.wait(lambda: rig.status("four").get("topology"), "the spread is reported")
        self.assertEqual(rig.status("four")["topology"], {"key": LEAF, "domains": 1, "pods": "large: 4"})
        # Three nodes are free, and no domain has four.
        wide = rig.apply(near("wide", 4, required=LEAF))
        waits = rig.wait_condition(wide, "Scheduled", "False", "WaitingForCapacity")
        self.assertIn(f"needs 8 x nvidia.com/gpu on 4 nodes within one {LEAF}; the most room has middle: for 3", waits["message"])
        self.assertEqual(rig.pods(wide), [], "a job that waits has no pods")

    def test_a_preferred_gang_gets_few_domains_and_does_not_wait(self):
        rig, c = self.rig, self.cluster
        # To the scheduler, these taints count more than any affinity.
        for node in LEAVES["middle"] + LEAVES["large"]:
            c.kubectl("taint", "node", node, "busy=yes:PreferNoSchedule")
        self.addCleanup(c.kubectl, "taint", "node", *LEAVES["middle"], *LEAVES["large"], "busy-")
        self.assertEqual(self.running(rig.apply(near("three", 3, preferred=LEAF)), 3), ["middle"] * 3)
        five = rig.apply(near("five", 5, preferred=LEAF))
        self.assertEqual(self.running(five, 5), ["large"] * 4 + ["small"], "domain by domain, in the order of the ranks")
        c.wait(lambda: rig.status(five).get("topology", {}).get("domains") == 2, "the spread is reported")
        self.assertEqual(rig.status(five)["topology"]["pods"], "large: 4, small: 1")

    def test_a_replacement_and_joining_workers_go_to_the_domain_of_the_gang(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(near("elastic", 2, native=True, workers={"min": 1, "max": 4}, required=LEAF))
        self.assertEqual(self.running(name, 2), ["small"] * 2)
        uid = rig.live(name)[1]["metadata"]["uid"]
        c.kubectl("delete", "pod", "elastic-1-1", "--wait=false")
        c.wait(lambda: rig.running(name, 2) and rig.live(name)[1]["metadata"]["uid"] != uid, "a replacement")
        self.assertEqual(self.leaves(name), ["small"] * 2)
        c.kubectl("scale", "tj", name, "--replicas=3")
        c.wait(lambda: "that of the gang, small, has room for 0" in rig.condition(name, "Scheduled")["message"]
               or "none has room" in rig.condition(name, "Scheduled")["message"], "the third worker waits for this domain")
        self.assertEqual(len(rig.pods(name)), 2)

    def ring(self, name, label):
        """Gives the nodes of the job's four workers the values x, y, x, y of the label, starts the agents in the order of their
        ranks, and returns the values in the order of the ring."""
        value_of, agents = {}, []
        for pod, value in zip(self.rig.live(name), "xyxy"):
            self.cluster.kubectl("label", "node", pod["spec"]["nodeName"], f"{label}={value}")
            self.addCleanup(self.cluster.kubectl, "label", "node", pod["spec"]["nodeName"], label + "-")
            value_of[pod["metadata"]["name"]] = value
        for pod in self.rig.live(name):
            agent = Agent(self.rig, pod, self.rig.folder, RINGMASTER_NODE=pod["spec"]["nodeName"],
                          RINGMASTER_TRAINER=FAKE_TRAINER + " ring")
            self.addCleanup(agent.end)
            agents.append(agent)
            self.cluster.wait(lambda a=agent: "connected to the coordinator" in a.log, "the agent is connected")
        self.rig.wait_condition(name, "FabricReady")
        rings = {self.cluster.wait(lambda a=agent: (found := re.findall(r"\bring: (.*)", a.log)) and found[-1], "its ring")
                 for agent in agents}
        self.assertEqual(len(rings), 1, rings)
        return "".join(value_of[pod] for pod in rings.pop().split())

    def test_ranks_of_a_domain_are_neighbours_in_the_ring(self):
        """By the labels of the nodes: those of scheduling.topology, or those of the annotation for Kueue."""
        workers = {"min": 4, "max": 4}
        name = self.rig.apply(near("near", 4, native=True, workers=workers, preferred="example.com/half"))
        self.running(name, 4)
        self.assertEqual(self.ring(name, "example.com/half"), "xxyy")
        template = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "example.com/part"}}, **WHOLE_NODE}
        name = self.rig.apply(near("kueue", 4, native=True, workers={**workers, "template": template}))
        self.running(name, 4)
        self.assertEqual(self.ring(name, "example.com/part"), "xxyy")
        self.cluster.wait(lambda: self.rig.status(name).get("topology", {}).get("pods") == "x: 2, y: 2", "the spread is reported")

    def test_a_label_that_no_node_has_is_reported_and_nothing_is_created(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(near("typo", 2, required="example.com/laef"))
        refused = rig.wait_condition(name, "Admitted", "False", "NoTopologyLabel")
        self.assertIn("no node has this label; nodes have example.com/leaf, rack, topology.kubernetes.io/", refused["message"])
        self.assertIn("label the nodes, and the job continues by itself", refused["message"])
        rig.wait_condition(name, "Stalled", "True", "NoTopologyLabel")
        self.assertEqual(rig.pods(name), [])
        self.assertEqual(c.get("services"), [item for item in c.get("services") if item["metadata"]["name"] == "kubernetes"])
        for node in LEAVES["small"]:
            c.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"example.com/laef": "x"}}})
        self.addCleanup(c.kubectl, "label", "node", *LEAVES["small"], "example.com/laef-")
        self.assertEqual(self.running(name, 2), ["small"] * 2)
        # A preference never keeps a job.
        self.assertEqual(len(self.running(rig.apply(near("hope", 2, preferred="example.com/none")), 2)), 2)

    def test_without_a_gate_the_pods_get_a_domain_with_room_too(self):
        # A pod in the large domain: the scheduler would spread the gang over the emptiest nodes.
        name = self.rig.apply(near("alone", 3, gang="none", required=LEAF))
        self.assertEqual(self.running(name, 3), ["middle"] * 3)
        self.assertEqual({json.dumps(pod["spec"]["nodeSelector"]) for pod in self.rig.live(name)},
                         {json.dumps({LEAF: "middle"})})

    def test_parameter_servers_are_spread_over_zones(self):
        """Three zones have nodes; the last one has a single node, which the scheduler would not choose by itself."""
        zone_of = {node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/zone"]
                   for node in self.cluster.get("nodes")}
        self.assertEqual(len(set(zone_of.values())), 3)

        def template(limits):
            container = {"name": "worker", "image": "registry.local/worker:1", "command": ["python", "train.py"]}
            return {"spec": {"containers": [{**container, "resources": {"limits": limits}}]}}
        roles = [{"name": "chief", "template": template({"nvidia.com/gpu": 1})},
                 {"name": "ps", "replicas": 3, "template": template({"cpu": "1"})}]
        for attempt in range(3):
            name = self.rig.apply(job(f"serves-{attempt}", replicas=2, workers={"template": template({"nvidia.com/gpu": 1})},
                                      spec={"framework": "tensorflow", "launch": {}, "roles": roles,
                                            "scheduling": {"gang": "gate"}}))
            self.cluster.wait(lambda name=name: self.rig.running(name, 6), "the job runs")
            servers = [pod["spec"]["nodeName"] for pod in self.rig.live(name)
                       if pod["metadata"]["labels"]["ringmaster.dev/role"] == "ps"]
            self.assertEqual(sorted(zone_of[node] for node in servers), ["zone-0", "zone-1", "zone-2"])

    def test_share_of_gangs_in_one_domain(self):
        """The same gangs with and without a topology."""
        rig, c = self.rig, self.cluster
        shares = {}
        for key, topology in (("with", {"preferred": LEAF}), ("without", {})):
            names = [rig.apply(near(f"{key}-{i}", size, **topology)) for i, size in enumerate((4, 3, 2))]
            one = [len(set(self.running(name, size))) == 1 for name, size in zip(names, (4, 3, 2))]
            shares[key] = sum(one) / len(one)
            c.kubectl("delete", "tj", "--all", "--timeout=180s")
            c.wait(lambda: not c.get("pods"), "no pods are left")
        print(f"share of gangs in one domain: {shares}")
        self.assertEqual(shares["with"], 1.0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
