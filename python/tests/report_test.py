# SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import socket
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import ringmaster  # noqa: E402


class Number:
    """Like a tensor with one element."""

    def __float__(self):
        return 0.5

    def __index__(self):
        return 7


class Report(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.agent = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self.agent.bind(folder + "/progress")
        self.agent.setblocking(False)
        os.environ["RINGMASTER_PROGRESS_SOCKET"] = folder + "/progress"
        self.addCleanup(os.environ.pop, "RINGMASTER_PROGRESS_SOCKET", None)

    def received(self):
        return json.loads(self.agent.recv(5000))

    def test_sends_what_is_given(self):
        self.assertTrue(ringmaster.report(step=3))
        self.assertEqual(self.received(), {"step": 3})
        self.assertTrue(ringmaster.report(Number(), Number(), total_steps=10, samples=64, learning_rate=1e-3, grad_norm=2))
        self.assertEqual(self.received(), {"step": 7, "loss": 0.5, "total_steps": 10, "samples": 64,
                                           "learning_rate": 1e-3, "grad_norm": 2.0})

    def test_a_number_that_is_not_finite_is_left_out(self):
        self.assertTrue(ringmaster.report(3, float("nan")))
        self.assertEqual(self.received(), {"step": 3})

    def test_works_in_a_child_process(self):
        ringmaster.report(1)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if ringmaster.report(2) else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual([self.received(), self.received()], [{"step": 1}, {"step": 2}])

    def test_a_busy_agent_does_not_block(self):
        for step in range(1, 100_000):
            if not ringmaster.report(step):
                return
        self.fail("the socket took everything")

    def test_does_nothing_without_an_agent(self):
        self.agent.close()
        self.assertFalse(ringmaster.report(1))
        os.environ["RINGMASTER_PROGRESS_SOCKET"] = "/nowhere/progress"
        self.assertFalse(ringmaster.report(1))
        del os.environ["RINGMASTER_PROGRESS_SOCKET"]
        self.assertFalse(ringmaster.report(1))


if __name__ == "__main__":
    unittest.main()
