# SPDX-License-Identifier: Apache-2.0
"""The real Kueue and the operator: jobs start when Kueue admits them, and stop when it takes the quota back. The nodes and
their pods are fake: every pod that is bound runs until it is ended."""

import json
import pathlib
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "operator"))
from case import QUEUE, KueueCase, queued  # noqa: E402
from cluster import Cluster  # noqa: E402
from kueue import API, Kueue  # noqa: E402
from rig import BIN, ROOT, STEADY, KubectlError, Rig, job  # noqa: E402


class WithoutKueue(unittest.TestCase):
    def test_a_queue_without_kueue(self):
        """Nothing is created for a job with a queue; the condition has the remedy. Other jobs run."""
        with Cluster(nodes=1) as cluster, Rig(cluster) as rig:
            rig.start(**STEADY).wait_leading()
            rig.apply(queued("waits", "team-a", replicas=1))
            found = rig.wait_condition("waits", "Admitted", "False", "NoKueue")
            self.assertIn("install Kueue", found["message"])
            rig.apply(job("runs", replicas=1))
            cluster.wait(lambda: rig.running("runs", 1), "a job without a queue runs")
            self.assertEqual(rig.pods("waits"), [])
            self.assertEqual(rig.condition("waits", "Stalled")["reason"], "NoKueue")
            # Without the label it is a job like any other.
            cluster.kubectl("label", "tj", "waits", QUEUE + "-")
            cluster.wait(lambda: rig.running("waits", 1), "the job without its label runs")


    def test_jobs_need_a_queue(self):
        """With the flag, a job without a queue waits, with the remedy; one that runs already runs on."""
        with Cluster(nodes=1) as cluster, Kueue(cluster, {"manageJobsWithoutQueueName": True}) as kueue, Rig(cluster) as rig:
            kueue.flavor("default")
            kueue.queue("team", {"default": 8})
            first = rig.start(**STEADY).wait_leading()
            rig.apply(job("before", replicas=1))
            cluster.wait(lambda: rig.running("before", 1), "a job runs")
            first.stop()
            rig.start(kueue_manage_jobs_without_queue_name=True, **STEADY).wait_leading()
            rig.apply(job("after", replicas=1))
            found = rig.wait_condition("after", "Admitted", "False", "NoQueue")
            self.assertIn("set the label", found["message"])
            self.assertEqual(rig.pods("after"), [])
            cluster.kubectl("label", "tj", "after", QUEUE + "=team")
            cluster.wait(lambda: rig.running("after", 1), "it runs in the queue")
            self.assertTrue(rig.running("before", 1))

    def test_a_namespace_that_kueue_does_not_manage(self):
        """Outside the namespaces of the selector a job without a queue runs, although the others need one and although its
        namespace has a default queue."""
        name, others = "kubernetes.io/metadata.name", ["kube-system", "kueue-system", "exempt"]
        selector = {"matchExpressions": [{"key": name, "operator": "NotIn", "values": others}]}
        settings = {"manageJobsWithoutQueueName": True, "managedJobsNamespaceSelector": selector}
        with Cluster(nodes=1) as cluster, Kueue(cluster, settings) as kueue, Rig(cluster) as rig:
            kueue.flavor("default")
            kueue.queue("team", {"default": 8})
            cluster.kubectl("create", "namespace", "exempt")
            cluster.apply_text(json.dumps({"apiVersion": API, "kind": "LocalQueue", "spec": {"clusterQueue": "team"},
                                           "metadata": {"name": "default", "namespace": "exempt"}}))
            rig.start(kueue_manage_jobs_without_queue_name=True,
                      kueue_managed_namespaces=f"{name} notin ({','.join(others)})", **STEADY).wait_leading()
            rig.apply(job("held", replicas=1))
            rig.apply(job("free", replicas=1, namespace="exempt"))
            rig.wait_condition("held", "Admitted", "False", "NoQueue")
            cluster.wait(lambda: rig.running("free", 1, "exempt"), "the job of the exempt namespace runs")
            self.assertEqual(rig.pods("held"), [])
            self.assertEqual(cluster.api.get(f"/apis/{API}/namespaces/exempt/workloads")["items"], [])

    def test_local_queues_may_not_be_read(self):
        """Without the right to list LocalQueues there is no default queue. Nothing else depends on it."""
        with Cluster(nodes=1) as cluster, Kueue(cluster) as kueue, Rig(cluster) as rig:
            kueue.flavor("default")
            kueue.queue("default", {"default": 0})
            role = cluster.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/ringmaster-operator")
            rules = [rule for rule in role["rules"] if "localqueues" not in rule["resources"]]
            self.assertLess(len(rules), len(role["rules"]))
            cluster.kubectl("patch", "clusterrole", "ringmaster-operator", "--type=merge", "-p", json.dumps({"rules": rules}))
            operator = rig.start(**STEADY).wait_leading()
            rig.apply(job("plain", replicas=1))
            cluster.wait(lambda: rig.running("plain", 1), "a job without a queue runs")
            self.assertEqual(operator.get("health", "/readyz"), (200, "ok"))
            time.sleep(5)  # it asks again
            self.assertEqual(operator.log.count("watch=localqueues"), 1)
            self.assertIn("cannot list resource", operator.wait_log("watch=localqueues.*").group(0))


    def test_pods_that_are_not_ready_in_time(self):
        """Kueue takes the quota from a job whose workers find no room in time, and gives it to the next one. The first is queued
        again, and runs when nodes were added. No restart is charged."""
        settings = {"waitForPodsReady": {"timeout": "8s", "requeuingStrategy": {"timestamp": "Eviction",
                                                                                "backoffBaseSeconds": 1, "backoffMaxSeconds": 2}}}
        with Cluster(nodes=1) as cluster, Kueue(cluster, settings) as kueue, Rig(cluster) as rig:
            kueue.flavor("default")
            kueue.queue("team", {"default": 12})
            rig.start(**STEADY).wait_leading()
            rig.apply(queued("large", "team", replicas=12))  # the node has eight GPUs
            kueue.wait_condition("large", "Evicted", "True", "PodsReadyTimeout")
            rig.apply(queued("small", "team", replicas=4))
            cluster.wait(lambda: rig.running("small", 4), "the small job runs")
            kueue.wait_condition("small", "PodsReady", "True", "Started")
            self.assertFalse(kueue.admitted("large"))
            rig.wait_condition("large", "Admitted", "False", "WaitingForQuota")
            self.assertEqual(rig.live("large"), [])
            cluster.add_nodes("another")
            for pod in rig.live("small"):
                cluster.pod_exit("default", pod["metadata"]["name"], 0)
            cluster.wait(lambda: rig.running("large", 12), "the large job runs")
            kueue.wait_condition("large", "PodsReady", "True", "Started")
            self.assertEqual(rig.status("large").get("restarts", {}).get("charged", 0), 0)


