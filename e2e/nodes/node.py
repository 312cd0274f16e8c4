# SPDX-License-Identifier: Apache-2.0
"""One node: its namespaces, and containerd, kubelet, kube-proxy and a device plugin in them.

Main thread of the owner only: PR_SET_PDEATHSIG kills a child when the thread that started it ends.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

import layout
from supervisor import die_with

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 60


class NodeError(Exception):
    """An operation of a node failed. The message names the node and the folder of its logs."""


class Node:
    def __init__(self, index, folder, site, tools):
        """folder: the folder of this node. site: Site (owner.py). tools: the folder that e2e/nodes/build made."""
        self.index, self.folder, self.site, self.tools = index, folder, site, tools
        self.name = layout.node_name(index)
        self.address = site.addresses.node(index)
        self.cgroup = site.cgroup.child(self.name)
        self.outer = f"veth-{self.name}"  # the end of its cable outside of the node
        self.init = None  # the process that holds the namespaces; all processes of the node end with it
        self.init_pid = 0
        self.parts = {}

    # --- preparation, once

    def prepare(self, kubeconfigs, authority):
        """kubeconfigs: {"kubelet": path, "kube-proxy": path}."""
        for part in ("etc", "kubelet", "containerd", "pods-log", "unhealthy"):
            (self.folder / part).mkdir(parents=True)
        etc = self.folder / "etc"
        for part, file in kubeconfigs.items():
            shutil.copy(file, etc / f"{part}.kubeconfig")
        shutil.copy(authority, etc / "kubernetes-ca.crt")
        addresses = self.site.addresses
        (etc / "kubelet.yaml").write_text(layout.text(layout.kubelet(addresses, self.site.options, self.cgroup.name)))
        (etc / "kube-proxy.yaml").write_text(layout.text(layout.kube_proxy(addresses, self.name)))
        (etc / "cni.conflist").write_text(layout.text(layout.cni(addresses, self.index, self.site.options.mtu)))
        (etc / "containerd.toml").write_text(layout.CONTAINERD)
        (etc / "resolv-pods.conf").write_text("")  # no names outside of the cluster are resolved

    # --- power

    def power_on(self):
        """The first step of a boot. Several nodes may boot concurrently, step by step."""
        if self.init:
            raise NodeError(f"{self.name} is on")
        # The cgroup of a pod from before the last shutdown would keep the kubelet from creating the pod again.
        self.cgroup.remove()
        self.cgroup.create()
        shutil.rmtree(self.folder / "overlay", ignore_errors=True)
        system = self.cgroup.child("system")
        system.create()
        self.init = self._popen("init", [
            "unshare", "--net", "--mount", "--propagation", "slave", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
            "--mount-proc", HERE / "node-init", self.folder, self.name, self.site.shared, self.tools / "node-pause"])
        self.init_pid = self._until(lambda: self._child_called(self.init.pid, "node-pause"), "its namespaces were not made")
        self._plug_in()
        self._run("containerd", [self.tools / "containerd", "--config", "/etc/containerd.toml"])

    def wait_containerd(self):
        self._until(lambda: self._inside("ctr", "--connect-timeout", "1s", "version").returncode == 0,
                    "containerd does not answer")

    def missing_images(self):
        store = self.folder / "images"
        have = set(store.read_text().splitlines()) if store.exists() else set()
        return [image for image in [str(self.tools / "pause.tar"), *self.site.options.images] if image not in have]

    def start_load(self, archive):
        """Starts to import an archive of images (of `docker save` or an OCI builder). finish_load waits for the end."""
        with open(self.folder / "load.log", "ab") as log:
            return subprocess.Popen(self._enter("ctr", "--namespace", "k8s.io", "images", "import", archive),
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment(),
                                    preexec_fn=self._before_exec)

    def finish_load(self, process, archive):
        try:
            code = process.wait(TIMEOUT_S * 5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code:
            raise NodeError(f"{self.name}: cannot import {archive}; see {self.folder}/load.log")
        with open(self.folder / "images", "a") as file:
            file.write(f"{archive}\n")

    def start_kubelet(self):
        self._run("kubelet", [self.site.kubekit, "kubelet", "--kubeconfig=/etc/kubelet.kubeconfig",
                              "--config=/etc/kubelet.yaml", "--cert-dir=/var/lib/kubelet/pki",
                              f"--hostname-override={self.name}", f"--node-ip={self.address}"])

    def start_rest(self):
        self._run("kube-proxy", [self.site.kubekit, "kube-proxy", "--config=/etc/kube-proxy.yaml"])
        resources = [f"--resource={name}={count}" for name, count in self.site.options.resources.items()]
        if resources:
            self._run("deviceplugin", [self.tools / "deviceplugin", "--unhealthy", self.folder / "unhealthy", *resources])

    def power_off(self):
        """As if the plug were pulled: every process of the node is gone at once, and its memory, and its network."""
        if not self.init:
            raise NodeError(f"{self.name} is off")
        self.cgroup.freeze(False)
        self.init.kill()  # the kernel then kills the node's PID 1, and with that everything
        self.init.wait()
        for part in self.parts.values():
            part.kill()
            part.wait()
        self.parts.clear()
        self.init = None
        self._until(lambda: not self.cgroup.pids(), "some of its processes did not end")

    # --- other failures

    def stop_kubelet(self):
        process = self.parts.get("kubelet")
        if not process or process.poll() is not None:
            raise NodeError(f"the kubelet of {self.name} is not running")
        for pid in _children(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait(TIMEOUT_S)

    def set_health(self, device, healthy):
        mark = self.folder / "unhealthy" / device
        if healthy:
            mark.unlink(missing_ok=True)
        else:
            mark.touch()

    def state(self):
        if not self.init:
            return {"power": "off"}
        return {"power": "on" if self.init.poll() is None else "lost",
                **{name: "running" if part.poll() is None else f"ended with {part.returncode}"
                   for name, part in self.parts.items()}}

    # --- helpers

    def _plug_in(self):
        addresses = self.site.addresses
        mtu = self.site.options.mtu
        _ip("link", "add", self.outer, "mtu", mtu, "type", "veth", "peer", "name", "eth0", "mtu", mtu, "netns", self.init_pid)
        _ip("link", "set", self.outer, "master", "nodes", "up")
        inside = ["nsenter", "-t", str(self.init_pid), "-n", "ip", "-batch", "-"]
        lines = [f"addr add {self.address}/24 dev eth0", "link set eth0 up", f"route add default via {addresses.bridge}"]
        for other in range(1, self.site.options.nodes + 1):
            if other != self.index:
                lines.append(f"route add {addresses.pods(other)} via {addresses.node(other)}")
        subprocess.run(inside, input="\n".join(lines) + "\n", text=True, check=True)

    def _child_called(self, parent, name):
        if self.init.poll() is not None:
            log = (self.folder / "init.log").read_text(errors="replace")
            raise NodeError(f"{self.name} did not start:\n{log[-2000:]}")
        for pid in _children(parent):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == name:
                    return pid
        return 0

    def _enter(self, *arguments):
        return ["nsenter", "-t", str(self.init_pid), "-m", "-u", "-i", "-n", "-p", "--", *map(str, arguments)]

    def _inside(self, *arguments):
        return subprocess.run(self._enter(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env=self._environment(), check=False)

    def _run(self, part, command):
        self.parts[part] = self._popen(part, self._enter(*command))

    def _popen(self, part, command):
        with open(self.folder / f"{part}.log", "ab") as log:
            return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=subprocess.STDOUT, cwd="/", start_new_session=True,
                                    env=self._environment(), preexec_fn=self._before_exec)

    def _before_exec(self):
        die_with(self.site.owner_pid)
        self.cgroup.child("system").enter()

    def _environment(self):
        return {"PATH": f"{self.tools}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}

    def _until(self, condition, what):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > deadline:
                raise NodeError(f"{self.name}: {what} within {TIMEOUT_S} s; its logs are in {self.folder}")
            time.sleep(0.02)


def _children(pid):
    with contextlib.suppress(OSError):
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _ip(*arguments):
    subprocess.run(["ip", *map(str, arguments)], check=True)
