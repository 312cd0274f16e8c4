# SPDX-License-Identifier: Apache-2.0
"""Ringmaster on real nodes, for tests: installs it as a user does, and reads what a user sees.

    with Rig() as rig:
        rig.apply(rig.job("a", replicas=4))
        rig.wait_step("a", 20)
        rig.nodes.power_off("node-2")
        rig.wait_phase("a", "Succeeded")
        assert rig.status("a")["weightsHash"] == rig.expected_hash(...)
"""

import concurrent.futures
import contextlib
import datetime
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import time

from cluster import ApiError, KubectlError  # noqa: F401  for the tests
from helm import CHART, NAMESPACE, ROOT, Helm
from nodes import Nodes

BIN = pathlib.Path(os.environ.get("RINGMASTER_BIN", ROOT / "build/release/bin"))
IMAGES = pathlib.Path(os.environ.get("RINGMASTER_IMAGES", ROOT / "build/images"))
JOBS = "/apis/ringmaster.dev/v1alpha1/namespaces/default/trainingjobs"
CPU_LIMIT = "150m"  # per worker: slow enough that a test can disturb training on a fast machine, too
SHOWN_LINES = 40
VOLUME = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "shared"}


def corpus(seed=20):
    """Returns text from which a small model learns; equal seeds give equal text."""
    words = "ring master gradient worker node step light river stone under over the a and of".split()
    draw = random.Random(seed)
    return "\n".join(" ".join(draw.choice(words) for _ in range(12)) + "." for _ in range(6000)) + "\n"


def training(steps):
    """Returns a language model whose step takes about ten milliseconds, because the tests need many steps."""
    return {"model": {"kind": "gpt", "layers": 2, "heads": 2, "width": 64, "context": 64, "tokenizer": "bytes"},
            "data": {"kind": "text", "path": "/data/text", "validationFraction": "0.05"},
            "batch": {"samplesPerStep": 16, "microBatches": 16},
            "optimizer": {"kind": "adamw", "learningRate": "1e-3"}, "steps": steps, "seed": 3,
            "device": "cpu"}  # the GPUs that some pods request do nothing


