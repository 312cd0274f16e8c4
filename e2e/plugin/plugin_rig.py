# SPDX-License-Identifier: Apache-2.0
"""What the tests of `kubectl ringmaster` share: a control plane with an operator, and kubectl with the plugin on PATH."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "operator"))
from rig import BIN, STEADY, Cluster, Rig, job  # noqa: E402, F401


class PluginCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=4))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.operator = cls.rig.start(**STEADY).wait_leading()
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        (pathlib.Path(folder) / "kubectl-ringmaster").symlink_to(BIN / "ringmaster")
        cls.environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(cls.cluster.folder)}

    def tearDown(self):
        self.cluster.kubectl("delete", "tj", "--all", "--timeout=60s")

    def command(self, arguments, kubeconfig=None):
        program = (self.cluster.folder / "binary").read_text().strip()
        return [program, "kubectl", "ringmaster", *map(str, arguments)], {
            **self.environment, "KUBECONFIG": str(kubeconfig or self.cluster.kubeconfig)}

    def plugin(self, *arguments, code=0, kubeconfig=None):
        """Runs `kubectl ringmaster ...`, checks its exit code and returns (stdout, stderr)."""
        words, environment = self.command(arguments, kubeconfig)
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout, done.stderr

    def running(self, name, **options):
        self.rig.apply(job(name, **options))
        self.rig.wait_phase(name, "Running")
        return name
