# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs of a user on real nodes: DistributedDataParallel by env:// and by torchrun, and FSDP2 with distributed
checkpoints, on Fashion-MNIST."""

import unittest

from framework_jobs import Faults, FrameworkTest


class PyTorch(FrameworkTest):
    FRAMEWORK = "pytorch"
    PROGRAM = "train_ddp.py"


class Ddp(PyTorch, Faults):
    pass


class Torchrun(PyTorch, Faults):
    def command(self, *flags):
        return ["python3", "-m", "torch.distributed.run", "--nproc-per-node=1", "/code/train_ddp.py", *flags]

    def killed(self, failure):
        self.assertEqual(failure["exitCode"], 1, failure)  # of torchrun, whatever its rank ended with
        self.assertRegex(failure["message"], r"^Signal 9 \(SIGKILL\) received by PID \d+$")


class Fsdp(PyTorch, Faults):
    PROGRAM = "train_fsdp.py"


if __name__ == "__main__":
    unittest.main(verbosity=2)
