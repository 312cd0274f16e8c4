# SPDX-License-Identifier: Apache-2.0
"""Real nodes for tests: kubelets with containerd, pods that are processes, networks that can be cut.

    with Nodes(images=["build/images/ringmaster-worker-0.1.0.tar"]) as nodes:
        nodes.cluster.apply_text(...)            # everything of e2e/cluster's Cluster
        nodes.power_off("node-2"); nodes.boot("node-2")

Needs root. README.md has the rest. A Nodes may be used from any thread.
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
    """The nodes could not be started, or could not do what was asked. The message says why."""


def tools():
    """Where e2e/nodes/build has put things; raises cluster.NotBuilt when they are not there."""
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise cluster.NotBuilt(done.stderr.strip())
    return pathlib.Path(done.stdout.strip())


class Nodes:
    """See layout.Options for the options (nodes, resources, images, node_grace_s, eviction_s).

    folder: where everything is kept; made here, so it must be missing or empty. Without it, a temporary folder.
    detached: the nodes go on when this process ends, until somebody calls `down` on their folder.
    """

    def __init__(self, folder=None, detached=False, **options):
        self.options = layout.Options(**options)
        self.options.images = [str(pathlib.Path(image).absolute()) for image in self.options.images]
        self.folder = pathlib.Path(folder).absolute() if folder else None
        self._detached = detached
        self._owner = None

    @classmethod
    def attach(cls, folder):
        """Nodes that somebody else started."""
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
        """Starts everything and returns when every node is Ready. Returns self."""
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
        """Ends everything, and removes the folder unless `keep`."""
        keep = keep or bool(os.environ.get("RINGMASTER_KEEP_CLUSTER"))
        with contextlib.suppress(NodesError):  # the owner is gone, and everything with it
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
        """This machine's own address, which nodes, pods and control plane reach."""
        return self.status()["host"]

    # --- what can be done to a node

    def power_off(self, node):
        """Pulls the plug."""
        self._ask(verb="power-off", node=node)

    def boot(self, node):
        """Switches it on; returns when it is Ready. What it has on disk is still there."""
        self._ask(verb="boot", node=node)

    def cut(self, node):
        """Unplugs its network cable: everything on it goes on."""
        self._ask(verb="cut", node=node)

    def heal(self, node):
        self._ask(verb="heal", node=node)

    def freeze(self, node):
        """All its processes stand still; its kernel still answers pings."""
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
        """Gives every node the images of an archive."""
        self._ask(verb="load", archive=str(pathlib.Path(archive).absolute()))

    def processes(self, node, name=""):
        """(pid, name) of the node's processes, those in pods as well, whose name begins like this."""
        found = []
        for pid in sorted(Cgroup(f"{self.status()['cgroup']}/{node}").pids()):
            with contextlib.suppress(OSError):
                called = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
                if called.startswith(name):
                    found.append((pid, called))
        return found

    def root(self, node):
        """The node's own root folder, as its processes see it, with its mounts."""
        return pathlib.Path(f"/proc/{self._init(node)}/root")

    def run(self, node, *command):
        """Runs a program of this machine in the node's namespace of mounts."""
        done = subprocess.run(["nsenter", "-t", str(self._init(node)), "-m", *map(str, command)], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise NodesError(f"{node}: {' '.join(map(str, command))}: {done.stderr.strip()}")
        return done.stdout

    def _init(self, node):
        found = self.processes(node, "node-pause")
        if not found:
            raise NodesError(f"{node} is off")
        return found[0][0]

    def status(self):
        return self._ask(verb="status")

    def _ask(self, **request):
        return ask(self.folder, "set of nodes", NodesError, **request)
