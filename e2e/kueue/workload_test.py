# SPDX-License-Identifier: Apache-2.0
"""What the real Kueue reads in a job's Workload besides its size: gates, the maximum time, the parameters of
ProvisioningRequests, priorities and the pod sets of roles. And what a job shows that Kueue can never admit."""

import calendar
import json
import pathlib
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "operator"))
from case import QUEUE, KueueCase, queued  # noqa: E402
from cluster import Cluster  # noqa: E402
from kueue import SURPLUS, Kueue  # noqa: E402
from rig import STEADY, Rig  # noqa: E402

PRIORITY = "kueue.x-k8s.io/priority-class"
MAXIMUM = "kueue.x-k8s.io/max-exec-time-seconds"
GATE = "kueue.x-k8s.io/admission-gated-by"


def seconds(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


class BackOff(unittest.TestCase):
    def test_backoff_and_its_limit(self):
        """A job whose pods are never ready waits longer each time, without pods, and is deactivated after the last try."""
        settings = {"waitForPodsReady": {"timeout": "4s", "requeuingStrategy": {
            "timestamp": "Eviction", "backoffLimitCount": 2, "backoffBaseSeconds": 5, "backoffMaxSeconds": 60}}}
        with Cluster(nodes=1) as cluster, Kueue(cluster, settings) as kueue, Rig(cluster) as rig:
            kueue.flavor("default")
            kueue.queue("team", {"default": 12})
            rig.start(**STEADY).wait_leading()
            rig.apply(queued("large", "team", replicas=12))  # the node has eight GPUs

            def requeued(count):
                state = ((kueue.workload("large") or {}).get("status") or {}).get("requeueState") or {}
                return state.get("count") == count and "requeueAt" in state and seconds(state["requeueAt"])

            def clears():
                return kueue.condition("large", "Evicted")["status"] == "True" and not kueue.admitted("large")
            for count, pause in ((1, 5), (2, 10)):
                at = cluster.wait(lambda n=count: requeued(n), f"requeueState.count is {count}", 60)
                cluster.wait(clears, "the job has given its quota back", 60)
                evicted = seconds(kueue.condition("large", "Evicted")["lastTransitionTime"])
                self.assertIn(at - evicted, range(pause - 1, pause + 2))
                found = rig.wait_condition("large", "Admitted", "False", "WaitingForQuota")
                print(f"large, try {count}: {found['message']}", flush=True)
                self.assertIn("PodsReady", found["message"])
                looks = 0
                # Kueue removes requeueAt when the time has come.
                while requeued(count) == at and time.time() < at - 0.5:
                    self.assertEqual(rig.live("large"), [])
                    looks += 1
                    time.sleep(0.1)
                self.assertGreater(looks, 0)
                kueue.wait_condition("large", "QuotaReserved", "True", timeout_s=60)
                self.assertGreaterEqual(seconds(kueue.condition("large", "QuotaReserved")["lastTransitionTime"]), at - 1)
            found = rig.wait_condition("large", "Admitted", "False", "Deactivated")
            print(f"large is deactivated: {found['message']}", flush=True)
            self.assertIn("exceeding the maximum number of re-queuing retries", found["message"])
            self.assertIn("set spec.active of Workload", found["message"])
            cluster.wait(lambda: rig.live("large") == [], "it has no pods")
            # Activated again when there is room, it runs.
            cluster.add_nodes("another")
            name = kueue.workload("large")["metadata"]["name"]
            cluster.kubectl("patch", "workloads.kueue.x-k8s.io", name, "--type=merge", "-p", '{"spec": {"active": true}}')
            cluster.wait(lambda: rig.running("large", 12), "the job runs")
            self.assertEqual(rig.status("large").get("restarts", {}).get("charged", 0), 0)


class Workloads(KueueCase):
    def message(self, name, text):
        """Waits until the job's condition Admitted has this text, and returns the condition."""
        def holds():
            found = self.rig.condition(name, "Admitted")
            return text in found.get("message", "") and found
        return self.cluster.wait(holds, f"{name} says: {text}")

    def annotate(self, name, *annotations):
        self.cluster.kubectl("annotate", "tj", name, "--overwrite", *annotations)

    def annotations(self, name):
        return self.kueue.workload(name)["metadata"].get("annotations", {})

    def test_a_gated_job(self):
        """Kueue admits no job with a gate. Its controllers remove their gates from the job, one after the other."""
        self.kueue.queue("gated", {"default": 4})
        self.rig.apply(queued("held", "gated", replicas=1, annotations={GATE: "example.com/budget,example.com/data"}))
        self.kueue.wait_condition("held", "QuotaReserved", "False", "AdmissionGated")
        found = self.message("held", "is gated by")
        print(f"held: {found['message']}", flush=True)
        self.assertEqual((found["status"], found["reason"]), ("False", "WaitingForQuota"))
        self.assertIn("example.com/budget,example.com/data", found["message"])
        # A later one with the same queue is not held.
        self.rig.apply(queued("free", "gated", replicas=1))
        self.wait(lambda: self.rig.running("free", 1), "a job without a gate runs")
        self.annotate("held", GATE + "=example.com/data")
        self.wait(lambda: self.annotations("held").get(GATE) == "example.com/data", "the Workload follows")
        self.assertFalse(self.kueue.admitted("held"))
        self.assertEqual(self.rig.pods("held"), [])
        self.annotate("held", GATE + "-")
        self.wait(lambda: self.rig.running("held", 1), "the job runs when the last gate is removed")
        self.assertNotIn(GATE, self.annotations("held"))

    def test_parameters_of_provisioning_requests(self):
        self.kueue.queue("parameters", {"default": 1})
        key = "provreq.kueue.x-k8s.io/"
        self.rig.apply(queued("runs", "parameters", replicas=1, annotations={key + "zone": "a", "other": "x"}))
        self.wait(lambda: self.rig.running("runs", 1), "the job runs")
        self.assertEqual(self.annotations("runs")[key + "zone"], "a")
        self.assertNotIn("other", self.annotations("runs"))
        # Those of a job that waits are followed.
        self.rig.apply(queued("waits", "parameters", replicas=1, annotations={key + "zone": "a", key + "class": "b"}))
        self.wait(lambda: self.kueue.workload("waits") is not None, "the other job has a Workload")
        self.annotate("waits", key + "zone=c", key + "class-")
        self.wait(lambda: self.annotations("waits").get(key + "zone") == "c", "the Workload follows")
        self.assertNotIn(key + "class", self.annotations("waits"))

    def test_a_maximum_time(self):
        """Kueue deactivates a job that has been admitted for the time of its label; the time before an eviction counts."""
        self.kueue.queue("timed", {"default": 2})
        self.rig.apply(queued("bad", "timed", replicas=2, labels={MAXIMUM: "soon"}))
        found = self.rig.wait_condition("bad", "Admitted", "False", "Invalid")
        print(f"bad: {found['message']}", flush=True)
        self.assertIn(f"the label {MAXIMUM} is soon", found["message"])
        self.assertIn("correct or remove the label", found["message"])
        self.assertEqual(self.rig.condition("bad", "Stalled")["reason"], "Invalid")
        self.assertEqual((self.owned("bad"), self.kueue.workloads("bad")), ([], []))
        self.cluster.kubectl("label", "tj", "bad", MAXIMUM + "=20", "--overwrite")
        self.wait(lambda: self.rig.running("bad", 2), "the job runs with another value")
        self.assertEqual(self.kueue.workload("bad")["spec"]["maximumExecutionTimeSeconds"], 20)
        # Stopped after some seconds, it continues with what is left.
        admitted = seconds(self.kueue.condition("bad", "Admitted")["lastTransitionTime"])
        self.cluster.wait(lambda: time.time() > admitted + 6, "the job has run for some seconds")
        self.stop_queue("HoldAndDrain")
        self.kueue.wait_condition("bad", "Admitted", "False")
        used = self.kueue.workload("bad")["status"]["accumulatedPastExecutionTimeSeconds"]
        self.assertIn(used, range(6, 20))
        self.stop_queue("None")
        self.wait(lambda: self.rig.running("bad", 2), "the job runs again")
        again = seconds(self.kueue.condition("bad", "Admitted")["lastTransitionTime"])
        found = self.rig.wait_condition("bad", "Admitted", "False", "Deactivated")
        print(f"bad used {used} s before; now: {found['message']}", flush=True)
        self.assertIn("exceeding the maximum execution time", found["message"])
        self.assertIn("set spec.active of Workload", found["message"])
        evicted = seconds(self.kueue.condition("bad", "Evicted")["lastTransitionTime"])
        self.assertIn(used + evicted - again, range(19, 24))
        self.wait(lambda: self.rig.pods("bad") == [], "it has no pods")
        self.kueue.wait_condition("bad", "QuotaReserved", "False")
        # Activated again, it has the whole time.
        name = self.kueue.workload("bad")["metadata"]["name"]
        self.cluster.kubectl("patch", "workloads.kueue.x-k8s.io", name, "--type=merge", "-p", '{"spec": {"active": true}}')
        self.wait(lambda: self.rig.running("bad", 2), "the job runs again")
        self.assertNotIn("accumulatedPastExecutionTimeSeconds", self.kueue.workload("bad")["status"])

    def stop_queue(self, policy):
        self.cluster.kubectl("patch", "clusterqueues.kueue.x-k8s.io", "timed", "--type=merge", "-p",
                             json.dumps({"spec": {"stopPolicy": policy}}))

    def test_an_unknown_priority_class(self):
        """Nothing is created, and the job runs when the class exists."""
        self.kueue.queue("classes", {"default": 4})
        self.rig.apply(queued("classless", "classes", replicas=1, labels={PRIORITY: "nowhere"}))
        found = self.rig.wait_condition("classless", "Admitted", "False", "NoPriorityClass")
        print(f"classless: {found['message']}", flush=True)
        self.assertIn("the cluster has no WorkloadPriorityClass nowhere; create it", found["message"])
        self.assertEqual((self.owned("classless"), self.kueue.workloads("classless")), ([], []))
        self.priority_class("nowhere", 7)
        self.wait(lambda: self.rig.running("classless", 1), "the job runs")
        self.assertEqual(self.kueue.workload("classless")["spec"]["priority"], 7)

    def priority_class(self, name, value):
        self.cluster.apply_text(json.dumps({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
                                            "metadata": {"name": name}, "value": value}))

    def test_priorities_order_the_queue(self):
        """A job of higher priority runs before one that was created earlier. Without preemption it takes nothing from those that
        run."""
        for name, value in (("later", 1), ("sooner", 50)):
            self.priority_class(name, value)
        self.kueue.queue("ordered", {"default": 2})
        self.rig.apply(queued("first", "ordered", replicas=2, labels={PRIORITY: "later"}))
        self.wait(lambda: self.rig.running("first", 2), "the first job runs")
        self.rig.apply(queued("second", "ordered", replicas=2, labels={PRIORITY: "later"}))
        self.kueue.wait_condition("second", "QuotaReserved", "False")
        time.sleep(1.1)  # Kueue compares whole seconds
        self.rig.apply(queued("third", "ordered", replicas=2, labels={PRIORITY: "sooner"}))
        self.kueue.wait_condition("third", "QuotaReserved", "False")
        self.assertTrue(self.rig.running("first", 2))
        self.finish("first")
        self.wait(lambda: self.rig.running("third", 2), "the job of higher priority runs next")
        self.assertEqual(self.rig.pods("second"), [])
        self.finish("third")
        self.wait(lambda: self.rig.running("second", 2), "then the other one")
        for name in ("first", "second", "third"):
            self.assertEqual(self.rig.status(name)["attempt"], 1)

    def test_an_unknown_topology_level(self):
        """Kueue's Topology does not have the level that the job asks for: the job says so."""
        self.cluster.kubectl("label", "node", "--all", "rack=a", "racked=yes", "--overwrite")
        self.kueue.apply("Topology", "levels", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]})
        self.kueue.flavor("levels", {"racked": "yes"}, topology="levels")
        self.kueue.queue("levels", {"levels": 8})
        manifest = queued("levelless", "levels", replicas=2)
        template = manifest["spec"]["workers"]["template"]
        template["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "block"}}
        self.rig.apply(manifest)
        found = self.message("levelless", "requested level")
        print(f"levelless: {found['message']}", flush=True)
        self.assertEqual((found["status"], found["reason"]), ("False", "WaitingForQuota"))
        self.assertIn("does not contain the requested level; correct the topology annotations", found["message"])
        self.assertEqual(self.owned("levelless"), [])
        manifest["metadata"]["name"] = "levelled"
        template["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "rack"}
        self.rig.apply(manifest)
        self.wait(lambda: self.rig.running("levelled", 2), "a job with a level of the Topology runs")

    def test_a_topology_that_no_node_or_flavor_has(self):
        """No node has all levels of the Topology; then the flavour has no Topology. The job says what to do each time."""
        self.cluster.kubectl("label", "node", "--all", "rack=a", "unshelved=yes", "--overwrite")
        self.addCleanup(self.cluster.kubectl, "label", "node", "--all", "shelf-", "unshelved-")
        levels = [{"nodeLabel": label} for label in ("rack", "shelf", "kubernetes.io/hostname")]
        self.kueue.apply("Topology", "shelves", {"levels": levels})
        self.kueue.flavor("shelves", {"unshelved": "yes"}, topology="shelves")
        self.kueue.flavor("flat", {"unshelved": "yes"})
        self.kueue.queue("shelves", {"shelves": 8})
        self.kueue.queue("flat", {"flat": 8})
        manifest = queued("shelved", "shelves", replicas=2)
        manifest["spec"]["workers"]["template"]["metadata"] = {
            "annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}}
        self.rig.apply(manifest)
        found = self.message("shelved", "no topology domains at level: rack")
        print(f"shelved: {found['message']}", flush=True)
        self.assertEqual((found["status"], found["reason"]), ("False", "WaitingForQuota"))
        self.assertIn("label the nodes with all levels of the flavor's Topology", found["message"])
        self.assertEqual(self.owned("shelved"), [])
        self.cluster.kubectl("label", "tj", "shelved", QUEUE + "=flat", "--overwrite")
        found = self.message("shelved", 'Flavor "flat" does not support TopologyAwareScheduling')
        print(f"shelved: {found['message']}", flush=True)
        self.assertIn("remove the topology annotations", found["message"])
        self.assertEqual(self.owned("shelved"), [])
        self.cluster.kubectl("label", "tj", "shelved", QUEUE + "=shelves", "--overwrite")
        for node, shelf in (("node-0", "x"), ("node-1", "y"), ("node-2", "x"), ("node-3", "y")):
            self.cluster.kubectl("label", "node", node, f"shelf={shelf}")
        self.wait(lambda: self.rig.running("shelved", 2), "the job runs when the nodes are labelled")
        self.wait(lambda: self.rig.status("shelved").get("topology") == {"key": "rack", "domains": 1, "pods": "a: 2"},
                  "the spread over Kueue's level is reported")

    def test_an_elastic_job_stays_in_its_flavor(self):
        """Kueue has quota for more workers in another flavour only: the job does not grow, and says why."""
        for node, kind in (("node-0", "reserved"), ("node-1", "reserved"), ("node-2", "spot"), ("node-3", "spot")):
            self.cluster.kubectl("label", "node", node, f"kind={kind}", "--overwrite")
            self.addCleanup(self.cluster.kubectl, "label", "node", node, "kind-")
        self.kueue.flavor("reserved", {"kind": "reserved"})
        self.kueue.flavor("spot", {"kind": "spot"})
        self.kueue.queue("kinds", {"reserved": 2, "spot": 2})
        self.rig.apply(queued("stays", "kinds", replicas=4, native=True, workers={"min": 2, "max": 4},
                              spec={"checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 5}}))
        self.wait(lambda: self.rig.running("stays", 2), "the job runs with its minimum")
        found = self.message("stays", "flavor spot doesn't match node affinity")
        print(f"stays: {found['message']}", flush=True)
        self.assertEqual(found["status"], "True")
        self.assertIn("runs with 2 of 4 workers, and waits for more", found["message"])
        self.assertEqual(self.kueue.surpluses("stays"), {1: 0})
        self.kueue.raise_quota("kinds", 4)
        self.wait(lambda: self.rig.running("stays", 4), "the job grows in its flavour")
        for pod in self.rig.live("stays"):
            self.assertEqual(pod["spec"]["nodeSelector"], {"kind": "reserved"})
        # A Workload of the additional workers that a user deactivates takes these workers only.
        name = next(one["metadata"]["name"] for one in self.kueue.workloads("stays")
                    if SURPLUS in one["metadata"].get("annotations", {}))

        def activate(active):
            self.cluster.kubectl("patch", "workloads.kueue.x-k8s.io", name, "--type=merge", "-p",
                                 json.dumps({"spec": {"active": active}}))
        activate(False)
        self.wait(lambda: self.rig.running("stays", 2), "the additional workers leave")
        found = self.message("stays", f"set spec.active of Workload {name} to true")
        print(f"stays: {found['message']}", flush=True)
        activate(True)
        self.wait(lambda: self.rig.running("stays", 4), "the job grows again")
        self.assertEqual(self.rig.status("stays")["attempt"], 1)

    def test_fewer_workers_are_enough(self):
        """A framework that restarts to change its size asks for all workers at once, and starts with what Kueue admits."""
        self.kueue.queue("part", {"default": 3})
        self.rig.apply(queued("parts", "part", replicas=4, workers={"min": 2, "max": 4}))
        self.wait(lambda: self.rig.running("parts", 3), "the job runs with three of four workers")
        sets = self.kueue.workload("parts")["spec"]["podSets"]
        self.assertEqual([(one["name"], one["count"], one.get("minCount")) for one in sets], [("worker", 4, 2)])
        self.kueue.wait_condition("parts", "PodsReady", "True", "Started")
        # It does not grow beyond its admission while it runs.
        self.kueue.raise_quota("part", 4)
        self.rig.apply(queued("takes", "part", replicas=1))
        self.wait(lambda: self.rig.running("takes", 1), "another job has the quota that was added")
        self.assertTrue(self.rig.running("parts", 3))
        self.assertEqual(self.rig.status("parts")["attempt"], 1)
        self.assertEqual(self.kueue.surpluses("parts"), {})

    def test_roles(self):
        """Each role is a pod set with its flavour: nodes with GPUs for workers and chief, others for parameter servers."""
        for node, kind in (("node-0", "gpu"), ("node-1", "gpu"), ("node-2", "cpu"), ("node-3", "cpu")):
            self.cluster.kubectl("label", "node", node, f"pool={kind}", "--overwrite")
            self.addCleanup(self.cluster.kubectl, "label", "node", node, "pool-")
        self.kueue.flavor("gpu-nodes", {"pool": "gpu"})
        self.kueue.flavor("cpu-nodes", {"pool": "cpu"})
        quotas = {"gpu-nodes": {"nvidia.com/gpu": 4, "cpu": "500m", "memory": "1Gi"},
                  "cpu-nodes": {"nvidia.com/gpu": 0, "cpu": 3, "memory": "1Gi"}}
        group = {"coveredResources": ["nvidia.com/gpu", "cpu", "memory"], "flavors": [
            {"name": flavor, "resources": [{"name": name, "nominalQuota": quota} for name, quota in of.items()]}
            for flavor, of in quotas.items()]}
        self.kueue.apply("ClusterQueue", "roles", {"namespaceSelector": {}, "resourceGroups": [group]})
        self.kueue.apply("LocalQueue", "roles", {"clusterQueue": "roles"}, "default")

        def template(limits):
            container = {"name": "worker", "image": "registry.local/worker:1", "command": ["python", "train.py"]}
            return {"spec": {"containers": [{**container, "resources": {"limits": limits}}]}}
        tensorflow = {"framework": "tensorflow", "launch": {}}
        roles = [{"name": "chief", "template": template({"nvidia.com/gpu": "1"})},
                 {"name": "ps", "replicas": 2, "template": template({"cpu": "1"})}]
        self.rig.apply(queued("flow", "roles", replicas=3, workers={"template": template({"nvidia.com/gpu": "1"})},
                              spec={**tensorflow, "roles": roles}))
        self.wait(lambda: self.rig.running("flow", 6), "the job runs")
        workload = self.kueue.workload("flow")
        sets = {one["name"]: one for one in workload["spec"]["podSets"]}
        self.assertEqual({name: one["count"] for name, one in sets.items()}, {"worker": 3, "chief": 1, "ps": 2})
        limits = {name: one["template"]["spec"]["containers"][0]["resources"]["limits"] for name, one in sets.items()}
        self.assertEqual(limits, {"worker": {"nvidia.com/gpu": "1"}, "chief": {"nvidia.com/gpu": "1"}, "ps": {"cpu": "1"}})
        flavors = {one["name"]: set(one["flavors"].values()) for one in workload["status"]["admission"]["podSetAssignments"]}
        self.assertEqual(flavors, {"worker": {"gpu-nodes"}, "chief": {"gpu-nodes"}, "ps": {"cpu-nodes"}})
        found = {}
        for pod in self.rig.live("flow"):
            name = pod["metadata"]["labels"]["kueue.x-k8s.io/podset"]
            found[name] = found.get(name, 0) + 1
            self.assertEqual(pod["spec"]["nodeSelector"], {"pool": "cpu" if name == "ps" else "gpu"})
            self.assertIn(pod["spec"]["nodeName"], ("node-2", "node-3") if name == "ps" else ("node-0", "node-1"))
            self.assertEqual(pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"], workload["metadata"]["name"])
            self.assertEqual(pod["spec"]["containers"][0]["resources"]["limits"], limits[name])
        self.assertEqual(found, {"worker": 3, "chief": 1, "ps": 2})
        # No GPU is left for the worker of another one.
        self.rig.apply(queued("stream", "roles", replicas=1, workers={"template": template({"nvidia.com/gpu": "1"})},
                              spec={**tensorflow, "roles": roles}))
        waits = self.rig.wait_condition("stream", "Admitted", "False", "WaitingForQuota")
        print(f"stream: {waits['message']}", flush=True)
        self.assertRegex(waits["message"], "pod set worker: .*nvidia.com/gpu in flavor gpu-nodes, 1 more needed")
        self.assertEqual(self.rig.pods("stream"), [])


if __name__ == "__main__":
    unittest.main()
