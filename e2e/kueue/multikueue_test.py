# SPDX-License-Identifier: Apache-2.0
"""MultiKueue with two control planes: a job is created on the manager cluster and runs on the worker cluster. Each has the real
Kueue and an operator."""

import json
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "operator"))
from cluster import Cluster  # noqa: E402
from kueue import Kueue  # noqa: E402
from rig import STEADY, Rig, job  # noqa: E402

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
MANAGER = {"multiKueue": {"externalFrameworks": [{"name": "TrainingJob.v1alpha1.ringmaster.dev"}]}}


class TwoClusters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = cls.enterClassContext(Cluster(nodes=2))
        cls.worker_kueue = cls.enterClassContext(Kueue(cls.worker))
        cls.worker_rig = cls.enterClassContext(Rig(cls.worker))
        cls.worker_rig.start(**STEADY).wait_leading()
        cls.manager = cls.enterClassContext(Cluster(nodes=0))
        cls.kueue = cls.enterClassContext(Kueue(cls.manager, MANAGER))
        cls.rig = cls.enterClassContext(Rig(cls.manager))
        cls.rig.start(**STEADY).wait_leading()
        access = cls.worker.kubectl("config", "view", "--raw", "--flatten")
        cls.manager.apply_text(json.dumps({"apiVersion": "v1", "kind": "Secret", "stringData": {"kubeconfig": access},
                                           "metadata": {"name": "worker", "namespace": "kueue-system"}}))
        source = {"kubeConfig": {"location": "worker", "locationType": "Secret"}}
        cls.kueue.apply("MultiKueueCluster", "worker", {"clusterSource": source})
        cls.kueue.apply("MultiKueueConfig", "all", {"clusters": ["worker"]})
        cls.kueue.apply("AdmissionCheck", "multikueue", {
            "controllerName": MULTIKUEUE,
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}})
        for kueue in (cls.kueue, cls.worker_kueue):
            kueue.flavor("default")
        cls.worker_kueue.queue("team", {"default": 4})
        cls.kueue.queue("team", {"default": 8}, checks=["multikueue"])

    def tearDown(self):
        for name in [one["metadata"]["name"] for one in self.manager.get("tj")]:
            self.manager.kubectl("delete", "tj", name, "--timeout=90s")
        for cluster in (self.manager, self.worker):
            for kind in ("workloads.kueue.x-k8s.io", "tj"):
                cluster.wait(lambda c=cluster, k=kind: c.get(k) == [], f"all {kind} are gone", 90)

    def submit(self, name, replicas):
        manifest = job(name, replicas=replicas, spec={"managedBy": MULTIKUEUE})
        manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
        self.rig.apply(manifest)

    def wait_runs(self, name, count):
        self.worker.wait(lambda: self.worker_rig.running(name, count), f"{name} runs on the worker cluster", 120)

    def finish(self, name):
        for pod in self.worker_rig.live(name):
            self.worker.pod_exit("default", pod["metadata"]["name"], 0)

    def test_a_job_runs_on_the_other_cluster(self):
        self.submit("far", 2)
        self.wait_runs("far", 2)
        local = self.kueue.workload("far")
        remote = self.worker_kueue.workload("far")
        self.assertEqual(remote["metadata"]["name"], local["metadata"]["name"], "the operator there made none")
        self.assertEqual(len(self.worker_kueue.workloads("far")), 1)
        self.assertEqual(remote["metadata"]["ownerReferences"][0]["uid"], self.worker_rig.job("far")["metadata"]["uid"])
        asks = [[(one["name"], one["count"]) for one in workload["spec"]["podSets"]] for workload in (local, remote)]
        self.assertEqual(asks, [[("worker", 2)], [("worker", 2)]])
        self.rig.wait_phase("far", "Running", timeout_s=60)
        self.kueue.wait_condition("far", "Admitted")
        self.kueue.wait_condition("far", "PodsReady", "True", "Started")
        self.assertEqual(self.rig.pods("far"), [])
        self.finish("far")
        self.rig.wait_phase("far", "Succeeded", timeout_s=60)
        self.kueue.wait_condition("far", "Finished", "True", "Succeeded")
        self.manager.wait(lambda: not self.kueue.workload("far")["metadata"].get("finalizers"), "the Workload is let go of")
        self.worker.wait(lambda: self.worker.get("tj") == [], "MultiKueue removes the job from the worker cluster")
        self.assertEqual(self.rig.status("far")["attempt"], 1)

    def test_suspended_and_resumed(self):
        self.submit("rests", 2)
        self.wait_runs("rests", 2)
        self.manager.kubectl("patch", "tj", "rests", "--type=merge", "-p", '{"spec": {"suspend": true}}')
        self.worker.wait(lambda: self.worker.get("tj") == [], "the job leaves the worker cluster", 90)
        self.manager.wait(lambda: self.kueue.workload("rests") is None, "its Workload is gone")
        self.manager.kubectl("patch", "tj", "rests", "--type=merge", "-p", '{"spec": {"suspend": false}}')
        self.wait_runs("rests", 2)

    def test_evicted_on_the_worker_cluster(self):
        """The job there stops, and is sent again."""
        self.submit("moves", 2)
        self.wait_runs("moves", 2)
        before = {pod["metadata"]["uid"] for pod in self.worker_rig.live("moves")}
        self.worker.kubectl("patch", "clusterqueues.kueue.x-k8s.io", "team", "--type=merge", "-p",
                            '{"spec": {"stopPolicy": "HoldAndDrain"}}')
        self.worker.wait(lambda: self.worker_rig.live("moves") == [], "the job stops", 90)
        self.worker.kubectl("patch", "clusterqueues.kueue.x-k8s.io", "team", "--type=merge", "-p", '{"spec": {"stopPolicy": "None"}}')
        self.wait_runs("moves", 2)
        self.assertFalse(before & {pod["metadata"]["uid"] for pod in self.worker_rig.live("moves")})


if __name__ == "__main__":
    unittest.main()
