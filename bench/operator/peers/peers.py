# SPDX-License-Identifier: Apache-2.0
"""The operators that bench/operator/run compares with ours: how to install and start each, and its jobs.

They run as plain processes with administrator rights (so that the API server's priority and fairness does not limit
them), without metrics, without leader election where possible, and with the shipped webhooks at other addresses. "default"
keeps all settings that affect speed; "tuned" raises them: 1000/2000 requests per second, 16 threads. JobSet has no
setting for its threads, and the trainer's has no effect on TrainJobs (controller-runtime 0.24 finds no kind to apply it
to). The controller-manager, which creates JobSet's pods, has 1000/2000 in all runs.
"""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import urllib.request

import load
from supervisor import LIBC, PR_SET_PDEATHSIG

HERE = pathlib.Path(__file__).resolve().parent
CERTIFICATES = pathlib.Path("/tmp/k8s-webhook-server/serving-certs")  # a constant in all of them
CONTAINER = {"image": "x", "resources": {"limits": {"cpu": "1"}}}


def build(words):
    """Builds the peers, which takes minutes the first time, and returns the folder."""
    names = {part for word in words for part in PEERS[word.partition(":")[0]].built}
    done = subprocess.run([HERE / "build", *sorted(names)], stdout=subprocess.PIPE, text=True, check=True)
    return pathlib.Path(done.stdout.strip())


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def objects_in(text):
    """Yields the JSON objects of kubectl's output, which follow each other without separators."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        found, at = decoder.raw_decode(text, at)
        yield from found["items"] if found["kind"] == "List" else [found]
        while at < len(text) and text[at].isspace():
            at += 1


class Peer:
    """An operator (or two that work together), with or without tuning."""

    name = ""
    built = ()  # its parts' names in peers/build
    jobs = ""  # path of its job collection
    selector = job_label = ""  # of its workers' pods
    attempt_label = ""
    container = ""

    def __init__(self, cluster, folder, tuned):
        self.cluster, self.folder, self.tuned = cluster, folder, tuned
        self.title = f"{self.name}, {'tuned' if tuned else 'default'}"
        self.processes = {}
        self._undo = contextlib.ExitStack()

    def job(self, name, workers):
        raise NotImplementedError

    def start(self):
        raise NotImplementedError

    def close(self):
        for process in self.processes.values():
            process.terminate()
            process.wait(30)
        self.processes.clear()
        self._undo.close()

    def check(self):
        for name, process in self.processes.items():
            if process.poll() is not None:
                log = (self.cluster.folder / f"{name}.log").read_text(errors="replace")
                raise SystemExit(f"{self.title} ended with {process.returncode}:\n{log[-1500:]}")

    def cpu_s(self):
        return sum(load.cpu_s(process.pid) for process in self.processes.values())

    def most_mb(self):
        return sum(load.memory_mb(process.pid, "VmHWM") for process in self.processes.values())

    # --- shared by the starts

    def _source(self, *path):
        return self.folder.joinpath("src", *path)

    def _apply(self, *objects):
        for object_ in objects:
            self.cluster.apply_text(json.dumps(object_))

    def _crds(self, how, path):
        self.cluster.kubectl("apply", "--server-side", how, path)

        def served():
            crds = self.cluster.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
            groups = self.cluster.kubectl("api-resources", "--cached=false", "-o", "name").split()
            return all(crd["metadata"]["name"] in groups for crd in crds)
        self.cluster.wait(served, "the CRDs are served", 60, every_s=0.5)

    def _namespace(self, name):
        self._apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def _run(self, binary, *arguments):
        log = open(self.cluster.folder / f"{binary}.log", "ab")
        with log:
            self.processes[binary] = subprocess.Popen(
                [self.folder / "bin" / binary, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "HOME": str(self.cluster.folder)},
                preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))

    def _wait_ready(self, *ports):
        def answers(port):
            self.check()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
                    return answer.status == 200
            except OSError:
                return False
        for port in ports:
            self.cluster.wait(lambda port=port: answers(port), f"{self.title} is ready", 60)

    def _certificates(self):
        """Creates a CA and a leaf for loopback, with the names that training-operator's rotator requires."""
        if CERTIFICATES.exists():
            raise SystemExit(f"{CERTIFICATES} exists: something else uses it; remove it when not")
        CERTIFICATES.mkdir(parents=True)
        self._undo.callback(shutil.rmtree, CERTIFICATES.parent)

        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=CERTIFICATES, check=True, capture_output=True)

        names = "training-operator-ca"
        openssl("genrsa", "-traditional", "-out", "ca.key", "2048")
        openssl("req", "-x509", "-new", "-key", "ca.key", "-days", "3650", "-subj", f"/O=training-operator/CN={names}",
                "-out", "ca.crt", "-addext", "basicConstraints=critical,CA:TRUE", "-addext",
                "keyUsage=critical,keyCertSign,digitalSignature,keyEncipherment", "-addext", f"subjectAltName=DNS:{names}")
        openssl("genrsa", "-traditional", "-out", "tls.key", "2048")
        openssl("req", "-new", "-key", "tls.key", "-subj", "/CN=training-operator.kubeflow.svc", "-out", "tls.csr")
        (CERTIFICATES / "extensions").write_text(
            "subjectAltName=DNS:training-operator.kubeflow.svc,DNS:localhost,IP:127.0.0.1\n"
            "keyUsage=digitalSignature,keyEncipherment\nextendedKeyUsage=serverAuth\n")
        openssl("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "tls.crt",
                "-days", "3650", "-extfile", "extensions")

    def _webhooks(self, kustomization, name, port):
        """Installs the shipped webhooks with loopback addresses. They are removed after the run: without their server they fail."""
        shipped = self.cluster.kubectl("kustomize", kustomization)
        authority = base64.b64encode((CERTIFICATES / "ca.crt").read_bytes()).decode()
        for object_ in objects_in(self.cluster.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-",
                                                       stdin=shipped)):
            if not object_["kind"].endswith("WebhookConfiguration"):
                continue
            kind = "validator" if object_["kind"].startswith("V") else "defaulter"
            object_["metadata"] = {"name": f"{kind}.{name}"}
            for webhook in object_["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
            self._apply(object_)
            self._undo.callback(self.cluster.kubectl, "delete", object_["kind"], object_["metadata"]["name"])

    def _file(self, name, value):
        path = self.cluster.folder / name
        path.write_text(json.dumps(value))  # JSON is YAML
        return path


class JobSet(Peer):
    name = "JobSet 0.12"
    built = ("jobset",)
    jobs = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    selector = job_label = "jobset.sigs.k8s.io/jobset-name"
    attempt_label = "jobset.sigs.k8s.io/restart-attempt"
    container = "node"

    def job(self, name, workers):
        pod = {"restartPolicy": "Never", "containers": [{"name": "node", **CONTAINER}]}
        job = {"parallelism": workers, "completions": workers, "completionMode": "Indexed", "backoffLimit": 0,
               "template": {"spec": pod}}
        return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
                "spec": {"failurePolicy": {"maxRestarts": 3},
                         "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}]}}

    def start(self):
        self._crds("-f", self._source("jobset/config/components/crd/bases"))
        self._certificates()
        health, webhook = free_port(), free_port()
        config = self._file("jobset.json", {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"}, "metrics": {"bindAddress": "0"},
            "webhook": {"port": webhook, "host": "127.0.0.1"}, "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False}})
        self._run("jobset", f"--config={config}",
                  *(["--kube-api-qps=1000", "--kube-api-burst=2000"] if self.tuned else []))
        self._wait_ready(health)
        self._webhooks(self._source("jobset/config/components/webhook"), "jobset.x-k8s.io", webhook)


class Trainer(JobSet):
    name = "Trainer 2.3 + JobSet 0.12"
    built = ("jobset", "trainer")
    jobs = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"

    def job(self, name, workers):
        return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
                "spec": {"runtimeRef": {"name": "bench"}, "trainer": {"numNodes": workers}}}

    def start(self):
        super().start()
        self._crds("-k", self._source("trainer/manifests/base/crds"))
        health, webhook = free_port(), free_port()
        threads, qps, burst = (32, 1000, 2000) if self.tuned else (5, 50, 100)  # the shipped configuration
        config = self._file("trainer.json", {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"}, "metrics": {"bindAddress": "0"},
            "webhook": {"port": webhook, "host": "127.0.0.1"},
            "leaderElection": {"leaderElect": False, "resourceName": "trainer.kubeflow.org", "leaseDuration": "15s",
                               "renewDeadline": "10s", "retryPeriod": "2s"},
            "controller": {"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": threads,
                                                    "TrainingRuntime.trainer.kubeflow.org": 1,
                                                    "ClusterTrainingRuntime.trainer.kubeflow.org": 1}},
            "certManagement": {"enable": False}, "clientConnection": {"qps": qps, "burst": burst}})
        self._run("trainer", f"--config={config}", "--zap-log-level=2")
        self._wait_ready(health)
        self._webhooks(self._source("trainer/manifests/base/webhook"), "trainer.kubeflow.org", webhook)
        self._apply({
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
            "metadata": {"name": "bench", "labels": {"trainer.kubeflow.org/framework": "torch"}},
            "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {
                "failurePolicy": {"maxRestarts": 3},
                "replicatedJobs": [{"name": "node", "template": {
                    "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                    "spec": {"backoffLimit": 0,
                             "template": {"spec": {"containers": [{"name": "node", **CONTAINER}]}}}}}]}}}})


