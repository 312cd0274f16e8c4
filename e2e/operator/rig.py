# SPDX-License-Identifier: Apache-2.0
"""Runs the operator as a process against a cluster of e2e/cluster, for tests.

    with Cluster(nodes=4) as c, Rig(c) as rig:
        operator = rig.start()
        c.apply_text(job("a", replicas=4))
        rig.wait_phase("a", "Running")
        operator.kill9()

The rig installs the CRD and the operator's RBAC; every operator runs with exactly these rights.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from cluster import ApiError, Cluster, KubectlError  # noqa: F401  for the tests

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("RINGMASTER_BIN", ROOT / "build/release/bin"))
NAMESPACE = "ringmaster-system"
# The default Lease: a disk or a processor that stalls for some seconds does not end the operator of a test.
STEADY = {"lease_duration_seconds": 15, "renew_deadline_seconds": 10, "retry_period_seconds": 2}
# For tests with many failovers, which survive a replica that ends because the machine was too busy to renew it.
QUICK = {"lease_duration_seconds": 4, "renew_deadline_seconds": 3, "retry_period_seconds": 1}
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:ringmaster-operator"


def job(name, replicas=2, namespace="default", spec=None, workers=None, native=False):
    """Returns a TrainingJob as a dict. Workers on fake nodes run nothing; each has one GPU unless `workers` is set."""
    training = {"model": {"kind": "mlp", "layers": 1, "width": 16}, "data": {"kind": "idx", "path": "/data"},
                "batch": {"samplesPerStep": 64, "microBatches": 64},
                "optimizer": {"kind": "sgd", "learningRate": "0.1"}, "steps": 10}
    template = {"spec": {"containers": [{"name": "worker", "image": "registry.local/worker:1",
                                         "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    body = {"framework": "native" if native else "pytorch",
            "workers": {"replicas": replicas, "template": template, **(workers or {})},
            "restart": {"backoff": {"initialSeconds": 1, "maxSeconds": 2}}, **(spec or {})}
    if native:
        body.setdefault("training", training)
    else:
        body.setdefault("launch", {"kind": "none"})
    return {"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": name, "namespace": namespace}, "spec": body}


class Operator:
    """An operator process. Its log is a file; the ports, which are not fixed, are read from it."""

    def __init__(self, rig, number, arguments, environment):
        self.log_file = rig.folder / f"operator-{number}.log"
        flags = {"--health-address": "127.0.0.1:0", "--metrics-address": "127.0.0.1:0",
                 "--rendezvous-address": "127.0.0.1:0", "--identity": f"replica-{number}", **arguments}
        words = (word for pair in flags.items() for word in pair if word is not True)
        command = [BIN / "ringmaster-operator", "--metrics-open", *words]
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT,
                                            env={**os.environ, **environment}, start_new_session=True)

    @property
    def log(self):
        return self.log_file.read_text(errors="replace")

    def must_live(self):
        """Fails with the log if the process has ended."""
        if self.process.poll() is not None:
            raise AssertionError(f"{self.log_file.stem} ended with {self.process.returncode}; its log:\n{self.log[-8000:]}")

    def wait_log(self, pattern, timeout_s=180):
        """Waits for a pattern in the log and returns the match."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = re.search(pattern, self.log)
            if found:
                return found
            self.must_live()
            if time.monotonic() > deadline:
                raise AssertionError(f"not in the log within {timeout_s} s: {pattern}\n{self.log[-4000:]}")
            time.sleep(0.02)

    def port(self, what):
        return int(self.wait_log(rf"\b{what} port=(\d+)").group(1))

    def get(self, what, path):
        """Returns (status, text) from its health or metrics server."""
        self.must_live()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port(what)}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, metric, **labels):
        """Returns the sum of a metric's series with these labels."""
        total = 0.0
        for line in self.get("metrics", "/metrics")[1].splitlines():
            found = re.fullmatch(r"([a-z_:]+)(?:\{(.*)\})? ([^ ]+)", line)
            if found and found.group(1) == metric:
                have = dict(re.findall(r'(\w+)="([^"]*)"', found.group(2) or ""))
                if all(have.get(key) == value for key, value in labels.items()):
                    total += float(found.group(3))
        return total

    def rss_mib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def wait_leading(self, timeout_s=180):
        self.wait_log(r"controller=started", timeout_s)
        return self

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self, timeout_s=120):
        """Sends SIGTERM and returns the exit code. REQUIRES: the process runs."""
        self.must_live()
        self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"the operator did not end; its log:\n{self.log[-4000:]}") from None


