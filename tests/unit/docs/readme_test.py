# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of README.md for a laptop, with fewer steps and another text, and checks its length."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from blocks import ROOT, blocks, script

BIN = pathlib.Path(sys.argv.pop(sys.argv.index("--bin") + 1)).resolve()
sys.argv.remove("--bin")
PAGE = "../README.md"  # from docs/
SHORTER = [("examples/gpt-text.yaml --set", "examples/gpt-text.yaml --set spec.training.steps=20 --set"),
           ("--chaos kill=10", "--chaos kill=1"), ('"In the beginning"', '"1 2 3" --tokens 5')]


class Readme(unittest.TestCase):
    def test_commands_for_a_laptop(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "examples").symlink_to(ROOT / "examples")
        text = folder / "out/quickstart/bible.txt"  # where scripts/quickstart writes it
        text.parent.mkdir(parents=True)
        text.write_text("\n".join(map(str, range(40000))))
        done = subprocess.run(["bash"], input=script(PAGE, SHORTER), cwd=folder, timeout=1100, check=False, text=True,
                              errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
        print(done.stdout, flush=True)
        self.assertEqual(done.returncode, 0, "a command of README.md failed")
        summary = json.loads((folder / "ringmaster-out/gpt-text/summary.json").read_text())
        # On every CPU. It changes only with numerics/revision.h, and then so does examples/hashes.txt.
        self.assertEqual(summary["weightsHash"], "f16dae452dbf5ff2")
        self.assertTrue((folder / "model.safetensors").exists())

    def test_it_names_the_hash_of_the_quickstart(self):
        rows = [line.split() for line in (ROOT / "examples/hashes.txt").read_text().splitlines() if line[0] != "#"]
        self.assertIn("gpt-text.yaml", [example for example, _, _ in rows])
        for example, data, weights in rows:
            self.assertTrue((ROOT / "examples" / example).exists(), example)
            self.assertRegex(data, "^[0-9a-f]{64}$")
            self.assertRegex(weights, "^[0-9a-f]{16}$")
            self.assertIn(weights, (ROOT / "README.md").read_text())

    def test_it_is_short_and_names_the_two_commands(self):
        text = (ROOT / "README.md").read_text()
        self.assertLessEqual(text.count("\n"), 180)
        commands = [line.split("#")[0].strip() for block in blocks(PAGE) for line in block.text.splitlines()]
        for command in ("scripts/quickstart", "scripts/test"):
            self.assertIn(command, commands)
            self.assertTrue(os.access(ROOT / command, os.X_OK))


if __name__ == "__main__":
    unittest.main()
