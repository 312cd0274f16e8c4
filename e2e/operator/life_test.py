# SPDX-License-Identifier: Apache-2.0
"""The life cycle of a job on a real API server, as users see it."""

import json
import unittest
from datetime import datetime, timezone

from rig import NAMESPACE, ROOT, STEADY, KubectlError, Rig, Cluster, job


class Life(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=4))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.operator = cls.rig.start(**STEADY).wait_leading()

    def setUp(self):
        self.operator.must_live()

    def tearDown(self):
        self.cluster.kubectl("delete", "tj", "--all", "--timeout=180s")

    def uid(self, name):
        return self.rig.job(name)["metadata"]["uid"]

    def supporting(self, name):
        """Returns the Services, ConfigMaps and PodGroups of the job, as kind/name."""
        c, uid = self.cluster, self.uid(name)
        groups = [kind for kind in c.kubectl("api-resources", "-o", "name").split() if kind.startswith("podgroups.")]
        return [f"{kind}/{item['metadata']['name']}" for kind in ["services", "configmaps", *groups] for item in c.get(kind)
                if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", []))]

    def test_runs_and_succeeds(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("plain", replicas=4))
        rig.wait_phase(name, "Running")
        pods = rig.pods(name)
        self.assertEqual([pod["metadata"]["name"] for pod in pods], [f"plain-1-{rank}" for rank in range(4)])
        for pod in pods:
            self.assertEqual(pod["metadata"]["ownerReferences"][0]["uid"], self.uid(name))
            self.assertFalse(pod["spec"]["automountServiceAccountToken"])
            self.assertNotIn("schedulingGates", pod["spec"])
        status = rig.status(name)
        self.assertEqual((status["attempt"], status["readyReplicas"], status["replicas"]), (1, 4, 4))
        heads, values = c.kubectl("get", "tj", name).splitlines()
        self.assertEqual(heads.split(), ["NAME", "PHASE", "READY", "FABRIC", "STEP", "PROGRESS", "ETA", "RESTARTS", "AGE"])
        self.assertIn("Running", values)
        self.assertIn("4/4", values)
        for pod in pods:
            c.pod_exit("default", pod["metadata"]["name"], 0)
        c.kubectl("wait", "--for=condition=Succeeded", f"tj/{name}", "--timeout=180s")
        rig.wait_phase(name, "Succeeded")

    def test_rank_0_may_decide(self):
        """The ranks that wait for work without an end are stopped after it."""
        rig, c = self.rig, self.cluster
        name = rig.apply(job("decides", replicas=3, spec={"lifecycle": {"success": "Rank0"}}))
        rig.wait_phase(name, "Running")
        c.pod_exit("default", "decides-1-2", 0)
        c.pod_exit("default", "decides-1-0", 0)
        c.kubectl("wait", "--for=condition=Succeeded", f"tj/{name}", "--timeout=180s")
        reasons = {condition["type"]: condition["reason"] for condition in rig.status(name)["conditions"]}
        self.assertEqual(reasons["Succeeded"], "Rank0Succeeded")
        c.wait(lambda: [pod["metadata"]["name"] for pod in rig.pods(name)] == ["decides-1-0", "decides-1-2"],
               "the rank that still runs is stopped")

    def test_failure_restarts_the_whole_set_and_is_counted(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("fails", replicas=3))
        rig.wait_phase(name, "Running")
        c.pod_exit("default", "fails-1-1", 1, "boom")
        c.wait(lambda: rig.status(name).get("attempt") == 2 and rig.running(name, 3), "the second attempt")
        status = rig.status(name)
        self.assertEqual(status["restarts"]["total"], 1)
        self.assertEqual(status["restarts"]["charged"], 1)
        self.assertEqual(status["lastFailure"]["pod"], "fails-1-1")
        self.assertEqual(status["lastFailure"]["exitCode"], 1)
        self.assertIn("boom", status["lastFailure"]["message"])
        self.assertTrue(all(pod["metadata"]["name"].startswith("fails-2-") for pod in rig.live(name)))

    def test_bad_configuration_fails_at_once(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("bad", replicas=2))
        rig.wait_phase(name, "Running")
        c.pod_exit("default", "bad-1-0", 64, "no such data path: /data/typo")
        rig.wait_phase(name, "Failed")
        failed = rig.condition(name, "Failed")
        self.assertIn("no such data path", failed["message"])

    def test_suspend_and_resume(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("pause", replicas=2))
        rig.wait_phase(name, "Running")
        c.kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))
        rig.wait_phase(name, "Suspended")
        self.assertEqual(rig.live(name), [])
        c.kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": False}}))
        rig.wait_phase(name, "Running")
        self.assertEqual(rig.status(name)["attempt"], 2)

    def test_delete_removes_all_objects(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("gone", replicas=2))
        rig.wait_phase(name, "Running")
        c.kubectl("delete", "tj", name, "--timeout=180s")
        c.wait(lambda: not rig.pods(name), "no pod is left")
        services = c.get("services")
        self.assertNotIn(name, [service["metadata"]["name"] for service in services])

    def test_a_worker_that_succeeded_is_not_missed_when_its_pod_is_deleted(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("done", replicas=2))
        rig.wait_phase(name, "Running")
        c.pod_exit("default", "done-1-1", 0)
        c.kubectl("delete", "pod", "done-1-1", "--timeout=180s")
        self.assertEqual(rig.status(name)["ledger"]["succeeded"], "1")
        self.assertEqual([pod["metadata"]["name"] for pod in rig.live(name)], ["done-1-0"])
        c.pod_exit("default", "done-1-0", 0)
        c.kubectl("wait", "--for=condition=Succeeded", f"tj/{name}", "--timeout=180s")
        self.assertEqual(rig.status(name)["attempt"], 1)

    def test_orphaned_workers_run_on(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("parent", replicas=2))
        rig.wait_phase(name, "Running")
        before = sorted(pod["metadata"]["uid"] for pod in rig.pods(name))
        c.kubectl("delete", "tj", name, "--cascade=orphan", "--timeout=180s")
        c.wait(lambda: not any(pod["metadata"].get("finalizers") for pod in rig.pods(name)), "the operator has let go of them")
        self.assertEqual(sorted(pod["metadata"]["uid"] for pod in rig.live(name)), before)
        c.kubectl("delete", "pod", "-l", f"ringmaster.dev/job={name}", "--timeout=180s")
        c.kubectl("delete", "service", f"workers-{name}")

    def test_foreign_pod_of_the_same_name_is_not_touched(self):
        rig, c = self.rig, self.cluster
        c.apply_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-1-0"}, "spec": {
            "containers": [{"name": "x", "image": "registry.local/x:1"}]}}))
        name = rig.apply(job("taken", replicas=2))
        found = rig.wait_condition(name, "Admitted", "False", "NameTaken")
        self.assertIn("taken-1-0", found["message"])
        self.assertNotIn("ringmaster.dev/job", c.get("pod", "taken-1-0")["metadata"].get("labels", {}))
        c.kubectl("delete", "pod", "taken-1-0", "--grace-period=0", "--force")
        rig.wait_phase(name, "Running")

    def test_a_pod_of_the_same_name_that_belongs_to_another_controller(self):
        rig, c = self.rig, self.cluster
        owner = json.loads(c.kubectl("create", "configmap", "other-owner", "-o", "json"))["metadata"]
        c.apply_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "theirs-1-1", "labels": {"ringmaster.dev/job": "theirs", "ringmaster.dev/attempt": "1"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "other-owner", "uid": owner["uid"],
                                 "controller": True}]}, "spec": {"containers": [{"name": "x", "image": "registry.local/x:1"}]}}))
        before = c.get("pod", "theirs-1-1")["metadata"]["uid"]
        name = rig.apply(job("theirs", replicas=2))
        found = rig.wait_condition(name, "Admitted", "False", "NameTaken")
        self.assertIn("theirs-1-1", found["message"])
        pod = c.get("pod", "theirs-1-1")["metadata"]
        self.assertEqual((pod["uid"], pod["ownerReferences"][0]["name"]), (before, "other-owner"))
        self.assertNotIn("deletionTimestamp", pod)
        c.kubectl("delete", "configmap", "other-owner")  # the garbage collector deletes the pod with it
        rig.wait_phase(name, "Running", timeout_s=180)

    def test_a_job_that_only_the_operator_finds_invalid(self):
        rig, c = self.rig, self.cluster

        def patch(spec):
            return c.api.patch("/apis/ringmaster.dev/v1alpha1/namespaces/default/trainingjobs/deep", {"spec": spec})

        nested = {}
        for _ in range(80):
            nested = {"k": nested}
        bad = job("deep", replicas=2)
        bad["spec"]["workers"]["template"]["spec"]["extra"] = nested
        name = rig.apply(bad)
        found = rig.wait_condition(name, "Admitted", "False", "Invalid")
        self.assertIn("spec.workers.template.spec.extra: nested deeper than 64", found["message"])
        self.assertEqual(found["observedGeneration"], 1)
        events = c.wait(lambda: [e for e in c.get("events") if e["reason"] == "Invalid"], "the event")
        self.assertIn("nested deeper than 64", events[0]["message"])
        self.assertEqual(rig.pods(name), [])
        # The API server reports the same to a user who corrects it.
        patch({"suspend": True})
        rig.wait_condition(name, "Suspended")
        self.assertEqual(rig.condition(name, "Admitted")["reason"], "Invalid")
        patch({"workers": {"template": {"spec": {"extra": None}}}})
        patch({"suspend": False})
        rig.wait_phase(name, "Running")
        self.assertEqual(rig.condition(name, "Admitted")["reason"], "Accepted")

    def test_host_network_gives_each_job_separate_ports(self):
        rig, c = self.rig, self.cluster

        def ports(name):
            return [port["hostPort"] for pod in rig.live(name) for port in pod["spec"]["containers"][0]["ports"]]

        spec = {"network": {"hostNetwork": True}}
        names = [rig.apply(job(name, replicas=3, spec=spec)) for name in ("host-a", "host-b")]
        for name in names:
            rig.wait_phase(name, "Running")
        first, second = ports("host-a"), ports("host-b")
        self.assertEqual(len(set(first) | set(second)), 2 * 3 * 8, (first, second))
        self.assertEqual(self.operator.stop(), 0)
        type(self).operator = rig.start(**STEADY).wait_leading()
        c.pod_exit("default", "host-b-1-0", 1, "boom")
        c.wait(lambda: rig.status("host-b").get("attempt") == 2 and rig.running("host-b", 3), "the second attempt")
        self.assertEqual(ports("host-b"), second, "the next leader keeps the ports")
        third = rig.apply(job("host-c", replicas=1, spec=spec))
        rig.wait_phase(third, "Running")
        self.assertFalse(set(ports(third)) & (set(first) | set(second)))

    def test_deleted_objects_are_created_again(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("robust", replicas=2))
        rig.wait_phase(name, "Running")
        service = rig.pods(name)[0]["spec"]["subdomain"]
        c.kubectl("delete", "service", service)
        c.wait(lambda: any(s["metadata"]["name"] == service for s in c.get("services")), "the Service again")
        c.kubectl("delete", "pod", "robust-1-0", "--grace-period=0", "--force")
        c.wait(lambda: rig.running(name, 2) and rig.status(name)["phase"] == "Running", "two pods again")

    def test_gang_waits_for_capacity_and_reports_what_is_missing(self):
        rig, c = self.rig, self.cluster
        eight = {"template": {"spec": {"containers": [{"name": "worker", "image": "registry.local/w:1", "resources": {
            "limits": {"nvidia.com/gpu": 8}}}]}}}
        spec = {"scheduling": {"gang": "gate", "timeoutSeconds": 1}}
        first = rig.apply(job("big-1", replicas=3, workers=eight, spec=spec))
        rig.wait_phase(first, "Running")
        second = rig.apply(job("big-2", replicas=3, workers=eight, spec=spec))
        waits = rig.wait_condition(second, "Scheduled", "False", "WaitingForCapacity")
        self.assertIn("nvidia.com/gpu", waits["message"])
        version = rig.job(second)["metadata"]["resourceVersion"]
        third = rig.apply(job("big-3", replicas=1, workers=eight, spec=spec))
        # Created later, or in the same second with a name that comes later.
        kept = rig.wait_condition(third, "Scheduled", "False", "WaitingForCapacity")
        self.assertIn(f"the room is kept for default/{second}, which comes first", kept["message"])
        # More than timeoutSeconds have passed. A gang that holds nothing costs no writes.
        self.assertEqual(rig.pods(second), [])
        self.assertEqual(rig.status(second)["attempt"], 1)
        self.assertEqual(rig.job(second)["metadata"]["resourceVersion"], version)
        self.assertNotEqual(self.supporting(first), [])
        self.assertEqual(self.supporting(second) + self.supporting(third), [], "nothing is created while they wait")
        c.kubectl("delete", "tj", first)
        rig.wait_phase(second, "Running")  # all waiting jobs are decided again
        self.assertNotEqual(self.supporting(second), [])
        rig.wait_phase(third, "Running")  # the smaller one fits next to it

    def test_another_leader_keeps_the_order_of_waiting_gangs(self):
        """It decides the older gang first, though the younger one has the lesser name and room for it is free."""
        rig, c = self.rig, self.cluster
        eight = {"template": {"spec": {"containers": [{"name": "worker", "image": "registry.local/w:1", "resources": {
            "limits": {"nvidia.com/gpu": 8}}}]}}}
        spec = {"scheduling": {"gang": "gate", "timeoutSeconds": 1}}
        runs = rig.apply(job("order-runs", replicas=3, workers=eight, spec=spec))
        rig.wait_phase(runs, "Running")
        older = rig.apply(job("order-z", replicas=3, workers=eight, spec=spec))
        rig.wait_condition(older, "Scheduled", "False", "WaitingForCapacity")
        created = rig.job(older)["metadata"]["creationTimestamp"]
        c.wait(lambda: datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") > created, "the next second")
        younger = rig.apply(job("order-a", replicas=1, workers=eight, spec=spec))
        kept = f"the room is kept for default/{older}, which comes first"
        self.assertIn(kept, rig.wait_condition(younger, "Scheduled", "False", "WaitingForCapacity")["message"])
        self.operator.stop()
        type(self).operator = rig.start(**STEADY).wait_leading()
        # A third one shows that the leader has decided all of them.
        third = rig.apply(job("order-b", replicas=1, workers=eight, spec=spec))
        self.assertIn(kept, rig.wait_condition(third, "Scheduled", "False", "WaitingForCapacity")["message"])
        self.assertEqual(rig.pods(younger), [])
        c.kubectl("delete", "tj", runs)
        rig.wait_phase(older, "Running")

    def test_a_job_waits_for_its_priority_class(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("classy", replicas=2, spec={"scheduling": {"gang": "gate", "priorityClassName": "rig-urgent"}}))
        refused = rig.wait_condition(name, "Admitted", "False", "NoPriorityClass")
        self.assertIn("the cluster has no PriorityClass rig-urgent", refused["message"])
        self.assertIn("create it", refused["message"])
        self.assertEqual(rig.pods(name), [])
        c.kubectl("create", "priorityclass", "rig-urgent", "--value=1000")
        self.addCleanup(c.kubectl, "delete", "priorityclass", "rig-urgent")
        rig.wait_phase(name, "Running")
        self.assertEqual({pod["spec"]["priority"] for pod in rig.pods(name)}, {1000})

    def test_the_younger_job_of_higher_priority_starts_first(self):
        """Its gang waits, like the older one, until the nodes of a third job are free."""
        rig, c = self.rig, self.cluster
        c.kubectl("create", "priorityclass", "rig-first", "--value=7")
        self.addCleanup(c.kubectl, "delete", "priorityclass", "rig-first")
        eight = {"template": {"spec": {"containers": [{"name": "worker", "image": "registry.local/w:1", "resources": {
            "limits": {"nvidia.com/gpu": 8}}}]}}}
        gate = {"gang": "gate", "timeoutSeconds": 1}
        runs = rig.apply(job("runs", replicas=3, workers=eight, spec={"scheduling": gate}))
        rig.wait_phase(runs, "Running")
        older = rig.apply(job("waits-1", replicas=3, workers=eight, spec={"scheduling": gate}))
        rig.wait_condition(older, "Scheduled", "False", "WaitingForCapacity")
        younger = rig.apply(job("waits-2", replicas=3, workers=eight, spec={"scheduling": gate | {"priorityClassName": "rig-first"}}))
        rig.wait_condition(younger, "Scheduled", "False", "WaitingForCapacity")
        c.kubectl("delete", "tj", runs)
        rig.wait_phase(younger, "Running")
        kept = rig.wait_condition(older, "Scheduled", "False", "WaitingForCapacity")
        self.assertNotEqual(kept["message"], "")
        self.assertEqual(rig.pods(older), [])
        c.kubectl("delete", "tj", younger)
        rig.wait_phase(older, "Running")

    def test_invalid_job_is_rejected_before_any_object_is_created(self):
        bad = job("refused", replicas=2)
        bad["spec"]["workers"].update(min=9, max=8)
        with self.assertRaisesRegex(KubectlError, "spec.workers"):
            self.rig.apply(bad)

    def test_metrics_report_the_job(self):
        rig, c, operator = self.rig, self.cluster, self.operator
        counted = ("ringmaster_restarts_total", "ringmaster_jobs_ended_total", "workqueue_adds_total",
                   "workqueue_queue_duration_seconds_count", "workqueue_work_duration_seconds_count")
        before = {name: operator.metric(name) for name in counted}
        name = rig.apply(job("counted", replicas=2))
        rig.wait_phase(name, "Running")
        c.wait(lambda: operator.metric("ringmaster_jobs", phase="Running") == 1, "the metrics show the job")
        c.pod_exit("default", "counted-1-0", 1, "boom")
        c.wait(lambda: rig.status(name).get("attempt") == 2 and rig.running(name, 2), "the second attempt")
        for pod in rig.live(name):
            c.pod_exit("default", pod["metadata"]["name"], 0)
        rig.wait_phase(name, "Succeeded")
        after = {name: operator.metric(name) for name in counted}
        self.assertEqual(after["ringmaster_restarts_total"] - before["ringmaster_restarts_total"], 1)
        self.assertEqual(after["ringmaster_jobs_ended_total"] - before["ringmaster_jobs_ended_total"], 1)
        for name in counted[2:]:
            self.assertGreater(after[name], before[name], name)
        self.assertGreater(operator.metric("ringmaster_jobs_ended_total", outcome="Succeeded", reason="AllPodsSucceeded"), 0)
        self.assertGreaterEqual(operator.metric("ringmaster_cached_objects", kind="nodes"), 4)
        c.wait(lambda: operator.metric("ringmaster_jobs", phase="Running") == 0, "the watch delivers the end")

    def test_config_is_accepted(self):
        """The API server accepts config/operator.yaml in a namespace with the strictest Pod Security level, and its Service
        leads to the leader."""
        rig, c = self.rig, self.cluster
        c.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
        said = c.kubectl("apply", "--server-side", "-f", str(ROOT / "config/operator.yaml"))
        self.assertNotIn("Warning", said)
        c.wait(lambda: len(c.get("pods", namespace=NAMESPACE)) == 2, "both replicas are created")
        self.assertEqual(self.operator.stop(), 0)
        type(self).operator = rig.start(pod_ip="10.1.2.3", **STEADY).wait_leading()
        port = self.operator.port("rendezvous")
        slices = c.wait(lambda: [s for s in c.get("endpointslices", namespace=NAMESPACE)
                                 if s["metadata"]["labels"].get("kubernetes.io/service-name") == "ringmaster-rendezvous"
                                 and s["endpoints"]], "the slice of the Service")
        self.assertEqual([(s["endpoints"][0]["addresses"], s["ports"][0]["port"]) for s in slices], [(["10.1.2.3"], port)])
        service = c.get("service", "ringmaster-rendezvous", NAMESPACE)["spec"]
        self.assertNotIn("selector", service)
        self.assertEqual(service["ports"][0]["name"], slices[0]["ports"][0]["name"])
        c.kubectl("delete", "-f", str(ROOT / "config/operator.yaml"))

    def test_health_and_metrics(self):
        self.assertEqual(self.operator.get("health", "/healthz"), (200, "ok"))
        status, text = self.operator.get("health", "/readyz?verbose")
        self.assertEqual(status, 200, text)
        self.assertIn("[+]caches ok", text)
        self.assertEqual(self.operator.metric("leader_election_master_status", name="ringmaster-operator"), 1)
        self.assertGreater(self.operator.metric("rest_client_requests_total", code="200"), 0)


class Weights(unittest.TestCase):
    def test_a_namespace_of_three_times_the_weight_gets_three_times_the_nodes(self):
        """Two namespaces compete for four nodes with jobs of one node each. Those of the light one are older; without weights each
        namespace would get two nodes."""
        node = {"template": {"spec": {"containers": [{"name": "worker", "image": "registry.local/w:1", "resources": {
            "limits": {"nvidia.com/gpu": 8}}}]}}}
        gate = {"scheduling": {"gang": "gate"}}
        with Cluster(nodes=4) as c, Rig(c) as rig:
            rig.start(namespace_weights="heavy=3,light=1", **STEADY).wait_leading()
            rig.wait_phase(rig.apply(job("runs", replicas=4, workers=node, spec=gate)), "Running")
            for space in ("light", "heavy"):
                c.kubectl("create", "namespace", space)
                for i in range(1, 5):
                    name = rig.apply(job(f"j{i}", replicas=1, namespace=space, workers=node, spec=gate))
                    rig.wait_condition(name, "Scheduled", "False", "WaitingForCapacity", namespace=space)

            def running():
                return sorted(f"{space}/j{i}" for space in ("light", "heavy") for i in range(1, 5)
                              if rig.running(f"j{i}", 1, space))

            def wait_for(names):
                """Pods of a deleted job run until they are collected: wait for the names, not for their number."""
                try:
                    c.wait(lambda: running() == names, "")
                except AssertionError:
                    self.assertEqual(running(), names)

            c.kubectl("delete", "tj", "runs")
            wait_for(["heavy/j1", "heavy/j2", "heavy/j3", "light/j1"])
            c.kubectl("delete", "tj", "j1", "-n", "heavy")
            wait_for(["heavy/j2", "heavy/j3", "heavy/j4", "light/j1"])
            c.kubectl("delete", "tj", "j2", "-n", "heavy")
            wait_for(["heavy/j3", "heavy/j4", "light/j1", "light/j2"])  # the next one is of the light namespace


if __name__ == "__main__":
    unittest.main(verbosity=2)