class Rig:
    def __init__(self, cluster):
        self.cluster = cluster
        self._folder = tempfile.TemporaryDirectory(prefix="ringmaster-operator-")
        self.folder = pathlib.Path(self._folder.name)
        self.operators = []

    def __enter__(self):
        self.install()
        self.kubeconfig = self.cluster.kubeconfig_of(ACCOUNT)
        return self

    def install(self):
        """Creates the namespace, the CRD and the operator's RBAC where they are missing."""
        c = self.cluster
        c.apply_text(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        c.kubectl("apply", "--server-side", "-f", str(ROOT / "crds/ringmaster.dev_trainingjobs.yaml"))
        c.wait(self._is_served, "the CRD is established")
        c.kubectl("apply", "--server-side", "-f", str(ROOT / "config/rbac.yaml"))

    def __exit__(self, kind, *_):
        for operator in self.operators:
            if kind is not None:
                print(f"--- {operator.log_file.name}\n{operator.log[-6000:]}", file=sys.stderr)
            if operator.process.poll() is None:
                operator.resume()
                operator.kill9()
        self._folder.cleanup()

    def _is_served(self):
        # Not `kubectl wait`: it fails on a new CRD that has no conditions yet.
        crd = self.cluster.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.ringmaster.dev")
        return any(condition["type"] == "Established" and condition["status"] == "True"
                   for condition in crd.get("status", {}).get("conditions") or [])

    def start(self, kubeconfig=None, environment=None, **flags):
        """Starts another replica; flags like lease_duration_seconds=4 (STEADY by default), or True for one without a value."""
        arguments = {"--kubeconfig": kubeconfig or self.kubeconfig, "--rendezvous-advertise": "127.0.0.1:1"}
        arguments.update({"--" + name.replace("_", "-"): value for name, value in {**STEADY, **flags}.items()})
        operator = Operator(self, len(self.operators), arguments, {"RINGMASTER_LOG": "debug", **(environment or {})})
        self.operators.append(operator)
        return operator

    # --- what a user reads

    def apply(self, manifest):
        self.cluster.apply_text(json.dumps(manifest))
        return manifest["metadata"]["name"]

    def job(self, name, namespace="default"):
        return self.cluster.api.get(f"/apis/ringmaster.dev/v1alpha1/namespaces/{namespace}/trainingjobs/{name}")

    def status(self, name, namespace="default"):
        return self.job(name, namespace).get("status", {})

    def condition(self, name, kind, namespace="default"):
        for condition in self.status(name, namespace).get("conditions", []):
            if condition["type"] == kind:
                return condition
        return {"status": "Unknown", "reason": "", "message": ""}

    def pods(self, name, namespace="default"):
        """Returns the job's pods, sorted by name."""
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=ringmaster.dev/job%3D{name}"
        return sorted(self.cluster.api.get(path)["items"], key=lambda pod: pod["metadata"]["name"])

    def live(self, name, namespace="default"):
        """Returns the pods that have not ended and are not being deleted."""
        return [pod for pod in self.pods(name, namespace) if "deletionTimestamp" not in pod["metadata"]
                and pod["status"].get("phase") in ("Pending", "Running")]

    def running(self, name, count, namespace="default"):
        pods = self.live(name, namespace)
        return len(pods) == count and all(pod["status"].get("phase") == "Running" for pod in pods)

    def wait_phase(self, name, phase, namespace="default", timeout_s=180):
        try:
            self.cluster.wait(lambda: self.status(name, namespace).get("phase") == phase, "", timeout_s)
        except AssertionError:
            status = json.dumps(self.status(name, namespace), indent=1)
            raise AssertionError(f"{name} is not {phase} within {timeout_s} s; its status:\n{status}") from None

    def wait_condition(self, name, kind, value="True", reason=None, namespace="default", timeout_s=180):
        def holds():
            found = self.condition(name, kind, namespace)
            return found["status"] == value and (reason is None or found["reason"] == reason) and found
        try:
            return self.cluster.wait(holds, "", timeout_s)
        except AssertionError:
            status = json.dumps(self.status(name, namespace), indent=1)
            raise AssertionError(f"{name}: {kind} is not {value} {reason or ''} within {timeout_s} s; its status:\n"
                                 f"{status}") from None
