# SPDX-License-Identifier: Apache-2.0
"""A user's first five minutes: apply the example, watch it, and get the same weights as on one machine."""

import json
import os
import pathlib
import re
import subprocess
import unittest

from on_nodes import BIN, ROOT, Rig

STEPS = 160  # enough that steps are left when the last pod starts late
EXAMPLE = ROOT / "examples/gpt-text.yaml"
# The lines of `kubectl get tj -w` that must appear, in this order.
WATCHED = re.compile(r"(?s)^NAME +PHASE .*\ngpt-text +Pending .*\ngpt-text +Starting .*"
                     rf"\ngpt-text +Running +4/4 +ucx:tcp +\d+ +\d+% +\d+\S* .*\ngpt-text +Succeeded +\S+ +ucx:tcp +{STEPS} ")


class FirstMinutes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cls.enterClassContext(Rig())
        cls.cluster = cls.rig.cluster

    def manifest(self):
        """Returns the example with the paths of data and checkpoints on the cluster, and with fewer steps."""
        text = EXAMPLE.read_text()
        for old, new in (
            ("    max: 8          # uses up to eight\n",
             "    max: 8\n    template:\n      spec:\n"
             "        volumes: [{name: data, persistentVolumeClaim: {claimName: data, readOnly: true}}]\n"
             "        containers: [{name: worker, volumeMounts: [{name: data, mountPath: /data/text, readOnly: true}]}]\n"),
            ("checkpoint: {everySteps: 50, keep: 3}", "checkpoint: {everySteps: 20, keep: 3, volumeClaim: gpt-text}"),
            ("    steps: 300\n", f"    steps: {STEPS}\n")):
            self.assertEqual(text.count(old), 1, old)
            text = text.replace(old, new)
        return text

    def watch(self):
        """Starts `kubectl get tj -w`. Returns the file that it writes to."""
        shown = self.rig.nodes.folder / "watched"
        with open(shown, "w") as out:
            kubectl = subprocess.Popen([(self.cluster.folder / "binary").read_text().strip(), "kubectl", "get", "tj", "-w"],
                                       env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}, stdout=out)
        self.addCleanup(kubectl.wait)
        self.addCleanup(kubectl.kill)
        return shown

    def test_example(self):
        folder = self.rig.nodes.shared / "gpt-text"
        folder.mkdir()
        folder.chmod(0o1777)
        self.rig.volume("gpt-text", "/mnt/shared/gpt-text")
        shown = self.watch()
        self.cluster.kubectl("apply", "-f", "-", stdin=self.manifest())
        self.rig.wait_phase("gpt-text", "Succeeded", 400)
        try:
            self.cluster.wait(lambda: WATCHED.search(shown.read_text()), "the watch shows every phase", 20)
        finally:
            print(shown.read_text(), flush=True)
        pods = self.rig.pods("gpt-text")
        self.assertEqual(len(pods), 4)
        self.assertGreaterEqual(len({pod["spec"]["nodeName"] for pod in pods.values()}), 2, "all on one node")
        for name in pods:
            log = self.cluster.kubectl("logs", name)
            self.assertIn("connected to the coordinator", log)
        self.assertIn("transport=ucx:tcp", log)
        self.assertTrue((folder / f"step-{STEPS:012}" / "MANIFEST").exists())
        self.assertEqual(self.rig.status("gpt-text")["weightsHash"], self.on_one_machine(workers=3))

    def on_one_machine(self, workers):
        folder = self.rig.nodes.folder / "run"
        manifest = self.rig.nodes.folder / "gpt-text.yaml"
        manifest.write_text(self.manifest())
        done = subprocess.run(
            [BIN / "ringmaster", "run", manifest, "--out", folder, "--workers", str(workers),
             "--set", f"spec.training.data.path={self.rig.nodes.shared / 'text'}", "--set", "spec.checkpoint.volumeClaim="],
            capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return json.loads((pathlib.Path(folder) / "summary.json").read_text())["weightsHash"]


if __name__ == "__main__":
    unittest.main()
