# SPDX-License-Identifier: Apache-2.0
"""Gangs with claims of devices on real nodes: the scheduler allocates them, and each kubelet has the example driver prepare
them before it starts the containers. What a container sees of its devices is not checked: containerd 1.6 knows no CDI."""

import json
import pathlib
import sys
import unittest

from nodes import Nodes

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "operator"), str(HERE.parent / "dra")]
from dra import Drivers, claim_template, pod_template  # noqa: E402
from rig import Rig, job  # noqa: E402

NODES = ["node-1", "node-2"]
IMAGE = "registry.local/pause:1"


class Devices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = cls.enterClassContext(Nodes(nodes=len(NODES), resources={}))
        cls.cluster = cls.nodes.cluster
        cls.drivers = cls.enterClassContext(Drivers(cls.cluster, NODES, start=cls.nodes.start_program))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.rig.start().wait_leading()
        cls.cluster.apply_text(json.dumps(claim_template("gpus-4", 4)))

    def gang(self, name, replicas):
        self.addCleanup(self.cluster.kubectl, "delete", "tj", name, "--ignore-not-found", "--timeout=60s")
        self.rig.apply(job(name, replicas=replicas, spec={"scheduling": {"gang": "gate"}},
                           workers={"template": pod_template("gpus-4", image=IMAGE)}))

    def test_two_gangs_that_want_the_same_devices(self):
        """16 devices on two nodes: the first gang takes 12, and the second waits for 8."""
        self.gang("first", 3)
        self.cluster.wait(lambda: self.rig.running("first", 3), "first runs", 120)
        self.gang("second", 2)
        waits = self.rig.wait_condition("second", "Scheduled", "False", "WaitingForCapacity")
        self.assertIn("needs 4 devices of gpu.example.com on 2 nodes; 1 node has room", waits["message"])
        self.assertEqual(self.rig.pods("second"), [])
        allocated = self.drivers.allocated()
        self.assertEqual(sorted(allocated), [f"first-1-{rank}" for rank in range(3)])
        prepared = sum(self.drivers.log(node).count('"Preparing claim"') for node in NODES)
        self.assertGreaterEqual(prepared, 3, "the kubelets had the driver prepare every claim")
        self.cluster.kubectl("delete", "tj", "first", "--timeout=60s")
        self.cluster.wait(lambda: self.rig.running("second", 2), "second runs when the first has ended", 120)
        self.assertEqual(self.rig.status("second")["attempt"], 1)


if __name__ == "__main__":
    unittest.main()
