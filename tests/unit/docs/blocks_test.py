# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of docs/: manifests of TrainingJobs are valid, and shell commands have the syntax of bash."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from blocks import ROOT, blocks, script

BIN = pathlib.Path(sys.argv.pop(sys.argv.index("--bin") + 1))
sys.argv.remove("--bin")
PAGES = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


class Blocks(unittest.TestCase):
    def test_every_complete_manifest_is_valid(self):
        checked = 0
        for page in PAGES:
            for block in blocks(page):
                if "kind: TrainingJob" not in block.text or not block.text.startswith("apiVersion:"):
                    continue
                with self.subTest(page=page), tempfile.NamedTemporaryFile("w", suffix=".yaml") as manifest:
                    manifest.write(block.text)
                    manifest.flush()
                    done = subprocess.run([BIN / "ringmaster", "validate", manifest.name], capture_output=True, text=True,
                                          check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    checked += 1
        self.assertGreaterEqual(checked, 4)

    def test_shell_blocks_are_bash(self):
        for page in PAGES:
            for block in blocks(page):
                if block.language == "sh":
                    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, 0, f"{page}: {done.stderr}")

    def test_the_pages_of_start_have_commands(self):
        for page in ("start/laptop.md", "start/cluster.md"):
            self.assertGreaterEqual(sum(block.is_run for block in blocks(page)), 5, page)

    def test_script_refuses_a_replacement_that_finds_nothing(self):
        with self.assertRaises(AssertionError):
            script("start/laptop.md", [("a text that the page does not contain", "")])


if __name__ == "__main__":
    unittest.main()