class Rig:
    def __init__(self, **options):
        images = sorted(IMAGES.glob("ringmaster-*.tar"))
        if len(images) != 2:
            raise AssertionError(f"{IMAGES} does not hold the two images; run images/build")
        self.nodes = Nodes(images=images, **options)
        self.background = concurrent.futures.ThreadPoolExecutor(1)
        self._hashes = {}  # by steps

    def __enter__(self):
        self.nodes.start()
        try:
            self.cluster = self.nodes.cluster
            (self.nodes.shared / "text").mkdir()
            (self.nodes.shared / "text/corpus.txt").write_text(corpus())
            self.volume("data", "/mnt/shared/text")
            self.install()
        except BaseException:
            self.nodes.stop(keep=True)
            raise
        return self

    def __exit__(self, kind, *_):
        self.background.shutdown(cancel_futures=True)
        self.nodes.__exit__(kind)

    def install(self):
        """Installs the chart as docs/operate/install.md describes."""
        self.cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}))
        Helm("helm4", self.cluster)("install", "ringmaster", CHART, "-n", NAMESPACE, "--wait", "--timeout", "120s",
                                    "--set", "log.level=debug")

    # --- jobs

    def volume(self, name, path):
        """Creates a volume that all nodes share, and a claim with the same name."""
        claim = {key: VOLUME[key] for key in ("accessModes", "storageClassName")}
        for thing in ({"kind": "PersistentVolume", "metadata": {"name": name},
                       "spec": {**VOLUME, "hostPath": {"path": path}, "claimRef": {"namespace": "default", "name": name}}},
                      {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
                       "spec": {**claim, "resources": {"requests": {"storage": "1Gi"}}}}):
            self.cluster.apply_text(json.dumps({"apiVersion": "v1", **thing}))

    def job(self, name, replicas=4, steps=400, workers=None, template=None, folder=None, **spec):
        """Returns a TrainingJob with data and checkpoints on volumes, as a dict. folder: the folder on the nodes for its
        checkpoints (default: a new shared one)."""
        if not folder:
            folder = f"/mnt/shared/{name}"
            (self.nodes.shared / name).mkdir()
            (self.nodes.shared / name).chmod(0o1777)
        self.volume(name, folder)
        pod = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}],
               "containers": [{"name": "worker", "resources": {"limits": {"cpu": CPU_LIMIT}}, "volumeMounts": [
                   {"name": "data", "mountPath": "/data/text", "readOnly": True}]}], **(template or {})}
        return {"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"framework": "native", "training": training(steps),
                         "workers": {"replicas": replicas, "min": 1, "max": 8, "template": {"spec": pod},
                                     **(workers or {})},
                         "checkpoint": {"everySteps": 100, "keep": 10, "volumeClaim": name},
                         "restart": {"backoff": {"initialSeconds": 1, "maxSeconds": 2}}, **spec}}

    def apply(self, manifest):
        self.cluster.apply_text(json.dumps(manifest))
        return manifest["metadata"]["name"]

    def delete(self, name):
        self.cluster.kubectl("delete", "tj", name, "--ignore-not-found", "--timeout=120s")

    def expect(self, steps, workers=2):
        """Starts the local run of expected_hash in the background."""
        if steps not in self._hashes:
            self._hashes[steps] = self.background.submit(self._run_here, steps, workers)
        return self._hashes[steps]

    def expected_hash(self, steps):
        """Returns the weights hash of the same job by `ringmaster run` on this machine, with another number of workers."""
        return self.expect(steps).result()

    def _run_here(self, steps, workers):
        folder = self.nodes.folder / f"run-{steps}"
        manifest = self.nodes.folder / f"run-{steps}.json"
        manifest.write_text(json.dumps({
            "apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "expected"},
            "spec": {"framework": "native", "workers": {"replicas": workers, "min": 1, "max": 8},
                     "training": training(steps)}}))
        done = subprocess.run(["nice", BIN / "ringmaster", "run", manifest, "--out", folder, "--workers", str(workers), "--set",
                               f"spec.training.data.path={self.nodes.shared / 'text'}"],
                              capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise AssertionError(f"ringmaster run ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return json.loads((folder / "summary.json").read_text())["weightsHash"]

    # --- commands

    def plugin(self, *words, code=0):
        """Runs `kubectl ringmaster ...`, checks its exit code and returns its output. kubectl finds the plugin on the PATH."""
        folder = self.nodes.folder / "plugin"
        if not folder.exists():
            folder.mkdir()
            (folder / "kubectl-ringmaster").symlink_to(BIN / "ringmaster")
        done = subprocess.run(
            [(self.cluster.folder / "binary").read_text().strip(), "kubectl", "ringmaster", *map(str, words)],
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "KUBECONFIG": str(self.cluster.kubeconfig)},
            capture_output=True, text=True, timeout=400, check=False)
        head = "\n".join((done.stdout + done.stderr).splitlines()[:SHOWN_LINES])
        print(f"$ kubectl ringmaster {' '.join(map(str, words))}\n{head}", flush=True)
        if done.returncode != code:
            raise AssertionError(f"kubectl ringmaster {words} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    # --- files and logs of the workers, which do not need the operator

    def manifests(self, name):
        """Returns the manifests of the job's checkpoints, by step."""
        found = {}
        for file in (self.nodes.shared / name).glob("step-*/MANIFEST"):
            step = file.parent.name.removeprefix("step-")
            if step.isdigit():  # the others are being written
                with contextlib.suppress(FileNotFoundError):  # just removed
                    found[int(step)] = json.loads(file.read_text())["manifest"]
        return found

    def newest_checkpoint(self, name):
        return max(self.manifests(name), default=0)

    def step_times(self, name):
        """Returns the duration of the steps that checkpoints record, by step, without the setup of a new membership."""
        return {record[0]: struct.unpack("<d", struct.pack("<Q", record[7]))[0]
                for manifest in self.manifests(name).values() for record in manifest["meta"]["records"]}

    def logged(self, pod, text):
        """Returns the times of the log lines of a pod that contain `text`, in seconds of this machine's clock."""
        lines = [line.split(" ", 1)[0] for line in self.cluster.kubectl("logs", pod).splitlines() if text in line]
        return [datetime.datetime.fromisoformat(f"{word}+00:00").timestamp() for word in lines]

    # --- status

    def status(self, name):
        return self.cluster.api.get(f"{JOBS}/{name}").get("status", {})

    def step(self, name):
        return self.status(name).get("progress", {}).get("step", 0)

    def pods(self, name):
        """Returns the pods of the job, by name."""
        found = self.cluster.api.get(f"/api/v1/namespaces/default/pods?labelSelector=ringmaster.dev/job%3D{name}")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def uids(self, name):
        return {key: pod["metadata"]["uid"] for key, pod in self.pods(name).items()}

    def wait(self, name, condition, what, timeout_s=120):
        """Waits for condition(status) of the job and returns its value. On a timeout, prints status, events and logs."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = self.status(name)
            found = condition(status)
            if found:
                return found
            if time.monotonic() > deadline or status.get("phase") == "Failed":
                self.report(name)
                raise AssertionError(f"{name}: not within {timeout_s} s: {what}; its phase is {status.get('phase')}")
            time.sleep(0.1)

    def wait_phase(self, name, phase, timeout_s=300):
        self.wait(name, lambda status: status.get("phase") == phase, f"phase {phase}", timeout_s)

    def wait_step(self, name, step, timeout_s=120):
        return self.wait(name, lambda status: status.get("progress", {}).get("step", 0) >= step, f"step {step}", timeout_s)

    def wait_full(self, name, replicas, step=0, timeout_s=120):
        """Waits until all workers are in the gang and this step is committed."""
        self.wait(name, lambda status: status.get("ready") == f"{replicas}/{replicas}" and
                  status.get("progress", {}).get("step", 0) >= step, f"{replicas} workers at step {step}", timeout_s)

    def report(self, name):
        for arguments in (("get", "tj", name, "-o", "yaml"), ("get", "pods", "-A", "-o", "wide"),
                          ("events", "-n", "default"), ("get", "nodes")):
            try:
                print(f"--- kubectl {' '.join(arguments)}\n{self.cluster.kubectl(*arguments)}", file=sys.stderr)
            except KubectlError as error:
                print(error, file=sys.stderr)
        for pod in self.pods(name):
            try:
                print(f"--- {pod}\n{self.cluster.kubectl('logs', '--tail=40', pod)}", file=sys.stderr)
            except KubectlError as error:
                print(error, file=sys.stderr)
        try:
            print("--- operator\n" + self.cluster.kubectl("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=ringmaster-operator",
                                                           "--tail=150", "--prefix"), file=sys.stderr)
        except KubectlError as error:
            print(error, file=sys.stderr)
