# SPDX-License-Identifier: Apache-2.0
"""The calls of the command line by ringmaster.submit and ringmaster.Job, with a program in its place."""
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import ringmaster  # noqa: E402


class Jobs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(unittest.mock.patch.dict(os.environ, {"RINGMASTER_BIN": str(self.folder)}))

    def program(self, script):
        path = self.folder / "ringmaster"
        path.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/calls\n{script}\n')
        path.chmod(0o755)

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def test_following_a_job_that_does_not_exist_raises(self):
        self.program("echo 'ringmaster: there is no job typo' >&2; exit 2")
        with self.assertRaisesRegex(ringmaster.Error, "there is no job typo"):
            list(ringmaster.Job("typo").logs(follow=True))

    def test_following_yields_the_lines_of_a_job_that_fails(self):
        self.program("echo one; echo two; echo 'train: Failed' >&2; exit 1")
        self.assertEqual(list(ringmaster.Job("train").logs(follow=True)), ["one", "two"])

    def test_following_may_stop_early(self):
        self.program("echo one; exec sleep 60")
        for line in ringmaster.Job("train").logs(follow=True):
            self.assertEqual(line, "one")
            break

    def test_local_flags_reach_the_call_that_finds_the_name(self):
        self.program("case \"$*\" in *--dry-run*) printf 'metadata:\\n  name: train\\n';; esac")
        job = ringmaster.submit("train.py", local=True, flags=["--fresh"], folder=self.folder)
        self.assertEqual((job.name, job.wait(120)), ("train", 0))
        self.assertEqual(self.calls(), ["launch --workers 1 --dry-run --local --fresh -- train.py",
                                        "launch --workers 1 --local --fresh -- train.py"])


if __name__ == "__main__":
    unittest.main()
