# SPDX-License-Identifier: Apache-2.0
"""The process that owns a cluster's components: "supervisor.py FOLDER". cluster.py starts it.

No component outlives it, and it does not outlive its owner:
  - the kernel kills each component when this process ends, however it ends (PR_SET_PDEATHSIG);
  - if a test owns the cluster, standard input is a pipe from that test: when the test ends, however it ends, the pipe
    closes, and this process kills all components and removes the folder;
  - a cluster without an owner ends a few seconds after its folder is removed.

Single-threaded. It answers requests on the Unix socket FOLDER/control, one JSON object per line and connection:
  {"verb": "start" | "stop" | "kill9" | "restart", "component": NAME}, {"verb": "compact"}, {"verb": "status"},
  {"verb": "add-nodes", "names": [..], "first": INDEX}, {"verb": "down", "keep": BOOL}
Its first line on standard output is {"ready": true}, or {"error": TEXT} when the cluster did not start.
"""

import ctypes
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import components
import kubeapi
import pki
from control_socket import check_owner, own

START_TIMEOUT_S = 120  # for a loaded machine; every wait ends as soon as its condition holds
STOP_TIMEOUT_S = 20


class Failure(Exception):
    """An expected failure, with a message for the client."""


class PortTaken(Exception):
    pass


class KwokRace(Exception):
    """kwok ended at start by a race inside it: its first node and its first pod write one unguarded map of its
    expression library (easycel 0.6.0, typeTraitMap), which Go answers with a fatal error."""


FAILURES = (Failure, OSError, RuntimeError, http.client.HTTPException, kubeapi.ApiError)


