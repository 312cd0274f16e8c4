# SPDX-License-Identifier: Apache-2.0
"""The real cluster-autoscaler with its provider for kwok adds nodes for a waiting gang, and removes them when the gang is
gone: what holds for every autoscaler (scaling.py), and a pool that is too small. The nodes and their pods are fake."""

import re
import unittest

from scaling import GPUS, ScalingTests, workers

from cluster import Cluster
from cluster_autoscaler import MAX_NODES, ClusterAutoscaler
from rig import Rig


class Autoscaler(ScalingTests, unittest.TestCase):
    TAINT = "ToBeDeletedByClusterAutoscaler"
    SCALED_UP = "TriggeredScaleUp"

    @classmethod
    def setUpClass(cls):
        # One node without GPUs, as in every cluster.
        cls.cluster = cls.enterClassContext(Cluster(nodes=1, gpus=0))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.rig.start().wait_leading()
        cls.autoscaler = cls.enterClassContext(ClusterAutoscaler(cls.cluster))
        cls.process, cls.log = cls.autoscaler.process, cls.autoscaler.log

    def nodes(self):
        return self.autoscaler.nodes()

    def is_kept(self):
        """By its default flags it moves no pod of an owner that it does not know, and says so first."""
        return re.search(r"cannot be removed: (default/pair-\S+ is not replicated|pod annotated as not safe to evict present: pair-)",
                         self.log.read_text(errors="replace")) is not None

    def test_a_gang_that_exceeds_the_node_pool(self):
        """No worker runs, and the job reports the missing resource."""
        self.rig.apply(workers("wide", GPUS, replicas=MAX_NODES + 1, gang="auto"))
        waits = self.rig.wait_condition("wide", "Scheduled", "False", "Unschedulable")
        print(f"wide waits: {waits['message']}; nodes brought meanwhile: {self.nodes()}", flush=True)
        self.assertFalse(self.rig.running("wide", 1), "a part of a gang runs")


if __name__ == "__main__":
    unittest.main()
