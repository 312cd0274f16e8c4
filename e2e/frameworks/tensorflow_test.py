# SPDX-License-Identifier: Apache-2.0
"""TensorFlow programs of a user on real nodes: workers that compute each step together, and asynchronous updates with a chief, workers
and a parameter server."""

import unittest

from framework_jobs import Faults, FrameworkTest


class TensorFlow(FrameworkTest):
    FRAMEWORK = "tensorflow"
    FILES = ("train_tensorflow.py",)
    START_S = 240  # imports take long
    STRATEGY = ""

    def command(self, *flags):
        return super().command("--strategy", self.STRATEGY, *flags)


class Mirrored(TensorFlow):
    STRATEGY = "mirrored"

    test_trains = Faults.test_trains
    test_a_rank_is_killed = Faults.test_a_rank_is_killed
    killed = Faults.killed


class ParameterServer(TensorFlow):
    """Workers and parameter servers serve until their agent stops them, so only the chief's end counts."""

    STRATEGY = "ps"

    def test_trains(self):
        self.rig.apply(self.job("plain", roles=("chief", "ps")))
        status = self.finished("plain", 2)
        self.assertEqual(status.get("restarts", {}).get("total", 0), 0)
        ups = sorted((line["role"], line["index"]) for line in self.lines if line.get("up"))
        self.assertEqual(ups, [("chief", 0), ("ps", 0), ("worker", 0), ("worker", 1)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
