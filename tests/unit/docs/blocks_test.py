# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/ and of the root: manifests are valid, shell commands have the syntax of bash, and named files exist."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from blocks import ROOT, blocks, script

BIN = pathlib.Path(sys.argv.pop(sys.argv.index("--bin") + 1))
sys.argv.remove("--bin")
# A path from the root of the repository in code style: `rendezvous/coordinator.h`, or a file of a diagram.
NAMED = re.compile(r"(?<![\w./-])((?:api|base|bench|cli|cmake|config|crds|e2e|examples|helm|images|operator|rendezvous|"
                   r"scripts|tests|worker)/[\w./-]*[\w-])(?![\w*])")
SOURCES = ["api", "base", "bench", "cli", "e2e", "examples", "include", "operator", "python", "rendezvous", "tests", "worker"]
OTHERS = {"cudnn.h", "cudnn_frontend.h"}  # of NVIDIA
MAX_LINES = 250
PAGES = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))
PAGES += [f"../{name}" for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]


class Blocks(unittest.TestCase):
    def test_every_complete_manifest_is_valid(self):
        checked = 0
        for page in PAGES:
            for block in blocks(page):
                if "\nkind: TrainingJob\n" not in block.text or not block.text.startswith("apiVersion:"):
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

    def test_named_files_exist(self):
        missing = []
        for page in PAGES:
            text = (ROOT / "docs" / page).read_text()
            for code in re.findall(r"(?s)`([^`\n]+)`|```mermaid\n(.*?)```", text):
                for path in NAMED.findall(code[0] or code[1]):
                    if not (ROOT / path).exists() and "BEGIN" not in path:
                        missing.append(f"docs/{page}: {path}")
        self.assertFalse(missing, "\n".join(missing))

    def test_named_sources_exist(self):
        """A file name without its folder, such as `membership_change.cc`, is the name of some source."""
        names = {path.name for top in SOURCES for path in (ROOT / top).rglob("*.*")} | OTHERS
        missing = []
        for page in PAGES:
            for code in re.findall(r"`([\w./-]+\.(?:h|cc|cu|py))`", (ROOT / "docs" / page).read_text()):
                if pathlib.PurePath(code).name not in names:
                    missing.append(f"docs/{page}: {code}")
        self.assertFalse(missing, "\n".join(missing))

    def test_pages_are_short(self):
        long = [page for page in PAGES if (ROOT / "docs" / page).read_text().count("\n") > MAX_LINES]
        self.assertEqual(long, [], f"split pages of more than {MAX_LINES} lines")

    def test_the_pages_of_start_have_commands(self):
        for page in ("start/laptop.md", "start/cluster.md"):
            self.assertGreaterEqual(sum(block.is_run for block in blocks(page)), 5, page)

    def test_script_refuses_a_replacement_that_finds_nothing(self):
        with self.assertRaises(AssertionError):
            script("start/laptop.md", [("a text that the page does not contain", "")])


if __name__ == "__main__":
    unittest.main()
