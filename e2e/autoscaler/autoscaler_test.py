# SPDX-License-Identifier: Apache-2.0
"""The real cluster-autoscaler with its provider for kwok adds nodes for a waiting gang, and removes them when the gang is
gone. The nodes and their pods are fake."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "operator"))
from cluster import Cluster  # noqa: E402
from rig import Rig, job  # noqa: E402

GROUP = "gpu-pool"
GPUS = 8


def built():
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.strip())
    return pathlib.Path(done.stdout.strip()) / "cluster-autoscaler"


def template(heartbeat_ms):
    """The template of the provider's nodes, for which the kwok of the cluster acts as the kubelet."""
    resources = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": GROUP, "labels": {"e2e.ringmaster.dev/kubelet": "running", "kubernetes.io/os": "linux",
                                                   "kubernetes.io/arch": "amd64", "pool": GROUP},
                         "annotations": {"e2e.ringmaster.dev/heartbeat-ms": str(heartbeat_ms),
                                         "cluster-autoscaler.kwok.nodegroup/name": GROUP,
                                         "cluster-autoscaler.kwok.nodegroup/min-count": "0",
                                         "cluster-autoscaler.kwok.nodegroup/max-count": "5",
                                         "cluster-autoscaler.kwok.nodegroup/desired-count": "0"}},
            "spec": {}, "status": {"allocatable": resources, "capacity": resources}}


class Autoscaler(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # One node without GPUs, as in every cluster.
        cls.cluster = cls.enterClassContext(Cluster(nodes=1, gpus=0))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.rig.start().wait_leading()
        settings = {"apiVersion": "v1alpha1", "readNodesFrom": "configmap", "nodegroups": {"fromNodeLabelKey": "pool"},
                    "nodes": {"skipTaint": True}, "configmap": {"name": "kwok-provider-templates"}}
        nodes = {"apiVersion": "v1", "kind": "List", "items": [template(cls.cluster.options.node_grace_s * 250)]}
        for name, key, value in (("kwok-provider-config", "config", settings), ("kwok-provider-templates", "templates", nodes)):
            cls.cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {key: json.dumps(value)},
                                               "metadata": {"name": name, "namespace": "kube-system"}}))
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="ringmaster-autoscaler-"))
        cls.log = pathlib.Path(folder) / "log"
        with open(cls.log, "wb") as log:
            autoscaler = subprocess.Popen(
                [built(), "--cloud-provider=kwok", f"--kubeconfig={cls.cluster.kubeconfig}", "--namespace=kube-system",
                 "--leader-elect=false", "--address=127.0.0.1:0", "--scan-interval=1s", "--scale-down-delay-after-add=3s",
                 "--scale-down-unneeded-time=3s", "--v=2"],
                env={**os.environ, "KWOK_PROVIDER_MODE": "local", "KUBECONFIG": str(cls.cluster.kubeconfig),
                     "POD_NAMESPACE": "kube-system"}, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        cls.addClassCleanup(autoscaler.wait)
        cls.addClassCleanup(autoscaler.kill)
        cls.process = autoscaler

    def nodes(self):
        found = self.cluster.api.get("/api/v1/nodes?labelSelector=pool%3D" + GROUP)["items"]
        return sorted(node["metadata"]["name"] for node in found)

    def wait(self, condition, what, timeout_s=120):
        def or_ended():
            self.assertIsNone(self.process.poll(), self.log.read_text(errors="replace")[-3000:])
            return condition()
        try:
            self.cluster.wait(or_ended, what, timeout_s)
        except AssertionError:
            print(self.cluster.kubectl("get", "pods,nodes", "-o", "wide"),
                  self.log.read_text(errors="replace")[-6000:], file=sys.stderr)
            raise

    def comes_and_goes(self, name, gang):
        """Applies a job of three workers that each need all GPUs of a node, in a cluster without such a node."""
        self.assertEqual(self.nodes(), [])
        self.addCleanup(self.cluster.kubectl, "delete", "tj", name, "--ignore-not-found", "--timeout=60s")
        manifest = job(name, replicas=3, spec={"scheduling": {"gang": gang, "autoscaler": True}})
        manifest["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = GPUS
        self.rig.apply(manifest)
        self.wait(lambda: self.rig.running(name, 3), "the gang runs on new nodes")
        hosts = sorted(pod["spec"]["nodeName"] for pod in self.rig.pods(name))
        # It may have added more nodes while the first were not ready. It removes the unused ones.
        self.wait(lambda: self.nodes() == hosts, "only the used nodes are left")
        self.assertTrue(self.rig.running(name, 3))
        self.assertEqual(self.rig.status(name)["attempt"], 1)
        events = self.cluster.kubectl("events", "-n", "default")
        self.assertIn("TriggeredScaleUp", events)
        self.cluster.kubectl("delete", "tj", name, "--timeout=60s")
        self.wait(lambda: self.nodes() == [], "the nodes are taken away")

    def test_gang_of_the_scheduler(self):
        self.comes_and_goes("native", "auto")

    def test_gang_of_the_gate(self):
        self.comes_and_goes("gated", "gate")

    def test_a_gang_that_exceeds_the_node_pool(self):
        """The pool has at most five nodes: no worker runs, and the job reports the missing resource."""
        manifest = job("wide", replicas=6, spec={"scheduling": {"gang": "auto", "autoscaler": True}})
        manifest["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = GPUS
        self.rig.apply(manifest)
        waits = self.rig.wait_condition("wide", "Scheduled", "False", "Unschedulable")
        print(f"wide waits: {waits['message']}; nodes brought meanwhile: {self.nodes()}", flush=True)
        self.assertFalse(self.rig.running("wide", 1), "a part of a gang runs")
        self.cluster.kubectl("delete", "tj", "wide", "--timeout=60s")
        self.wait(lambda: self.nodes() == [], "the nodes are taken away")


if __name__ == "__main__":
    unittest.main()
