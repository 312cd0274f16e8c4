# SPDX-License-Identifier: Apache-2.0
"""The process that owns a set of nodes: "owner.py FOLDER owned|detached". nodes.py starts it.

It runs in a separate network namespace with the bridge, the control plane and the name server; one veth pair connects it
to the machine. No part outlives it: the kernel kills its children, namespaces, mounts and veth pairs disappear with their
processes, and the janitor (janitor.py), which notices its end, removes the cgroups and the folder.

Single-threaded. It answers requests on the Unix socket FOLDER/control, one JSON object per line and connection:
  {"verb": "power-off" | "boot" | "cut" | "heal" | "freeze" | "thaw" | "kubelet-stop" | "kubelet-start", "node": NAME},
  {"verb": "device", "node": NAME, "device": NAME, "healthy": BOOL}, {"verb": "load", "archive": PATH},
  {"verb": "status"}, {"verb": "down", "keep": BOOL}
Its first line on standard output is {"ready": true}, or {"error": TEXT} when the nodes did not start.
"""

import ctypes
import http.client
import json
import os
import pathlib
import subprocess
import sys
import time

import layout
from cgroups import Cgroup
from cluster import ApiError, Cluster, ClusterError
from control_socket import own
from node import Node, NodeError
from supervisor import LIBC, die_with

HERE = pathlib.Path(__file__).resolve().parent
CLONE_NEWNET = 0x40000000
SITES = 50
READY_TIMEOUT_S = 120