class Supervisor:
    def __init__(self, folder, owned):
        self.folder = pathlib.Path(folder)
        self.options = None
        self.binary = pathlib.Path((self.folder / "binary").read_text().strip())
        self.owned = owned  # standard input ends when the owner ends
        self.processes = {}
        self.layout = None
        self.api = None
        self._read_options()

    def _read_options(self):
        """Reads the options and the binary of the servers again, since Cluster.change changes them."""
        self.options = components.Options(**json.loads((self.folder / "options.json").read_text()))
        self.servers = pathlib.Path((self.folder / "servers").read_text().strip())
        if self.layout:
            self.layout.servers = self.servers

    # --- start

    def up(self):
        self._users()
        for attempt in range(5):
            self._take_ports()
            try:
                for name in self.options.components:
                    self.start(name)
                break
            except PortTaken as taken:
                print(f"port taken by another process, trying others: {taken}", file=sys.stderr, flush=True)
                self.kill_all()
                shutil.rmtree(self.folder / "etcd", ignore_errors=True)
        else:
            raise Failure("no free ports found in 5 attempts")
        if "apiserver" in self.options.components:
            self.add_nodes([f"node-{i}" for i in range(self.options.nodes)], 0)
            self._wait_usable()

    def _users(self):
        """Creates the certificates, and a token for each of USERS."""
        pki.Pki(self.folder / "pki").create(self.options.address)
        tokens = {file: os.urandom(24).hex() for file, _, _ in components.USERS}
        pki.write_secret(self.folder / "pki/tokens.csv", "".join(
            f'{tokens[file]},{user},{file},"{group}"\n' for file, user, group in components.USERS))
        pki.write_secret(self.folder / "pki/tokens.json", json.dumps(tokens))
        (self.folder / "kwok.yaml").write_text(components.kwok_configuration())

    def _take_ports(self):
        ports = free_ports(3)
        self.layout = components.Layout(self.folder, self.binary, self.servers, self.options.address, *ports)
        tokens = json.loads((self.folder / "pki/tokens.json").read_text())
        for file, _, _ in components.USERS:
            pki.write_secret(self.layout.kubeconfig(file),
                             pki.kubeconfig(self.layout.server, self.layout.pki.ca, {"token": tokens[file]}))
        self.api = kubeapi.Api(self.layout.server, self.layout.pki.ca, tokens["admin"])

    def add_nodes(self, names, first):
        for index, name in enumerate(names):
            self.api.request("POST", "/api/v1/nodes", components.node(name, first + index, self.options))
            self._poll()

    def _wait_usable(self):
        if "kcm" in self.options.components:
            self._until(lambda: self._exists("/api/v1/namespaces/default/serviceaccounts/default"),
                        "the controller-manager did not create the default ServiceAccount")
        if "kwok" in self.options.components:
            self._until(lambda: self._ready_nodes() >= self.options.nodes, "not every node became Ready")

    def _exists(self, path):
        try:
            self.api.get(path)
            return True
        except kubeapi.ApiError as error:
            if error.code == 404:
                return False
            raise

    def _heartbeats(self):
        """Returns when kwok last wrote the status of each node with a kubelet."""
        nodes = self.api.get("/api/v1/nodes")["items"]
        return {node["metadata"]["name"]: condition["lastHeartbeatTime"] for node in nodes
                if node["metadata"]["labels"].get(components.KUBELET_LABEL) == "running"
                for condition in node["status"].get("conditions", []) if condition["type"] == "Ready"}

    def _ready_nodes(self):
        nodes = self.api.get("/api/v1/nodes?resourceVersion=0")["items"]
        return sum(1 for node in nodes for condition in node["status"].get("conditions", [])
                   if condition["type"] == "Ready" and condition["status"] == "True")

    # --- components

    def start(self, name):
        """Starts a component and waits until it is healthy. After a kill its port may be busy for a moment, and kwok may
        end by KwokRace: then it is started again."""
        if self._running(name):
            raise Failure(f"{name} is already running")
        self._read_options()
        deadline = time.monotonic() + START_TIMEOUT_S
        first_time = name not in self.processes
        beats = self._heartbeats() if name == "kwok" and not first_time and self._running("apiserver") else {}
        while True:
            log_size = self._spawn(name)
            try:
                self._wait_healthy(name, deadline, log_size, beats)
                return
            except PortTaken:
                if first_time or time.monotonic() > deadline:
                    raise
                self._pause(0.2)
            except KwokRace:
                if time.monotonic() > deadline:
                    raise Failure("kwok ended again and again by its race at start") from None

    def _spawn(self, name):
        log = self.folder / f"{name}.log"
        with open(log, "ab") as output:
            size = output.tell()
            supervisor = os.getpid()
            self.processes[name] = subprocess.Popen(
                components.command(name, self.layout, self.options), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True,
                env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}, preexec_fn=lambda: die_with(supervisor))
        return size

    def _wait_healthy(self, name, deadline, log_size, beats):
        # kwok may miss a pod that is bound while it starts to manage the nodes, so wait for a heartbeat of each node.
        check = {"etcd": self._etcd_healthy, "apiserver": self._apiserver_ready,
                 "kwok": lambda: not beats or all(self._heartbeats().get(node) != beat for node, beat in beats.items())
                 }.get(name)
        if not check:
            return
        while not check():
            if self.processes[name].poll() is not None:
                tail = self._log(name, log_size)
                if "address already in use" in tail:
                    raise PortTaken(name)
                if name == "kwok" and "easycel" in tail:
                    raise KwokRace()
                raise Failure(f"{name} ended at start with code {self.processes[name].returncode}; the end of its "
                              f"log:\n{tail[-2000:]}")
            if time.monotonic() > deadline:
                raise Failure(f"{name} was not healthy within {START_TIMEOUT_S} s; see {self.folder}/{name}.log")
            self._pause(0.02)

    def _log(self, name, offset):
        with open(self.folder / f"{name}.log", "rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")

    def _etcd_healthy(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.layout.etcd_port, timeout=2)
        try:
            connection.request("GET", "/health")
            return json.loads(connection.getresponse().read())["health"] == "true"
        except (OSError, http.client.HTTPException, ValueError):
            return False
        finally:
            connection.close()

    def _apiserver_ready(self):
        try:
            return self.api.request("GET", "/readyz", timeout_s=2) == "ok"
        except (OSError, http.client.HTTPException, kubeapi.ApiError):
            return False

    def stop(self, name, signal_number):
        if not self._running(name):
            raise Failure(f"{name} is not running")
        process = self.processes[name]
        process.send_signal(signal_number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _running(self, name):
        process = self.processes.get(name)
        return process is not None and process.poll() is None

    def compact(self):
        """Compacts etcd, and restarts the API server, which would otherwise answer from its cache."""
        done = subprocess.run([self.binary, "etcd-compact", self.layout.etcd], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise Failure(done.stderr.strip())
        if self._running("apiserver"):
            self.stop("apiserver", signal.SIGKILL)
            self.start("apiserver")
        return int(done.stdout)

    def kill_all(self):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.processes.clear()

    # --- requests

    def answer(self, request):
        verb = request.get("verb")
        name = request.get("component")
        if verb in ("start", "stop", "kill9", "restart") and name not in components.COMPONENTS:
            raise Failure(f"no component {name!r}; there are: {' '.join(components.COMPONENTS)}")
        try:
            if verb == "start":
                self.start(name)
            elif verb == "stop":
                self.stop(name, signal.SIGTERM)
            elif verb == "kill9":
                self.stop(name, signal.SIGKILL)
            elif verb == "restart":
                self.stop(name, signal.SIGTERM)
                self.start(name)
            elif verb == "compact":
                return {"revision": self.compact()}
            elif verb == "add-nodes":
                self.add_nodes(request["names"], request["first"])
            elif verb == "status":
                return {"components": {n: "running" if self._running(n) else f"ended with {p.returncode}"
                                       for n, p in self.processes.items()},
                        "pids": {n: p.pid for n, p in self.processes.items() if self._running(n)}}
            else:
                raise Failure(f"no verb {verb!r}")
        except PortTaken:
            raise Failure(f"{name}: its port was taken by another process in the meantime") from None
        return {}

    def down(self, keep):
        self.kill_all()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- the owner

    def _poll(self):
        self._pause(0)

    def _pause(self, seconds):
        check_owner(self.owned, seconds)

    def _until(self, condition, otherwise):
        limit = START_TIMEOUT_S + self.options.nodes // 10
        deadline = time.monotonic() + limit
        while True:
            asked = time.monotonic()
            if condition():
                return
            took = time.monotonic() - asked
            if time.monotonic() > deadline:
                raise Failure(f"{otherwise} within {limit} s; logs are in {self.folder}")
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise Failure(f"{name} ended with code {process.returncode}: {self._log(name, 0)[-2000:]}")
            self._pause(max(0.05, 4 * took))  # a list of thousands of nodes takes the time that they need to become ready


def free_ports(count):
    """Returns unused ports below the ephemeral range of the kernel.

    Another process could still bind one before its component does. Outside the ephemeral range that does not happen by
    chance, also while a component restarts.
    """
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = []
    while len(ports) < count:
        port = random.randrange(min(16384, lowest // 2), lowest)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def die_with(parent):
    """Makes the kernel kill this process when `parent` ends. Runs in a child before its exec."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main():
    folder, mode = sys.argv[1:]
    supervisor = Supervisor(folder, owned=mode == "owned")
    return own(supervisor, supervisor.folder, supervisor.owned, FAILURES)


if __name__ == "__main__":
    sys.exit(main())
