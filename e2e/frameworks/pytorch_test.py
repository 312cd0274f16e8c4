# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs of a user on real nodes: DistributedDataParallel by env:// and by torchrun, and FSDP2 with distributed
checkpoints, on Fashion-MNIST."""

import json
import unittest

from framework_jobs import Faults, FrameworkTest


class PyTorch(FrameworkTest):
    FRAMEWORK = "pytorch"
    FILES = ("train_ddp.py", "train_fsdp.py")

    def scaled(self, name, **options):
        """The ranks get SIGTERM, save a checkpoint, and continue with fewer: no step is lost."""
        pods = self.start(name, replicas=3, workers={"min": 1, "max": 3}, **options)
        self.cluster.kubectl("scale", f"tj/{name}", "--replicas=2")
        self.wait_said(name, lambda line: line.get("world") == 2 and line.get("step"), "two ranks train")
        self.finished(name, 2)
        steps = [line["step"] for line in self.lines if "step" in line]
        self.assertEqual(steps, list(range(1, self.STEPS + 1)), "a step was done twice, or not at all")
        self.kept(name, pods)


class Ddp(PyTorch, Faults):
    def test_a_wrong_image(self):
        self.rig.apply(self.job("wrong", image="registry.local/Not A Name"))
        self.assertIn("image", json.dumps(self.fails("wrong")))

    def test_scaled_down(self):
        self.scaled("scaled")


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

    test_a_rank_is_killed = Faults.test_a_rank_is_killed
    test_a_node_is_powered_off = Faults.test_a_node_is_powered_off
    killed = Faults.killed

    def test_another_world_size(self):
        self.scaled("split")
        self.assertEqual({line["world"] for line in self.lines if line.get("resumed")}, {2})


if __name__ == "__main__":
    unittest.main(verbosity=2)
