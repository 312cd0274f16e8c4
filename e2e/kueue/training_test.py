# SPDX-License-Identifier: Apache-2.0
"""Jobs that train while Kueue takes their quota back: real agents and trainers run here in place of the pods of fake nodes. However
often a job shrinks, stops and resumes, it has the state of an undisturbed run after as many steps."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "operator"))
from agent_pods import AgentPods, leaving, training  # noqa: E402
from case import queued  # noqa: E402
from cluster import Cluster  # noqa: E402
from kueue import Kueue  # noqa: E402
from rig import BIN, STEADY, Rig  # noqa: E402
from supervisor import free_ports  # noqa: E402

NEVER = 10_000_000  # steps
NORMAL, URGENT = ({"scheduling": {"priorityClassName": name}} for name in ("normal", "urgent"))


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=1))
        cls.kueue = cls.enterClassContext(Kueue(cls.cluster))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-kueue-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        address = f"127.0.0.1:{free_ports(1)[0]}"
        cls.rig.start(rendezvous_address=address, rendezvous_advertise=address, **STEADY).wait_leading()
        cls.kueue.flavor("default")
        for name, value in (("normal", 10), ("urgent", 100)):
            cls.cluster.apply_text(json.dumps({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                                               "metadata": {"name": name}, "value": value}))

    def submit(self, name, replicas, workers):
        self.kueue.queue(name, {"default": replicas}, preemption={"withinClusterQueue": "LowerPriority"})
        self.training = training(self.folder, NEVER, width=64)
        checkpoints = {"path": f"{self.folder}/{name}", "everySteps": NEVER, "gracePeriodSeconds": 30}
        self.rig.apply(leaving(queued(name, name, replicas=replicas, native=True, workers=workers,
                                      spec={"training": self.training, "checkpoint": checkpoints, **NORMAL})))
        self.pods = AgentPods(self.rig, name, self.folder)
        self.addCleanup(self.pods.end)
        self.name = name

    def wait(self, condition, what, timeout_s=120):
        return self.pods.wait(condition, what, timeout_s)

    def step(self):
        return self.rig.status(self.name).get("progress", {}).get("step", 0)

    def trains_with(self, workers):
        """Waits until so many workers commit steps, and returns the step."""
        self.wait(lambda: self.rig.running(self.name, workers) and self.rig.status(self.name).get("readyReplicas") == workers,
                  f"{workers} workers train")
        step = self.step()
        self.wait(lambda: self.step() > step, "they commit steps")
        return self.step()

    def interrupt(self, name, replicas):
        self.rig.apply(queued(name, self.name, replicas=replicas, spec=URGENT))
        self.wait(lambda: self.rig.running(name, replicas), f"{name} runs")

    def finish(self, name):
        for pod in self.rig.live(name):
            self.cluster.pod_exit("default", pod["metadata"]["name"], 0)

    def state(self, folder, step):
        """Returns the checkpoint of this step: weights, moments and exponents."""
        chunks = sorted((folder / f"step-{step:012d}").glob("chunk-*"))
        self.assertTrue(chunks, f"no checkpoint of step {step} in {folder}")
        return [(chunk.name, chunk.read_bytes()) for chunk in chunks]

    def has_the_state_of_an_undisturbed_run(self):
        """Suspends the job, and compares its checkpoint with that of one worker that is left alone for as many steps."""
        self.cluster.kubectl("patch", "tj", self.name, "--type=merge", "-p", '{"spec": {"suspend": true}}')
        self.wait(lambda: self.rig.status(self.name).get("phase") == "Suspended" and not self.rig.pods(self.name),
                  "it is suspended")
        step = self.rig.status(self.name)["checkpoint"]["step"]
        alone = queued("alone", "none", replicas=1, native=True, spec={"training": {**self.training, "steps": step}})
        manifest, out = self.folder / f"alone-{self.name}.json", self.folder / f"alone-{self.name}"
        manifest.write_text(json.dumps(alone))
        subprocess.run([BIN / "ringmaster", "run", manifest, "--out", out], check=True, stdout=subprocess.DEVNULL, timeout=600)
        self.assertEqual(self.state(self.folder / self.name, step), self.state(out / "checkpoints", step))
        print(f"{self.name}: the same state at step {step}", flush=True)
        status = self.rig.status(self.name)
        self.assertEqual(status.get("restarts", {}).get("charged", 0), 0)
        self.assertNotIn("lastFailure", status)

    def test_an_eviction_writes_a_checkpoint(self):
        """A job that is not elastic stops as a whole, and resumes at the step at which it stopped."""
        self.submit("rigid", 2, {"min": 2, "max": 2})
        before = self.trains_with(2)
        self.interrupt("urgent-rigid", 1)
        self.wait(lambda: self.rig.pods("rigid") == [], "its pods are gone")
        status = self.rig.status("rigid")
        kept = status["checkpoint"]["step"]
        print(f"rigid: at step {before} before the eviction, checkpoint of step {kept}", flush=True)
        self.assertGreaterEqual(kept, before)
        self.assertTrue((self.folder / f"rigid/step-{kept:012d}/MANIFEST").exists())
        self.finish("urgent-rigid")
        self.assertGreater(self.trains_with(2), kept)
        self.assertEqual(self.rig.status("rigid")["attempt"], 2)
        self.has_the_state_of_an_undisturbed_run()

    def test_an_elastic_job_trains_on_with_fewer_workers(self):
        """It shrinks and grows in one attempt, without a checkpoint, and loses no step."""
        self.submit("elastic", 4, {"min": 2, "max": 4})
        self.trains_with(4)
        self.interrupt("urgent-elastic", 2)
        self.trains_with(2)
        self.assertEqual(self.kueue.surpluses("elastic"), {1: 0})
        self.assertNotIn("checkpoint", self.rig.status("elastic"))
        self.finish("urgent-elastic")
        self.trains_with(4)
        self.assertEqual(self.rig.status("elastic")["attempt"], 1)
        self.has_the_state_of_an_undisturbed_run()


if __name__ == "__main__":
    unittest.main()
