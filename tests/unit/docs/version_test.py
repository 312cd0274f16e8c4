# SPDX-License-Identifier: Apache-2.0
"""Every file names the version of CMakeLists.txt, and scripts/set-version finds and changes each one that does not."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/set-version"
COPIED = ["CMakeLists.txt", "README.md", ".github", "config", "helm", "images", "python", "docs"]


def set_version(*arguments, root=ROOT):
    return subprocess.run([sys.executable, "-B", SCRIPT, *arguments], capture_output=True, text=True,
                          env={**os.environ, "RINGMASTER_ROOT": str(root)})


class Version(unittest.TestCase):
    def test_every_file_agrees(self):
        result = set_version("--check")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_bump_of_the_source_alone_is_found_and_carried_on(self):
        root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in COPIED:
            source = ROOT / name
            shutil.copytree(source, root / name) if source.is_dir() else shutil.copy(source, root / name)
        version = set_version(root=root).stdout.strip()
        source = root / "CMakeLists.txt"
        source.write_text(source.read_text().replace(f"ringmaster VERSION {version}", "ringmaster VERSION 98.7.6"))

        result = set_version("--check", root=root)
        self.assertEqual(result.returncode, 1)
        for path in ("config/operator.yaml", "helm/ringmaster/Chart.yaml", "images/operator.Dockerfile",
                     "images/worker.Dockerfile", "python/pyproject.toml", "docs/start/cluster.md", "README.md", ".github/ISSUE_TEMPLATE/bug.yaml"):
            self.assertIn(f"\n{path}:", result.stderr)
        self.assertIn("scripts/set-version 98.7.6", result.stderr)

        self.assertEqual(set_version("98.7.6", root=root).returncode, 0)
        self.assertEqual(set_version("--check", root=root).returncode, 0)
        self.assertIn("\nversion: 98.7.6\n", (root / "helm/ringmaster/Chart.yaml").read_text())

    def test_a_required_line_that_is_gone_is_found(self):
        root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in COPIED[:-1]:
            source = ROOT / name
            shutil.copytree(source, root / name) if source.is_dir() else shutil.copy(source, root / name)
        (root / "images/worker.Dockerfile").write_text("FROM scratch\n")
        result = set_version("--check", root=root)
        self.assertEqual(result.returncode, 1)
        self.assertIn("images/worker.Dockerfile: 0 lines match", result.stderr)

    def test_bad_arguments_change_nothing(self):
        for arguments in (["1.2"], ["v1.2.3"], ["--help"], ["1.2.3", "4.5.6"]):
            self.assertEqual(set_version(*arguments, root="/nonexistent").returncode, 2, arguments)


if __name__ == "__main__":
    unittest.main()
