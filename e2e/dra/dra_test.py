# SPDX-License-Identifier: Apache-2.0
"""Gangs that claim devices of the example driver, which the scheduler allocates. The nodes and their pods are fake."""

import json
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "operator"))
from cluster import Cluster  # noqa: E402
from dra import CLASS, Drivers, claim_template, device_class, pod_template  # noqa: E402
from rig import Rig, job  # noqa: E402

EXTENDED = "example.com/gpu"
NODES = ["node-0", "node-1"]


class Devices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=len(NODES), gpus=0))
        cls.drivers = cls.enterClassContext(Drivers(cls.cluster, NODES))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.operator = cls.rig.start().wait_leading()
        for count in (4, 9):
            cls.cluster.apply_text(json.dumps(claim_template(f"gpus-{count}", count)))

    def gang(self, name, replicas, template=None, limits=None):
        self.addCleanup(self.cluster.kubectl, "delete", "tj", name, "--ignore-not-found", "--timeout=60s")
        return self.rig.apply(job(name, replicas=replicas, spec={"scheduling": {"gang": "gate"}},
                                  workers={"template": pod_template(template, limits=limits)}))

    def wait_running(self, name, count):
        self.cluster.wait(lambda: self.rig.running(name, count), f"{name} runs")

    def waits(self, name, text, reason="WaitingForCapacity"):
        """Waits until the job says so, and returns the message."""
        def says():
            found = self.rig.condition(name, "Scheduled")
            return found["status"] == "False" and found["reason"] == reason and text in found["message"] and found["message"]
        try:
            said = self.cluster.wait(says, "")
        except AssertionError:
            raise AssertionError(f"{name} does not say {reason}: {text}\n{json.dumps(self.rig.status(name), indent=1)}") from None
        print(f"{name}: {said}", flush=True)
        return said

    def end(self, name):
        for pod in self.rig.pods(name):
            self.cluster.pod_exit("default", pod["metadata"]["name"], 0)
        self.rig.wait_phase(name, "Succeeded")

    def test_two_gangs_that_want_the_same_devices(self):
        """16 devices on two nodes: the first gang takes 12, and the second waits for 8."""
        self.gang("first", 3, "gpus-4")
        self.wait_running("first", 3)
        self.gang("second", 2, "gpus-4")
        self.waits("second", "needs 4 devices of gpu.example.com on 2 nodes; 1 node has room (other nodes: 1 full)")
        self.assertEqual(self.rig.pods("second"), [])
        allocated = self.drivers.allocated()
        self.assertEqual(sorted(allocated), [f"first-1-{rank}" for rank in range(3)])
        self.assertEqual(len({device for devices in allocated.values() for device in devices}), 12)
        self.end("first")
        self.wait_running("second", 2)
        self.assertEqual(self.rig.status("second")["attempt"], 1)

    def test_a_gang_that_no_node_can_hold(self):
        self.gang("wide", 1, "gpus-9")
        self.waits("wide", "needs 9 devices of gpu.example.com on 1 nodes; 0 nodes have room (other nodes: 2 full)")
        self.assertEqual(self.rig.pods("wide"), [])

    def test_what_does_not_exist_yet(self):
        """Jobs wait without pods, say why, and start when the objects are created."""
        self.gang("early", 2, "later")
        self.waits("early", "the namespace has no ResourceClaimTemplate later")
        self.cluster.apply_text(json.dumps(claim_template("later", 8, of="later.example.com")))
        self.gang("classless", 1, "later")
        self.waits("classless", "the cluster has no DeviceClass later.example.com")
        self.assertEqual(self.rig.pods("early") + self.rig.pods("classless"), [])
        self.cluster.kubectl("delete", "tj", "classless", "--timeout=60s")  # so that it does not take the devices first
        model = f'device.driver == "{CLASS}" && device.attributes["{CLASS}"].model == "LATEST-GPU-MODEL"'
        self.cluster.apply_text(json.dumps(device_class("later.example.com", model)))
        self.addCleanup(self.cluster.kubectl, "delete", "deviceclass", "later.example.com")
        self.wait_running("early", 2)

    def test_the_name_of_an_extended_resource(self):
        """Pods that ask for the resource of the class share the devices with pods that claim them."""
        self.cluster.apply_text(json.dumps(device_class(extended=EXTENDED)))
        self.gang("named", 2, limits={EXTENDED: 6})
        self.wait_running("named", 2)
        self.gang("claims", 2, "gpus-4")
        self.waits("claims", "needs 4 devices of gpu.example.com on 2 nodes; 0 nodes have room (other nodes: 2 full)")
        self.gang("more", 1, limits={EXTENDED: 3})
        self.waits("more", "needs 3 x example.com/gpu on 1 nodes; 0 nodes have room")
        self.end("named")
        self.wait_running("claims", 2)

    def test_a_selector_that_is_not_evaluated(self):
        """The scheduler decides, and the job says that the operator has not counted."""
        self.cluster.apply_text(json.dumps(device_class("odd.example.com", "device.driver.startsWith('gpu')")))
        self.cluster.apply_text(json.dumps(claim_template("odd-4", 4, of="odd.example.com")))
        self.cluster.apply_text(json.dumps(claim_template("odd-9", 9, of="odd.example.com")))
        self.gang("odd", 2, "odd-4")
        self.wait_running("odd", 2)
        self.gang("odder", 1, "odd-9")
        said = self.waits("odder", "claims of odd.example.com are not counted", "Unschedulable")
        self.assertIn("the operator does not evaluate the selector device.driver.startsWith('gpu')", said)

    def test_without_the_right_to_read_devices(self):
        """Claims are not counted, which is logged once, and the operator is ready. With the right they are counted again."""
        role = json.loads(self.cluster.kubectl("get", "clusterrole", "ringmaster-operator", "-o", "json"))
        fewer = {key: role[key] for key in ("apiVersion", "kind")}
        fewer["metadata"] = {"name": "ringmaster-operator"}
        fewer["rules"] = [rule for rule in role["rules"] if rule["apiGroups"] != ["resource.k8s.io"]]
        self.cluster.kubectl("replace", "-f", "-", stdin=json.dumps(fewer))
        self.operator.kill9()
        operator = self.rig.start().wait_leading()
        self.gang("blind", 1, "gpus-9")
        said = self.waits("blind", "claims of devices are not counted", "Unschedulable")
        self.assertIn("the operator may not read deviceclasses", said)
        self.assertEqual(operator.get("health", "/readyz")[0], 200)
        self.assertEqual(operator.log.count("watch=resourceslices"), 1)
        self.cluster.kubectl("replace", "-f", "-", stdin=json.dumps({**fewer, "rules": role["rules"]}))
        self.cluster.wait(lambda: "not counted" not in self.rig.condition("blind", "Scheduled")["message"],
                          "the operator reads the devices again")
        self.gang("seeing", 1, "gpus-9")
        self.waits("seeing", "needs 9 devices of gpu.example.com")
        self.assertEqual(self.rig.pods("seeing"), [])
        type(self).operator = operator


if __name__ == "__main__":
    unittest.main()
