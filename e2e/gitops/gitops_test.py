# SPDX-License-Identifier: Apache-2.0
"""What Helm 4, Flux and Argo CD make of a TrainingJob in each state, on a real API server: with kstatus itself, and with the
script of docs/operate/gitops.md for Argo CD."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "e2e/operator"), str(ROOT / "e2e/chart")]

from cluster import Cluster  # noqa: E402
from helm import Helm  # noqa: E402
from rig import STEADY, Rig, job  # noqa: E402


def program():
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.strip())
    return pathlib.Path(done.stdout.strip()) / "health"


class GitOps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        page = (ROOT / "docs/operate/gitops.md").read_text()
        cls.script = cls.folder / "health.lua"
        cls.script.write_text(re.search(r"```lua\n(.*?)```", page, re.DOTALL).group(1))
        cls.cluster = cls.enterClassContext(Cluster(nodes=3))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.rig.apply(job("unseen"))
        cls.unseen = cls.rig.job("unseen")
        cls.rig.start(**STEADY).wait_leading()

    def tearDown(self):
        self.cluster.kubectl("delete", "tj", "--all", "--timeout=60s")

    def health(self, found):
        done = subprocess.run([self.program, self.script], input=json.dumps([found]), capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)[0]
        return answer["kstatus"], answer["argo"]

    def wait_health(self, name, kstatus, argo):
        seen = None

        def holds():
            nonlocal seen
            seen = self.rig.job(name)
            return self.health(seen) == (kstatus, argo)
        try:
            self.cluster.wait(holds, "", 60, every_s=0.2)
        except AssertionError:
            raise AssertionError(f"{name} is {self.health(seen)}; its status:\n{json.dumps(seen.get('status'), indent=1)}") \
                from None
        return seen["status"]

    def patch(self, name, spec):
        self.cluster.kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def exit(self, name, code, count):
        self.cluster.wait(lambda: self.rig.running(name, count), "all pods run")
        for pod in self.rig.live(name):
            self.cluster.pod_exit("default", pod["metadata"]["name"], code)

    def test_new_job(self):
        self.assertEqual(self.health(self.unseen), ("InProgress", "Progressing"))
        self.assertEqual(self.unseen["status"], {"observedGeneration": -1, "phase": "Pending", "attempt": 1})

    def test_running_succeeded(self):
        name = self.rig.apply(job("well", replicas=2))
        self.wait_health(name, "Current", "Healthy")
        self.exit(name, 0, 2)
        self.rig.wait_phase(name, "Succeeded")
        status = self.wait_health(name, "Current", "Healthy")
        self.assertFalse({"Reconciling", "Stalled"} & {c["type"] for c in status["conditions"]})

    def test_failed(self):
        name = self.rig.apply(job("bad", replicas=2))
        self.wait_health(name, "Current", "Healthy")
        self.exit(name, 64, 2)
        self.rig.wait_phase(name, "Failed")
        self.wait_health(name, "Failed", "Degraded")

    def test_suspended_and_waiting_for_nodes(self):
        name = self.rig.apply(job("large", replicas=2))
        self.wait_health(name, "Current", "Healthy")
        self.patch(name, {"suspend": True})
        self.wait_health(name, "Current", "Suspended")
        self.patch(name, {"suspend": False, "workers": {"replicas": 200, "max": 200}})
        status = self.wait_health(name, "InProgress", "Progressing")
        self.assertNotEqual(status["phase"], "Running")

    def test_invalid_spec(self):
        nested = {}
        for _ in range(80):
            nested = {"k": nested}
        bad = job("deep", replicas=2)
        bad["spec"]["workers"]["template"]["spec"]["extra"] = nested
        name = self.rig.apply(bad)
        self.wait_health(name, "Failed", "Degraded")

    def test_helm_waits_for_the_workers_and_not_for_ever(self):
        chart = self.folder / "chart"
        (chart / "templates").mkdir(parents=True)
        (chart / "Chart.yaml").write_text("apiVersion: v2\nname: training\nversion: 1.0.0\n")
        (chart / "templates/job.yaml").write_text(json.dumps(job("released", replicas=2)))
        helm = Helm("helm4", self.cluster)
        helm("install", "training", chart, "-n", "default", "--wait", "--timeout", "60s")
        self.assertTrue(self.rig.running("released", 2))
        self.exit("released", 0, 2)
        self.rig.wait_phase("released", "Succeeded")
        helm("upgrade", "training", chart, "-n", "default", "--wait", "--timeout", "30s")
        helm("uninstall", "training", "-n", "default")


if __name__ == "__main__":
    unittest.main(verbosity=2)
