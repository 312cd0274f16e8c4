# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program that trains through the library, on real nodes: examples/pytorch/train.py survives the loss of a node, a pod and
a process, and another size, and ends with the weights of an undisturbed run on one machine.

The image has PyTorch and nothing of Ringmaster (e2e/frameworks/build). The package comes from a volume, with the files of the wheel."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from on_nodes import BIN, ROOT
from training import TrainingTest

HERE = pathlib.Path(__file__).resolve().parent
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
STEPS = 400  # enough that training outlasts the replacement of a lost node's workers


class Library(TrainingTest):
    @classmethod
    def setUpClass(cls):
        archive = subprocess.run([HERE / "build", "--check", "pytorch"], check=True, capture_output=True, text=True).stdout.strip()
        super().setUpClass()
        nodes = cls.rig.nodes
        nodes.load(archive)
        shutil.copytree(DATA, nodes.shared / "fashion-mnist")
        cls.program = nodes.shared / "program"
        subprocess.run(["cmake", "--install", BIN.parent, "--component", "wheel", "--prefix", cls.program],
                       check=True, stdout=subprocess.DEVNULL)
        shutil.copytree(ROOT / "python/ringmaster", cls.program / "ringmaster", dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "examples/pytorch/train.py", cls.program)
        cls.rig.volume("images", "/mnt/shared/fashion-mnist")
        cls.rig.volume("program", "/mnt/shared/program")
        cls.expected = cls.rig.background.submit(cls.run_here)

    @classmethod
    def run_here(cls):
        """Trains with one worker on this machine. Returns the hash of its weights."""
        folder = cls.rig.nodes.folder / "run-here"
        manifest = cls.rig.nodes.folder / "run-here.json"
        spec = {"framework": "pytorch", "launch": {"kind": "library"}, "workers": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "worker", "command": cls.command(os.environ["RINGMASTER_TORCH"], cls.program, DATA)}]}}}}
        manifest.write_text(json.dumps({"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob",
                                        "metadata": {"name": "expected"}, "spec": spec}))
        done = subprocess.run(["nice", BIN / "ringmaster", "run", manifest, "--out", folder], capture_output=True, text=True,
                              timeout=1200, check=False, env={**os.environ, "PYTHONPATH": str(cls.program)})
        if done.returncode:
            raise AssertionError(f"ringmaster run ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return json.loads((folder / "summary.json").read_text())["weightsHash"]

    @staticmethod
    def command(python, program, data):
        return [python, "-B", f"{program}/train.py", "--data", str(data), "--steps", str(STEPS)]

    def begin(self, name, replicas=3, at=10, **spec):
        """Starts a job and waits until all its workers train. Returns its pods."""
        folder = self.rig.nodes.shared / name
        folder.mkdir()
        folder.chmod(0o1777)
        self.rig.volume(name, f"/mnt/shared/{name}")
        mounts = {"program": "/program", "images": "/data"}
        pod = {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000},
               "volumes": [*({"name": key, "persistentVolumeClaim": {"claimName": key, "readOnly": True}} for key in mounts),
                           {"name": "tmp", "emptyDir": {}}],  # importing torch needs a temporary folder
               "containers": [{"name": "worker", "image": "registry.local/pytorch:1",
                               "command": self.command("python3", "/program", "/data"),
                               "resources": {"limits": {"cpu": "500m"}},
                               "env": [{"name": "PYTHONPATH", "value": "/program"}],
                               "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
                               "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"},
                                                *({"name": key, "mountPath": path, "readOnly": True} for key, path in mounts.items())]}]}
        self.addCleanup(self.rig.delete, name)
        self.rig.apply({"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name, "namespace": "default"},
                        "spec": {"framework": "pytorch", "launch": {"kind": "library"},
                                 "workers": {"replicas": replicas, "min": 1, "max": 4, "template": {"spec": pod}},
                                 "checkpoint": {"everySteps": 100, "volumeClaim": name},
                                 "restart": {"backoff": {"initialSeconds": 1, "maxSeconds": 2}}, **spec}})
        self.rig.wait_full(name, replicas, at, 240)
        return self.rig.pods(name)

    def ends(self, name):
        """Waits for the end, and checks the weights. Returns the status."""
        self.rig.wait_phase(name, "Succeeded", 900)
        status = self.rig.status(name)
        print(f"{self.id()}: {status['weightsHash']}, restarts {status.get('restarts')}, {status.get('progress')}, "
              f"lost {status['goodput']['lostSeconds']}\n"
              f"{self.cluster.kubectl('events', '--for', f'tj/{name}')}", flush=True)
        self.assertEqual(status["weightsHash"], self.expected.result())
        self.assertEqual(status["attempt"], 1, "the whole gang was restarted")
        self.assertEqual(status["progress"]["step"], STEPS)
        return status

    def test_a_node_is_powered_off(self):
        pods = self.begin("node", health={"unreachableNodeSeconds": 5})
        operators = self.cluster.api.get("/api/v1/namespaces/ringmaster-system/pods")["items"]
        spared = {pod["spec"]["nodeName"] for pod in operators if pod["status"]["phase"] == "Running"}
        node = next(pod["spec"]["nodeName"] for pod in pods.values() if pod["spec"]["nodeName"] not in spared)
        lost = [key for key, pod in pods.items() if pod["spec"]["nodeName"] == node]
        others = {key: pod for key, pod in pods.items() if key not in lost}
        self.rig.nodes.power_off(node)
        back = self.enterContext(contextlib.ExitStack())
        back.callback(self.rig.nodes.boot, node)
        self.goes_on("node", 5)
        self.rig.wait("node", lambda _: all(self.rig.uids("node").get(key) not in (None, pods[key]["metadata"]["uid"]) for key in lost),
                      "new pods elsewhere")
        self.rig.wait_full("node", 3, timeout_s=240)
        back.close()
        status = self.ends("node")
        self.assertEqual(status.get("restarts", {}).get("charged", 0), 0)
        self.untouched("node", others)

    def test_a_program_is_killed_and_a_pod_deleted(self):
        pods = self.begin("killed")
        for pid, _ in self.rig.nodes.processes(pods["killed-1-1"]["spec"]["nodeName"], "python3"):
            if "RINGMASTER_POD=killed-1-1\0" in pathlib.Path(f"/proc/{pid}/environ").read_text():
                os.kill(pid, signal.SIGKILL)
        self.goes_on("killed", 5)
        self.rig.wait_full("killed", 3, timeout_s=240)
        self.cluster.kubectl("delete", "pod", "killed-1-2", "--grace-period=0", "--force")
        self.goes_on("killed", 5)
        self.rig.wait_full("killed", 3, timeout_s=240)
        status = self.ends("killed")
        self.assertEqual((status["lastFailure"]["pod"], status["lastFailure"]["exitCode"]), ("killed-1-1", 137))
        self.untouched("killed", {key: pods[key] for key in ("killed-1-0", "killed-1-1")})

    def test_scaled_up_and_down(self):
        self.begin("scaled", replicas=2)
        self.cluster.kubectl("scale", "tj/scaled", "--replicas=4")
        self.rig.wait_full("scaled", 4, timeout_s=240)
        self.goes_on("scaled", 5)
        self.cluster.kubectl("scale", "tj/scaled", "--replicas=1")
        self.rig.wait_full("scaled", 1)
        status = self.ends("scaled")
        self.assertEqual(status["goodput"]["lostSeconds"]["redone"], 0, "a step was lost")


if __name__ == "__main__":
    unittest.main(verbosity=2)
