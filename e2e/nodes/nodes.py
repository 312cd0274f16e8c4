# SPDX-License-Identifier: Apache-2.0
"""Real nodes for tests: kubelets with containerd, pods with processes, and networks that a test can cut.

    with Nodes(images=["build/images/ringmaster-worker-0.1.0.tar"]) as nodes:
        nodes.cluster.apply_text(...)            # everything of e2e/cluster's Cluster
        nodes.power_off("node-2"); nodes.boot("node-2")

Needs root. README.md has the details. Thread-safe.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import cluster
import layout
from cgroups import Cgroup
from cluster import Cluster
from control_socket import ask

HERE = pathlib.Path(__file__).resolve().parent


class NodesError(Exception):
    """The nodes could not be started, or a request failed. The message names the reason."""


def tools():
    """Returns the folder that e2e/nodes/build made. Raises cluster.NotBuilt when it does not exist."""
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise cluster.NotBuilt(done.stderr.strip())
    return pathlib.Path(done.stdout.strip())


class Nodes:
    """See layout.Options for the options (nodes, resources, images, node_grace_s, eviction_s, mtu).

    folder: a new or empty folder for data, keys and logs (default: a temporary one).
    detached: the nodes keep running after this process ends, until `down` is called on their folder.
    """

    def __init__(self, folder=None, detached=False, **options):
        self.options = layout.Options(**options)
        self.options.images = [str(pathlib.Path(image).absolute()) for image in self.options.images]
        self.folder = pathlib.Path(folder).absolute() if folder else None
        self._detached = detached
        self._owner = None

    @classmethod
    def attach(cls, folder):
        """Returns nodes that another process started."""
        folder = pathlib.Path(folder).absolute()
        try:
            return cls(folder, **json.loads((folder / "options.json").read_text()))
        except FileNotFoundError:
            raise NodesError(f"{folder} is not the folder of a set of nodes") from None

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        self.stop(keep=kind is not None)
        if kind is not None:
            print(f"the logs of the nodes are kept in {self.folder}", file=sys.stderr)

    def start(self):
        """Starts the cluster and waits until every node is Ready. Returns self."""
        if os.geteuid() != 0:
            raise NodesError("real nodes need root: they are network, mount and pid namespaces")
        missing = [image for image in self.options.images if not pathlib.Path(image).exists()]
        if missing:
            raise NodesError(f"no such archive: {' '.join(missing)} (images/build makes them)")
        programs = tools()
        if self.folder is None:
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-nodes-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.iterdir()):
            raise NodesError(f"{self.folder} is not empty")
        self.folder.chmod(0o711)
        (self.folder / "options.json").write_text(json.dumps(dataclasses.asdict(self.options)) + "\n")
        (self.folder / "tools").write_text(f"{programs}\n")
        (self.folder / "kubekit").write_text(f"{cluster.binary()}\n")
        with open(self.folder / "owner.log", "ab") as log:
            self._owner = subprocess.Popen(
                [sys.executable, "-B", HERE / "owner.py", self.folder, "detached" if self._detached else "owned"],
                stdin=subprocess.DEVNULL if self._detached else subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True, env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent / 'cluster'}"})
        line = self._owner.stdout.readline()
        self._owner.stdout.close()
        answer = json.loads(line or "{}")
        if "ready" not in answer:
            self._owner.wait()
            reason = answer.get("error") or (self.folder / "owner.log").read_text()[-2000:]
            raise NodesError(f"the nodes did not start: {reason}\ntheir logs are kept in {self.folder}")
        return self

    def stop(self, keep=False):
        """Ends all processes, and removes the folder unless `keep`."""
        keep = keep or bool(os.environ.get("RINGMASTER_KEEP_CLUSTER"))
        with contextlib.suppress(NodesError):  # the owner has ended, and all processes with it
            self._ask(verb="down", keep=keep)
        if self._owner:
            if self._owner.stdin:
                self._owner.stdin.close()
            self._owner.wait()
        if not keep and self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def cluster(self):
        """The control plane: kubectl, api, wait, component and so on."""
        return Cluster.attach(self.folder / "cluster")

    @property
    def kubeconfig(self):
        return self.folder / "cluster/kubeconfig"

    @property
    def shared(self):
        """A folder of this machine that every node has as /mnt/shared."""
        return self.folder / "shared"

    @property
    def host(self):
        """The address of this machine on the network of the nodes, the pods and the control plane."""
        return self.status()["host"]

    # --- actions on a node

    def power_off(self, node):
        """Powers the node off, without a shutdown."""
        self._ask(verb="power-off", node=node)

    def boot(self, node):
        """Powers the node on and waits until it is Ready. Its disk is unchanged."""
        self._ask(verb="boot", node=node)

    def cut(self, node):
        """Disconnects the network of the node. Its processes keep running."""
        self._ask(verb="cut", node=node)

    def heal(self, node):
        self._ask(verb="heal", node=node)

    def freeze(self, node):
        """Freezes all processes of the node. Its kernel still answers pings."""
        self._ask(verb="freeze", node=node)

    def thaw(self, node):
        self._ask(verb="thaw", node=node)

    def stop_kubelet(self, node):
        self._ask(verb="kubelet-stop", node=node)

    def start_kubelet(self, node):
        self._ask(verb="kubelet-start", node=node)

    def set_device_health(self, node, device, healthy):
        """device: "gpu-0" is the first of nvidia.com/gpu."""
        self._ask(verb="device", node=node, device=device, healthy=healthy)

    def load(self, archive):
        """Imports an archive of images on every node."""
        self._ask(verb="load", archive=str(pathlib.Path(archive).absolute()))

    def processes(self, node, name=""):
        """Returns (pid, name) of the node's processes whose name starts with `name`, including those in pods."""
        found = []
        for pid in sorted(Cgroup(f"{self.status()['cgroup']}/{node}").pids()):
            with contextlib.suppress(OSError):
                called = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                if called.startswith(name):
                    found.append((pid, called))
        return found

    def root(self, node):
        """Returns the root folder of the node, as its processes see it, with its mounts."""
        return pathlib.Path(f"/proc/{self._init(node)}/root")

    def run(self, node, *command):
        """Runs a program of this machine in the mount namespace of the node."""
        done = subprocess.run(["nsenter", "-t", str(self._init(node)), "-m", *map(str, command)], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise NodesError(f"{node}: {' '.join(map(str, command))}: {done.stderr.strip()}")
        return done.stdout

    def start_program(self, node, command, log):
        """Starts a program of this machine with the files and the network of the node, and returns its process. It is a process
        of the caller, and does not end with the node."""
        return subprocess.Popen(["nsenter", "-t", str(self._init(node)), "-m", "-n", *map(str, command)],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def _init(self, node):
        found = self.processes(node, "node-pause")
        if not found:
            raise NodesError(f"{node} is off")
        return found[0][0]

    def status(self):
        return self._ask(verb="status")

    def _ask(self, **request):
        return ask(self.folder, "set of nodes", NodesError, **request)
