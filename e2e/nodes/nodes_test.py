# SPDX-License-Identifier: Apache-2.0
"""Tests of the nodes, and of the images as containers on them."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from cluster import KubectlError
from nodes import Nodes, NodesError
from on_nodes import IMAGES

HERE = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r"^project\(ringmaster VERSION (\S+)", (HERE.parents[1] / "CMakeLists.txt").read_text(), re.M)[1]
OPERATOR_IMAGE, WORKER_IMAGE = f"ringmaster-operator:{VERSION}", f"ringmaster-worker:{VERSION}"


def pod(name, image, command, node=None, **container):
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": image, "command": command, **container}]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"name": name}}, "spec": spec}


class OnNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = cls.enterClassContext(Nodes(nodes=2, images=sorted(IMAGES.glob("ringmaster-*.tar"))))
        cls.c = cls.nodes.cluster

    def run_pod(self, manifest, phase="Succeeded"):
        """Waits for a phase of the pod and returns its log."""
        name = manifest["metadata"]["name"]
        self.addCleanup(self.c.kubectl, "delete", "pod", name, "--ignore-not-found", "--force", "--grace-period=0")
        self.c.apply_text(json.dumps(manifest))
        self.c.wait(lambda: self.phase(name) in (phase, "Failed"), f"{name} is {phase}", 90)
        log = self.c.kubectl("logs", name) if phase != "Running" else ""
        self.assertEqual(self.phase(name), phase, log)
        return log

    def phase(self, name):
        return self.c.get("pod", name)["status"].get("phase")

    def ready(self, node):
        return {condition["type"]: condition["status"] for condition in
                self.c.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]}["Ready"]

    def allocatable(self, node, resource):
        return self.c.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"].get(resource)

    # --- images

    def test_operator_image(self):
        said = self.run_pod(pod("operator", OPERATOR_IMAGE, ["ringmaster-operator", "--version"], securityContext={
            "runAsNonRoot": True, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]}}))
        self.assertIn(VERSION, said)

    def test_worker_image(self):
        said = self.run_pod(pod("worker", WORKER_IMAGE, ["sh", "-c", "id -u; ringmaster-worker devices --json"],
                                securityContext={"runAsUser": 65532}))
        user, _, devices = said.partition("\n")
        self.assertEqual(user, "65532")
        self.assertIn("tcp", json.dumps(json.loads(devices)))

    def test_agent_reports_missing_configuration(self):
        name = "bare"
        manifest = pod(name, WORKER_IMAGE, ["ringmaster-agent"])
        said = self.run_pod(manifest, "Failed")
        self.assertIn("RINGMASTER_JOB", said)
        state = self.c.get("pod", name)["status"]["containerStatuses"][0]["state"]["terminated"]
        self.assertEqual(state["exitCode"], 64)

    # --- nodes

    def test_names_and_routes_between_nodes(self):
        self.c.apply_text(json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "there"}, "spec": {
            "clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"name": "there"}}}))
        self.run_pod(pod("there", WORKER_IMAGE, ["sleep", "1000"], "node-2"), "Running")
        address = self.c.get("pod", "there")["status"]["podIP"]
        self.run_pod(pod("here", WORKER_IMAGE, ["sleep", "1000"], "node-1"), "Running")
        self.c.wait(lambda: address in self.seen_from("here", "there.default.svc.cluster.local"), "the name leads there")

    def seen_from(self, name, host):
        try:
            return self.c.kubectl("exec", name, "--", "getent", "hosts", host)
        except KubectlError:  # the name does not resolve yet
            return ""

    def test_packets_between_pods_are_those_of_ethernet(self):
        said = self.run_pod(pod("packets", WORKER_IMAGE, ["cat", "/sys/class/net/eth0/mtu"], "node-1"))
        self.assertEqual(said.strip(), str(self.nodes.options.mtu))
        for link in ("eth0", "cni0"):
            self.assertEqual(self.nodes.run("node-1", "cat", f"/sys/class/net/{link}/mtu").strip(), "1500")

    def test_devices(self):
        gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
        said = self.run_pod(pod("device", WORKER_IMAGE, ["sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES"], **gpu))
        self.assertRegex(said, "^gpu-[01]$")
        self.nodes.set_device_health("node-1", "gpu-1", False)
        self.c.wait(lambda: self.allocatable("node-1", "nvidia.com/gpu") == "1", "one GPU less")
        self.nodes.set_device_health("node-1", "gpu-1", True)
        self.c.wait(lambda: self.allocatable("node-1", "nvidia.com/gpu") == "2", "it is back")

    def test_power(self):
        self.run_pod(pod("doomed", WORKER_IMAGE, ["sleep", "1000"], "node-2"), "Running")
        self.assertTrue(self.nodes.processes("node-2", "sleep"))
        self.nodes.power_off("node-2")
        self.assertEqual(self.nodes.processes("node-2"), [])
        with self.assertRaisesRegex(NodesError, "is off"):
            self.nodes.power_off("node-2")
        self.c.wait(lambda: self.ready("node-2") == "Unknown", "its silence is noticed")
        self.nodes.boot("node-2")
        self.assertEqual(self.ready("node-2"), "True")

    def test_kubelet_stopped(self):
        self.run_pod(pod("stays", WORKER_IMAGE, ["sleep", "1000"], "node-2"), "Running")
        before = self.nodes.processes("node-2", "sleep")
        self.nodes.stop_kubelet("node-2")
        self.c.wait(lambda: self.ready("node-2") == "Unknown", "its silence is noticed")
        self.nodes.start_kubelet("node-2")
        self.c.wait(lambda: self.ready("node-2") == "True", "it is back")
        self.assertEqual(self.nodes.processes("node-2", "sleep"), before)

    def test_cut_and_frozen(self):
        for worse, better in ((self.nodes.cut, self.nodes.heal), (self.nodes.freeze, self.nodes.thaw)):
            with self.subTest(worse.__name__):
                worse("node-2")
                self.c.wait(lambda: self.ready("node-2") == "Unknown", "its silence is noticed")
                better("node-2")
                self.c.wait(lambda: self.ready("node-2") == "True", "it is back", 90)

    def test_errors_are_reported(self):
        with self.assertRaisesRegex(NodesError, "no node 'node-9'; there are: node-1 node-2"):
            self.nodes.cut("node-9")
        with self.assertRaisesRegex(NodesError, "cannot import"):
            self.nodes.load(HERE / "README.md")


class Traces(unittest.TestCase):
    """No process, cgroup or file is left of nodes whose owner was killed."""

    OWNER = "from nodes import Nodes; import time; n = Nodes(nodes=1).start(); print(n.folder, flush=True); time.sleep(1000)"

    @staticmethod
    def traces(cgroup, interface, folder):
        found = [str(folder)] if folder.exists() else []
        found += [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"**/{cgroup}")]
        if pathlib.Path(f"/sys/class/net/{interface}").exists():
            found.append(interface)
        for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(folder) in process.read_text():
                    found.append(process.read_text().replace("\0", " "))
            except OSError:
                pass
        return found

    def test_nothing_is_left_after_a_kill(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(number.name):
                test = subprocess.Popen([sys.executable, "-B", "-c", self.OWNER], stdout=subprocess.PIPE, text=True,
                                        env=os.environ)
                folder = pathlib.Path(test.stdout.readline().strip())
                nodes = Nodes.attach(folder)
                status = nodes.status()
                owner = int(status["cgroup"].rpartition("-")[2])
                what = status["cgroup"], f"rm-e2e-{status['address'].split('.')[2]}", folder
                mounts = pathlib.Path("/proc/mounts").read_text()
                self.assertGreater(len(self.traces(*what)), 3)
                os.kill(owner if number == signal.SIGKILL else test.pid, number)
                deadline = time.monotonic() + 60
                while self.traces(*what) and time.monotonic() < deadline:
                    if number == signal.SIGKILL:
                        test.kill()  # without waiting
                        test.wait()
                    time.sleep(0.1)
                test.kill()
                test.wait()
                test.stdout.close()
                self.assertEqual(self.traces(*what), [])
                self.assertEqual(pathlib.Path("/proc/mounts").read_text(), mounts)


if __name__ == "__main__":
    unittest.main()
