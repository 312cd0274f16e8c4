#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that build scripts show how far they are: progress_test.py

What takes longer than two seconds runs under with_progress of scripts/progress.bash, and that function shows something within
two seconds on a terminal.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/process"))
import harness  # noqa: E402

# Commands that take seconds to minutes.
SLOW = re.compile(r'"\$go" (build|install)\b|\bstore (build|push|pull|add|commit)\b|\btar\b.* -c|\bdebootstrap --|pip" install'
                  r"|images/(cuda-libraries|sbom) ")
# Containers and layers of a few megabytes, and what a function does that itself runs under with_progress.
SHORT = re.compile(r"pause|cf ../pause.tar|^list_contents\(\)")
SCRIPTS = [*sorted(ROOT.glob("e2e/*/build")), ROOT / "images/build"]


def commands(path):
    """Returns the commands of a script, with their continuation lines joined, without comments and strings of messages."""
    text = re.sub(r"\\\n\s*", "", path.read_text())
    return [line for line in text.splitlines() if not re.match(r"\s*(#|say |{ say|echo )", line)]


def with_progress(script, **environment):
    return ["bash", "-c", f". {ROOT}/scripts/progress.bash; {script}"], {"COLUMNS": "80", **environment}


class Progress(unittest.TestCase):
    def test_slow_commands_of_build_scripts_show_progress(self):
        seen = 0
        for path in SCRIPTS:
            for command in commands(path):
                if not SLOW.search(command) or SHORT.search(command):
                    continue
                seen += 1
                self.assertIn("with_progress ", command, path.relative_to(ROOT))
        self.assertGreater(seen, 15)

    def test_a_terminal_gets_a_line_that_changes_in_place(self):
        with tempfile.TemporaryDirectory() as folder:
            words, environment = with_progress(f"with_progress compiling {folder}/log bash -c 'echo one; sleep 1.5; echo two; sleep 1.5'")
            code, shown = harness.on_terminal(words, **environment)
        self.assertEqual(code, 0)
        self.assertRegex(shown, rb"\r\x1b\[Kcompiling: [12] s  one")
        self.assertRegex(shown, rb"\r\x1b\[Kcompiling: [23] s  two")
        self.assertTrue(shown.endswith(b"\r\x1b[K"), "the line is removed")
        self.assertNotIn(b"\n", shown)

    def test_an_interrupt_ends_the_command_and_its_descendants(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with tempfile.TemporaryDirectory() as folder:
                started = pathlib.Path(folder, "started")
                script = f"with_progress building {folder}/log bash -c 'sleep 1000 & echo $! > {started}.new; mv {started}.new {started}; wait'"
                words, environment = with_progress(f"trap 'rm -rf {folder}/left' EXIT; mkdir {folder}/left; {script}; echo after")
                process = subprocess.Popen(words, env={**os.environ, **environment}, stdout=subprocess.PIPE, start_new_session=True)
                end = time.monotonic() + 60
                while not started.exists():
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.05)
                sleeper = int(started.read_text())
                self.addCleanup(lambda pid: pathlib.Path(f"/proc/{pid}").exists() and os.kill(pid, signal.SIGKILL), sleeper)
                os.killpg(process.pid, number)
                said = process.communicate(timeout=60)[0]
                self.assertEqual((process.returncode, said), (-number, b""))
                self.assertFalse(pathlib.Path(folder, "left").exists(), "the script's own trap has run")
                while pathlib.Path(f"/proc/{sleeper}").exists():
                    self.assertLess(time.monotonic(), end, "the command lives on")
                    time.sleep(0.05)

    def test_a_failure_has_the_status_and_the_end_of_the_output(self):
        with tempfile.TemporaryDirectory() as folder:
            words, _ = with_progress(f"with_progress compiling {folder}/log bash -c 'echo why; exit 7'")
            done = subprocess.run(words, capture_output=True, text=True, env=os.environ, timeout=harness.DEADLINE_S)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "", "why\n"))

    def test_the_contents_of_an_image_are_listed_with_progress(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "usr/local/bin").mkdir(parents=True)
            (root / "usr/local/share/ringmaster").mkdir(parents=True)
            (root / "usr/local/share/ringmaster/packages").write_text("libc6\t2.36\tglibc\n")
            for name in ("ringmaster", "libcublasLt.so.13"):
                (root / "usr/local/bin" / name).write_bytes(name.encode())
            done = subprocess.run([sys.executable, "-B", ROOT / "images/sbom", "--image", "ringmaster-worker:1", "--root", root],
                                  capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "hashing ringmaster\nhashing libcublasLt.so.13\n")
        self.assertIn('"SPDX-2.3"', done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