class TrainingOperator(Peer):
    name = "training-operator 1.9"
    built = ("training-operator",)
    jobs = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    selector = "training.kubeflow.org/operator-name=pytorchjob-controller"
    job_label = "training.kubeflow.org/job-name"

    def job(self, name, workers):
        def role(replicas):
            return {"replicas": replicas, "restartPolicy": "OnFailure",
                    "template": {"spec": {"containers": [{"name": "pytorch", **CONTAINER}]}}}
        return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
                "spec": {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(workers - 1)}}}

    def start(self):
        # Only for PyTorchJob, which favours it; its CRD for MPIJobs collides with mpi-operator's.
        self._crds("-f", self._source("training-operator/manifests/base/crds/kubeflow.org_pytorchjobs.yaml"))
        self._namespace("kubeflow")
        self._certificates()
        secret = {name: base64.b64encode((CERTIFICATES / name).read_bytes()).decode()
                  for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
        self._apply({"apiVersion": "v1", "kind": "Secret", "data": secret,
                     "metadata": {"name": "training-operator-webhook-cert", "namespace": "kubeflow"}})
        health, webhook = free_port(), free_port()
        self._webhooks(self._source("training-operator/manifests/base/webhook"), "training-operator.kubeflow.org", webhook)
        speed = ["--kube-api-qps=1000", "--kube-api-burst=2000", "--controller-threads=16"] if self.tuned else []
        self._run("training-operator", "--metrics-bind-address=0", f"--health-probe-bind-address=127.0.0.1:{health}",
                  f"--webhook-server-port={webhook}", "--enable-scheme=pytorchjob", *speed)
        self._wait_ready(health)


class MpiOperator(Peer):
    name = "mpi-operator 0.8"
    built = ("mpi-operator",)
    jobs = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
    selector = "training.kubeflow.org/job-role=worker"  # without its launchers
    job_label = "training.kubeflow.org/job-name"

    def job(self, name, workers):
        def role(replicas, container):
            return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
        launcher = {"name": "launcher", "image": "x", "command": ["sleep"]}
        return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": name},
                "spec": {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": {
                    "Launcher": role(1, launcher), "Worker": role(workers, {"name": "worker", **CONTAINER})}}}

    def start(self):
        self._crds("-f", self._source("mpi-operator/manifests/base/kubeflow.org_mpijobs.yaml"))
        self._namespace("mpi-operator")
        self.cluster.kubectl("delete", "lease", "--all", "-n", "mpi-operator")  # its leader election cannot be disabled
        speed = ["-kube-api-qps=1000", "-kube-api-burst=2000", "-threadiness=16", "-controller-queue-rate-limit=1000",
                 "-controller-queue-burst=2000"] if self.tuned else []
        self._run("mpi-operator", f"-kubeConfig={self.cluster.kubeconfig}", "-monitoring-port=0", *speed)

        def leads():
            leases = json.loads(self.cluster.kubectl("get", "lease", "-n", "mpi-operator", "-o", "json"))["items"]
            return any(lease["spec"].get("holderIdentity") for lease in leases)
        self.cluster.wait(leads, f"{self.title} leads", 60, every_s=0.5)


PEERS = {"jobset": JobSet, "trainer": Trainer, "training-operator": TrainingOperator, "mpi-operator": MpiOperator}


def peer(word, cluster, folder):
    """Returns the peer for a word like `mpi-operator` or `mpi-operator:tuned`."""
    name, _, setting = word.partition(":")
    return PEERS[name](cluster, folder, setting == "tuned")
