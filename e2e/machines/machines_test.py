# SPDX-License-Identifier: Apache-2.0
"""A machine ends with its test."""

import os
import pathlib
import select
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
DEADLINE_S = 300

START_AND_WAIT = """
import contextlib, sys, time
from machine import Machine
machine = Machine("machine", sys.argv[1])
while True:
    with contextlib.suppress(OSError):
        machine.monitor("query-status")
        break
    time.sleep(0.1)
print(machine.pid, flush=True)
sys.stdin.read()
"""


class MachinesTest(unittest.TestCase):
    def test_ends_with_its_test(self):
        with (tempfile.TemporaryDirectory() as folder,
              subprocess.Popen([sys.executable, "-B", "-c", START_AND_WAIT, folder], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, cwd=HERE) as test):
            pid = int(test.stdout.readline())
            machine = os.pidfd_open(pid)
            test.kill()
            test.wait()
            self.assertTrue(select.select([machine], [], [], DEADLINE_S)[0], "QEMU outlives its test")
            os.close(machine)


if __name__ == "__main__":
    unittest.main()