class WithKueue(KueueCase):
    def usage(self, queue):
        status = self.cluster.api.get(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}").get("status", {})
        return {flavor["name"]: int(flavor["resources"][0]["total"]) for flavor in status.get("flavorsReservation", [])}

    def test_a_job_is_admitted_and_finishes(self):
        self.kueue.queue("simple", {"default": 4})
        self.rig.apply(queued("one", "simple", replicas=2))
        self.wait(lambda: self.rig.running("one", 2), "the job runs")
        self.rig.wait_condition("one", "Ready")
        workload = self.kueue.workload("one")
        self.assertEqual(workload["metadata"]["ownerReferences"][0]["kind"], "TrainingJob")
        self.assertEqual([(one["name"], one["count"]) for one in workload["spec"]["podSets"]], [("worker", 2)])
        self.kueue.wait_condition("one", "PodsReady", "True", "Started")
        self.assertEqual(self.rig.status("one")["attempt"], 1)
        self.finish("one")
        self.rig.wait_phase("one", "Succeeded")
        self.kueue.wait_condition("one", "Finished", "True", "Succeeded")
        self.wait(lambda: not self.kueue.workload("one")["metadata"].get("finalizers"), "the Workload is let go of")
        self.wait(lambda: self.usage("simple") == {"default": 0}, "the quota is free")

    def test_order_in_a_queue(self):
        """One job at a time fits: they run in the order of their creation, and a waiting one has no pods."""
        self.kueue.queue("order", {"default": 2})
        names = ["zebra", "middle", "ant"]
        for name in names:
            self.rig.apply(queued(name, "order", replicas=2))
            time.sleep(1.1)  # Kueue compares whole seconds
        for i, name in enumerate(names):
            self.wait(lambda n=name: self.rig.running(n, 2), f"{name} runs")
            for later in names[i + 1:]:
                self.assertEqual(self.rig.pods(later), [])
                # Kueue need not consider a job like the one before it, which does not fit.
                self.assertIn(self.rig.wait_condition(later, "Admitted", "False")["reason"], ("Queued", "WaitingForQuota"))
                self.assertEqual(self.rig.status(later)["phase"], "Pending")
            if i == 0:
                found = self.rig.wait_condition("middle", "Admitted", "False", "WaitingForQuota")
                print(f"middle waits: {found['message']}", flush=True)
                self.assertRegex(found["message"], r"queue order: .*nvidia.com/gpu")
                for position, later in enumerate(names[1:], 1):
                    # The text of a job that waits is written at most once in a minute.
                    self.wait(lambda n=later, p=position: f"position {p} in queue order" in
                              self.rig.condition(n, "Admitted")["message"], f"{later} shows position {position}", 150)
            self.finish(name)
        self.rig.wait_phase("ant", "Succeeded")

    def test_an_unknown_queue(self):
        self.rig.apply(queued("lost", "nowhere", replicas=1))
        found = self.rig.wait_condition("lost", "Admitted", "False", "NoQueue")
        self.assertIn("create this LocalQueue", found["message"])
        self.assertEqual(self.owned("lost"), [])
        # A corrected label is followed.
        self.kueue.queue("somewhere", {"default": 4})
        self.cluster.kubectl("label", "tj", "lost", QUEUE + "=somewhere", "--overwrite")
        self.wait(lambda: self.rig.running("lost", 1), "the job runs in the other queue")

    def test_a_flavor_that_does_not_exist(self):
        """Nothing is created, and the job runs when the flavour is there."""
        quota = {"name": "nvidia.com/gpu", "nominalQuota": 4}
        self.kueue.apply("ClusterQueue", "holes", {"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "nowhere", "resources": [quota]}]}]})
        self.kueue.apply("LocalQueue", "holes", {"clusterQueue": "holes"}, "default")
        self.rig.apply(queued("flavorless", "holes", replicas=1))
        self.wait(lambda: "ClusterQueue holes is inactive" in self.rig.condition("flavorless", "Admitted")["message"],
                  "the job says why it waits")
        found = self.rig.condition("flavorless", "Admitted")
        self.assertEqual((found["status"], found["reason"]), ("False", "WaitingForQuota"))
        self.assertIn("a ResourceFlavor", found["message"])
        self.assertEqual(self.owned("flavorless"), [])
        self.kueue.flavor("nowhere")
        self.wait(lambda: self.rig.running("flavorless", 1), "the job runs")

    def test_the_label_of_a_running_job(self):
        """The policy refuses another queue while the job runs. Without it the job keeps its quota."""
        self.kueue.queue("before", {"default": 4})
        self.kueue.queue("after", {"default": 4})
        self.rig.apply(queued("moves", "before", replicas=1))
        self.wait(lambda: self.rig.running("moves", 1), "the job runs")
        self.rig.wait_condition("moves", "Admitted")
        policy = str(ROOT / "config/kueue-policy.yaml")
        self.cluster.kubectl("apply", "--server-side", "-f", policy)
        self.addCleanup(self.cluster.kubectl, "delete", "--ignore-not-found", "-f", policy)

        def relabel(label, *more):
            self.cluster.kubectl("label", "tj", "moves", QUEUE + label, "--overwrite", *more)

        def refused(label):
            try:
                relabel(label, "--dry-run=server")
            except KubectlError as error:
                self.assertIn("cannot be changed while the job runs", str(error))
                return True
            return False  # the API server follows a change of its policies with a delay
        self.wait(lambda: refused("=after"), "the policy holds")
        self.cluster.kubectl("patch", "tj", "moves", "--type=merge", "-p", '{"spec": {"suspend": true}}')
        self.rig.wait_condition("moves", "Suspended")
        relabel("=after")
        self.cluster.kubectl("patch", "tj", "moves", "--type=merge", "-p", '{"spec": {"suspend": false}}')
        self.wait(lambda: self.rig.running("moves", 1), "the job runs again")
        self.assertEqual(self.kueue.workload("moves")["spec"]["queueName"], "after")
        # A change that no policy refuses.
        self.cluster.kubectl("delete", "-f", policy)
        self.wait(lambda: not refused("-"), "the policy is gone")
        relabel("-")
        time.sleep(2)
        self.assertTrue(self.rig.running("moves", 1))
        self.assertTrue(self.kueue.admitted("moves"))

    def test_the_default_queue(self):
        """A job without the label is put into the LocalQueue `default` of its namespace. One that runs is never stopped by it, and
        the Workload keeps the choice when the LocalQueue is deleted and the operator starts again."""
        space = "team"

        def wait_runs(name, count):
            self.wait(lambda: self.rig.running(name, count, space), f"{name} runs")

        def uids(name):
            return {pod["metadata"]["uid"] for pod in self.rig.live(name, space)}

        def start_again():
            type(self).operator.stop()
            type(self).operator = self.rig.start(**STEADY).wait_leading()
        self.cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}))
        self.addCleanup(self.cluster.kubectl, "delete", "tj", "--all", "-n", space, "--timeout=90s")
        self.rig.apply(job("early", replicas=1, namespace=space))
        wait_runs("early", 1)
        before = uids("early")
        self.kueue.queue("defaults", {"default": 2}, namespace=space)
        self.kueue.apply("LocalQueue", "default", {"clusterQueue": "defaults"}, space)
        self.rig.apply(job("first", replicas=2, namespace=space))
        wait_runs("first", 2)
        workload = self.kueue.workload("first", space)
        self.assertEqual(workload["spec"]["queueName"], "default")
        self.assertNotIn("labels", self.rig.job("first", space)["metadata"], "the operator changes no job")
        self.rig.apply(job("second", replicas=2, namespace=space))
        found = self.rig.wait_condition("second", "Admitted", "False", "WaitingForQuota", namespace=space)
        self.assertIn("queue default: ", found["message"])
        line = subprocess.run([BIN / "ringmaster", "queue", "-n", space, "--kubeconfig", self.cluster.kubeconfig],
                              capture_output=True, text=True, check=True).stdout
        self.assertRegex(line, "team/second .*WaitingForQuota: .*queue default")
        self.assertEqual(self.kueue.workloads("early", space), [])
        start_again()
        self.cluster.kubectl("delete", "localqueues.kueue.x-k8s.io", "default", "-n", space)
        found = self.rig.wait_condition("second", "Admitted", "False", "NoQueue", namespace=space)
        self.assertIn("name another one by the label", found["message"])
        start_again()
        running = uids("first")
        time.sleep(3)
        self.assertEqual(self.rig.pods("second", space), [])
        self.assertEqual((uids("first"), uids("early")), (running, before))
        self.kueue.apply("LocalQueue", "default", {"clusterQueue": "defaults"}, space)
        for pod in self.rig.live("first", space):
            self.cluster.pod_exit(space, pod["metadata"]["name"], 0)
        wait_runs("second", 2)
        for name in ("early", "first", "second"):
            self.assertEqual(self.rig.status(name, space)["attempt"], 1)
        self.assertEqual(uids("early"), before)

    def test_a_deleted_job_lets_go(self):
        self.kueue.queue("delete", {"default": 2})
        self.rig.apply(queued("first", "delete", replicas=2))
        self.wait(lambda: self.rig.running("first", 2), "the first job runs")
        self.rig.apply(queued("second", "delete", replicas=2))
        self.rig.wait_condition("second", "Admitted", "False", "WaitingForQuota")
        self.cluster.kubectl("delete", "tj", "first", "--wait=false")
        self.wait(lambda: self.rig.running("second", 2), "the second job runs")
        self.wait(lambda: self.kueue.workload("first") is None, "the Workload of the first is gone")

    def test_preemption_requeues(self):
        """A job of higher priority takes the quota: the other one stops, is queued, and resumes with a new attempt."""
        for name, value in (("low", 10), ("high", 100)):
            self.cluster.apply_text(f'{{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", '
                                    f'"metadata": {{"name": "{name}"}}, "value": {value}}}')
        self.kueue.queue("preempt", {"default": 4}, preemption={"withinClusterQueue": "LowerPriority"})
        victim = queued("victim", "preempt", replicas=4)
        victim["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "low"
        self.rig.apply(victim)
        self.wait(lambda: self.rig.running("victim", 4), "the victim runs")
        spec = self.kueue.workload("victim")["spec"]
        self.assertEqual((spec["priority"], spec["priorityClassRef"]["name"]), (10, "low"))
        winner = queued("winner", "preempt", replicas=3)
        winner["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
        self.rig.apply(winner)
        self.wait(lambda: self.rig.running("winner", 3), "the winner runs")
        self.assertEqual(self.rig.pods("victim"), [])
        self.rig.wait_condition("victim", "Suspended", "True", "WaitingForQuota")
        self.kueue.wait_condition("victim", "Requeued", "True")
        self.kueue.wait_condition("victim", "PodsReady", "False", "WaitForStart")
        self.finish("winner")
        self.wait(lambda: self.rig.running("victim", 4), "the victim runs again")
        self.assertEqual(self.rig.status("victim")["attempt"], 2)
        self.assertEqual(self.rig.status("victim").get("restarts", {}).get("charged", 0), 0)
        self.kueue.wait_condition("victim", "PodsReady", "True", "Started")

    def test_preemption_of_an_elastic_job(self):
        """An elastic job that is preempted shrinks in place, down to its `min`, and grows again when there is quota. Only when
        even its minimum is taken it stops and waits as a whole."""
        for name, value in (("normal", 10), ("urgent", 100)):
            self.cluster.apply_text(f'{{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", '
                                    f'"metadata": {{"name": "{name}"}}, "value": {value}}}')
        self.kueue.queue("elastic", {"default": 6}, preemption={"withinClusterQueue": "LowerPriority"})
        urgent = {"scheduling": {"priorityClassName": "urgent"}}
        self.rig.apply(queued("stretch", "elastic", replicas=6, native=True, workers={"min": 2, "max": 6},
                              spec={"scheduling": {"priorityClassName": "normal"},
                                    "checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 5}}))
        self.wait(lambda: self.rig.running("stretch", 6), "the elastic job runs with six workers")
        self.assertEqual(self.kueue.surpluses("stretch"), {1: 4})
        kept = [pod["metadata"]["uid"] for pod in self.rig.live("stretch")[:2]]

        def runs_on(workers):
            self.wait(lambda: self.rig.running("stretch", workers), f"the elastic job runs with {workers} workers")
            self.assertEqual([pod["metadata"]["uid"] for pod in self.rig.live("stretch")[:2]], kept, "the same pods")
            self.assertEqual(self.rig.status("stretch")["attempt"], 1)
            self.assertEqual(self.rig.status("stretch").get("restarts", {}).get("total", 0), 0)
        self.rig.apply(queued("urgent-1", "elastic", replicas=3, spec=urgent))
        self.wait(lambda: self.rig.running("urgent-1", 3), "the urgent job runs")
        runs_on(3)  # Kueue admits a part of what was taken back
        self.rig.apply(queued("urgent-2", "elastic", replicas=1, spec=urgent))
        self.wait(lambda: self.rig.running("urgent-2", 1), "the second urgent job runs")
        runs_on(2)
        self.wait(lambda: "runs with 2 of 6 workers, and waits for more" in self.rig.condition("stretch", "Admitted").get("message", ""),
                  "it shows that it waits for more")
        print(f"stretch: {self.rig.condition('stretch', 'Admitted')['message']}", flush=True)
        self.finish("urgent-1")
        runs_on(5)
        self.finish("urgent-2")
        runs_on(6)
        self.rig.apply(queued("urgent-3", "elastic", replicas=5, spec=urgent))
        self.wait(lambda: self.rig.running("urgent-3", 5), "the third urgent job runs")
        self.wait(lambda: self.rig.pods("stretch") == [], "less than its minimum is left: the elastic job waits")
        self.rig.wait_condition("stretch", "Admitted", "False", "WaitingForQuota")
        self.finish("urgent-3")
        self.wait(lambda: self.rig.running("stretch", 6), "the elastic job runs again")
        self.assertGreater(self.rig.status("stretch")["attempt"], 1)

    def test_borrowing_and_reclaiming(self):
        """A queue borrows what its cohort does not use, and gives it back when the owner wants it."""
        policy = {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}
        self.kueue.queue("lender", {"default": 3}, cohort="both", preemption=policy)
        self.kueue.queue("borrower", {"default": 3}, cohort="both", preemption=policy)
        self.rig.apply(queued("big", "borrower", replicas=5))
        self.wait(lambda: self.rig.running("big", 5), "the job runs with borrowed quota")
        self.rig.apply(queued("owner", "lender", replicas=3))
        self.wait(lambda: self.rig.running("owner", 3), "the owner runs")
        self.assertEqual(self.rig.pods("big"), [])
        evicted = self.kueue.condition("big", "Preempted")
        print(f"big was preempted: {evicted['reason']}: {evicted['message']}", flush=True)
        self.finish("owner")
        self.wait(lambda: self.rig.running("big", 5), "the borrower runs again")

    def test_two_flavors(self):
        """The pods get the node selectors and tolerations of the flavour that Kueue chose for them."""
        for node, kind in (("node-0", "reserved"), ("node-1", "reserved"), ("node-2", "spot"), ("node-3", "spot")):
            self.cluster.kubectl("label", "node", node, f"kind={kind}", "--overwrite")
            self.addCleanup(self.cluster.kubectl, "label", "node", node, "kind-")
        toleration = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
        self.kueue.flavor("reserved", {"kind": "reserved"})
        self.kueue.flavor("spot", {"kind": "spot"}, [toleration])
        self.kueue.queue("flavors", {"reserved": 2, "spot": 8})
        self.rig.apply(queued("small", "flavors", replicas=2))
        self.wait(lambda: self.rig.running("small", 2), "the first job runs")
        self.rig.apply(queued("other", "flavors", replicas=3))
        self.wait(lambda: self.rig.running("other", 3), "the second job runs")
        for pod in self.rig.pods("small"):
            self.assertEqual(pod["spec"]["nodeSelector"], {"kind": "reserved"})
            self.assertIn(pod["spec"]["nodeName"], ("node-0", "node-1"))
        for pod in self.rig.pods("other"):
            self.assertEqual(pod["spec"]["nodeSelector"], {"kind": "spot"})
            self.assertIn(toleration, pod["spec"]["tolerations"])
            self.assertIn(pod["spec"]["nodeName"], ("node-2", "node-3"))
            self.assertEqual(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"], "worker")
        self.wait(lambda: self.usage("flavors") == {"reserved": 2, "spot": 3}, "both flavours are charged")

    def test_topology_of_kueue(self):
        """Two racks of two nodes with 8 GPUs each. Kueue chooses the rack and the node of each rank; a pod that is replaced gets
        the place of the one before it."""
        for node, rack in (("node-0", "a"), ("node-1", "b"), ("node-2", "a"), ("node-3", "b")):
            self.cluster.kubectl("label", "node", node, f"rack={rack}", "tas=yes", "--overwrite")
            self.addCleanup(self.cluster.kubectl, "label", "node", node, "rack-", "tas-")
        self.kueue.apply("Topology", "racks", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]})
        self.kueue.flavor("racks", {"tas": "yes"}, topology="racks")
        self.kueue.queue("topology", {"racks": 32})

        def racked(name, replicas, annotation, value, **options):
            manifest = queued(name, "topology", replicas=replicas, **options)
            manifest["spec"]["workers"]["template"].setdefault("metadata", {})["annotations"] = {
                f"kueue.x-k8s.io/podset-{annotation}-topology": value}
            return manifest

        def nodes(name):
            pods = sorted(self.rig.live(name), key=lambda pod: int(pod["metadata"]["labels"]["ringmaster.dev/rank"]))
            return [pod["spec"]["nodeName"] for pod in pods]
        self.rig.apply(racked("together", 12, "required", "rack", native=True, workers={"min": 12, "max": 12},
                              spec={"checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 5}}))
        self.wait(lambda: self.rig.running("together", 12), "the job runs")
        request = self.kueue.workload("together")["spec"]["podSets"][0]["topologyRequest"]
        self.assertEqual(request, {"required": "rack", "podIndexLabel": "ringmaster.dev/rank"})
        before = nodes("together")
        self.assertIn(set(before), ({"node-0", "node-2"}, {"node-1", "node-3"}))
        self.assertEqual(before, sorted(before), "neighbours in the ring are neighbours on the nodes")
        for pod in self.rig.live("together"):
            self.assertEqual(pod["spec"]["nodeSelector"]["kubernetes.io/hostname"], pod["spec"]["nodeName"])
            self.assertFalse(pod["spec"].get("schedulingGates"))
        # 12 of 16 GPUs of one rack are used: 14 fit on no rack, and Kueue says so. Nothing is created.
        self.rig.apply(racked("large", 17, "required", "rack"))
        found = self.rig.wait_condition("large", "Admitted", "False", "WaitingForQuota")
        print(f"large waits: {found['message']}", flush=True)
        self.assertIn("topology", found["message"])
        self.assertEqual(self.rig.pods("large"), [])
        lost = self.rig.live("together")[3]["metadata"]["name"]
        self.cluster.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
        self.wait(lambda: self.rig.running("together", 12) and lost not in
                  [pod["metadata"]["name"] for pod in self.rig.live("together") if pod["metadata"].get("deletionTimestamp")],
                  "the pod is replaced")
        self.assertEqual(nodes("together"), before)
        # A queue with such flavours only places jobs without annotations, too.
        self.rig.apply(queued("plain", "topology", replicas=2))
        self.wait(lambda: self.rig.running("plain", 2), "a job without annotations runs")
        self.assertIn("topologyAssignment", self.kueue.workload("plain")["status"]["admission"]["podSetAssignments"][0])

    def test_a_restart_keeps_the_quota(self):
        """A failed worker restarts the gang. Kueue's admission stays, so no other job takes the quota in between."""
        self.kueue.queue("restart", {"default": 2})
        self.rig.apply(queued("holds", "restart", replicas=2))
        self.wait(lambda: self.rig.running("holds", 2), "the job runs")
        self.kueue.wait_condition("holds", "PodsReady", "True", "Started")
        before = self.kueue.condition("holds", "QuotaReserved")
        self.rig.apply(queued("next", "restart", replicas=2))
        self.rig.wait_condition("next", "Admitted", "False", "WaitingForQuota")
        self.cluster.pod_exit("default", self.rig.live("holds")[0]["metadata"]["name"], 1)
        self.wait(lambda: self.rig.status("holds")["attempt"] == 2, "the gang restarts")
        self.wait(lambda: self.rig.running("holds", 2), "the gang runs again")
        self.kueue.wait_condition("holds", "PodsReady", "True", "Recovered")
        self.assertEqual(self.kueue.condition("holds", "QuotaReserved"), before)
        self.assertEqual(self.rig.pods("next"), [])

    def test_the_operators_gate(self):
        """With more quota than nodes, an admitted job waits for room without pods, and a job that Kueue holds claims none."""
        self.kueue.queue("gate", {"default": 48})
        gate = {"scheduling": {"gang": "gate"}}
        for name in ("fills", "admitted"):
            self.rig.apply(queued(name, "gate", replicas=24, spec=gate))
            self.wait(lambda n=name: self.kueue.admitted(n), f"{name} is admitted")
            time.sleep(1.1)
        self.rig.apply(queued("held", "gate", replicas=8, spec=gate))
        self.wait(lambda: self.rig.running("fills", 24), "the first job runs")
        self.rig.wait_condition("admitted", "Scheduled", "False", "WaitingForCapacity")
        # Neither has an object but its Workload.
        self.assertEqual(self.owned("admitted", "held"), [])
        # The eight free GPUs are no claim of the job that Kueue holds.
        self.rig.apply(job("free", replicas=4, spec=gate))
        self.rig.wait_condition("held", "Admitted", "False")
        self.finish("fills")
        self.wait(lambda: self.rig.running("admitted", 24), "the second job runs")
        self.finish("admitted")
        self.wait(lambda: self.rig.running("held", 8), "the third job runs")
        self.wait(lambda: self.rig.running("free", 4), "the job without a queue runs")

    def test_deactivated_and_reactivated(self):
        self.kueue.queue("active", {"default": 2})
        self.rig.apply(queued("pause", "active", replicas=2))
        self.wait(lambda: self.rig.running("pause", 2), "the job runs")
        name = self.kueue.workload("pause")["metadata"]["name"]
        self.cluster.kubectl("patch", "workloads.kueue.x-k8s.io", name, "--type=merge", "-p", '{"spec": {"active": false}}')
        self.wait(lambda: self.rig.pods("pause") == [], "the job stops")
        found = self.rig.wait_condition("pause", "Admitted", "False", "Deactivated")
        self.assertIn(f"set spec.active of Workload {name}", found["message"])
        self.kueue.wait_condition("pause", "QuotaReserved", "False")
        self.wait(lambda: self.usage("active") == {"default": 0}, "the quota is free")
        self.cluster.kubectl("patch", "workloads.kueue.x-k8s.io", name, "--type=merge", "-p", '{"spec": {"active": true}}')
        self.wait(lambda: self.rig.running("pause", 2), "the job runs again")
        self.assertEqual(self.rig.status("pause")["attempt"], 2)

    def test_suspended_by_its_user(self):
        """A suspended job has no Workload, so it takes no quota; resumed, it asks again."""
        self.kueue.queue("suspend", {"default": 2})
        self.rig.apply(queued("sleeps", "suspend", replicas=2))
        self.wait(lambda: self.rig.running("sleeps", 2), "the job runs")
        self.cluster.kubectl("patch", "tj", "sleeps", "--type=merge", "-p", '{"spec": {"suspend": true}}')
        self.rig.wait_condition("sleeps", "Suspended", "True", "SuspendRequested")
        self.wait(lambda: self.kueue.workload("sleeps") is None, "its Workload is deleted")
        self.cluster.kubectl("patch", "tj", "sleeps", "--type=merge", "-p", '{"spec": {"suspend": false}}')
        self.wait(lambda: self.rig.running("sleeps", 2), "the job runs again")

    def test_an_elastic_job_gives_back(self):
        """Fewer replicas of an elastic job free quota while it runs; with more of them it asks for quota."""
        self.kueue.queue("shrink", {"default": 4})
        self.rig.apply(queued("shrinks", "shrink", replicas=4, native=True, workers={"min": 1, "max": 4},
                              spec={"checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 5}}))
        self.wait(lambda: self.rig.running("shrinks", 4), "the elastic job runs")
        self.rig.apply(queued("follows", "shrink", replicas=2))
        self.rig.wait_condition("follows", "Admitted", "False", "WaitingForQuota")
        self.cluster.kubectl("scale", "tj", "shrinks", "--replicas=2")
        self.wait(lambda: self.rig.running("follows", 2), "the other job runs with the quota that was given back")
        self.assertTrue(self.rig.running("shrinks", 2))
        self.assertEqual(self.rig.status("shrinks")["attempt"], 1)
        self.assertEqual(self.kueue.surpluses("shrinks"), {1: 1})
        # It asks again, and waits until there is quota.
        self.cluster.kubectl("scale", "tj", "shrinks", "--replicas=4")
        self.wait(lambda: self.kueue.surpluses("shrinks") == {1: 1, 2: 0}, "it asks for two more")
        self.assertTrue(self.rig.running("shrinks", 2))
        self.finish("follows")
        self.wait(lambda: self.rig.running("shrinks", 4), "it grows")
        self.assertEqual(self.rig.status("shrinks")["attempt"], 1)

    def test_ranks_that_finish_give_back(self):
        """A worker that has finished needs no quota. When another one fails, the gang needs all of it again, and is queued."""
        self.kueue.queue("finish", {"default": 3})
        self.rig.apply(queued("uneven", "finish", replicas=3))
        self.wait(lambda: self.rig.running("uneven", 3), "the job runs")
        self.rig.apply(queued("second", "finish", replicas=1))
        self.rig.wait_condition("second", "Admitted", "False", "WaitingForQuota")
        self.cluster.pod_exit("default", "uneven-1-1", 0)
        self.wait(lambda: self.rig.running("second", 1), "the other job has the quota of the finished worker")
        self.assertEqual(self.kueue.workload("uneven")["status"]["reclaimablePods"], [{"name": "worker", "count": 1}])
        self.assertEqual(len(self.rig.live("uneven")), 2)
        self.cluster.pod_exit("default", "uneven-1-0", 1, "boom")
        self.wait(lambda: self.rig.pods("uneven") == [], "it has no pods while it waits")
        self.wait(lambda: "1 more needed" in self.rig.condition("uneven", "Admitted").get("message", ""), "it says what is missing")
        self.assertTrue(self.rig.running("second", 1))
        self.finish("second")
        self.wait(lambda: self.rig.running("uneven", 3), "all of it runs again")
        self.assertEqual(self.rig.status("uneven")["restarts"]["charged"], 1)
        self.finish("uneven")
        self.rig.wait_phase("uneven", "Succeeded")

    def test_an_elastic_job_grows_by_slices(self):
        """With Kueue's annotation, more replicas of a running job are a larger slice of its Workload: Kueue charges the difference.
        It shrinks in place, and a request that is not wanted any more is withdrawn. Kueue's gate is on by default."""
        self.kueue.queue("slices", {"default": 4})

        def slices():
            return {one["metadata"]["name"]: one["spec"]["podSets"][0]["count"] for one in self.kueue.workloads("stretches")
                    if "deletionTimestamp" not in one["metadata"]}

        def scale(replicas):
            self.cluster.kubectl("scale", "tj", "stretches", f"--replicas={replicas}")

        def used(count):
            self.wait(lambda: self.usage("slices") == {"default": count}, f"{count} GPUs are charged")
        self.rig.apply(queued("takes", "slices", replicas=2))
        self.wait(lambda: self.rig.running("takes", 2), "the other job runs")
        elastic = queued("stretches", "slices", replicas=2, native=True, workers={"min": 1, "max": 8},
                         spec={"checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 5}})
        elastic["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
        self.rig.apply(elastic)
        self.wait(lambda: self.rig.running("stretches", 2), "the elastic job runs")
        first = self.kueue.workload("stretches")
        self.assertNotIn("minCount", first["spec"]["podSets"][0])
        used(4)
        before = {pod["metadata"]["uid"] for pod in self.rig.live("stretches")}
        scale(4)
        self.wait(lambda: sorted(slices().values()) == [2, 4], "a larger slice waits")
        found = self.cluster.wait(lambda: (one := self.rig.condition("stretches", "Admitted")).get("message") and one, "it says so")
        print(f"stretches: {found['message']}", flush=True)
        self.assertEqual(found["status"], "True")
        self.assertRegex(found["message"], "runs with 2 of 4 workers, and waits for more.*nvidia.com/gpu")
        self.assertTrue(self.rig.running("stretches", 2))
        self.finish("takes")
        self.wait(lambda: self.rig.running("stretches", 4), "it runs with four workers")
        self.assertLess(before, {pod["metadata"]["uid"] for pod in self.rig.live("stretches")}, "the others run on")
        self.wait(lambda: list(slices().values()) == [4], "the smaller slice is gone")
        self.assertNotIn(first["metadata"]["name"], slices())
        self.kueue.wait_condition("stretches", "PodsReady", "True", "Started")
        used(4)
        name = next(iter(slices()))
        scale(1)
        self.wait(lambda: slices() == {name: 1}, "the slice shrinks in place")
        used(1)
        scale(3)
        self.wait(lambda: self.rig.running("stretches", 3), "it grows again")
        used(3)
        # More than the queue has, and then not any more.
        scale(8)
        self.wait(lambda: 8 in slices().values(), "a slice of eight waits")
        scale(3)
        self.wait(lambda: list(slices().values()) == [3], "the request is withdrawn")
        self.assertTrue(self.rig.running("stretches", 3))
        self.assertEqual(self.rig.status("stretches")["attempt"], 1)
        used(3)

    def test_slices_end_with_their_job(self):
        """An evicted job stops and waits as a whole, with the size that it asks for now; then it ends."""
        self.kueue.queue("evicts", {"default": 3})
        elastic = queued("whole", "evicts", replicas=2, native=True, workers={"min": 1, "max": 4},
                         spec={"checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 5}})
        elastic["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
        self.rig.apply(elastic)
        self.wait(lambda: self.rig.running("whole", 2), "the job runs")
        name = self.kueue.workload("whole")["metadata"]["name"]
        self.cluster.kubectl("scale", "tj", "whole", "--replicas=4")
        self.wait(lambda: len(self.kueue.workloads("whole")) == 2, "a larger slice waits")
        self.cluster.kubectl("patch", "workloads.kueue.x-k8s.io", name, "--type=merge", "-p", '{"spec": {"active": false}}')
        self.wait(lambda: self.rig.pods("whole") == [], "the job stops")
        self.rig.wait_condition("whole", "Admitted", "False", "Deactivated")
        self.wait(lambda: len(self.kueue.workloads("whole")) == 1, "the request is withdrawn")
        self.wait(lambda: self.usage("evicts") == {"default": 0}, "the quota is free")
        self.cluster.kubectl("scale", "tj", "whole", "--replicas=3")
        self.cluster.kubectl("patch", "workloads.kueue.x-k8s.io", name, "--type=merge", "-p", '{"spec": {"active": true}}')
        self.wait(lambda: self.rig.running("whole", 3), "the job runs with three workers")
        self.assertEqual(self.rig.status("whole")["attempt"], 2)

    def test_kueue_is_away(self):
        """While Kueue is down, jobs run on and are repaired; what they could not write is written later."""
        self.kueue.queue("away", {"default": 2})
        self.rig.apply(queued("survives", "away", replicas=2))
        self.wait(lambda: self.rig.running("survives", 2), "the job runs")
        self.kueue.wait_condition("survives", "PodsReady", "True", "Started")
        self.kueue.stop()
        self.cluster.pod_exit("default", self.rig.live("survives")[0]["metadata"]["name"], 1)
        self.wait(lambda: self.rig.status("survives")["attempt"] == 2, "the gang restarts")
        self.wait(lambda: self.rig.running("survives", 2), "the gang runs again")
        self.finish("survives")
        self.rig.wait_phase("survives", "Succeeded")
        self.kueue.start()
        self.kueue.wait_condition("survives", "Finished", "True", "Succeeded", timeout_s=120)


if __name__ == "__main__":
    unittest.main()
