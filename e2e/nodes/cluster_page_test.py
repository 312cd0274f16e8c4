# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/start/cluster.md in order on real nodes, with fewer training steps."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import helm
from nodes import Nodes
from on_nodes import BIN, IMAGES, ROOT

sys.path.insert(0, str(ROOT / "tests/unit/docs"))
from blocks import script  # noqa: E402

FEWER_STEPS = [("    steps: 300\n", "    steps: 120\n")]


class ClusterPage(unittest.TestCase):
    def test_commands(self):
        nodes = self.enterContext(Nodes(images=sorted(IMAGES.glob("ringmaster-*.tar"))))
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "tools").mkdir()
        (folder / "tools/kubectl").symlink_to((nodes.cluster.folder / "binary").read_text().strip())
        (folder / "tools/helm").symlink_to(helm.folder() / "helm4")
        (folder / "helm").symlink_to(ROOT / "helm")
        (folder / "build/release").mkdir(parents=True)
        (folder / "build/release/bin").symlink_to(BIN)
        done = subprocess.run(["bash"], input=script("start/cluster.md", FEWER_STEPS), cwd=folder, timeout=1500, check=False,
                              text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "KUBECONFIG": str(nodes.cluster.kubeconfig), "HOME": str(folder),
                                   "PATH": f"{folder}/tools:{os.environ['PATH']}"})
        print(done.stdout, flush=True)
        self.assertEqual(done.returncode, 0, "a command of docs/start/cluster.md failed")
        self.assertTrue((folder / "model.safetensors").exists())


if __name__ == "__main__":
    unittest.main()
