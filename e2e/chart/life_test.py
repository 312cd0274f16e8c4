# SPDX-License-Identifier: Apache-2.0
"""Install, upgrade and uninstall with both Helms. The Deployment's pods run on fake nodes; the operator itself runs as a
process, with the rights, arguments and environment of the chart."""

import pathlib
import re
import shutil
import tempfile
import unittest

from cluster import Cluster, KubectlError
from helm import CHART, NAMESPACE, ChartRig, Helm, HelmError
from rig import job

CRD = "trainingjobs.ringmaster.dev"


def next_chart(folder):
    """Returns a copy of the chart with another version and another description in the CRD."""
    chart = pathlib.Path(shutil.copytree(CHART, pathlib.Path(folder) / "ringmaster"))
    text = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(re.sub(r"\nversion: .*\n", "\nversion: 999.0.0\n", text))
    crd = (chart / "files/crd.yaml").read_text()
    changed = crd.replace('"Phase of the job."', '"Changed by the upgrade."', 1)
    assert changed != crd
    (chart / "files/crd.yaml").write_text(changed)
    return chart


class Life:
    INSTALLED_BY = UPGRADED_BY = ""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=3))
        cls.first = Helm(cls.INSTALLED_BY, cls.cluster)
        cls.second = Helm(cls.UPGRADED_BY, cls.cluster)
        cls.cluster.kubectl("create", "namespace", NAMESPACE)
        cls.cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")

    def setUp(self):
        self.rig = self.enterContext(ChartRig(self.cluster))
        self.addCleanup(self._remove)

    def _remove(self):
        if self.first("list", "-q", "-n", NAMESPACE):
            self.first("uninstall", "ringmaster", "-n", NAMESPACE, "--wait")
        try:
            self.cluster.kubectl("delete", "tj", "-A", "--all", "--timeout=60s")
            self.cluster.kubectl("delete", "crd", CRD, "--timeout=60s")
        except KubectlError:
            pass  # already deleted

    def install(self, *arguments):
        said = self.first("install", "ringmaster", CHART, "-n", NAMESPACE, "--wait", "--timeout", "60s", *arguments)
        self.cluster.wait(lambda: CRD in self.cluster.kubectl("api-resources", "-o", "name"), "the CRD is served")
        return said

    def can_i(self, kubeconfig, verb, resource, namespace):
        resource, _, part = resource.partition("/")
        words = ["auth", "can-i", verb, resource, "-n", namespace, *([f"--subresource={part}"] if part else [])]
        try:
            return self.cluster.kubectl(*words, kubeconfig=kubeconfig).strip()
        except KubectlError as error:
            return error.stdout.strip()

    def crd(self):
        return self.cluster.get("crd", CRD)

    def description(self):
        return self.crd()["spec"]["versions"][0]["additionalPrinterColumns"][0]["description"]

    def pods_of(self, name):
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.rig.live(name)}

    def test_install_upgrade_uninstall(self):
        c, rig = self.cluster, self.rig
        said = self.install()
        self.assertIn("helm test ringmaster -n ringmaster-system", said)
        # Pod Security admits the pods, and they are on different nodes.
        replicas = c.get("pods", namespace=NAMESPACE)
        self.assertEqual(len({pod["spec"]["nodeName"] for pod in replicas}), 2)
        operator = rig.start_as_deployed().wait_leading()
        self.assertEqual(operator.get("health", "/readyz")[0], 200)
        c.wait(lambda: c.get("endpointslice", namespace=NAMESPACE), "the leader's address")
        slices = [s for s in c.get("endpointslice", namespace=NAMESPACE) if s["metadata"]["name"] == "ringmaster-rendezvous"]
        self.assertEqual(slices[0]["endpoints"][0]["addresses"], ["10.11.12.13"])

        rig.apply(job("runs", replicas=3))
        rig.wait_phase("runs", "Running")
        before = self.pods_of("runs")
        self.assertEqual(len(before), 3)

        # An upgrade: new CRD, new arguments, a rollout. The test replaces the operator's process like its pods.
        with tempfile.TemporaryDirectory() as folder:
            self.second("upgrade", "ringmaster", next_chart(folder), "-n", NAMESPACE, "--wait", "--timeout", "60s",
                        "--set", "log.level=debug", "--set", "leaderElection.leaseDurationSeconds=20")
        self.assertEqual(self.description(), "Changed by the upgrade.")
        self.assertEqual(operator.stop(), 0)
        rig.start_as_deployed().wait_leading()
        rig.apply(job("after", replicas=2))
        rig.wait_phase("after", "Running")
        self.assertEqual(self.pods_of("runs"), before)
        status = rig.status("runs")
        self.assertEqual((status["phase"], status["attempt"]), ("Running", 1))
        self.assertEqual(status.get("restarts", {}).get("total", 0), 0)

        # After the uninstall the job exists, and its workers run.
        for running in rig.operators:
            if running.process.poll() is None:
                running.stop()
        self.second("uninstall", "ringmaster", "-n", NAMESPACE, "--wait")
        self.assertEqual(self.pods_of("runs"), before)
        self.assertFalse(c.get("deployments", namespace=NAMESPACE))
        with self.assertRaises(KubectlError):
            c.kubectl("get", "clusterrole", "ringmaster-operator")

        # After a new install the operator manages the existing jobs.
        self.install()
        self.assertEqual(self.description(), "Phase of the job.")
        rig.start_as_deployed().wait_leading()
        c.pod_exit("default", "runs-1-0", 0)
        c.pod_exit("default", "runs-1-1", 0)
        c.pod_exit("default", "runs-1-2", 0)
        rig.wait_phase("runs", "Succeeded")

    def test_uninstall_deletes_the_crd_without_keep(self):
        self.install("--set", "crds.keep=false")
        self.rig.apply(job("doomed", replicas=1))
        self.first("uninstall", "ringmaster", "-n", NAMESPACE, "--wait")
        self.cluster.wait(lambda: CRD not in self.cluster.kubectl("get", "crd", "-o", "name"), "the CRD is gone")

    def test_only_some_namespaces(self):
        c, rig = self.cluster, self.rig
        for name in ("team-a", "team-b"):
            c.kubectl("create", "namespace", name)
            self.addCleanup(c.kubectl, "delete", "namespace", name, "--wait=false")
        self.install("--set", "watchNamespaces={team-a}")
        operator = rig.start_as_deployed().wait_leading()
        rig.apply(job("mine", replicas=2, namespace="team-a"))
        rig.apply(job("theirs", replicas=2, namespace="team-b"))
        rig.wait_phase("mine", "Running", namespace="team-a")
        c.pod_exit("team-a", "mine-1-0", 1, "boom")
        c.wait(lambda: rig.status("mine", "team-a").get("attempt") == 2 and rig.running("mine", 2, "team-a"),
               "the second attempt")
        self.assertEqual(rig.job("theirs", "team-b")["status"]["observedGeneration"], -1)  # as it was created
        self.assertEqual(operator.get("health", "/readyz"), (200, "ok"))
        self.assertNotIn("watch=", operator.log)  # no watch was rejected

        may = c.kubeconfig_of(f"system:serviceaccount:{NAMESPACE}:ringmaster-operator")
        for question, answer in {("create", "pods", "team-a"): "yes", ("create", "pods", "team-b"): "no",
                                 ("list", "pods", "team-b"): "no", ("list", "secrets", "team-a"): "no",
                                 ("get", "secrets", NAMESPACE): "no"}.items():
            with self.subTest(question=question):
                self.assertEqual(self.can_i(may, *question), answer)

    def test_editors_of_a_namespace_may_edit_its_jobs(self):
        c = self.cluster
        self.install()
        c.kubectl("create", "rolebinding", "bob", "--clusterrole=edit", "--user=bob")
        c.kubectl("create", "rolebinding", "eve", "--clusterrole=view", "--user=eve")
        self.addCleanup(c.kubectl, "delete", "rolebinding", "bob", "eve")
        bob, eve = c.kubeconfig_of("bob"), c.kubeconfig_of("eve")
        c.wait(lambda: self.can_i(bob, "create", "trainingjobs", "default") == "yes", "the role is aggregated")
        c.wait(lambda: self.can_i(eve, "get", "trainingjobs", "default") == "yes", "the role is aggregated")
        self.assertEqual(self.can_i(bob, "patch", "trainingjobs/scale", "default"), "yes")
        self.assertEqual(self.can_i(bob, "patch", "trainingjobs/status", "default"), "no")
        self.assertEqual(self.can_i(eve, "create", "trainingjobs", "default"), "no")
        self.assertEqual(self.can_i(bob, "create", "trainingjobs", NAMESPACE), "no")

    def test_helm_test_waits_for_a_job_of_two_workers(self):
        c, rig = self.cluster, self.rig
        self.install()
        rig.start_as_deployed().wait_leading()
        for code in (0, 1):
            running = self.second.start("test", "ringmaster", "-n", NAMESPACE, "--timeout", "100s")
            self.addCleanup(running.kill)

            def waits():
                names = [pod["metadata"]["name"] for pod in c.get("pods", namespace=NAMESPACE)
                         if pod["status"].get("phase") == "Running"]
                return {"ringmaster-test", "ringmaster-test-1-0", "ringmaster-test-1-1"} <= set(names)
            c.wait(waits, "two workers, and the pod that waits for them")
            # The pods are fake, so the test ends the pod as its program would.
            c.pod_exit(NAMESPACE, "ringmaster-test", code)
            said = running.communicate(timeout=100)
            self.assertEqual(running.returncode != 0, code != 0, said)
            c.kubectl("delete", "tj", "ringmaster-test", "-n", NAMESPACE, "--ignore-not-found", "--timeout=60s")

    def test_invalid_values_are_rejected_before_anything_is_created(self):
        with self.assertRaisesRegex(HelmError, "replicsa"):
            self.install("--set", "replicsa=3")
        self.assertEqual(self.first("list", "-q", "-n", NAMESPACE), "")


class Helm3(Life, unittest.TestCase):
    INSTALLED_BY = UPGRADED_BY = "helm3"


class Helm4(Life, unittest.TestCase):
    INSTALLED_BY = UPGRADED_BY = "helm4"


class InstalledByHelm3UpgradedByHelm4(Life, unittest.TestCase):
    INSTALLED_BY, UPGRADED_BY = "helm3", "helm4"
    test_only_some_namespaces = test_uninstall_deletes_the_crd_without_keep = None
    test_invalid_values_are_rejected_before_anything_is_created = test_helm_test_waits_for_a_job_of_two_workers = None
    test_editors_of_a_namespace_may_edit_its_jobs = None


if __name__ == "__main__":
    unittest.main(verbosity=2)
