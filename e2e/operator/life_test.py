"""The life of a job on a real API server, as a user sees it."""

import json
import unittest

from rig import KubectlError, Rig, Cluster, job


class Life(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=4))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.operator = cls.rig.start().wait_leading()

    def tearDown(self):
        self.cluster.kubectl("delete", "tj", "--all", "--timeout=60s")

    def uid(self, name):
        return self.rig.job(name)["metadata"]["uid"]

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
        columns = c.kubectl("get", "tj", name).splitlines()
        self.assertIn("PHASE", columns[0])
        self.assertIn("Running", columns[1])
        self.assertIn("4/4", columns[1])
        for pod in pods:
            c.pod_exit("default", pod["metadata"]["name"], 0)
        c.kubectl("wait", "--for=condition=Succeeded", f"tj/{name}", "--timeout=60s")
        rig.wait_phase(name, "Succeeded")

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

    def test_delete_takes_everything_along(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("gone", replicas=2))
        rig.wait_phase(name, "Running")
        c.kubectl("delete", "tj", name, "--timeout=60s")
        c.wait(lambda: not rig.pods(name), "no pod is left")
        services = c.get("services")
        self.assertNotIn(name, [service["metadata"]["name"] for service in services])

    def test_foreign_pod_of_the_same_name_is_left_alone(self):
        rig, c = self.rig, self.cluster
        c.apply_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taken-1-0"}, "spec": {
            "containers": [{"name": "x", "image": "registry.local/x:1"}]}}))
        name = rig.apply(job("taken", replicas=2))
        found = rig.wait_condition(name, "Admitted", "False", "NameTaken")
        self.assertIn("taken-1-0", found["message"])
        self.assertNotIn("ringmaster.dev/job", c.get("pod", "taken-1-0")["metadata"].get("labels", {}))
        c.kubectl("delete", "pod", "taken-1-0", "--grace-period=0", "--force")
        rig.wait_phase(name, "Running")

    def test_hand_deleted_things_come_back(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("robust", replicas=2))
        rig.wait_phase(name, "Running")
        service = rig.pods(name)[0]["spec"]["subdomain"]
        c.kubectl("delete", "service", service)
        c.wait(lambda: any(s["metadata"]["name"] == service for s in c.get("services")), "the Service again")
        c.kubectl("delete", "pod", "robust-1-0", "--grace-period=0", "--force")
        c.wait(lambda: rig.running(name, 2) and rig.status(name)["phase"] == "Running", "two pods again")

    def test_gang_waits_for_room_and_says_what_is_missing(self):
        rig, c = self.rig, self.cluster
        eight = {"template": {"spec": {"containers": [{"name": "worker", "image": "registry.local/w:1", "resources": {
            "limits": {"nvidia.com/gpu": 8}}}]}}}
        spec = {"scheduling": {"gang": "gate"}}
        first = rig.apply(job("big-one", replicas=3, workers=eight, spec=spec))
        rig.wait_phase(first, "Running")
        second = rig.apply(job("big-two", replicas=3, workers=eight, spec=spec))
        found = rig.wait_condition(second, "Scheduled", "False")
        c.wait(lambda: "nvidia.com/gpu" in rig.condition(second, "Scheduled")["message"], "what is missing is told")
        self.assertTrue(all(pod["spec"].get("schedulingGates") for pod in rig.live(second)), found)
        self.assertTrue(all("nodeName" not in pod["spec"] for pod in rig.live(second)))
        c.kubectl("delete", "tj", first)
        rig.wait_phase(second, "Running")

    def test_invalid_is_refused_before_anything_is_made(self):
        bad = job("refused", replicas=2)
        bad["spec"]["workers"].update(min=9, max=8)
        with self.assertRaisesRegex(KubectlError, "spec.workers"):
            self.rig.apply(bad)

    def test_health_and_metrics(self):
        self.assertEqual(self.operator.get("health", "/healthz"), (200, "ok"))
        status, text = self.operator.get("health", "/readyz?verbose")
        self.assertEqual(status, 200, text)
        self.assertIn("[+]caches ok", text)
        self.assertEqual(self.operator.metric("leader_election_master_status", name="ringmaster-operator"), 1)
        self.assertGreater(self.operator.metric("rest_client_requests_total", code="200"), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
