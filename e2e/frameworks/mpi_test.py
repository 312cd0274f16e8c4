# SPDX-License-Identifier: Apache-2.0
"""Programs of mpi4py on real nodes, with Open MPI 4 and 5, MPICH and Intel MPI. No image has an SSH client or server."""

import os
import signal
import time
import unittest

from framework_jobs import Faults, FrameworkTest


class Mpi(FrameworkTest):
    FRAMEWORK = "mpi"
    PROGRAM = "train_mpi.py"
    MPI = ""  # launch.mpi
    LAUNCHER = ""
    LAUNCHER_PROCESS = ""  # where it has another name
    ABI = ""  # of mpi4py

    def spec(self):
        return {"framework": "mpi", "launch": {"mpi": self.MPI}}

    def command(self, *flags):
        return [self.LAUNCHER, *super().command(*flags)]

    def pod(self, command, image=None, user=1000, env=()):
        return super().pod(command, image, user, [{"name": "MPI4PY_MPIABI", "value": self.ABI}, *env])


class MpiFaults(Faults):
    test_scaled_down = None  # the number of ranks is fixed

    def test_ranks_per_pod(self):
        """Each pod gets as many ranks as it has slots."""
        self.rig.apply(self.job("slots", workers={"slots": 2}))
        self.finished("slots", 4)
        ups = sorted((line["rank"], line["pod"], line["world"]) for line in self.lines if line.get("up"))
        self.assertEqual(sorted(pod for _, pod, _ in ups), ["slots-1-0", "slots-1-0", "slots-1-1", "slots-1-1"])
        self.assertEqual([(rank, world) for rank, _, world in ups], [(rank, 4) for rank in range(4)])

    def test_a_user_without_a_name(self):
        self.rig.apply(self.job("nameless", user=2000))
        self.finished("nameless", 2)

    def test_the_launcher_is_killed(self):
        pods = self.start("launcher")
        lost_at = time.time()
        node = self.cluster.get("pod", "launcher-1-0")["spec"]["nodeName"]
        found = [pid for pid, _ in self.rig.nodes.processes(node, self.LAUNCHER_PROCESS or self.LAUNCHER)]
        self.assertEqual(len(found), 1, found)
        os.kill(found[0], signal.SIGKILL)
        self.pause("launcher", lost_at)
        status = self.finished("launcher", 2)
        self.assertEqual(status["lastFailure"]["pod"], "launcher-1-0")
        self.assertIn("the launcher was killed by signal 9", status["lastFailure"]["message"])
        self.kept("launcher", pods)

    def test_a_launcher_that_ends_without_its_ranks(self):
        """Its exit code 0 is not believed: MPI ran in one pod only."""
        self.rig.apply(self.job("alone", command=[self.LAUNCHER, "-n", "1", "python3", "/code/train_mpi.py"],
                                restart={"maxRestarts": 0}))
        failure = self.fails("alone")["lastFailure"]
        self.assertIn("the launcher ended with exit code 0, but no rank ran on alone-1-1", failure["message"])


class OpenMpi(Mpi, MpiFaults):
    MPI = ABI = "openmpi"
    LAUNCHER = "mpirun.openmpi"


class OpenMpi5(Mpi, MpiFaults):
    FRAMEWORK = "openmpi5"
    MPI = ABI = "openmpi"
    LAUNCHER = "mpirun"
    LAUNCHER_PROCESS = "prterun"


class Mpich(Mpi, MpiFaults):
    MPI = ABI = "mpich"
    LAUNCHER = "mpiexec.hydra"


class IntelMpi(Mpi, MpiFaults):
    FRAMEWORK = "intelmpi"
    MPI = "intel"
    ABI = "mpich"
    LAUNCHER = "mpiexec.hydra"


if __name__ == "__main__":
    unittest.main(verbosity=2)