class Site:
    """The shared parts of a set of nodes."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.options = layout.Options(**json.loads((self.folder / "options.json").read_text()))
        self.tools = pathlib.Path((self.folder / "tools").read_text().strip())
        self.kubekit = pathlib.Path((self.folder / "kubekit").read_text().strip())
        self.owner_pid = os.getpid()
        self.cgroup = Cgroup(f"ringmaster-e2e-{self.owner_pid}")
        self.shared = self.folder / "shared"
        self.addresses = None
        self.janitor = None
        self.cluster = None
        self.dns = None
        self.nodes = {}

    # --- start

    def up(self):
        self.shared.mkdir()
        self.shared.chmod(0o1777)  # writable by every user, like many network file systems
        self.janitor = subprocess.Popen([sys.executable, "-B", HERE / "janitor.py", self.folder, self.cgroup.name],
                                        stdin=subprocess.PIPE, start_new_session=True)
        self.cgroup.create(weight=self.options.nodes * os.cpu_count())  # as much CPU time as separate machines would have
        self._network()
        self.cluster = Cluster(self.folder / "cluster", components=["etcd", "apiserver", "kcm", "scheduler"], nodes=0,
                               address=self.addresses.bridge, pod_cidr=self.addresses.pod_cidr,
                               node_grace_s=self.options.node_grace_s, eviction_s=self.options.eviction_s,
                               apiserver_flags=self.options.apiserver_flags)
        self.cluster.start()
        (self.folder / "Corefile").write_text(layout.corefile(self.addresses, self.cluster.kubeconfig))
        with open(self.folder / "coredns.log", "ab") as log:
            self.dns = subprocess.Popen([self.tools / "coredns", "-conf", self.folder / "Corefile"],
                                        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                        preexec_fn=lambda: die_with(self.owner_pid))
        proxy = self.cluster.kubeconfig_of("system:kube-proxy")
        for index in range(1, self.options.nodes + 1):
            node = Node(index, self.folder / layout.node_name(index), self, self.tools)
            kubelet = self.cluster.kubeconfig_of(f"system:node:{node.name}", "system:nodes")
            node.prepare({"kubelet": kubelet, "kube-proxy": proxy}, self.folder / "cluster/pki/ca.crt")
            self.nodes[node.name] = node
        self.boot(list(self.nodes.values()))

    def _network(self):
        """Creates a network namespace with the bridge, and a veth pair to the original namespace."""
        if LIBC.unshare(CLONE_NEWNET):
            raise NodeError(f"cannot create a network namespace: {os.strerror(ctypes.get_errno())}; this needs root")
        outside = ["nsenter", "-t", str(self.janitor.pid), "-n"]  # the janitor is in the original namespace
        for site in range(SITES):
            addresses = layout.Addresses(site)
            made = subprocess.run(["ip", "link", "add", "outside", "type", "veth", "peer", "name", addresses.interface,
                                   "netns", str(self.janitor.pid)], capture_output=True, text=True, check=False)
            if made.returncode == 0:
                break
            if "File exists" not in made.stderr:
                raise NodeError(f"cannot create a veth pair: {made.stderr.strip()}")
        else:
            raise NodeError(f"{SITES} sets of nodes are already running")
        self.addresses = addresses
        self._send_to_janitor(addresses.interface)
        _batch([], "link set lo up", "link add nodes type bridge", f"addr add {addresses.bridge}/24 dev nodes",
               "link set nodes up", "link set outside master nodes up",
               *(f"route add {addresses.pods(i)} via {addresses.node(i)}" for i in range(1, self.options.nodes + 1)))
        _batch(outside, f"addr add {addresses.host}/24 dev {addresses.interface}", f"link set {addresses.interface} up",
               f"route add {addresses.pod_cidr} via {addresses.bridge}")
        subprocess.run(["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"], check=True)

    def _send_to_janitor(self, word):
        self.janitor.stdin.write(f"{word}\n".encode())
        self.janitor.stdin.flush()

    def boot(self, nodes):
        """Boots nodes and waits until they are Ready with all their devices."""
        for node in nodes:
            node.power_on()
        for node in nodes:
            node.wait_containerd()
        for image in {image: None for node in nodes for image in node.missing_images()}:
            self.load(image, [node for node in nodes if image in node.missing_images()])
        for node in nodes:
            node.start_kubelet()
        for node in nodes:
            self._wait(lambda node=node: self._address(node), f"{node.name} was not known to the API server")
            node.start_rest()
        for node in nodes:
            self._wait(lambda node=node: self._is_ready(node), f"{node.name} was not Ready, with its devices,")
            if len(ended := [part for part, state in node.state().items() if "ended" in state]):
                raise NodeError(f"{node.name}: {' '.join(ended)} ended; the logs are in {node.folder}")

    def load(self, archive, nodes):
        loading = [(node, node.start_load(archive)) for node in nodes]
        for node, process in loading:
            node.finish_load(process, archive)

    def _wait(self, condition, what):
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                raise NodeError(f"{what} within {READY_TIMEOUT_S} s; the logs are in {self.folder}")
            time.sleep(0.05)

    def _status(self, node):
        try:
            return self.cluster.api.get(f"/api/v1/nodes/{node.name}")["status"]
        except (ApiError, OSError, http.client.HTTPException):
            return {}

    def _address(self, node):
        """Returns the addresses of a node. A kube-proxy that starts before they are known ends when they appear."""
        return self._status(node).get("addresses")

    def _is_ready(self, node):
        found = self._status(node)
        ready = any(condition["type"] == "Ready" and condition["status"] == "True"
                    for condition in found.get("conditions", []))
        offered = found.get("allocatable", {})
        return ready and all(offered.get(name) == str(count) for name, count in self.options.resources.items())

    # --- requests

    def answer(self, request):
        verb = request.get("verb")
        if verb == "status":
            return {"nodes": {name: node.state() for name, node in self.nodes.items()},
                    "address": self.addresses.bridge, "host": self.addresses.host, "cgroup": self.cgroup.name}
        if verb == "load":
            self.load(request["archive"], [node for node in self.nodes.values() if node.init])
            self.options.images.append(request["archive"])
            return {}
        node = self.nodes.get(request.get("node"))
        if not node:
            raise NodeError(f"no node {request.get('node')!r}; there are: {' '.join(self.nodes)}")
        if verb == "boot":
            self.boot([node])
        elif verb == "power-off":
            node.power_off()
        elif verb in ("cut", "heal"):
            subprocess.run(["ip", "link", "set", node.outer, "down" if verb == "cut" else "up"], check=True)
        elif verb in ("freeze", "thaw"):
            node.cgroup.freeze(verb == "freeze")
        elif verb == "kubelet-stop":
            node.stop_kubelet()
        elif verb == "kubelet-start":
            node.start_kubelet()
        elif verb == "device":
            node.set_health(request["device"], request["healthy"])
        else:
            raise NodeError(f"no verb {verb!r}")
        return {}

    def down(self, keep):
        """Ends all processes. The janitor removes cgroups and the folder."""
        for node in self.nodes.values():
            if node.init:
                node.init.kill()
        if self.dns:
            self.dns.kill()
        if self.cluster:
            self.cluster.stop(keep=True)
        if self.janitor:
            if keep:
                self._send_to_janitor("keep")
            self.janitor.stdin.close()
            self.janitor.wait()


def _batch(where, *lines):
    done = subprocess.run([*where, "ip", "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise NodeError(f"ip: {done.stderr.strip()}")


def main():
    folder, mode = sys.argv[1:]
    site = Site(folder)
    return own(site, site.folder, mode == "owned", (NodeError, ClusterError, OSError, subprocess.SubprocessError))


if __name__ == "__main__":
    sys.exit(main())
