# SPDX-License-Identifier: Apache-2.0
"""Runs real gang schedulers (./build) against a cluster of e2e/cluster, for tests.

    with Cluster(nodes=4) as c, Volcano(c) as volcano:
        volcano.scheduler.stop()

Each needs its CRDs first (`install`), which stay when its processes end.
"""

import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

from components import GANGS, SERVERS

HERE = pathlib.Path(__file__).resolve().parent
VOLCANO_API = "scheduling.volcano.sh/v1beta1"
COSCHEDULING_API = "scheduling.x-k8s.io/v1alpha1"
COSCHEDULING_NAME = "scheduler-plugins-scheduler"
# As Volcano's chart has it.
VOLCANO_CONF = """actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
  - name: network-topology-aware
"""


def built():
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.strip())
    return pathlib.Path(done.stdout.strip())


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Process:
    """A program with its log. It is killed, not asked: a scheduler has nothing to save."""

    def __init__(self, folder, name, command):
        self.log_file = folder / f"{name}.log"
        self.command = [str(word) for word in command]
        self.process = None

    @property
    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def start(self):
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def must_live(self):
        if self.process is None or self.process.poll() is not None:
            raise AssertionError(f"{self.log_file.stem} has ended; its log:\n{self.log[-6000:]}")


class Gangs:
    """What the gang schedulers have in common: CRDs, processes, and the gang objects of jobs."""

    crds = ""  # the folder below ./build's
    api = ""
    plural = "podgroups"  # the objects that hold a gang

    def __init__(self, cluster):
        self.cluster = cluster
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-schedulers-"))
        self.processes = []

    def __enter__(self):
        self.install()
        self.start()
        return self

    def __exit__(self, kind, *_):
        for process in self.processes:
            if kind is not None:
                print(f"--- {process.log_file.name}\n{process.log[-4000:]}", file=sys.stderr)
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def install(self):
        self.cluster.kubectl("apply", "--server-side", "-f", built() / "crds" / self.crds)
        self.cluster.wait(self.is_served, f"{self.api} is served")

    def uninstall(self):
        """Deletes the CRDs, and with them all their objects."""
        self.cluster.kubectl("delete", "--wait=false", "-f", built() / "crds" / self.crds)
        self.cluster.wait(lambda: not self.is_served(), f"{self.api} is not served any more")

    def is_served(self):
        try:
            found = self.cluster.api.get("/apis/" + self.api)
        except Exception:  # noqa: BLE001  not yet
            return False
        return self.plural in {one["name"] for one in found["resources"]}

    def start(self):
        for process in self.processes:
            process.start()

    def stop(self):
        for process in self.processes:
            process.stop()

    def groups(self, job, namespace="default"):
        path = f"/apis/{self.api}/namespaces/{namespace}/{self.plural}?labelSelector=ringmaster.dev/job%3D{job}"
        return self.cluster.api.get(path)["items"]


class Volcano(Gangs):
    """vc-scheduler and vc-controller-manager, which opens the queues."""

    crds = "volcano"
    api = VOLCANO_API

    def __init__(self, cluster, leader_election=False):
        """leader_election: with the Lease of a usual installation, volcano-system/volcano. Else no Lease is written."""
        super().__init__(cluster)
        (self.folder / "scheduler.conf").write_text(VOLCANO_CONF)
        common = ["--kubeconfig", cluster.kubeconfig]
        self.scheduler = Process(self.folder, "vc-scheduler", [
            built() / "vc-scheduler", *common, "--scheduler-conf", self.folder / "scheduler.conf", *self._addresses(),
            f"--leader-elect={str(leader_election).lower()}"])
        # Its other controllers need the CRDs of another chart.
        self.controllers = Process(self.folder, "vc-controller-manager", [
            built() / "vc-controller-manager", *common, *self._addresses(), "--leader-elect=false",
            "--controllers=queue-controller,pg-controller"])
        self.processes = [self.scheduler, self.controllers]

    @staticmethod
    def _addresses():
        return ["--listen-address", f"127.0.0.1:{free_port()}", "--healthz-address", f"127.0.0.1:{free_port()}"]

    def install(self):
        super().install()
        self.cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}}))

    def start(self):
        super().start()
        self.cluster.wait(self._is_open, "Volcano's default queue is open", 120)

    def queue(self, name):
        self.cluster.apply_text(json.dumps({"apiVersion": VOLCANO_API, "kind": "Queue", "metadata": {"name": name}, "spec": {}}))
        self.cluster.wait(lambda: self._is_open(name), f"queue {name} is open")

    def hyper_node(self, name, tier, labels):
        """Creates a HyperNode of the nodes with these labels, in the lowest tier, which gets this name."""
        member = {"type": "Node", "selector": {"labelMatch": {"matchLabels": labels}}}
        self.cluster.apply_text(json.dumps({"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode",
                                            "metadata": {"name": name},
                                            "spec": {"tier": 1, "tierName": tier, "members": [member]}}))

    def _is_open(self, name="default"):
        for process in self.processes:
            process.must_live()
        try:
            queue = self.cluster.api.get(f"/apis/{VOLCANO_API}/queues/{name}")
        except Exception:  # noqa: BLE001  the scheduler creates it
            return False
        return queue.get("status", {}).get("state") == "Open"


class Coscheduling(Gangs):
    """The scheduler of scheduler-plugins as a second scheduler."""

    crds = "coscheduling"
    api = COSCHEDULING_API

    def __init__(self, cluster):
        super().__init__(cluster)
        plugin = {"enabled": [{"name": "Coscheduling"}]}
        settings = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
                    "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
                    "leaderElection": {"leaderElect": False},  # its default lock is the first scheduler's
                    "profiles": [{"schedulerName": COSCHEDULING_NAME,
                                  "plugins": {"multiPoint": plugin, "queueSort": {**plugin, "disabled": [{"name": "*"}]}},
                                  "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}]}]}
        (self.folder / "config.json").write_text(json.dumps(settings))
        self.scheduler = Process(self.folder, "coscheduling", [
            built() / "coscheduling", "--config", self.folder / "config.json", "--bind-address", "127.0.0.1",
            "--secure-port", free_port(), "--authentication-kubeconfig", cluster.kubeconfig,
            "--authorization-kubeconfig", cluster.kubeconfig])
        self.processes = [self.scheduler]


class Native(Gangs):
    """Kubernetes' own gangs, in the version of its cluster. Its servers serve them or not, by their flags."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.api = "scheduling.k8s.io/" + GANGS[cluster.options.kubernetes][1]
        self.plural = "workloads" if self.api.endswith("/v1alpha1") else "podgroups"

    def install(self):
        self._serve(True)
        self.cluster.wait(self.is_served, f"{self.api} is served")

    def uninstall(self):
        """Restarts the servers without the feature. The objects stay in etcd."""
        self._serve(False)
        self.cluster.wait(lambda: not self.is_served(), f"{self.api} is not served any more")

    def _serve(self, served):
        if self.cluster.options.gangs == served:
            return
        self.cluster.change(gangs=served)
        for name in (*SERVERS, "kwok"):
            self.cluster.component(name).restart()

    def min_count(self, group):
        spec = group["spec"]
        policy = spec["podGroups"][0]["policy"] if self.plural == "workloads" else spec["schedulingPolicy"]
        return policy["gang"]["minCount"]
