"""How jobs wait and end on real nodes: each tells its user why, and what to do."""

import json
import unittest

from on_nodes import Rig

STEPS = 200


class Ends(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cls.enterClassContext(Rig())
        cls.cluster = cls.rig.cluster

    def apply(self, name, change=None, **options):
        """change(manifest) in place, before it is applied."""
        self.addCleanup(self.rig.delete, name)
        manifest = self.rig.job(name, **{"replicas": 2, "steps": STEPS, **options})
        if change:
            change(manifest)
        self.rig.apply(manifest)
        return name

    def condition(self, name, kind):
        found = [it for it in self.rig.status(name).get("conditions", []) if it["type"] == kind]
        return found[0] if found else {"status": "Unknown", "reason": "", "message": ""}

    def wait_condition(self, name, kind, reason, timeout_s=120):
        try:
            return self.cluster.wait(lambda: self.condition(name, kind)["reason"] == reason and self.condition(name, kind),
                                     "", timeout_s)
        except AssertionError:
            self.rig.report(name)
            raise AssertionError(f"{name}: {kind} has not the reason {reason} but {self.condition(name, kind)}") from None

    def test_suspended_and_resumed(self):
        name = self.apply("pause")
        self.rig.wait_full(name, 2, 20)
        self.cluster.kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))
        self.rig.wait_phase(name, "Suspended", 60)
        self.assertEqual(self.rig.pods(name), {})
        at = self.rig.status(name)["checkpoint"]["step"]
        self.assertGreaterEqual(at, 20, "no checkpoint was written at the end")
        self.cluster.kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": False}}))
        self.rig.wait_phase(name, "Succeeded")
        self.assertEqual(self.rig.status(name)["weightsHash"], self.rig.expected_hash(STEPS))

    def test_deleted_while_it_runs(self):
        name = self.apply("deleted", steps=5000)
        self.rig.wait_full(name, 2, 120)
        self.cluster.kubectl("delete", "tj", name, "--timeout=60s")
        self.cluster.wait(lambda: not self.rig.pods(name), "its pods are gone")
        self.assertNotIn(f"workers-{name}", [service["metadata"]["name"] for service in self.cluster.get("services")])
        self.assertTrue(list((self.rig.nodes.shared / name).glob("step-*/MANIFEST")), "its checkpoints are gone")

    def test_no_such_data(self):
        def change(manifest):
            manifest["spec"]["training"]["data"]["path"] = "/data/typo"
        name = self.apply("typo", change)
        self.assertIn("/data/typo", self.wait_condition(name, "Failed", "TrainingFailed")["message"])

    def test_no_such_image(self):
        def change(manifest):
            manifest["spec"]["workers"]["template"]["spec"]["containers"][0]["image"] = "registry.invalid/none:1"
        name = self.apply("no-image", change)
        self.assertIn("registry.invalid/none:1", self.wait_condition(name, "Ready", "ImagePullFailed")["message"])

    def test_too_little_memory(self):
        def change(manifest):
            resources = manifest["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"]
            resources["limits"]["memory"] = "14Mi"
        name = self.apply("no-memory", change)
        self.rig.cluster.wait(lambda: self.condition(name, "Failed")["status"] == "True", "it fails", 180)
        print(f"{name}: {self.condition(name, 'Failed')} {self.rig.status(name).get('lastFailure')}", flush=True)
        self.assertIn("137", json.dumps(self.rig.status(name)["lastFailure"]))

    def test_gangs_do_not_share(self):
        def change(manifest):
            manifest["spec"]["workers"].update(min=3, max=3)
            manifest["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2
        first = self.apply("first", change, replicas=3)
        self.rig.wait_full(first, 3, 10)
        second = self.apply("second", change, replicas=3)
        waits = self.wait_condition(second, "Scheduled", "Unschedulable")
        print(f"{second} waits: {waits['message']}", flush=True)
        bound = [pod for pod in self.rig.pods(second).values() if pod["spec"].get("nodeName")]
        self.assertEqual(bound, [], "half of a gang has nodes")
        self.rig.wait_phase(first, "Succeeded")
        self.rig.wait_phase(second, "Succeeded")
        self.assertEqual(self.rig.status(second)["weightsHash"], self.rig.expected_hash(STEPS))


if __name__ == "__main__":
    unittest.main()
