# SPDX-License-Identifier: Apache-2.0
"""The base class of tests of training jobs on real nodes."""

import statistics
import time
import unittest

from on_nodes import Rig


class TrainingTest(unittest.TestCase):
    """Starts nodes with Ringmaster once per class. OPTIONS: options of the nodes, see layout.Options."""

    OPTIONS = {}
    STEPS = 500

    @classmethod
    def setUpClass(cls):
        cls.rig = cls.enterClassContext(Rig(**cls.OPTIONS))
        cls.cluster = cls.rig.cluster

    def start(self, name, replicas=4, at=30, steps=STEPS, **options):
        """Starts a job and waits until all its workers train. Returns its pods."""
        self.addCleanup(self.rig.delete, name)
        self.rig.expect(steps)
        self.rig.apply(self.rig.job(name, replicas=replicas, steps=steps, **options))
        self.rig.wait_full(name, replicas, at)
        return self.rig.pods(name)

    def goes_on(self, name, steps=20):
        begin, clock = self.rig.step(name), time.monotonic()
        self.rig.wait_step(name, begin + steps, 60)
        print(f"{self.id()}: {steps} more steps after {time.monotonic() - clock:.2f} s", flush=True)

    def finish(self, name, steps=STEPS, charged=0, counted=None):
        """Waits for the end of the job, and checks that its weights equal those of an undisturbed job and that it had one
        attempt. charged, counted: the expected restarts in status.restarts; None: any number."""
        self.rig.wait_phase(name, "Succeeded")
        status = self.rig.status(name)
        self.assertEqual(status["weightsHash"], self.rig.expected_hash(steps))
        self.assertEqual(status["attempt"], 1, "the whole gang was restarted")
        restarts = status.get("restarts", {})
        print(f"{self.id()}: restarts {restarts}, lost {status['goodput']['lostSeconds']}\n"
              f"{self.cluster.kubectl('events', '--for', f'tj/{name}')}", flush=True)
        self.assertEqual(restarts.get("charged", 0), charged, restarts)
        if counted is not None:
            self.assertEqual(restarts.get("total", 0), counted, restarts)
        return status

    def print_pause(self, name, lost_at, others):
        """Prints how long the `others` paused after `lost_at` (time.time()), compared with the time of a step."""
        usual = statistics.median(self.rig.step_times(name).values())
        there = set(others) & set(self.rig.pods(name))
        formed = [min((at for at in self.rig.logged(pod, " generation=") if at > lost_at), default=lost_at) for pod in there]
        pause = max(formed, default=lost_at) - lost_at
        print(f"{self.id()}: the others trained again after {pause * 1e3:.0f} ms, {pause / usual:.1f} x the {usual * 1e3:.0f} ms "
              "of a step", flush=True)

    def untouched(self, name, before):
        """Checks that these pods were not replaced. After the end of the job, slow pods may have been removed."""
        after = self.rig.uids(name)
        gone = {None} if self.rig.status(name).get("phase") == "Succeeded" else set()
        for pod, known in before.items():
            self.assertIn(after.get(pod), {known["metadata"]["uid"]} | gone, f"{pod} was restarted")
