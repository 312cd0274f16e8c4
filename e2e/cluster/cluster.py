# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane with fake nodes, for tests.

    with Cluster(nodes=4) as c:
        c.apply_text(open("job.yaml").read())
        c.kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=30s")
        c.component("apiserver").restart()

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok are processes on loopback with their own ports and
folder, so any number of clusters can run at the same time. They end with the process that created the Cluster, however
that ends. README.md has the details. Uses only the standard library. Thread-safe.
"""

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import components
import kubeapi
import pki
from control_socket import ask
from kubeapi import ApiError  # re-exported

HERE = pathlib.Path(__file__).resolve().parent
COMPONENTS = components.COMPONENTS


class ClusterError(Exception):
    """The cluster could not be started, or a request failed. The message names the reason."""


class NotBuilt(ClusterError):
    """The binary of the control plane does not exist; e2e/cluster/build builds it."""


class KubectlError(Exception):
    """kubectl ended with an exit code other than 0."""

    def __init__(self, arguments, done):
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        super().__init__(f"kubectl {' '.join(arguments)}: exit code {self.code}: {self.stderr.strip()}")


@functools.cache  # the check hashes the sources, and a process may start many clusters
def binary(kubernetes=""):
    """Returns the path of the control plane's binary, or of the servers of this older Kubernetes. Raises NotBuilt."""
    version = [kubernetes] if kubernetes else []
    done = subprocess.run([HERE / "build", *version, "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuilt(done.stderr.strip())
    return pathlib.Path(done.stdout.strip()) / ("kubernetes" if kubernetes else "kubekit")


class Cluster:
    """See components.Options for the options (nodes, gpus, rdma, components, node_grace_s, apiserver_flags, ...).

    folder: a new or empty folder for data, keys and logs (default: a temporary one).
    detached: the cluster keeps running after this process ends, until `down` is called on its folder.
    """

    def __init__(self, folder=None, detached=False, **options):
        self.options = components.Options(**options)
        unknown = set(self.options.components) - set(COMPONENTS)
        if unknown:
            raise ClusterError(f"no component {' '.join(sorted(unknown))}; there are: {' '.join(COMPONENTS)}")
        self.folder = pathlib.Path(folder).absolute() if folder else None
        self._detached = detached
        self._supervisor = None

    @classmethod
    def attach(cls, folder):
        """Returns a cluster that another process started."""
        folder = pathlib.Path(folder).absolute()
        try:
            options = json.loads((folder / "options.json").read_text())
        except FileNotFoundError:
            raise ClusterError(f"{folder} is not the folder of a cluster") from None
        return cls(folder, **options)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        self.stop(keep=kind is not None)
        if kind is not None:
            print(f"the cluster's logs are kept in {self.folder}", file=sys.stderr)

    # --- life

    def start(self):
        """Starts all components and waits until pods can be created. Returns self."""
        program = binary()
        if self.folder is None:
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-e2e-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise ClusterError(f"{self.folder} is not empty")
        self.folder.chmod(0o700)
        self._write_options()
        (self.folder / "binary").write_text(f"{program}\n")
        with open(self.folder / "supervisor.log", "ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-B", HERE / "supervisor.py", self.folder, "detached" if self._detached else "owned"],
                stdin=subprocess.DEVNULL if self._detached else subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True)
        line = self._supervisor.stdout.readline()
        self._supervisor.stdout.close()
        answer = json.loads(line or "{}")
        if "ready" not in answer:
            self._supervisor.wait()
            reason = answer.get("error") or (self.folder / "supervisor.log").read_text()[-2000:]
            raise ClusterError(f"the cluster did not start: {reason}\nits logs are kept in {self.folder}")
        return self

    def stop(self, keep=False):
        """Ends all components, and removes the folder unless `keep`. Works on a broken cluster, too."""
        keep = keep or bool(os.environ.get("RINGMASTER_KEEP_CLUSTER"))
        try:
            self._ask(verb="down", keep=keep)
        except ClusterError:
            pass  # the supervisor has ended, and its children with it
        if self._supervisor:
            if self._supervisor.stdin:
                self._supervisor.stdin.close()
            self._supervisor.wait()
        if not keep and self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def component(self, name):
        return Component(self, name)

    def change(self, **options):
        """Changes options of a cluster that runs. A component takes them when it starts again."""
        self.options = dataclasses.replace(self.options, **options)
        self._write_options()

    def _write_options(self):
        (self.folder / "options.json").write_text(json.dumps(dataclasses.asdict(self.options)) + "\n")
        (self.folder / "servers").write_text(f"{binary(self.options.kubernetes)}\n")

    def status(self):
        """Returns {"components": {name: "running" | "ended with CODE"}, "pids": {name: pid}}."""
        return self._ask(verb="status")

    def wake_clients(self):
        """Restarts Kubernetes' own clients of the API server. After an outage their watches return only after client-go's
        delay, which grows to a minute and adds up over outages less than two minutes apart: a pod was bound 97 s after an
        outage of 5 s that followed one of 45 s."""
        for name in ("kcm", "scheduler", "kwok"):
            self.component(name).restart()

    def compact(self):
        """Deletes the history in etcd and in the API server: watches end, and a request that continues from an old
        resourceVersion or list gets 410. Returns the revision of etcd."""
        return self._ask(verb="compact")["revision"]

    # --- objects

    @property
    def kubeconfig(self):
        """The kubeconfig of the administrator."""
        return self.folder / "kubeconfig"

    @property
    def server(self):
        return json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]

    @property
    def api(self):
        """A client for plain requests as the administrator: c.api.get("/api/v1/pods"); see kubeapi.py."""
        return self.api_of(self.kubeconfig)

    def api_of(self, kubeconfig):
        """A client for plain requests with the token of a kubeconfig of this cluster."""
        config = json.loads(pathlib.Path(kubeconfig).read_text())
        return kubeapi.Api(config["clusters"][0]["cluster"]["server"], self.folder / "pki/ca.crt",
                           config["users"][0]["user"].get("token"))

    def kubectl(self, *arguments, stdin=None, kubeconfig=None, timeout_s=300):
        """Runs kubectl and returns its standard output. Raises KubectlError."""
        arguments = [str(argument) for argument in arguments]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig or self.kubeconfig), "HOME": str(self.folder)}
        done = subprocess.run([(self.folder / "binary").read_text().strip(), "kubectl", *arguments], input=stdin,
                              env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode:
            raise KubectlError(arguments, done)
        return done.stdout

    def apply_text(self, manifests, *arguments, kubeconfig=None):
        """Runs kubectl apply --server-side with YAML or JSON text."""
        return self.kubectl("apply", "--server-side", "-f", "-", *arguments, stdin=manifests, kubeconfig=kubeconfig)

    def get(self, kind, name=None, namespace="default"):
        """Returns an object as a dict, or the list of all objects of a kind."""
        found = json.loads(self.kubectl("get", kind, *([name] if name else []), "-n", namespace, "-o", "json"))
        return found if name else found["items"]

    def wait(self, condition, what, timeout_s=180, every_s=0.05):
        """Calls condition() until it returns a true value, and returns that value. Fails with `what` after timeout_s."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout_s} s: {what}")
            time.sleep(every_s)

    def kubeconfig_of(self, user, *groups):
        """Creates a kubeconfig for a user and returns its path.

        system:serviceaccount:NAMESPACE:NAME gets a token of that ServiceAccount, valid for a day; any other user gets a
        client certificate with this name and these groups.
        """
        safe = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in "-".join([user, *groups]))
        parts = user.split(":")
        if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4:
            path = f"/api/v1/namespaces/{parts[2]}/serviceaccounts/{parts[3]}/token"
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                       "spec": {"expirationSeconds": 86400}}
            credentials = {"token": self.api.request("POST", path, request)["status"]["token"]}
        else:
            authority = pki.Pki(self.folder / "pki")
            name = f"user-{safe}"
            authority.issue(name, "".join(f"/O={group}" for group in groups) + f"/CN={user}", "clientAuth")
            credentials = {"client-certificate-data": pki.encoded(authority.certificate(name)),
                           "client-key-data": pki.encoded(authority.key(name))}
        file = self.folder / f"kubeconfig-{safe}"
        pki.write_secret(file, pki.kubeconfig(self.server, self.folder / "pki/ca.crt", credentials))
        return file

    # --- actions of kubelets

    def pod_exit(self, namespace, pod, code, message="", container=None, reason=None):
        """Ends a running pod: its containers end with this exit code, and the pod becomes Succeeded or Failed.

        message: the termination message. reason: for example "OOMKilled"; "Completed" or "Error" unless given.
        container: ends only this container; the other containers and the pod keep running.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        current = self.api.get(path)
        statuses = current["status"].get("containerStatuses")
        if not statuses:
            raise ClusterError(f"{namespace}/{pod} does not run: its phase is {current['status'].get('phase')}")
        if container and container not in [status["name"] for status in statuses]:
            raise ClusterError(f"{namespace}/{pod} has no container {container!r}")
        for status in statuses:
            if "running" in status["state"] and container in (None, status["name"]):
                ended = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "finishedAt": now,
                         "startedAt": status["state"]["running"].get("startedAt"), "message": message}
                status.update(ready=False, started=False, state={"terminated": ended})
        codes = [status["state"].get("terminated", {}).get("exitCode") for status in statuses]
        change = {"containerStatuses": statuses, "conditions": [
            {"type": kind, "status": "False", "lastTransitionTime": now,
             "reason": "ContainersNotReady" if None in codes else "PodFailed" if any(codes) else "PodCompleted"}
            for kind in ("Ready", "ContainersReady")]}
        if None not in codes:
            change["phase"] = "Failed" if any(codes) else "Succeeded"
        self.api.patch(path + "/status", {"status": change}, "strategic")

    def add_nodes(self, *names):
        """Adds fake nodes to the initial ones, whose names are node-0 and so on."""
        self._ask(verb="add-nodes", names=names, first=len(self.api.get("/api/v1/nodes")["items"]))

    def lose_node(self, name):
        """Stops the node's kubelet: heartbeats end (the node becomes Unknown after node_grace_s), and deleted pods stay
        Terminating."""
        self._kubelet(name, "stopped")

    def find_node(self, name):
        """Starts the kubelet again."""
        self._kubelet(name, "running")

    def _kubelet(self, name, state):
        self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {components.KUBELET_LABEL: state}}})

    # --- the supervisor

    def _ask(self, **request):
        return ask(self.folder, "cluster", ClusterError, **request)


class Component:
    """One of COMPONENTS. Each method waits for its effect: a started component answers, a stopped one has ended."""

    def __init__(self, cluster, name):
        self._cluster, self.name = cluster, name

    def start(self):
        self._cluster._ask(verb="start", component=self.name)

    def stop(self):
        self._cluster._ask(verb="stop", component=self.name)

    def kill9(self):
        self._cluster._ask(verb="kill9", component=self.name)

    def restart(self):
        self._cluster._ask(verb="restart", component=self.name)

    @property
    def pid(self):
        """The pid, or None when the component does not run."""
        return self._cluster.status()["pids"].get(self.name)

    @property
    def log(self):
        return (self._cluster.folder / f"{self.name}.log").read_text(errors="replace")
