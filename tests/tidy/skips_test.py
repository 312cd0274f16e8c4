#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of scripts/list-skips: a real ctest run over small programs that print what GoogleTest and unittest print."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

LIST_SKIPS = pathlib.Path(__file__).resolve().parents[2] / "scripts/list-skips"

GOOGLETEST = """
print('[ RUN      ] Disk.Mounts')
print('disk_test.cc:170: Skipped')
print('needs the right to mount')
print('')
print('[  SKIPPED ] Disk.Mounts (0 ms)')
print('[ RUN      ] Disk.Writes')
print('[       OK ] Disk.Writes (0 ms)')
print('[  SKIPPED ] 1 test, listed below:')
print('[  SKIPPED ] Disk.Mounts')
"""
VERBOSE = """
import unittest
class Pages(unittest.TestCase):
    @unittest.skip('no browser')
    def test_page(self): pass
    def test_other(self): pass
    @unittest.skip("the browser's driver")
    def test_described(self):
        "A line that describes the test."
unittest.main(verbosity=2)
"""
TERSE = """
import unittest
class Pages(unittest.TestCase):
    @unittest.skip('no browser')
    def test_page(self): pass
unittest.main()
"""
WHOLE = "print('skipped: NO_SUCH names no Python'); raise SystemExit(77)"


class ListSkips(unittest.TestCase):
    def listed(self, programs: dict[str, str], permitted: str) -> tuple[int, list[str]]:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            text = ""
            for test, program in programs.items():
                (folder / f"{test}.py").write_text(program)
                text += f'add_test({test} "{sys.executable}" "-B" "{folder}/{test}.py")\n'
                text += f"set_tests_properties({test} PROPERTIES SKIP_RETURN_CODE 77)\n"
            (folder / "CTestTestfile.cmake").write_text(text)
            (folder / "permitted").write_text(permitted)
            subprocess.run(["ctest", "--test-dir", name], capture_output=True, check=True)
            log = folder / "Testing/Temporary/LastTest.log"
            done = subprocess.run([sys.executable, "-B", LIST_SKIPS, log, "--permitted", folder / "permitted"],
                                  capture_output=True, text=True, check=False)  # fmt: skip
            self.assertEqual(done.stderr, "")
            return done.returncode, done.stdout.splitlines()

    def test_names_each_case_inside_a_program_that_passed(self):
        code, lines = self.listed({"disk_test": GOOGLETEST, "pages": VERBOSE}, "(disk_test|pages): .*  for this test\n")
        self.assertEqual(code, 0)
        self.assertIn("disk_test: Disk.Mounts: needs the right to mount", lines)
        self.assertIn("pages: test_page: no browser", lines)
        self.assertIn("the browser's driver", "\n".join(lines))
        self.assertEqual(len(lines), 3)

    def test_a_program_that_was_skipped_as_a_whole(self):
        code, lines = self.listed({"torch": WHOLE, "disk_test": "print('fine')"}, "torch: .*  PyTorch\n")
        self.assertEqual((code, lines), (0, ["torch: *: skipped: NO_SUCH names no Python"]))

    def test_a_skip_that_no_line_permits_fails(self):
        code, lines = self.listed({"disk_test": GOOGLETEST}, "disk_test: .*: another reason  of old\n")
        self.assertEqual((code, lines), (1, ["not permitted: disk_test: Disk.Mounts: needs the right to mount"]))

    def test_cases_without_names_count(self):
        code, lines = self.listed({"pages": TERSE}, "pages: test_page: .*  a browser\n")
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["not permitted: pages: 1 cases: not named: run the program with verbosity=2"])

    def test_no_skip(self):
        self.assertEqual(self.listed({"disk_test": "print('fine')"}, ""), (0, []))


if __name__ == "__main__":
    unittest.main()
