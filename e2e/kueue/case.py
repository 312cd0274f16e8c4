# SPDX-License-Identifier: Apache-2.0
"""What the tests with one cluster, the real Kueue and an operator have in common."""

import unittest

from cluster import Cluster
from kueue import Kueue
from rig import STEADY, Rig, job

QUEUE = "kueue.x-k8s.io/queue-name"


def queued(name, queue, labels=None, annotations=None, **options):
    """Returns a job in a LocalQueue of Kueue."""
    manifest = job(name, **options)
    manifest["metadata"]["labels"] = {QUEUE: queue, **(labels or {})}
    if annotations:
        manifest["metadata"]["annotations"] = annotations
    return manifest


class KueueCase(unittest.TestCase):
    """Four nodes of eight GPUs, and the flavour `default`. No job outlives its test."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=4))
        cls.kueue = cls.enterClassContext(Kueue(cls.cluster))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.operator = cls.rig.start(**STEADY).wait_leading()
        cls.kueue.flavor("default")

    def tearDown(self):
        for name in [one["metadata"]["name"] for one in self.cluster.get("tj")]:
            self.cluster.kubectl("delete", "tj", name, "--timeout=90s")
        self.cluster.wait(lambda: self.cluster.get("workloads.kueue.x-k8s.io") == [], "all Workloads are gone", 60)

    def owned(self, *names):
        """Returns kind and name of the objects of these jobs, except their Workloads."""
        return [(kind, one["metadata"]["name"]) for kind in ("pods", "services", "configmaps") for one in self.cluster.get(kind)
                if one["metadata"].get("labels", {}).get("ringmaster.dev/job") in names]

    def finish(self, name):
        for pod in self.rig.live(name):
            self.cluster.pod_exit("default", pod["metadata"]["name"], 0)

    def wait(self, condition, what, timeout_s=60):
        self.cluster.wait(condition, what, timeout_s)
