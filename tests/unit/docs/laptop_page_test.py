# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/start/laptop.md, in order, with fewer steps and a shorter text."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from blocks import ROOT, script

BIN = pathlib.Path(sys.argv.pop(sys.argv.index("--bin") + 1)).resolve()
sys.argv.remove("--bin")
# Any text will do. The run may end before the first kill; tests/process/kill_schedules tests kills.
SHORTER = [("spec.training.steps=60", "spec.training.steps=20"), ("--tokens 60", "--tokens 5"),
           ("bible -f gen1:1-rev22:21 </dev/null", "seq 40000"),
           ("--chaos kill=3", "--chaos kill=1")]


class LaptopPage(unittest.TestCase):
    def test_commands(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "examples").symlink_to(ROOT / "examples")
        done = subprocess.run(["bash"], input=script("start/laptop.md", SHORTER), cwd=folder, timeout=1100, check=False,
                              text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
        print(done.stdout, flush=True)
        self.assertEqual(done.returncode, 0, "a command of docs/start/laptop.md failed")
        for path in ("summary.json", "metrics.jsonl", "events.jsonl", "checkpoints", "logs"):
            self.assertTrue((folder / "out/disturbed" / path).exists(), path)
        self.assertTrue((folder / "out/model.safetensors").exists())


if __name__ == "__main__":
    unittest.main()
