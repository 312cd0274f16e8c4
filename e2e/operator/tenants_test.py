# SPDX-License-Identifier: Apache-2.0
"""What tenants and other components of a cluster do to the operator and to its jobs."""

import json
import unittest

from rig import STEADY, Cluster, Rig, job

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.ringmaster.dev"


class Tenants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=4))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.operator = cls.rig.start(**STEADY).wait_leading()

    def setUp(self):
        self.operator.must_live()

    def tearDown(self):
        self.cluster.kubectl("delete", "tj", "--all", "--timeout=180s")

    def test_a_newer_crd_disturbs_no_job(self):
        """The server sets new defaults in stored jobs, and keeps the new fields of the status."""
        rig, c = self.rig, self.cluster
        name = rig.apply(job("newer", replicas=2))
        rig.wait_phase(name, "Running")
        crd = c.api.get(CRD)
        properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        properties["spec"]["properties"]["workers"]["properties"]["spares"] = {"type": "integer", "default": 2}
        properties["status"]["properties"]["spares"] = {"type": "integer"}
        c.api.patch(CRD, {"spec": {"versions": crd["spec"]["versions"]}}, "merge")
        c.wait(lambda: rig.job(name)["spec"]["workers"].get("spares") == 2, "the server sets the new default")
        c.api.patch(f"/apis/ringmaster.dev/v1alpha1/namespaces/default/trainingjobs/{name}/status",
                    {"status": {"spares": 1}}, "merge")
        # A watch that began before the change shows the job as the old CRD prunes it, so another leader begins one.
        self.operator.kill9()
        type(self).operator = rig.start(**STEADY).wait_leading()
        for attempt in (2, 3):
            c.pod_exit("default", f"newer-{attempt - 1}-1", 1, "boom")
            c.wait(lambda: rig.status(name).get("attempt") == attempt and rig.running(name, 2), f"attempt {attempt}")
            self.assertEqual(rig.status(name)["spares"], 1)
        self.assertIn("UnknownFields", self.operator.log)
        self.assertEqual(rig.condition(name, "Admitted")["reason"], "Accepted")

    def test_a_finished_job_stays(self):
        rig, c = self.rig, self.cluster
        name = rig.apply(job("stays", replicas=1))
        rig.wait_phase(name, "Running")
        self.assertNotIn("ttlSecondsAfterFinished", rig.job(name)["spec"].get("lifecycle", {}))
        c.pod_exit("default", "stays-1-0", 0)
        rig.wait_phase(name, "Succeeded")

    def test_a_webhook_that_does_not_answer_is_named(self):
        rig, c = self.rig, self.cluster
        hook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "down"}, "webhooks": [{
                    "name": "down.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                    "clientConfig": {"url": "https://127.0.0.1:1/"}, "timeoutSeconds": 1,
                    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]}
        c.apply_text(json.dumps(hook))
        try:
            name = rig.apply(job("hooked", replicas=2))
            found = rig.wait_condition(name, "Admitted", "False", "AdmissionRefused")
            self.assertIn("down.example.com", found["message"])
        finally:
            c.kubectl("delete", "validatingwebhookconfiguration", "down")
        rig.wait_phase(name, "Running", timeout_s=180)

    def test_a_quota_that_is_too_small_is_named(self):
        rig, c = self.rig, self.cluster
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": "default"},
                 "spec": {"hard": {"requests.nvidia.com/gpu": "2"}}}
        c.apply_text(json.dumps(quota))
        try:
            c.wait(lambda: "hard" in c.get("quota")[0].get("status", {}), "the quota is in force")
            name = rig.apply(job("large", replicas=4))
            found = rig.wait_condition(name, "Admitted", "False", "QuotaExceeded")
            self.assertIn("small", found["message"])
        finally:
            c.kubectl("delete", "quota", "small")
        rig.wait_phase(name, "Running", timeout_s=180)


if __name__ == "__main__":
    unittest.main()
