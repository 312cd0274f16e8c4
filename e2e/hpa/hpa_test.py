# SPDX-License-Identifier: Apache-2.0
"""HorizontalPodAutoscalers: one grows and shrinks a job by its goodput, another one grows by the length of the operator's queue.
Operator, Prometheus, the metrics adapter and the controller of Kubernetes are real, and so are the agents and trainers, which run
here in place of the pods of fake nodes. The rules of the adapter and the manifests are those of docs/operate/autoscalers.md."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "operator"))
from agent_pods import AgentPods, leaving, training  # noqa: E402
from rig import STEADY, Cluster, Rig, job  # noqa: E402
from supervisor import free_ports  # noqa: E402

PAGE = ROOT / "docs/operate/autoscalers.md"
METRIC = "ringmaster_job_goodput_samples_per_second"
NAME = "llama"  # the job on that page
POOL = "gpu-nodes"  # the pool of nodes there; here a Deployment, which has the scale subresource, too


def blocks():
    """Returns the YAML on the page: the rules of the adapter and the HorizontalPodAutoscalers of a job and of a pool of nodes."""
    found = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (rules,) = [text for text in found if text.startswith("rules:")]
    (of_job,) = [text for text in found if "HorizontalPodAutoscaler" in text and f"name: {NAME}" in text]
    (of_pool,) = [text for text in found if "HorizontalPodAutoscaler" in text and f"name: {POOL}" in text]
    return rules, of_job, of_pool


def built():
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.strip())
    return pathlib.Path(done.stdout.strip())


class Hpa(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=1))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-hpa-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        port, cls.prometheus_port, cls.adapter_port = free_ports(3)
        address = f"127.0.0.1:{port}"
        cls.operator = cls.rig.start(rendezvous_address=address, rendezvous_advertise=address, job_metrics=True,
                                     **STEADY).wait_leading()
        cls.start_prometheus()
        cls.start_adapter()

    @classmethod
    def run_process(cls, name, *command):
        with open(cls.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, start_new_session=True)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)

    @classmethod
    def start_prometheus(cls):
        (cls.folder / "prometheus.json").write_text(json.dumps({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "ringmaster", "static_configs": [
                {"targets": [f"127.0.0.1:{cls.operator.port('metrics')}"]}]}]}))
        cls.run_process("prometheus", built() / "prometheus", f"--config.file={cls.folder}/prometheus.json",
                        f"--storage.tsdb.path={cls.folder}/data", f"--web.listen-address=127.0.0.1:{cls.prometheus_port}")

    @classmethod
    def start_adapter(cls):
        (cls.folder / "rules.yaml").write_text(blocks()[0])
        config = cls.cluster.kubeconfig
        cls.run_process("adapter", built() / "adapter", f"--config={cls.folder}/rules.yaml",
                        f"--prometheus-url=http://127.0.0.1:{cls.prometheus_port}", "--metrics-relist-interval=1s",
                        "--metrics-max-age=1m", f"--lister-kubeconfig={config}", f"--authentication-kubeconfig={config}",
                        f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1",
                        f"--secure-port={cls.adapter_port}", f"--cert-dir={cls.folder}/certificates")
        # An API server resolves the name of such a Service itself.
        group, version = "custom.metrics.k8s.io", "v1beta2"
        for manifest in (
                {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter", "namespace": "kube-system"},
                 "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": cls.adapter_port}]}},
                {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{version}.{group}"},
                 "spec": {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                          "insecureSkipTLSVerify": True,
                          "service": {"name": "adapter", "namespace": "kube-system", "port": cls.adapter_port}}}):
            cls.cluster.apply_text(json.dumps(manifest))

    def setUp(self):
        self.pods = AgentPods(self.rig, NAME, self.folder)
        self.addCleanup(self.pods.end)

    def wait(self, condition, what, timeout_s=180):
        try:
            return self.pods.wait(condition, what, timeout_s)
        except AssertionError:
            print(self.cluster.kubectl("describe", "hpa"), file=sys.stderr)
            for name in ("adapter", "prometheus"):
                print(f"--- {name}\n" + (self.folder / f"{name}.log").read_text(errors="replace")[-3000:], file=sys.stderr)
            raise

    def goodput(self):
        return self.served(f"trainingjobs.ringmaster.dev/{NAME}/{METRIC}")

    def served(self, path):
        """Returns a metric of the namespace as the API server serves it, or None."""
        try:
            items = self.cluster.api.get(f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/{path}")["items"]
        except Exception:  # noqa: BLE001  not served yet, or no series
            return None
        text = items[0]["value"] if items else ""
        return float(text[:-1]) / 1000 if text.endswith("m") else float(text) if text.isdecimal() else None

    def trained(self):
        return self.rig.status(NAME).get("progress", {}).get("step", 0)

    def full(self, count):
        return self.rig.running(NAME, count) and self.rig.status(NAME).get("readyReplicas") == count

    def test_by_the_queue(self):
        pod = {"metadata": {"labels": {"app": POOL}}, "spec": {"containers": [{"name": "x", "image": "registry.local/x:1"}]}}
        self.cluster.apply_text(json.dumps({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": POOL},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": POOL}}, "template": pod}}))
        self.addCleanup(self.cluster.kubectl, "delete", f"deployment/{POOL}", f"hpa/{POOL}", "--ignore-not-found")
        text, count = re.subn(r"apiVersion: cluster\.x-k8s\.io/\w+, kind: MachineDeployment",
                              "apiVersion: apps/v1, kind: Deployment", blocks()[2])
        self.assertEqual(count, 1)
        text, count = re.subn("name: research", "name: default", text)
        self.assertEqual(count, 1)
        self.cluster.apply_text(text)
        waiting = ["waits-0", "waits-1", "waits-2"]
        for name in waiting:
            self.addCleanup(self.cluster.kubectl, "delete", "tj", name, "--timeout=60s")
            self.rig.apply(job(name, replicas=9, spec={"scheduling": {"gang": "gate"}}))  # the node has eight GPUs
        self.wait(lambda: self.served("metrics/ringmaster_queue_length") == len(waiting),
                  "the adapter serves the length of the queue")
        pool = f"/apis/apps/v1/namespaces/default/deployments/{POOL}"
        self.wait(lambda: self.cluster.api.get(pool)["spec"]["replicas"] == len(waiting), "the pool is scaled up")
        self.assertEqual([self.rig.pods(name) for name in waiting], [[], [], []])

    def test_by_the_goodput(self):
        self.rig.apply(leaving(job(NAME, replicas=1, native=True, workers={"min": 1, "max": 4}, spec={
            "training": training(self.folder, steps=10_000_000),
            "checkpoint": {"path": f"{self.folder}/ckpt", "gracePeriodSeconds": 30}})))
        self.wait(lambda: self.full(1) and self.trained() > 0, "one worker trains")
        goodput = self.wait(self.goodput, "the adapter serves the goodput")
        print(f"one worker: {goodput:.0f} kept samples per second; steps: {self.trained()}", flush=True)

        # Each worker is to do a third of that.
        self.autoscale(goodput / 3)
        self.wait(lambda: self.rig.job(NAME)["spec"]["workers"]["replicas"] > 1, "the job is scaled up")
        self.wait(lambda: self.full(self.rig.job(NAME)["spec"]["workers"]["replicas"]), "all of its workers train")
        step = self.trained()
        self.wait(lambda: self.trained() > step, "it continues to train")
        # Far more than they can do.
        self.autoscale(goodput * 50)
        self.wait(lambda: self.rig.job(NAME)["spec"]["workers"]["replicas"] == 1, "the job is scaled down")
        self.wait(lambda: self.full(1), "one worker is left")
        step = self.trained()
        self.wait(lambda: self.trained() > step, "it continues to train")
        status = self.rig.status(NAME)
        print(self.cluster.kubectl("events", "--for", f"hpa/{NAME}"), flush=True)
        self.assertEqual((status["attempt"], status.get("restarts", {}).get("total", 0)), (1, 0))
        self.assertNotIn("lastFailure", status)

    def autoscale(self, per_worker):
        """Applies the manifest of the page with another target, and without its patience."""
        text, count = re.subn(r'averageValue: "\d+"', f'averageValue: "{max(1, round(per_worker))}"', blocks()[1])
        self.assertEqual(count, 1)
        text, count = re.subn(r"stabilizationWindowSeconds: \d+", "stabilizationWindowSeconds: 0", text)
        self.assertEqual(count, 1)
        self.cluster.apply_text(text)


if __name__ == "__main__":
    unittest.main()
