# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs of a user on real nodes: DistributedDataParallel on Fashion-MNIST, and what happens when a part of it fails.
The image has PyTorch and nothing of Ringmaster (e2e/frameworks/build)."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from on_nodes import KubectlError, Rig

HERE = pathlib.Path(__file__).resolve().parent
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
STEPS = 150
ACCURACY = 0.7  # after STEPS steps; one of ten classes by chance is 0.1


class PyTorch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        archive = subprocess.run([HERE / "build", "--check", "pytorch"], check=True, capture_output=True, text=True).stdout.strip()
        cls.rig = cls.enterClassContext(Rig())
        cls.cluster = cls.rig.cluster
        cls.rig.nodes.load(archive)
        shutil.copytree(DATA, cls.rig.nodes.shared / "fashion-mnist")
        (cls.rig.nodes.shared / "code").mkdir()
        shutil.copy(HERE / "train_ddp.py", cls.rig.nodes.shared / "code")
        cls.rig.volume("images", "/mnt/shared/fashion-mnist")
        cls.rig.volume("code", "/mnt/shared/code")

    def job(self, name, *flags, replicas=2, steps=STEPS, image="registry.local/pytorch:1", workers=None, **spec):
        folder = self.rig.nodes.shared / name
        folder.mkdir()
        folder.chmod(0o1777)
        self.rig.volume(name, f"/mnt/shared/{name}")
        mounts = {"code": "/code", "images": "/data"}
        volumes = [{"name": key, "persistentVolumeClaim": {"claimName": key, "readOnly": True}} for key in mounts]
        pod = {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000},
               "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}],  # importing torch needs a temporary folder
               "containers": [{"name": "worker", "image": image, "command": ["python3", "/code/train_ddp.py"],
                               "args": ["--data", "/data", "--checkpoints", "/checkpoints", "--steps", str(steps), *flags],
                               "resources": {"limits": {"cpu": "1"}},
                               "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                               "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
                               "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"},
                                                *({"name": key, "mountPath": path, "readOnly": True} for key, path in mounts.items())]}]}
        self.addCleanup(self.rig.delete, name)
        return {"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name, "namespace": "default"},
                "spec": {"framework": "pytorch", "workers": {"replicas": replicas, "template": {"spec": pod}, **(workers or {})},
                         "checkpoint": {"volumeClaim": name}, **spec}}

    # --- what the program said

    def said(self, name, pods=None):
        """Returns the lines of JSON that the ranks printed, in the order of time."""
        lines = []
        for pod in pods or self.rig.pods(name):
            with contextlib.suppress(KubectlError):  # a pod that starts, or was deleted, has no log
                for line in self.cluster.kubectl("logs", pod).splitlines():
                    if line.startswith("{") and line.endswith("}"):  # a line of a rank that was killed may end early
                        lines.append(json.loads(line))
        return sorted(lines, key=lambda line: line["time"])

    def wait_said(self, name, matches, what, timeout_s=120):
        return self.rig.wait(name, lambda _: next(filter(matches, self.said_so_far(name)), None), what, timeout_s)

    def said_so_far(self, name):
        pods = [key for key, pod in self.rig.pods(name).items()
                if pod["status"].get("phase") in ("Running", "Succeeded", "Failed")]
        return self.said(name, pods) if pods else []

    def training(self, name, step=5):
        """Waits until this step is done. Returns the pods."""
        self.wait_said(name, lambda line: line.get("step", 0) >= step, f"step {step}")
        return self.rig.uids(name)

    def program(self, name, pod):
        """Returns the pid, on this machine, of a rank."""
        node = self.cluster.get("pod", pod)["spec"]["nodeName"]
        for pid, _ in self.rig.nodes.processes(node, "python3"):
            if f"RINGMASTER_POD={pod}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text():
                return pid
        raise AssertionError(f"no program of {pod} runs on {node}")

    def finished(self, name, world):
        """Waits for the end, and checks what the program made. Returns the status."""
        self.rig.wait_phase(name, "Succeeded")
        result = json.loads((self.rig.nodes.shared / name / "result.json").read_text())
        print(f"{self.id()}: {result}, restarts {self.rig.status(name).get('restarts')}", flush=True)
        self.assertEqual((result["steps"], result["world"]), (STEPS, world))
        self.assertGreater(result["accuracy"], ACCURACY)
        return self.rig.status(name)

    def pause(self, name, lost_at):
        """Prints how long after `lost_at` the next incarnation did its first step."""
        first = self.wait_said(name, lambda line: line.get("up") and line["time"] > lost_at, "the next incarnation")
        step = self.wait_said(name, lambda line: line.get("step") and line["time"] > first["time"], "the next step")
        up = [line for line in self.said(name) if line.get("up") and line["time"] > lost_at]
        print(f"{self.id()}: next step {step['step']} after {step['time'] - lost_at:.2f} s; programs started after "
              f"{min(line['start'] for line in up) - lost_at:.2f} s, imports took {max(line['import_seconds'] for line in up)} s, "
              f"phases {[line['phases'] for line in self.said(name) if 'phases' in line and line['time'] > lost_at]}", flush=True)

    # --- tests

    def test_trains_by_the_environment(self):
        self.rig.apply(self.job("plain", replicas=3))
        status = self.finished("plain", 3)
        self.assertEqual(status.get("restarts", {}).get("total", 0), 0)
        steps = [line["step"] for line in self.said("plain") if "step" in line]
        self.assertEqual(steps, list(range(1, STEPS + 1)))

    def test_a_rank_is_killed(self):
        self.rig.apply(self.job("killed", "--step-seconds", "0.05"))
        pods = self.training("killed")
        lost_at = time.time()
        os.kill(self.program("killed", "killed-1-1"), signal.SIGKILL)
        self.pause("killed", lost_at)
        self.assertEqual(self.rig.uids("killed"), pods, "a pod was created again")
        status = self.finished("killed", 2)
        self.assertEqual((status["lastFailure"]["pod"], status["lastFailure"]["exitCode"]), ("killed-1-1", 137))
        self.assertEqual((status["attempt"], status["restarts"]["charged"]), (1, 1))
        self.assertEqual(self.rig.uids("killed"), pods)

    def test_a_pod_is_deleted(self):
        self.rig.apply(self.job("deleted", "--step-seconds", "0.05"))
        pods = self.training("deleted")
        lost_at = time.time()
        self.cluster.kubectl("delete", "pod", "deleted-1-1", "--grace-period=0", "--force")
        self.pause("deleted", lost_at)
        after = self.rig.uids("deleted")
        self.assertEqual(after["deleted-1-0"], pods["deleted-1-0"])
        self.assertNotEqual(after["deleted-1-1"], pods["deleted-1-1"])
        status = self.finished("deleted", 2)
        self.assertEqual(status["attempt"], 1)
        self.assertEqual(status.get("restarts", {}).get("charged", 0), 0, "a deletion by a user is not charged")

    def test_exit_1_until_the_budget_is_spent(self):
        self.rig.apply(self.job("faulty", "--fail", "exit:3", "--every", "1000",
                                restart={"maxRestarts": 2, "backoff": {"initialSeconds": 1, "maxSeconds": 1}}))
        pods = self.training("faulty", 2)
        self.ends("faulty")
        status = self.rig.status("faulty")
        self.assertEqual((status["lastFailure"]["pod"], status["lastFailure"]["exitCode"]), ("faulty-1-0", 1))
        self.assertEqual((status["attempt"], status["restarts"]["charged"]), (1, 2))
        for pod, uid in self.rig.uids("faulty").items():
            self.assertEqual(uid, pods[pod])

    def test_an_import_error_on_one_rank(self):
        self.rig.apply(self.job("import", "--fail", "import:1", restart={"maxRestarts": 0}))
        self.ends("import")
        failure = self.rig.status("import")["lastFailure"]
        self.assertEqual((failure["pod"], failure["exitCode"]), ("import-1-1", 1))
        self.assertIn("ModuleNotFoundError: No module named 'module_that_only_this_rank_lacks'", failure["message"])

    def ends(self, name):
        deadline = time.monotonic() + 180
        while self.rig.status(name).get("phase") != "Failed":
            if time.monotonic() > deadline:
                self.rig.report(name)
                self.fail(f"{name} did not fail: {self.rig.status(name)}")
            time.sleep(0.2)
        print(self.cluster.kubectl("events", "--for", f"tj/{name}"), flush=True)

    def test_a_wrong_image(self):
        self.rig.apply(self.job("wrong", image="registry.local/Not A Name"))
        self.ends("wrong")
        self.assertIn("image", json.dumps(self.rig.status("wrong")))

    def test_scaled_down(self):
        """The ranks get SIGTERM, save a checkpoint, and continue with fewer: no step is lost."""
        self.rig.apply(self.job("scaled", "--step-seconds", "0.05", replicas=3, workers={"min": 1, "max": 3}))
        pods = self.training("scaled")
        self.cluster.kubectl("scale", "tj/scaled", "--replicas=2")
        self.wait_said("scaled", lambda line: line.get("world") == 2 and line.get("step"), "two ranks train")
        self.finished("scaled", 2)
        steps = [line["step"] for line in self.said("scaled") if "step" in line]
        self.assertEqual(sorted(set(steps)), steps, "a step was done twice")
        self.assertEqual({key: pods[key] for key in ("scaled-1-0", "scaled-1-1")}, self.rig.uids("scaled"))

    def test_a_node_is_powered_off(self):
        self.rig.apply(self.job("node", "--step-seconds", "0.1", replicas=3, health={"unreachableNodeSeconds": 5}))
        pods = self.training("node")
        operators = self.cluster.api.get("/api/v1/namespaces/ringmaster-system/pods")["items"]
        spared = {pod["spec"]["nodeName"] for pod in operators}
        victim = next(pod["spec"]["nodeName"] for pod in self.rig.pods("node").values() if pod["spec"]["nodeName"] not in spared)
        lost = [key for key, pod in self.rig.pods("node").items() if pod["spec"]["nodeName"] == victim]
        lost_at = time.time()
        self.rig.nodes.power_off(victim)
        self.addCleanup(self.rig.nodes.boot, victim)
        self.rig.wait("node", lambda _: all(self.rig.uids("node").get(pod) not in (None, pods[pod]) for pod in lost), "new pods")
        self.pause("node", lost_at)
        self.finished("node", 3)
        for pod in set(pods) - set(lost):
            self.assertEqual(self.rig.uids("node")[pod], pods[pod], "a pod on another node was created again")


if __name__ == "__main__":
    unittest.main(verbosity=2)
