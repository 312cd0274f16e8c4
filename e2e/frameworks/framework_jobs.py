# SPDX-License-Identifier: Apache-2.0
"""The base of tests that run programs of a framework on real nodes: the job, what its programs said, and what every framework has
to survive. The images have the framework and nothing of Ringmaster (e2e/frameworks/build)."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from on_nodes import KubectlError, Rig

HERE = pathlib.Path(__file__).resolve().parent
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
ELASTIC = {"min": 1, "max": 3}  # of spec.workers
ACCURACY = 0.6  # after STEPS steps; one of ten classes by chance is 0.1


class FrameworkTest(unittest.TestCase):
    """Starts nodes with Ringmaster once per module, and loads each image once."""

    rig = None
    loaded = set()

    FRAMEWORK = ""  # of e2e/frameworks/build
    PROGRAM = ""  # of this folder, which is /code in the pods
    STEPS = 150
    CPU = "1"  # limit of each pod
    START_S = 120  # until a program trains
    SAVES_AT_SIGTERM = True  # and not only after each step
    EXITS = ("1", "1")  # the rank or role that ends with 1, and the end of its pod's name

    @classmethod
    def setUpClass(cls):
        archive = subprocess.run([HERE / "build", "--check", cls.FRAMEWORK], check=True, capture_output=True, text=True).stdout.strip()
        if not FrameworkTest.rig:
            FrameworkTest.start_nodes()
        if cls.FRAMEWORK not in FrameworkTest.loaded:
            cls.rig.nodes.load(archive)
            FrameworkTest.loaded.add(cls.FRAMEWORK)

    @staticmethod
    def start_nodes():
        rig = FrameworkTest.rig = unittest.enterModuleContext(Rig())
        shutil.copytree(DATA, rig.nodes.shared / "fashion-mnist")
        code = rig.nodes.shared / "code"
        code.mkdir()
        for file in (HERE / "program.py", *HERE.glob("train_*.py")):
            shutil.copy(file, code)
        rig.volume("images", "/mnt/shared/fashion-mnist")
        rig.volume("code", "/mnt/shared/code")

    @property
    def cluster(self):
        return self.rig.cluster

    def folder(self, name):
        """Returns the folder of a job on the nodes. Two classes of a module may have jobs of the same name."""
        return self.rig.nodes.shared / f"{type(self).__name__.lower()}-{name}"

    # --- the job

    def command(self, *flags):
        """Returns the command of the program, without the arguments that all have."""
        return ["python3", f"/code/{self.PROGRAM}", *flags]

    def spec(self):
        """Returns what spec has in addition."""
        return {"framework": self.FRAMEWORK}

    def pod(self, command, image=None, user=1000, env=()):
        mounts = {"code": "/code", "images": "/data"}
        volumes = [{"name": key, "persistentVolumeClaim": {"claimName": key, "readOnly": True}} for key in mounts]
        return {"securityContext": {"runAsNonRoot": True, "runAsUser": user},
                "volumes": [*volumes, {"name": "tmp", "emptyDir": {}}],  # frameworks need a temporary folder
                "containers": [{"name": "worker", "image": image or f"registry.local/{self.FRAMEWORK}:1", "command": command,
                                "resources": {"limits": {"cpu": self.CPU}, "requests": {"cpu": "100m"}},
                                "env": [{"name": "OMP_NUM_THREADS", "value": "1"}, *env],
                                "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
                                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"},
                                                 *({"name": key, "mountPath": path, "readOnly": True} for key, path in mounts.items())]}]}

    def job(self, name, *flags, replicas=2, workers=None, command=None, roles=(), image=None, user=1000, env=(), **spec):
        folder = self.folder(name)
        folder.mkdir()
        folder.chmod(0o1777)
        self.rig.volume(folder.name, f"/mnt/shared/{folder.name}")
        deadline = time.monotonic() + 120
        while self.rig.uids(name):  # of another class's job
            self.assertLess(time.monotonic(), deadline, f"the pods of an earlier {name} exist still")
            time.sleep(0.2)
        command = [*(command or self.command()), "--data", "/data", "--checkpoints", "/checkpoints", "--steps", str(self.STEPS), *flags]
        pod = {"spec": self.pod(command, image, user, env)}
        self.addCleanup(self.rig.delete, name)
        if roles:
            spec["roles"] = [{"name": role, "template": pod} for role in roles]
        return {"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name, "namespace": "default"},
                "spec": {"workers": {"replicas": replicas, "template": pod, **(workers or {})},
                         "checkpoint": {"volumeClaim": folder.name}, "restart": {"backoff": {"initialSeconds": 1, "maxSeconds": 1}},
                         "lifecycle": {"cleanPods": "None"},  # their logs are read when the job has ended
                         **self.spec(), **spec}}

    def start(self, name, *flags, step=5, **options):
        """Starts a job that trains slowly, and waits until this step is done. Returns the UIDs of its pods."""
        self.rig.apply(self.job(name, "--step-seconds", "0.1", *flags, **options))
        self.wait_said(name, lambda line: line.get("step", 0) >= step, f"step {step}", self.START_S)
        return self.rig.uids(name)

    # --- what the programs said

    def said(self, name):
        """Returns the lines of JSON that the ranks printed, in the order of time."""
        lines = []
        for key, pod in self.rig.pods(name).items():
            if pod["status"].get("phase") not in ("Running", "Succeeded", "Failed"):
                continue
            with contextlib.suppress(KubectlError):  # a pod that was deleted has no log
                # Launchers may put the lines of two ranks into one, and that of a rank that was killed may end early.
                for text in re.findall(r"\{[^{}\n]*\}", self.cluster.kubectl("logs", key)):
                    with contextlib.suppress(ValueError):
                        lines.append(json.loads(text))
        return sorted((line for line in lines if "time" in line), key=lambda line: line["time"])

    def wait_said(self, name, matches, what, timeout_s=120):
        return self.rig.wait(name, lambda _: next(filter(matches, self.said(name)), None), what, timeout_s)

    def pause(self, name, lost_at):
        """Prints how long after `lost_at` the next incarnation did its first step."""
        first = self.wait_said(name, lambda line: line.get("up") and line["time"] > lost_at, "the next incarnation", self.START_S)
        step = self.wait_said(name, lambda line: line.get("step") and line["time"] > first["time"], "the next step", self.START_S)
        print(f"{self.id()}: {first}; next step {step['step']} after {step['time'] - lost_at:.2f} s", flush=True)

    def program(self, name, pod):
        """Returns the pid, on this machine, of the newest Python program of a pod."""
        node = self.cluster.get("pod", pod)["spec"]["nodeName"]
        found = []
        for pid, _ in self.rig.nodes.processes(node):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if os.path.basename(words[0]).startswith("python3") and any(word.startswith("/code/") for word in words) and \
                        f"RINGMASTER_POD={pod}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text():
                    found.append((os.stat(f"/proc/{pid}").st_ctime, pid))
        self.assertTrue(found, f"no program of {pod} runs on {node}")
        return max(found)[1]

    # --- what happens to jobs

    def kill_a_rank(self, name, *flags):
        """Checks that all ranks start again in the same pods, and train to the end."""
        pods = self.start(name, *flags)
        lost_at = time.time()
        os.kill(self.program(name, f"{name}-1-1"), signal.SIGKILL)
        self.pause(name, lost_at)
        self.assertEqual(self.rig.uids(name), pods, "a pod was created again")
        status = self.finished(name, 2)
        self.assertEqual(status["lastFailure"]["pod"], f"{name}-1-1", status["lastFailure"])
        self.killed(status["lastFailure"])
        self.assertEqual(status["restarts"]["charged"], 1)
        self.kept(name, pods)

    def killed(self, failure):
        self.assertEqual(failure["exitCode"], 137, failure)

    def scale_down(self, name, *flags, workers=ELASTIC):
        """Checks that the ranks get SIGTERM, and that fewer continue from the newest checkpoint in the same pods."""
        # Steps enough for a busy machine, which sees the first ones late.
        pods = self.start(name, "--step-seconds", "0.3", *flags, replicas=3, workers=workers)
        # A job that may run with fewer may have begun with fewer.
        three = self.wait_said(name, lambda line: line.get("world") == 3 and line.get("step"), "three ranks train", self.START_S)
        before = three["step"]
        self.cluster.kubectl("scale", f"tj/{name}", "--replicas=2")
        self.wait_said(name, lambda line: line.get("world") == 2 and line.get("step", 0) > before, "two ranks train", self.START_S)
        self.finished(name, 2)
        resumed = max((line["resumed"] for line in self.lines if "resumed" in line), default=0)
        self.assertGreaterEqual(resumed, before, "nothing was resumed")
        steps = [line["step"] for line in self.lines if "step" in line]
        if self.SAVES_AT_SIGTERM:
            self.assertEqual(steps, list(range(1, self.STEPS + 1)), "a step was done twice, or not at all")
        else:  # SIGTERM may come between the save of a step and its line
            self.assertLessEqual(len(set(range(1, self.STEPS + 1)) - set(steps)), 1, steps)
            self.assertLessEqual(len(steps), self.STEPS + 1, steps)
        self.kept(name, pods)

    def power_off(self, name, pods, otherwise):
        """Powers off a node with one of these pods, if possible one without an operator, or that of `otherwise`. Returns its pods."""
        operators = self.cluster.api.get("/api/v1/namespaces/ringmaster-system/pods")["items"]
        spared = {pod["spec"]["nodeName"] for pod in operators}
        on_nodes = {key: pod["spec"]["nodeName"] for key, pod in self.rig.pods(name).items()}
        victim = next((on_nodes[key] for key in pods if on_nodes[key] not in spared), on_nodes[otherwise])
        lost = [key for key, node in on_nodes.items() if node == victim]
        print(f"{self.id()}: losing {victim} with {' '.join(lost)}", flush=True)
        self.rig.nodes.power_off(victim)
        self.addCleanup(self.rig.nodes.boot, victim)
        return lost

    # --- how jobs end

    def finished(self, name, world):
        """Waits for the end, and checks what the program made. Returns the status, and keeps what the programs said in `lines`."""
        self.rig.wait_phase(name, "Succeeded", 300)
        self.lines = self.said(name)
        status = self.rig.status(name)
        result = json.loads((self.folder(name) / "result.json").read_text())
        print(f"{self.id()}: {result}, attempt {status['attempt']}, restarts {status.get('restarts')}", flush=True)
        self.assertEqual((result["steps"], result["world"]), (self.STEPS, world))
        self.assertGreater(result["accuracy"], ACCURACY)
        losses = {line["step"]: line["loss"] for line in self.lines if "step" in line and "loss" in line}
        if min(losses, default=0) == 1:
            self.assertLess(losses[self.STEPS], losses[1] * 0.7)
        self.assertEqual(status["attempt"], 1, "all pods were created again")
        return status

    def kept(self, name, pods):
        """Checks that none of these pods was created again. Those of a job that has ended may be gone."""
        for key, uid in self.rig.uids(name).items():
            self.assertEqual(uid, pods.get(key, uid), f"{key} was created again")

    def fails(self, name, timeout_s=300):
        """Waits until the job has failed. Returns the status."""
        deadline = time.monotonic() + timeout_s
        while (status := self.rig.status(name)).get("phase") != "Failed":
            if time.monotonic() > deadline or status.get("phase") == "Succeeded":
                self.rig.report(name)
                self.fail(f"{name} did not fail: {status}")
            time.sleep(0.2)
        print(f"{self.id()}: {status.get('lastFailure')}\n{self.cluster.kubectl('events', '--for', f'tj/{name}')}", flush=True)
        return status


class Faults:
    """Tests of a FrameworkTest that every framework has to pass."""

    def test_trains(self):
        self.rig.apply(self.job("plain", replicas=3))
        status = self.finished("plain", 3)
        self.assertEqual(status.get("restarts", {}).get("total", 0), 0)
        self.assertEqual({line["world"] for line in self.lines if "world" in line}, {3})
        self.assertEqual([line["step"] for line in self.lines if "step" in line], list(range(1, self.STEPS + 1)))

    def test_a_rank_is_killed(self):
        self.kill_a_rank("killed")

    def test_a_pod_is_deleted(self):
        pods = self.start("deleted")
        lost_at = time.time()
        self.cluster.kubectl("delete", "pod", "deleted-1-1", "--grace-period=0", "--force")
        self.pause("deleted", lost_at)
        after = self.rig.uids("deleted")
        self.assertEqual(after["deleted-1-0"], pods["deleted-1-0"])
        self.assertNotEqual(after["deleted-1-1"], pods["deleted-1-1"])
        status = self.finished("deleted", 2)
        self.assertEqual(status.get("restarts", {}).get("charged", 0), 0, "a deletion by a user is not charged")

    def test_exit_1_until_the_budget_is_spent(self):
        program, pod = self.EXITS
        self.rig.apply(self.job("faulty", "--fail", f"exit:{program}",
                                restart={"maxRestarts": 1, "backoff": {"initialSeconds": 1, "maxSeconds": 1}}))
        status = self.fails("faulty")
        self.assertEqual((status["lastFailure"]["pod"], status["lastFailure"]["exitCode"]), (f"faulty-1-{pod}", 1))
        self.assertIn("the data is broken", status["lastFailure"]["message"])
        self.assertEqual((status["attempt"], status["restarts"]["charged"]), (1, 1))

    def test_an_import_error_on_one_rank(self):
        self.rig.apply(self.job("import", "--fail", "import:1", restart={"maxRestarts": 0}))
        failure = self.fails("import")["lastFailure"]
        self.assertEqual((failure["pod"], failure["exitCode"]), ("import-1-1", 1))
        self.assertIn("ModuleNotFoundError: No module named 'module_that_only_this_rank_lacks'", failure["message"])

    def test_scaled_down(self):
        self.scale_down("scaled")

    def test_a_wrong_image(self):
        self.rig.apply(self.job("wrong", image="registry.local/Not A Name"))
        self.assertIn("image", json.dumps(self.fails("wrong")))

    def test_a_node_is_powered_off(self):
        pods = self.start("node", replicas=3, health={"unreachableNodeSeconds": 5})
        lost_at = time.time()
        lost = self.power_off("node", pods, "node-1-2")
        self.rig.wait("node", lambda _: all(self.rig.uids("node").get(pod) not in (None, pods[pod]) for pod in lost), "new pods")
        self.pause("node", lost_at)
        status = self.finished("node", 3)
        self.assertEqual(status.get("restarts", {}).get("charged", 0), 0, "the loss of a node is not charged")
        self.kept("node", {key: uid for key, uid in pods.items() if key not in lost})
