# SPDX-License-Identifier: Apache-2.0
"""Runs the real Kueue (./build) against a cluster of e2e/cluster, for tests.

    with Cluster(nodes=4) as c, Kueue(c) as kueue:
        kueue.queue("team-a", {"nvidia.com/gpu": 8})

Kueue wants its certificates under /etc and /visibility, so it runs in a mount namespace with an own root. Its API of the queues'
heads is served by the cluster's API server (an APIService). Of its webhooks only the one that
validates Workloads is registered: it refuses what an integration must not do.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from pki import Pki, encoded

HERE = pathlib.Path(__file__).resolve().parent
API = "kueue.x-k8s.io/v1beta2"
SURPLUS = "ringmaster.dev/surplus"
VISIBILITY = "visibility.kueue.x-k8s.io"
# A root for this process alone: the real folders, and our certificates.
START = """set -e
ours=$1 root=$2
shift 2
mount -t tmpfs tmpfs "$root"
for folder in /*; do
  if [ -d "$folder" ] && [ ! -L "$folder" ] && [ "$folder" != /etc ]; then
    mkdir "$root$folder"
    mount --rbind "$folder" "$root$folder"
  fi
done
mkdir "$root/etc" "$root/visibility"
mount -t overlay overlay -o "lowerdir=$ours/etc:/etc" "$root/etc"
mount --bind "$ours/visibility" "$root/visibility"
exec chroot "$root" "$@"
"""


def built():
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.strip())
    return pathlib.Path(done.stdout.strip())


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Kueue:
    def __init__(self, cluster, settings=None):
        """settings: more fields of Kueue's Configuration."""
        self.cluster = cluster
        self.settings = settings or {}
        self.process = None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-kueue-"))

    def __enter__(self):
        self.install()
        self.start()
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print(f"--- kueue.log\n{self.log[-6000:]}", file=sys.stderr)
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def log(self):
        file = self.folder / "kueue.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def install(self):
        """Applies the CRDs, creates certificates, the configuration and the webhook."""
        c = self.cluster
        c.kubectl("apply", "--server-side", "-f", str(built() / "crds"))
        c.wait(self._is_served, "Kueue's CRDs are established")
        c.apply_text(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}))
        keys = Pki(self.folder / "pki")
        keys.create("127.0.0.1")
        keys.issue("kueue", "/CN=kueue", "serverAuth", ["IP:127.0.0.1", "DNS:localhost"])
        (self.folder / "root").mkdir()
        for where in ("ours/etc/kueue/metrics/certs", "ours/visibility", "webhook"):
            target = self.folder / where
            target.mkdir(parents=True)
            shutil.copy(keys.certificate("kueue"), target / "tls.crt")
            shutil.copy(keys.key("kueue"), target / "tls.key")
        self.health, self.port, heads = free_ports(3)
        settings = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": "kueue-system",
                    "health": {"healthProbeBindAddress": f"127.0.0.1:{self.health}"}, "metrics": {"bindAddress": "0"},
                    "webhook": {"host": "127.0.0.1", "port": self.port, "certDir": str(self.folder / "webhook")},
                    "leaderElection": {"leaderElect": False}, "internalCertManagement": {"enable": False},
                    "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": heads},
                    "integrations": {"frameworks": ["batch/job"],
                                     "externalFrameworks": ["TrainingJob.v1alpha1.ringmaster.dev"]},
                    **self.settings}
        (self.folder / "config.json").write_text(json.dumps(settings))
        hook = {"name": "vworkload.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": {"url": f"https://127.0.0.1:{self.port}/validate-kueue-x-k8s-io-v1beta2-workload",
                                 "caBundle": encoded(keys.ca)},
                "rules": [{"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["v1beta2"], "operations": ["CREATE", "UPDATE"],
                           "resources": ["workloads", "workloads/status"]}]}
        c.apply_text(json.dumps({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                                 "metadata": {"name": "kueue-validating-webhook-configuration"}, "webhooks": [hook]}))

        # An API server resolves the name of such a Service itself.
        c.apply_text(json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "heads", "namespace": "kueue-system"},
                                 "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": heads}]}}))
        c.apply_text(json.dumps({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                                 "metadata": {"name": f"v1beta2.{VISIBILITY}"},
                                 "spec": {"group": VISIBILITY, "version": "v1beta2", "groupPriorityMinimum": 100,
                                          "versionPriority": 100, "insecureSkipTLSVerify": True,
                                          "service": {"name": "heads", "namespace": "kueue-system", "port": heads}}}))

    def _is_served(self):
        try:
            found = self.cluster.api.get("/apis/" + API)
        except Exception:  # noqa: BLE001  not yet
            return False
        return {"workloads", "localqueues", "clusterqueues"} <= {one["name"] for one in found["resources"]}

    def start(self):
        with open(self.folder / "kueue.log", "ab") as log:
            self.process = subprocess.Popen(
                ["unshare", "-rm", "sh", "-c", START, "sh", self.folder / "ours", self.folder / "root", built() / "kueue", "--config",
                 self.folder / "config.json", "--kubeconfig", self.cluster.kubeconfig],
                env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True)
        self.cluster.wait(self._is_ready, "Kueue is ready", 120)
        return self

    def _is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"Kueue ended with {self.process.returncode}; its log:\n{self.log[-6000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    # --- what an administrator does

    def apply(self, kind, name, spec, namespace=None):
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        self.cluster.apply_text(json.dumps({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}))

    def flavor(self, name, labels=None, tolerations=None, topology=None):
        spec = {"topologyName": topology} if topology else {}
        if labels:
            spec["nodeLabels"] = labels
        if tolerations:
            spec["tolerations"] = tolerations
        self.apply("ResourceFlavor", name, spec)

    def queue(self, name, gpus, cohort=None, preemption=None, namespace="default", checks=None):
        """Creates a ClusterQueue, and a LocalQueue of the same name. gpus: {flavor: count or (count, borrowing limit)}."""
        flavors = []
        for flavor, count in gpus.items():
            own, limit = count if isinstance(count, tuple) else (count, None)
            quota = {"name": "nvidia.com/gpu", "nominalQuota": own, **({} if limit is None else {"borrowingLimit": limit})}
            flavors.append({"name": flavor, "resources": [quota]})
        spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]}
        if cohort:
            spec["cohortName"] = cohort
        if preemption:
            spec["preemption"] = preemption
        if checks:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
        self.apply("ClusterQueue", name, spec)
        self.apply("LocalQueue", name, {"clusterQueue": name}, namespace)
        self.cluster.wait(lambda: self._is_active(name), f"ClusterQueue {name} is active")

    def raise_quota(self, name, gpus):
        """Sets the GPUs of the first flavour of a ClusterQueue."""
        change = {"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "value": gpus}
        self.cluster.kubectl("patch", "clusterqueues.kueue.x-k8s.io", name, "--type=json", "-p", json.dumps([change]))

    def _is_active(self, name):
        found = self.cluster.api.get(f"/apis/{API}/clusterqueues/{name}")
        return any(one["type"] == "Active" and one["status"] == "True" for one in found.get("status", {}).get("conditions", []))

    # --- what a user reads

    def workloads(self, job, namespace="default"):
        path = f"/apis/{API}/namespaces/{namespace}/workloads?labelSelector=ringmaster.dev/job%3D{job}"
        return self.cluster.api.get(path)["items"]

    def workload(self, job, namespace="default"):
        """Returns the Workload without which the job does not run; None: there is none."""
        found = [one for one in self.workloads(job, namespace) if SURPLUS not in one["metadata"].get("annotations", {})]
        return found[0] if found else None

    def surpluses(self, job):
        """Returns for how many workers each Workload of those above the job's minimum has quota; 0: it waits."""
        found = {}
        for one in self.workloads(job):
            number = one["metadata"].get("annotations", {}).get(SURPLUS)
            status = one.get("status", {})
            if number and "deletionTimestamp" not in one["metadata"]:
                sets = status.get("admission", {}).get("podSetAssignments", [{}])
                back = sum(entry["count"] for entry in status.get("reclaimablePods", []))
                asked = one["spec"]["podSets"][0]["count"]
                found[int(number)] = min(sets[0].get("count", 0), asked - back)
        return found

    def condition(self, job, kind, namespace="default"):
        """Returns the condition of the job's Workload, with an empty status if it has none."""
        for one in ((self.workload(job, namespace) or {}).get("status") or {}).get("conditions", []):
            if one["type"] == kind:
                return one
        return {"status": "", "reason": "", "message": ""}

    def wait_condition(self, job, kind, value="True", reason=None, namespace="default", timeout_s=60):
        def holds():
            found = self.condition(job, kind, namespace)
            return found["status"] == value and (reason is None or found["reason"] == reason) and found
        try:
            return self.cluster.wait(holds, "", timeout_s)
        except AssertionError:
            raise AssertionError(f"Workload of {job}: {kind} is not {value} {reason or ''} within {timeout_s} s:\n"
                                 f"{json.dumps(self.workload(job, namespace), indent=1)}") from None

    def admitted(self, job):
        return self.condition(job, "Admitted")["status"] == "True"
