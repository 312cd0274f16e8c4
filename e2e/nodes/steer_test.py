# SPDX-License-Identifier: Apache-2.0
"""A training job loses its operator or API server, or is scaled. Its weights stay bit-identical."""

import json
import time
import unittest

from metrics_stub import MetricsStub
from on_nodes import NAMESPACE
from training import TrainingTest

OUTAGE_S = 60
MIN_CHECKPOINTS = 3  # written during the outage
MANY_STEPS = 3000  # enough that training is not finished after the outage


class Steer(TrainingTest):
    OPTIONS = {"apiserver_flags": ["--enable-aggregator-routing=true"]}  # the API server is on no node, so it cannot reach Service addresses

    def test_operator_gone(self):
        pods = self.start("no-operator")
        self.cluster.kubectl("delete", "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=ringmaster-operator",
                             "--grace-period=0", "--force")
        at = self.rig.newest_checkpoint("no-operator")
        self.cluster.wait(lambda: self.rig.newest_checkpoint("no-operator") > at, "a checkpoint is written meanwhile")
        self.finish("no-operator", counted=0)
        self.untouched("no-operator", pods)

    def test_api_server_gone_for_a_minute(self):
        """etcd is gone too, and returns earlier. The operator loses its Lease, so no coordinator answers the workers."""
        name = "alone"
        pods = self.start(name, steps=MANY_STEPS)
        began = time.monotonic()
        self.cluster.component("apiserver").kill9()
        self.cluster.component("etcd").kill9()
        seen = [self.rig.newest_checkpoint(name)]
        etcd_gone = True
        while time.monotonic() < began + OUTAGE_S or len(seen) <= MIN_CHECKPOINTS:  # so one is written after the minute
            self.cluster.wait(lambda: self.rig.newest_checkpoint(name) > seen[-1],
                              f"a checkpoint after that of step {seen[-1]} without an API server", 120)
            seen.append(self.rig.newest_checkpoint(name))
            self.assertLess(seen[-1], MANY_STEPS, "it was done before the API server was back: give it more steps")
            if etcd_gone and time.monotonic() > began + OUTAGE_S / 3:
                self.cluster.component("etcd").start()
                etcd_gone = False
        self.cluster.component("apiserver").start()
        print(f"{self.id()}: checkpoints in {time.monotonic() - began:.0f} s without an API server: {seen}", flush=True)
        self.rig.wait(name, lambda status: status["progress"]["step"] > seen[-1], "the next leader has adopted it", 120)
        self.finish(name, MANY_STEPS, counted=0)
        self.untouched(name, pods)

    def test_scaled(self):
        pods = self.start("scaled", replicas=2)
        self.cluster.kubectl("scale", "tj/scaled", "--replicas=4")
        self.rig.wait_full("scaled", 4)
        self.goes_on("scaled")
        self.cluster.kubectl("scale", "tj/scaled", "--replicas=3")
        self.rig.wait_full("scaled", 3)
        self.goes_on("scaled")
        self.untouched("scaled", pods)
        self.finish("scaled", counted=0)

    def test_autoscaled(self):
        """A HorizontalPodAutoscaler scales the job by an external metric from the API server."""
        metrics = self.enterContext(MetricsStub(self.rig.nodes, {"backlog": 20}))
        pods = self.start("autoscaled", replicas=2, steps=MANY_STEPS)
        self.addCleanup(self.cluster.kubectl, "delete", "hpa", "autoscaled")
        self.cluster.apply_text(json.dumps({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "autoscaled"},
            "spec": {"scaleTargetRef": {"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob",
                                        "name": "autoscaled"},
                     "minReplicas": 1, "maxReplicas": 4, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
                     "metrics": [{"type": "External", "external": {
                         "metric": {"name": "backlog"}, "target": {"type": "AverageValue", "averageValue": "10"}}}]}}))
        for backlog, replicas in ((40, 4), (30, 3)):
            metrics.values["backlog"] = backlog
            self.rig.wait_full("autoscaled", replicas)
            self.goes_on("autoscaled")
        self.untouched("autoscaled", pods)
        print(self.cluster.kubectl("events", "--for", "hpa/autoscaled"), flush=True)
        self.finish("autoscaled", MANY_STEPS, counted=0)


if __name__ == "__main__":
    unittest.main()
