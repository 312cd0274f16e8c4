# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs of a user on real nodes: DistributedDataParallel by env:// and by torchrun, and FSDP2 with distributed
checkpoints, on Fashion-MNIST."""

import unittest

from framework_jobs import Faults, FrameworkTest


class PyTorch(FrameworkTest):
    FRAMEWORK = "pytorch"
    FILES = ("train_ddp.py", "train_fsdp.py")


class Ddp(PyTorch, Faults):
    pass


class Torchrun(PyTorch):
    def command(self, *flags):
        return ["python3", "-m", "torch.distributed.run", "--nproc-per-node=1", "/code/train_ddp.py", *flags]

    test_trains = Faults.test_trains
    test_a_rank_is_killed = Faults.test_a_rank_is_killed
    test_a_pod_is_deleted = Faults.test_a_pod_is_deleted
    test_an_import_error_on_one_rank = Faults.test_an_import_error_on_one_rank
    test_exit_1_until_the_budget_is_spent = Faults.test_exit_1_until_the_budget_is_spent

    def killed(self, failure):
        self.assertEqual(failure["exitCode"], 1, failure)  # of torchrun, whatever its rank ended with
        self.assertRegex(failure["message"], r"^Signal 9 \(SIGKILL\) received by PID \d+$")


class Fsdp(PyTorch):
    def command(self, *flags):
        return ["python3", "/code/train_fsdp.py", *flags]

    test_trains = Faults.test_trains
    test_a_rank_is_killed = Faults.test_a_rank_is_killed
    test_a_node_is_powered_off = Faults.test_a_node_is_powered_off
    test_scaled_down = Faults.test_scaled_down


if __name__ == "__main__":
    unittest.main(verbosity=2)
