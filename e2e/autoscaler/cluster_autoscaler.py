# SPDX-License-Identifier: Apache-2.0
"""Runs the real cluster-autoscaler (./build) with its provider for kwok against a cluster of e2e/cluster, for tests. It has one
group of at most five nodes, each with all GPUs that workers may ask for."""

import json
import os
import pathlib
import subprocess
import tempfile

from scaling import GPUS, HERE, built

GROUP = "gpu-pool"
MAX_NODES = 5


def template(heartbeat_ms):
    """The template of the provider's nodes, for which the kwok of the cluster acts as the kubelet."""
    resources = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": GROUP, "labels": {"e2e.ringmaster.dev/kubelet": "running", "kubernetes.io/os": "linux",
                                                   "kubernetes.io/arch": "amd64", "pool": GROUP},
                         "annotations": {"e2e.ringmaster.dev/heartbeat-ms": str(heartbeat_ms),
                                         "cluster-autoscaler.kwok.nodegroup/name": GROUP,
                                         "cluster-autoscaler.kwok.nodegroup/min-count": "0",
                                         "cluster-autoscaler.kwok.nodegroup/max-count": str(MAX_NODES),
                                         "cluster-autoscaler.kwok.nodegroup/desired-count": "0"}},
            "spec": {}, "status": {"allocatable": resources, "capacity": resources}}


class ClusterAutoscaler:
    def __init__(self, cluster, *flags):
        self._cluster, self._flags = cluster, flags

    def __enter__(self):
        settings = {"apiVersion": "v1alpha1", "readNodesFrom": "configmap", "nodegroups": {"fromNodeLabelKey": "pool"},
                    "nodes": {"skipTaint": True}, "configmap": {"name": "kwok-provider-templates"}}
        nodes = {"apiVersion": "v1", "kind": "List", "items": [template(self._cluster.options.node_grace_s * 250)]}
        for name, key, value in (("kwok-provider-config", "config", settings), ("kwok-provider-templates", "templates", nodes)):
            self._cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {key: json.dumps(value)},
                                                 "metadata": {"name": name, "namespace": "kube-system"}}))
        self._folder = tempfile.TemporaryDirectory(prefix="ringmaster-autoscaler-")
        self.log = pathlib.Path(self._folder.name) / "log"
        config = self._cluster.kubeconfig
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [built(HERE, "cluster-autoscaler"), "--cloud-provider=kwok", f"--kubeconfig={config}", "--namespace=kube-system",
                 "--leader-elect=false", "--address=127.0.0.1:0", "--scan-interval=1s", "--scale-down-delay-after-add=3s",
                 "--scale-down-unneeded-time=3s", "--unremovable-node-recheck-timeout=5s", "--v=2", *self._flags],
                env={**os.environ, "KWOK_PROVIDER_MODE": "local", "KUBECONFIG": str(config), "POD_NAMESPACE": "kube-system"},
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()

    def nodes(self):
        found = self._cluster.api.get("/api/v1/nodes?labelSelector=pool%3D" + GROUP)["items"]
        return sorted(node["metadata"]["name"] for node in found)
