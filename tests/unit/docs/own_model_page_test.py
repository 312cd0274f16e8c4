# SPDX-License-Identifier: Apache-2.0
"""Runs the commands and programs of docs/start/your-own-model.md, and the program of README.md. Exits with 77 (skipped) when RINGMASTER_TORCH names no Python."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from blocks import ROOT, blocks, script

BIN = pathlib.Path(sys.argv.pop(sys.argv.index("--bin") + 1)).resolve()
sys.argv.remove("--bin")
PAGE = "start/your-own-model.md"
PYTHON = os.environ.get("RINGMASTER_TORCH", "")
SHORTER = [("run.steps(100)", "run.steps(20)")]


class OwnModelPage(unittest.TestCase):
    def run_script(self, text):
        environment = {**os.environ, "PATH": f"{pathlib.Path(PYTHON).parent}:{BIN}:{os.environ['PATH']}",
                       "PYTHONPATH": str(ROOT / "python"), "RINGMASTER_LIBRARY": str(BIN.parent / "lib/libringmaster.so")}
        done = subprocess.run(["bash"], input=text, cwd=self.folder, timeout=1400, check=False, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        print(done.stdout, flush=True)
        self.assertEqual(done.returncode, 0, f"a command of docs/{PAGE} failed")
        return done.stdout

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_commands(self):
        printed = self.run_script(script(PAGE, SHORTER))
        alone = re.search(r" weights=(\w+) ", printed)[1]
        for name in ("four", "two"):
            self.assertEqual(json.loads((self.folder / "out" / name / "summary.json").read_text())["weightsHash"], alone)
        self.assertTrue((self.folder / "model.safetensors").exists())

    def test_programs(self):
        programs = [block.text for block in blocks(PAGE) if block.language == "python" and not block.note]
        self.assertEqual(len(programs), 1)
        (self.folder / "program.py").write_text(programs[0])
        self.assertIn("[1. 2. 3.]", self.run_script("python3 program.py"))

    def test_program_of_the_readme(self):
        for block in blocks("../README.md"):
            if block.note.startswith("file: "):
                (self.folder / block.note.removeprefix("file: ")).write_text(block.text.replace("steps(200)", "steps(20)"))
        printed = self.run_script("set -euo pipefail\nringmaster launch --local --workers 2 --out out -- python3 train.py\npython3 train.py")
        alone = re.search(r" weights=(\w+) ", printed)[1]
        self.assertEqual(json.loads((self.folder / "out/summary.json").read_text())["weightsHash"], alone)


if __name__ == "__main__":
    if not os.access(PYTHON, os.X_OK):
        print("skipped: RINGMASTER_TORCH names no Python (scripts/setup-torch)")
        sys.exit(77)
    unittest.main()
