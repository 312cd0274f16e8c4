# SPDX-License-Identifier: Apache-2.0
"""A job in a queue of Kueue whose admission check asks the cluster-autoscaler by a ProvisioningRequest: for new nodes in queue
team, for room on the nodes that there are in queue booked. Both programs are real; the nodes and their pods are fake."""

import json
import sys
import unittest

from scaling import GPUS, HERE, built, workers

sys.path.insert(0, str(HERE.parent / "kueue"))
from cluster import Cluster  # noqa: E402
from cluster_autoscaler import GROUP, MAX_NODES, ClusterAutoscaler, template  # noqa: E402
from kueue import Kueue  # noqa: E402
from rig import STEADY, Rig  # noqa: E402

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"


class Provisioning(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = c = cls.enterClassContext(Cluster(nodes=1, gpus=0))
        c.kubectl("apply", "--server-side", "-f", str(built(HERE, "cluster-autoscaler").parent / "crds"))
        c.wait(lambda: "provisioningrequests" in c.kubectl("api-resources", "-o", "name"), "the CRD is served")
        cls.kueue = cls.enterClassContext(Kueue(c))
        cls.rig = cls.enterClassContext(Rig(c))
        cls.rig.start(**STEADY).wait_leading()
        # Its client of CRDs speaks JSON only.
        cls.autoscaler = cls.enterClassContext(ClusterAutoscaler(
            c, "--enable-provisioning-requests=true", "--kube-api-content-type=application/json",
            "--provisioning-request-initial-backoff-time=5s", "--provisioning-request-max-backoff-time=5s"))
        cls.kueue.flavor("default")
        cls.queue("team", "nodes", "gpus", CLASS)
        cls.queue("booked", "room", "check", CHECK_CAPACITY)

    @classmethod
    def queue(cls, name, check, config, provisioning_class):
        cls.kueue.apply("ProvisioningRequestConfig", config,
                        {"provisioningClassName": provisioning_class, "managedResources": ["nvidia.com/gpu"]})
        cls.kueue.apply("AdmissionCheck", check, {
            "controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config}})
        quota = {"name": "nvidia.com/gpu", "nominalQuota": 1000}
        cls.kueue.apply("ClusterQueue", name, {
            "namespaceSelector": {}, "admissionChecksStrategy": {"admissionChecks": [{"name": check}]},
            "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "default", "resources": [quota]}]}]})
        cls.kueue.apply("LocalQueue", name, {"clusterQueue": name}, "default")

    def queued(self, name, queue="team", **options):
        manifest = workers(name, GPUS, autoscaler=False, **options)
        manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
        self.addCleanup(self.cluster.kubectl, "delete", "tj", name, "--ignore-not-found", "--timeout=60s")
        self.rig.apply(manifest)

    def wait(self, condition, what, timeout_s=120):
        try:
            return self.cluster.wait(condition, what, timeout_s)
        except AssertionError:
            print(self.cluster.kubectl("get", "provisioningrequests,workloads.kueue.x-k8s.io", "-o", "yaml"),
                  self.kueue.log[-3000:], self.autoscaler.log.read_text(errors="replace")[-4000:], file=sys.stderr)
            raise

    def has_nodes(self, native):
        name = "native" if native else "gated"
        self.queued(name, replicas=3, gang="gate", native=native)
        self.wait(lambda: self.rig.running(name, 3), "the workers run on the nodes that were provisioned")
        self.consumes(name, CLASS)
        self.cluster.kubectl("delete", "tj", name, "--timeout=60s")
        self.wait(lambda: self.autoscaler.nodes() == [], "the nodes are taken away", 180)

    def consumes(self, name, provisioning_class):
        (request,) = [one for one in self.cluster.get("provisioningrequests") if one["metadata"]["name"].startswith(name)]
        self.assertEqual(request["spec"]["provisioningClassName"], provisioning_class)
        self.assertEqual([one["count"] for one in request["spec"]["podSets"]], [3])
        for pod in self.rig.pods(name):
            annotations = pod["metadata"]["annotations"]
            self.assertEqual(annotations["autoscaling.x-k8s.io/consume-provisioning-request"], request["metadata"]["name"])
            self.assertEqual(annotations["autoscaling.x-k8s.io/provisioning-class-name"], provisioning_class)
        self.assertEqual(self.rig.status(name)["attempt"], 1)

    def own_node(self, name):
        """Adds a node that is in no group of the autoscaler."""
        node = template(self.cluster.options.node_grace_s * 250)
        labels = {key: value for key, value in node["metadata"]["labels"].items() if value != GROUP}
        annotations = {key: value for key, value in node["metadata"]["annotations"].items() if "nodegroup" not in key}
        node["metadata"] = {"name": name, "annotations": annotations, "labels": {**labels, "kubernetes.io/hostname": name}}
        self.addCleanup(self.cluster.kubectl, "delete", "node", name)
        self.cluster.apply_text(json.dumps(node))

    def test_nodes_for_a_gang(self):
        self.has_nodes(native=False)

    def test_nodes_for_trainers(self):
        """The operator's image in a template of the request."""
        self.has_nodes(native=True)

    def test_room_that_is_there(self):
        """No nodes are added for the class check-capacity: the job waits until there are some."""
        self.queued("booking", queue="booked", replicas=3, gang="gate")
        self.wait(lambda: [one for one in self.cluster.get("provisioningrequests") if one["metadata"]["name"].startswith("booking")],
                  "a ProvisioningRequest is created")
        self.wait(lambda: "check room" in self.rig.condition("booking", "Admitted")["message"],
                  "the job says which check it waits for")
        print(f"booking: {self.rig.condition('booking', 'Admitted')['message']}", flush=True)
        self.assertEqual((self.rig.pods("booking"), self.autoscaler.nodes()), ([], []))
        for index in range(3):
            self.own_node(f"own-{index}")
        self.wait(lambda: self.rig.running("booking", 3), "the workers run on the nodes that there are")
        self.consumes("booking", CHECK_CAPACITY)
        self.assertEqual(self.autoscaler.nodes(), [])
        self.cluster.kubectl("delete", "tj", "booking", "--timeout=60s")

    def test_more_nodes_than_there_can_be(self):
        """Nothing is created, and the job says what it waits for."""
        self.queued("wide", replicas=MAX_NODES + 1)
        self.wait(lambda: [one for one in self.cluster.get("provisioningrequests") if one["metadata"]["name"].startswith("wide")],
                  "a ProvisioningRequest is created")
        found = self.wait(lambda: "check nodes" in self.rig.condition("wide", "Admitted")["message"] and
                          self.rig.condition("wide", "Admitted"), "the job says which check it waits for", 90)
        print(f"wide: {found['reason']}: {found['message']}", flush=True)
        self.assertEqual(found["status"], "False")
        self.assertEqual((self.rig.pods("wide"), self.autoscaler.nodes()), ([], []))


if __name__ == "__main__":
    unittest.main()
