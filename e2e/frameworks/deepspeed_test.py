# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed programs of a user on real nodes: the three stages of ZeRO and a pipeline, and what happens when a part of them fails."""

import unittest

from framework_jobs import Faults, FrameworkTest


class DeepSpeed(FrameworkTest, Faults):
    """With stage 1 of ZeRO where nothing else is said."""

    FRAMEWORK = "deepspeed"
    PROGRAM = "train_deepspeed.py"
    START_S = 180

    def test_stage_2(self):
        self.kill_a_rank("stage2", "--stage", "2")

    def test_stage_3(self):
        self.kill_a_rank("stage3", "--stage", "3")

    def test_stage_3_scaled_down(self):
        self.scale_down("scaled3", "--stage", "3")

    def test_pipeline(self):
        self.kill_a_rank("pipeline", "--stage", "pipeline")


if __name__ == "__main__":
    unittest.main(verbosity=2)
