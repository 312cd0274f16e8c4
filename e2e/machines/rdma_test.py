# SPDX-License-Identifier: Apache-2.0
"""A native job whose gradients travel over verbs of Soft-RoCE, in one machine."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import rdma
from machine import machines

BIN = pathlib.Path(os.environ["RINGMASTER_BIN"])
RUN_TIMEOUT_S = 900  # an emulated processor computes hundreds of times slower, and slower still on a busy machine
STEPS = 12

JOB = """apiVersion: ringmaster.dev/v1alpha1
kind: TrainingJob
metadata: {{name: verbs}}
spec:
  framework: native
  workers: {{replicas: 2, min: 1, max: 2}}
  network: {{transport: ucx, rdma: {{resource: rdma/ib}}}}
  restart: {{maxRestarts: 1000, maxWithoutProgress: 1000, backoff: {{initialSeconds: 0, maxSeconds: 1}}}}
  training:
    model: {{kind: gpt, layers: 1, heads: 2, width: 16, context: 8}}
    data: {{kind: text, path: {folder}/text.txt}}
    batch: {{samplesPerStep: 4, microBatches: 2}}
    optimizer: {{kind: adamw, learningRate: "2e-3"}}
    steps: {steps}
"""


class RdmaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-rdma-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        (cls.folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20)
        cls.job = cls.folder / "job.yaml"
        cls.job.write_text(JOB.format(folder=cls.folder, steps=STEPS))
        cls.machine, = cls.enterClassContext(machines(1))
        rdma.add_device(cls.machine)

    def run_outside(self):
        """Returns the hash of the same job on this machine, without a network."""
        out = self.folder / "outside"
        subprocess.run([BIN / "ringmaster", "run", self.job, "--out", out, "--fresh", "--progress", "plain", "--set",
                        "spec.network.transport=shm"], check=True, capture_output=True, timeout=RUN_TIMEOUT_S)
        return json.loads((out / "summary.json").read_text())["weightsHash"]

    def start_inside(self, name):
        return self.machine.start(f"ulimit -l unlimited; cd /tmp && {BIN}/ringmaster run {self.job} --out {name} --fresh "
                                  "--progress json")

    def summary(self, run, name):
        """Returns the summary of a run that must succeed, and its logs."""
        log = f"tail -n 100 /tmp/{name}/logs/*.log"
        if code := run.wait(RUN_TIMEOUT_S):
            self.fail(f"exit code {code}:\n{run.output}\n{self.machine.run(log)}")
        return json.loads(self.machine.run(f"cat /tmp/{name}/summary.json")), self.machine.run(log)

    def test_job(self):
        before = rdma.packets(self.machine)
        summary, log = self.summary(self.start_inside("plain"), "plain")
        self.assertIn("transport=ucx:rc_verbs", log)
        self.assertGreater(rdma.packets(self.machine), before + STEPS)
        self.assertEqual(summary["weightsHash"], self.run_outside())

    def test_killed_trainer(self):
        run = self.start_inside("killed")
        run.wait_for_output('"step":3', RUN_TIMEOUT_S)
        self.machine.run("kill -9 $(pgrep -n -f '[r]ingmaster-worker train')")
        summary, log = self.summary(run, "killed")
        self.assertEqual((summary["workerFailures"], summary["lostSteps"]), (1, 0), log)
        self.assertEqual(summary["weightsHash"], self.run_outside())


if __name__ == "__main__":
    unittest.main(verbosity=2)
