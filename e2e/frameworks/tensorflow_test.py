# SPDX-License-Identifier: Apache-2.0
"""TensorFlow programs of a user on real nodes: workers that compute each step together, and asynchronous updates with a chief, workers
and a parameter server."""

import os
import signal
import time
import unittest

from framework_jobs import Faults, FrameworkTest


class TensorFlow(FrameworkTest):
    FRAMEWORK = "tensorflow"
    PROGRAM = "train_tensorflow.py"
    START_S = 240  # imports take long
    STRATEGY = ""

    def command(self, *flags):
        return super().command("--strategy", self.STRATEGY, *flags)


class Mirrored(TensorFlow, Faults):
    STRATEGY = "mirrored"
    SAVES_AT_SIGTERM = False


class ParameterServer(TensorFlow):
    """Workers and parameter servers serve until their agent stops them, so only the chief's end counts."""

    STRATEGY = "ps"
    EXITS = ("chief", "chief-0")  # which runs the steps

    test_exit_1_until_the_budget_is_spent = Faults.test_exit_1_until_the_budget_is_spent
    test_an_import_error_on_one_rank = Faults.test_an_import_error_on_one_rank
    test_a_wrong_image = Faults.test_a_wrong_image
    test_a_pod_is_deleted = Faults.test_a_pod_is_deleted
    test_a_node_is_powered_off = Faults.test_a_node_is_powered_off

    def job(self, name, *flags, **options):
        return super().job(name, *flags, roles=("chief", "ps"), **options)

    def test_trains(self):
        self.rig.apply(self.job("plain"))
        status = self.finished("plain", 2)
        self.assertEqual(status.get("restarts", {}).get("total", 0), 0)
        ups = sorted((line["role"], line["index"]) for line in self.lines if line.get("up"))
        self.assertEqual(ups, [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)])

    def kill(self, name, pod):
        """Starts a job of which the program of this pod is killed. Returns its pods, and when that was."""
        pods = self.start(name, "--step-seconds", "1")
        lost_at = time.time()
        os.kill(self.program(name, pod), signal.SIGKILL)
        return pods, lost_at

    def test_a_worker_is_killed(self):
        """It starts again alone, while the chief continues with the other one."""
        pods, lost_at = self.kill("worker", "worker-1-1")
        again = self.wait_said("worker", lambda line: line.get("up") and line["time"] > lost_at, "the worker again", self.START_S)
        status = self.finished("worker", 2)
        print(f"{self.id()}: {again}, {status['lastFailure']}", flush=True)
        ups = sorted((line["role"], line["index"]) for line in self.lines if line.get("up"))
        self.assertEqual(ups, [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1), ("worker", 1)])
        self.assertEqual([line["step"] for line in self.lines if "step" in line], list(range(1, self.STEPS + 1)))
        self.assertEqual((status["lastFailure"]["pod"], status["lastFailure"]["exitCode"]), ("worker-1-1", 137))
        self.assertEqual(status.get("restarts", {}).get("total", 0), 0)
        self.assertIn("worker-1-1 ended with exit code 137", self.cluster.kubectl("events", "--for", "tj/worker"))
        self.kept("worker", pods)

    def test_a_parameter_server_is_killed(self):
        """Its variables are lost, so all programs start again, and the chief loads its checkpoint."""
        pods, lost_at = self.kill("server", "server-1-ps-0")
        self.pause("server", lost_at)
        status = self.finished("server", 2)
        print(f"{self.id()}: {status['lastFailure']}", flush=True)
        resumed = [line["resumed"] for line in self.lines if "resumed" in line]
        self.assertEqual(len(resumed), 1, resumed)
        self.assertGreaterEqual(resumed[0], 5)
        self.assertIn("server-1-ps-0 ended with exit code 137", self.cluster.kubectl("events", "--for", "tj/server"))
        self.assertEqual(status["restarts"]["charged"], 1)
        self.kept("server", pods)


if __name__ == "__main__":
    unittest.main(verbosity=2)
