# SPDX-License-Identifier: Apache-2.0
"""Programs of Horovod on real nodes: started by horovodrun with gloo and with Open MPI, and elastic. No image has an SSH client or
server."""

import os
import signal
import time
import unittest

from framework_jobs import ELASTIC, Faults, FrameworkTest


class Horovod(FrameworkTest):
    FRAMEWORK = "horovod"
    PROGRAM = "train_horovod.py"
    LAUNCHER = ("horovodrun",)

    def command(self, *flags):
        return [*self.LAUNCHER, *super().command(*flags)]


class Static(Horovod, Faults):
    SAVES_AT_SIGTERM = False

    def test_scaled_down(self):
        """The number of ranks is fixed, but not for ever."""
        self.scale_down("scaled", workers={})

    def test_ranks_per_pod(self):
        """Each pod gets as many ranks as it has slots."""
        self.rig.apply(self.job("slots", workers={"slots": 2}))
        self.finished("slots", 4)
        ups = sorted((line["pod"], line["local_rank"], line["world"]) for line in self.lines if line.get("up"))
        self.assertEqual(ups, [("slots-1-0", 0, 4), ("slots-1-0", 1, 4), ("slots-1-1", 0, 4), ("slots-1-1", 1, 4)])

    def test_one_pod(self):
        """Horovod wants another network interface when it starts no remote ranks."""
        self.rig.apply(self.job("single", replicas=1, workers={"slots": 2}))
        self.finished("single", 2)

    def test_a_launcher_that_ends_without_its_ranks(self):
        """Its exit code 0 is not believed: Horovod ran in one pod only."""
        self.rig.apply(self.job("alone", command=["horovodrun", "-np", "1", "-H", "alone-1-0:1", "python3", "/code/train_horovod.py"], restart={"maxRestarts": 0}))
        failure = self.fails("alone")["lastFailure"]
        self.assertIn("the launcher ended with exit code 0, but no rank ran on alone-1-1", failure["message"])


class WithMpi(Horovod):
    LAUNCHER = ("horovodrun", "--mpi")

    def spec(self):
        return {**super().spec(), "launch": {"mpi": "openmpi"}}

    test_trains = Faults.test_trains
    test_a_rank_is_killed = Faults.test_a_rank_is_killed
    test_a_pod_is_deleted = Faults.test_a_pod_is_deleted
    test_an_import_error_on_one_rank = Faults.test_an_import_error_on_one_rank


class Elastic(Horovod):
    """The launcher has a separate pod, and continues while workers come and go."""

    STEPS = 500  # a worker that joins imports PyTorch meanwhile

    def job(self, name, *flags, **options):
        return super().job(name, "--elastic", "1", *flags, roles=("launcher",), workers=ELASTIC, **options)

    def lost(self, name, lose, worlds):
        """Loses something in a job with two workers, and waits until ranks train in worlds of these sizes, one after the other."""
        pods = self.start(name)
        rank = self.program(name, f"{name}-1-0")
        since = lost_at = time.time()
        lose()
        for world in worlds:
            step = self.wait_said(name, lambda line, since=since, world=world: line.get("step") and line["time"] > since and line["world"] == world,
                                  f"{world} ranks train", self.START_S)
            since = step["time"]
            print(f"{self.id()}: step {step['step']} with {world} ranks after {since - lost_at:.2f} s", flush=True)
        self.assertEqual(self.program(name, f"{name}-1-0"), rank, "the other rank started again")
        status = self.finished(name, worlds[-1])
        self.assertEqual(status.get("restarts", {}).get("charged", 0), 0)
        return pods

    def test_a_rank_is_killed(self):
        pods = self.lost("erank", lambda: os.kill(self.program("erank", "erank-1-1"), signal.SIGKILL), (1, 2))
        self.kept("erank", pods)

    def test_a_pod_is_deleted(self):
        pods = self.lost("epod", lambda: self.cluster.kubectl("delete", "pod", "epod-1-1", "--grace-period=0", "--force"), (1, 2))
        self.kept("epod", {key: uid for key, uid in pods.items() if key != "epod-1-1"})

    def test_a_node_is_powered_off(self):
        """The other rank notices it by a timeout of gloo."""
        pods = self.start("enode", health={"unreachableNodeSeconds": 5})
        generation = self.rig.status("enode")["generation"]
        on_nodes = {key: pod["spec"]["nodeName"] for key, pod in self.rig.pods("enode").items()}
        victims = [key for key, node in on_nodes.items() if node != on_nodes["enode-1-launcher-0"]]
        lost_at = time.time()
        lost = self.power_off("enode", victims, victims[0])
        up = self.wait_said("enode", lambda line: line.get("up") and line["time"] > lost_at, "a new rank", self.START_S)
        step = self.wait_said("enode", lambda line: line.get("step") and line["time"] > up["time"] and line["world"] == 2,
                              "two ranks train", self.START_S)
        print(f"{self.id()}: step {step['step']} with 2 ranks after {step['time'] - lost_at:.2f} s", flush=True)
        status = self.finished("enode", 2)
        self.assertEqual((status["generation"], status["restarts"].get("charged", 0)), (generation, 0))
        self.kept("enode", {key: uid for key, uid in pods.items() if key not in lost})

    def test_an_import_error_on_one_rank(self):
        self.rig.apply(self.job("eimport", "--fail", "import:1", restart={"maxRestarts": 0}))
        failure = self.fails("eimport")["lastFailure"]
        self.assertEqual(failure["exitCode"], 1)
        self.assertIn("ModuleNotFoundError: No module named 'module_that_only_this_rank_lacks'", failure["message"])

    def test_exit_1_until_the_budget_is_spent(self):
        """The worker starts again alone, then all of them, and then the job has failed."""
        self.rig.apply(self.job("eexit", "--step-seconds", "0.1", "--fail", "exit:1",
                                restart={"maxRestarts": 1, "backoff": {"initialSeconds": 1, "maxSeconds": 1}}))
        status = self.fails("eexit")
        self.assertEqual(status["lastFailure"]["exitCode"], 1)
        self.assertIn("the data is broken", status["lastFailure"]["message"])
        self.assertEqual((status["attempt"], status["restarts"]["charged"]), (1, 1))

    def test_scaled_up(self):
        pods = self.lost("escaled", lambda: self.cluster.kubectl("scale", "tj/escaled", "--replicas=3"), (3,))
        self.kept("escaled", pods)

    def test_scaled_down(self):
        pods = self.lost("edown", lambda: self.cluster.kubectl("scale", "tj/edown", "--replicas=1"), (1,))
        self.kept("edown", {key: uid for key, uid in pods.items() if key != "edown-1-1"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
