# SPDX-License-Identifier: Apache-2.0
"""The real Karpenter with its provider for kwok: what holds for every autoscaler (../autoscaler/scaling.py), nodes that take
longer than the job's time limit, and jobs that say nothing about autoscalers."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "autoscaler"))
from scaling import GPUS, ScalingTests, built, workers  # noqa: E402

from cluster import Cluster  # noqa: E402
from rig import Rig  # noqa: E402

POOL = "karpenter.sh/nodepool"
SLOW_S = 40  # from the order of a slow node to its first sign of life


def requirement(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


def instance_types():
    return [{"name": "gpu-8x", "architecture": "amd64", "operatingSystems": ["linux"],
             "resources": {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)},
             "offerings": [{"Price": 8, "Available": True, "Requirements": [
                 requirement("karpenter.sh/capacity-type", "on-demand"), requirement("topology.kubernetes.io/zone", "zone-a")]}]}]


class Karpenter(ScalingTests, unittest.TestCase):
    TAINT = "karpenter.sh/disrupted"
    SCALED_UP = "Nominated"

    @classmethod
    def setUpClass(cls):
        # One node without GPUs, as in every cluster.
        cls.cluster = c = cls.enterClassContext(Cluster(nodes=1, gpus=0))
        cls.rig = cls.enterClassContext(Rig(c))
        cls.operator = cls.rig.start().wait_leading()
        program = built(HERE, "karpenter")
        c.kubectl("apply", "--server-side", "-f", str(program.parent / "crds"))
        c.wait(lambda: {"nodepools.karpenter.sh", "kwoknodeclasses.karpenter.kwok.sh"} <=
               set(c.kubectl("api-resources", "-o", "name").split()), "the CRDs are served")
        cls.pool("gpus", {}, "0s")
        cls.pool("slow", {"speed": "slow"}, f"{SLOW_S}s")
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="ringmaster-karpenter-")))
        types = folder / "types.json"
        types.write_text(json.dumps(instance_types()))
        cls.log = folder / "log"
        with open(cls.log, "wb") as log:
            # Its two servers take no address, only a port: any free one.
            cls.process = subprocess.Popen(
                [program, "--disable-leader-election", "--metrics-port=0", "--health-probe-port=0", "--batch-idle-duration=1s",
                 f"--instance-types-file-path={types}"],
                env={**os.environ, "KUBECONFIG": str(c.kubeconfig), "SYSTEM_NAMESPACE": "kube-system"},
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        cls.addClassCleanup(cls.process.wait)
        cls.addClassCleanup(cls.process.kill)

    @classmethod
    def pool(cls, name, labels, delay):
        """Creates a NodePool whose nodes have these labels, and come after this delay."""
        # The kwok of the cluster acts as the kubelet of its nodes.
        metadata = {"labels": {"e2e.ringmaster.dev/kubelet": "running", **labels},
                    "annotations": {"e2e.ringmaster.dev/heartbeat-ms": str(cls.cluster.options.node_grace_s * 250)}}
        kind = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": name}
        for manifest in (
                {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": name},
                 "spec": {"nodeRegistrationDelay": delay}},
                {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
                 "spec": {"template": {"metadata": metadata,
                                       "spec": {"nodeClassRef": kind, "expireAfter": "Never",
                                                "requirements": [requirement("kubernetes.io/os", "linux")]}},
                          # Of two pools that both fit, the first.
                          "weight": 1 if labels else 10,
                          "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "2s",
                                         "budgets": [{"nodes": "100%"}]}}}):
            cls.cluster.apply_text(json.dumps(manifest))

    def nodes(self):
        found = self.cluster.api.get("/api/v1/nodes?labelSelector=" + POOL.replace("/", "%2F"))["items"]
        return sorted(node["metadata"]["name"] for node in found)

    def is_kept(self):
        """Karpenter reports one reason for each node in two minutes."""
        return any("do-not-disrupt" in line and "pair-" in line
                   for line in self.cluster.kubectl("events", "-n", "default").splitlines())

    def test_nodes_that_take_longer_than_the_limit(self):
        """The workers wait as they are until the nodes are there."""
        manifest = workers("patient", GPUS, replicas=2, spec={"scheduling": {"timeoutSeconds": SLOW_S // 8}})
        manifest["spec"]["workers"]["template"]["spec"]["nodeSelector"] = {"speed": "slow"}
        self.rig.apply(manifest)
        self.rig.wait_condition("patient", "Scheduled", "False", "Unschedulable")
        pods = [pod["metadata"]["uid"] for pod in self.rig.pods("patient")]
        self.assertEqual(len(pods), 2)
        self.wait(lambda: self.rig.running("patient", 2), "the workers run on new nodes")
        self.assertEqual([pod["metadata"]["uid"] for pod in self.rig.pods("patient")], pods)
        self.assertEqual(self.rig.status("patient")["attempt"], 1)
        self.assertNotIn("GangTimeout", self.cluster.kubectl("events", "-n", "default"))

    def test_jobs_that_do_not_know_the_autoscaler(self):
        """At the gate such a job waits without pods, so no node is added; with the operator's flag it gets its nodes."""
        self.rig.apply(workers("plain", GPUS, replicas=2, autoscaler=False))
        self.rig.wait_condition("plain", "Scheduled", "False", "WaitingForCapacity")
        self.assertEqual(self.rig.pods("plain"), [])
        self.operator.stop()
        flagged = self.rig.start(autoscaler=True).wait_leading()
        self.wait(lambda: self.rig.running("plain", 2), "the workers run on new nodes")
        flagged.stop()
        type(self).operator = self.rig.start().wait_leading()
        self.assertTrue(self.rig.running("plain", 2))


if __name__ == "__main__":
    unittest.main()
