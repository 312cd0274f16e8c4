# SPDX-License-Identifier: Apache-2.0
"""Common uses of TrainingJobs through kubectl, on a real API server with the CRD."""

import json
import pathlib
import re
import subprocess
import unittest

from cluster import ApiError, Cluster, KubectlError

CRD = pathlib.Path(__file__).resolve().parents[2] / "crds/ringmaster.dev_trainingjobs.yaml"
PATH = "/apis/ringmaster.dev/v1alpha1/namespaces/default/trainingjobs"


def job(name, **spec):
    return {"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def native(name, **workers):
    return job(name, framework="native", workers={"replicas": 4, **workers},
               training={"model": {"kind": "gpt"}, "data": {"kind": "text", "path": "/data"}, "steps": 100})


def condition(kind, status):
    return {"type": kind, "status": status, "reason": "Because", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}


class Kubectl(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.c = cls.enterClassContext(Cluster(components=["etcd", "apiserver"]))
        cls.c.kubectl("apply", "--server-side", "-f", CRD)
        cls.c.kubectl("wait", "--for=condition=Established", "--timeout=180s", "crd/trainingjobs.ringmaster.dev")
        # The API server lists the kind, and publishes the schema that `kubectl explain` reads, some time after that.
        cls.c.wait(lambda: "trainingjobs" in cls.c.kubectl("api-resources", "--api-group=ringmaster.dev", "--output=name"),
                   "the kind is listed")
        cls.c.wait(lambda: '"apis/ringmaster.dev/v1alpha1"' in cls.c.kubectl("get", "--raw", "/openapi/v3"), "the schema is published")

    def create(self, manifest, status=None):
        self.c.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
        name = manifest["metadata"]["name"]
        if status:
            self.c.api.patch(f"{PATH}/{name}/status", {"status": status})
        return f"{PATH}/{name}"

    def apply(self, manager, manifest):
        return self.c.api.request("PATCH", f"{PATH}/{manifest['metadata']['name']}?fieldManager={manager}", manifest,
                                  "application/apply-patch+yaml")

    def test_crd_has_no_violations(self):
        conditions = {c["type"]: c["status"] for c in self.c.get("crd", "trainingjobs.ringmaster.dev")["status"]["conditions"]}
        self.assertEqual(conditions.get("NamesAccepted"), "True")
        self.assertEqual(conditions.get("NonStructuralSchema", "False"), "False")

    def test_get_shows_columns(self):
        self.create(native("columns"), {
            "phase": "Running", "replicas": 8, "readyReplicas": 7, "ready": "7/8", "fabric": "rc", "attempt": 3,
            "restarts": {"total": 2}, "progress": {"step": 410, "totalSteps": 1000, "percent": "41%", "eta": "1h05m",
                                                   "loss": "2.31", "samplesPerSecond": "5120"}})
        header, row = self.c.kubectl("get", "tj", "columns").splitlines()
        self.assertEqual(header.split(), ["NAME", "PHASE", "READY", "FABRIC", "STEP", "PROGRESS", "ETA", "RESTARTS", "AGE"])
        self.assertEqual(row.split()[:-1], ["columns", "Running", "7/8", "rc", "410", "41%", "1h05m", "2"])
        header, row = self.c.kubectl("get", "trainingjob", "columns", "-o", "wide").splitlines()
        self.assertEqual(header.split()[9:], ["FRAMEWORK", "REPLICAS", "ATTEMPT", "SAMPLES/S", "LOSS", "CHECKPOINT", "GOODPUT",
                                              "LAST-FAILURE"])
        self.assertEqual(row.split()[9:14], ["native", "4", "3", "5120", "2.31"])

    def test_get_by_category_and_by_field(self):
        self.create(native("category"), {"phase": "Suspended"})
        self.assertIn("category", self.c.kubectl("get", "ml"))
        listed = self.c.kubectl("get", "tj", "-o", "name", "--field-selector", "status.phase=Suspended,spec.framework=native")
        self.assertEqual(listed.split(), ["trainingjob.ringmaster.dev/category"])

    def test_explain(self):
        text = self.c.kubectl("explain", "tj.spec.workers")
        self.assertRegex(text, r"replicas\s+<integer> -required-")
        self.assertIn("The scale subresource sets it", text)
        self.assertIn("Environment variables", self.c.kubectl("explain", "tj.spec.workers.template.spec.containers.env"))

    def test_explain_describes_every_field(self):
        version = self.c.get("crd", "trainingjobs.ringmaster.dev")["spec"]["versions"][0]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        for part, name in (("workers", "slots"), ("roles", "completes"), ("launch", "mpi"), ("lifecycle", "success")):
            # kubectl breaks the lines.
            text = " ".join(self.c.kubectl("explain", f"tj.spec.{part}").split())
            schema = spec[part]
            fields = (schema if schema["type"] == "object" else schema["items"])["properties"]
            self.assertIn(name, fields)
            self.assertIn(schema["description"], text)
            for field, its in fields.items():
                with self.subTest(f"{part}.{field}"):
                    self.assertRegex(its["description"], r"^[A-Za-z].*\.$")
                    self.assertRegex(text, rf"{field} <[^>]*>( -required-)?( enum: [^:]*)? {re.escape(its['description'])}")

    def test_defaults_are_filled_in(self):
        spec = self.c.api.get(self.create(native("defaults")))["spec"]
        self.assertEqual(spec["managedBy"], "ringmaster.dev/operator")
        self.assertEqual(spec["training"]["optimizer"]["learningRate"], "3e-4")
        self.assertEqual(spec["restart"]["backoff"], {"initialSeconds": 5, "maxSeconds": 300})
        self.assertNotIn("rdma", spec["network"])
        self.assertNotIn("min", spec["workers"])

    def test_scale(self):
        path = self.create(native("scale", min=2, max=8), {"replicas": 4, "selector": "ringmaster.dev/job=scale"})
        self.c.kubectl("scale", "tj/scale", "--replicas=3")
        scale = self.c.api.get(path + "/scale")
        self.assertEqual((scale["spec"], scale["status"]),
                         ({"replicas": 3}, {"replicas": 4, "selector": "ringmaster.dev/job=scale"}))
        for replicas, problem in ((9, "spec.workers.max: Invalid value: .*must be at least spec.workers.replicas .got 8 < 9"),
                                  (1, "spec.workers.min: Invalid value: .*must be at most spec.workers.replicas .got 2 > 1"),
                                  (0, "spec.workers.replicas: Invalid value: 0")):
            with self.assertRaisesRegex(KubectlError, problem):
                self.c.kubectl("scale", "tj/scale", f"--replicas={replicas}")

    def test_wait(self):
        path = self.create(native("wait"))
        environment = {"KUBECONFIG": str(self.c.kubeconfig), "HOME": str(self.c.folder)}
        waiting = subprocess.Popen([(self.c.folder / "binary").read_text().strip(), "kubectl", "wait", "tj/wait",
                                    "--for=condition=Succeeded", "--timeout=180s"], env=environment, stdout=subprocess.PIPE)
        self.addCleanup(waiting.kill)
        self.c.api.patch(path + "/status", {"status": {"observedGeneration": 1,
                                                         "conditions": [condition("Succeeded", "True")]}})
        self.assertIn(b"condition met", waiting.communicate(timeout=180)[0])
        self.assertEqual(waiting.returncode, 0)

    def test_managers_merge_lists_by_key(self):
        def containers(*containers):
            return job("merge", framework="pytorch", launch={"kind": "none"},
                       workers={"replicas": 2, "template": {"spec": {"containers": list(containers)}}})
        first = containers({"name": "worker", "image": "example.com/train:1", "env": [{"name": "A", "value": "1"}]})
        first["spec"]["suspend"] = True
        self.apply("user", first)
        self.c.api.patch(f"{PATH}/merge/status", {"status": {"conditions": [condition("Suspended", "True")]}})
        sidecar = containers({"name": "worker", "env": [{"name": "B", "value": "2"}]}, {"name": "proxy", "image": "p:1"})
        merged = self.apply("mesh", sidecar)["spec"]["workers"]["template"]["spec"]["containers"]
        self.assertEqual({c["name"]: c.get("image") for c in merged}, {"worker": "example.com/train:1", "proxy": "p:1"})
        self.assertEqual(sorted(e["name"] for e in merged[0]["env"]), ["A", "B"])
        with self.assertRaisesRegex(ApiError, 'conflict with "user".*image'):
            self.apply("mesh", containers({"name": "worker", "image": "example.com/train:2"}))

    def test_the_status_has_one_manager(self):
        """The operator writes all of it each time, so a part from another manager could not stay."""
        path = self.create(native("status"))

        def apply_status(manager, *conditions):
            manifest = {**job("status"), "status": {"conditions": list(conditions)}}
            del manifest["spec"]
            return self.c.api.request("PATCH", f"{path}/status?fieldManager={manager}", manifest,
                                      "application/apply-patch+yaml")["status"]["conditions"]

        apply_status("operator", condition("Ready", "True"))
        with self.assertRaisesRegex(ApiError, 'conflict with "operator".*status'):
            apply_status("quota", condition("Admitted", "True"))
        fields = self.c.api.get(path)["metadata"]["managedFields"]
        self.assertEqual([f["fieldsV1"] for f in fields if f.get("subresource") == "status"], [{"f:status": {}}])

    def test_kubectl_rejects_unknown_fields(self):
        with self.assertRaisesRegex(KubectlError, 'unknown field "spec.workers.replica"'):
            self.create(native("strict", replica=3))

    def test_spec_and_status_are_written_separately(self):
        path = self.create(native("apart"), {"phase": "Running"})
        self.c.api.patch(path + "/status", {"spec": {"suspend": True}, "status": {"phase": "Failed"}})
        self.c.api.patch(path, {"spec": {"workers": {"replicas": 5}}, "status": {"phase": "Pending"}})
        found = self.c.api.get(path)
        self.assertEqual((found["spec"]["suspend"], found["spec"]["workers"]["replicas"], found["status"]["phase"]),
                         (False, 5, "Failed"))
        self.assertEqual(found["metadata"]["generation"], 2)


if __name__ == "__main__":
    unittest.main()
