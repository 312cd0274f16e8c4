# SPDX-License-Identifier: Apache-2.0
"""Jobs of higher priority with scheduling.preempt, on a real API server: who makes room, how it is reported, and how it ends."""

import unittest

from rig import STEADY, Cluster, KubectlError, Rig, job

NODES = 4
WHOLE_NODE = {"spec": {"terminationGracePeriodSeconds": 2, "containers": [
    {"name": "worker", "image": "registry.local/worker:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}}


def sized(name, replicas, scheduling=None, native=False, **workers):
    """Each worker takes all GPUs of a node."""
    return job(name, replicas=replicas, native=native, workers={"template": WHOLE_NODE, **workers},
               spec={"scheduling": {"gang": "gate", **(scheduling or {})}})


class Preemption(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=NODES))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.cluster.kubectl("create", "priorityclass", "rig-high", "--value=100")
        cls.cluster.kubectl("create", "priorityclass", "rig-higher", "--value=200")
        cls.operator = cls.rig.start(**STEADY).wait_leading()

    def setUp(self):
        self.operator.must_live()

    def tearDown(self):
        self.cluster.kubectl("delete", "tj", "--all", "--timeout=180s")

    def names(self, name):
        return [pod["metadata"]["name"] for pod in self.rig.live(name)]

    def events(self, name, reason):
        uid = self.rig.job(name)["metadata"]["uid"]  # other tests use the same names
        return [event["message"] for event in self.cluster.get("events")
                if event["reason"] == reason and event["involvedObject"].get("uid") == uid]

    def test_an_elastic_job_shrinks_only_as_far_as_needed_and_grows_again(self):
        rig, c = self.rig, self.cluster
        low = rig.apply(sized("low", 4, native=True, min=1, max=4))
        c.wait(lambda: rig.running(low, 4), "four workers")
        high = rig.apply(sized("high", 2, {"priorityClassName": "rig-high", "preempt": True}))
        fewer = rig.wait_condition(low, "Preempted", "True", "PreemptedToFewer")
        self.assertEqual(fewer["message"], "default/high (priority 100) needs room: 2 of 4 workers stay")
        rig.wait_phase(high, "Running")
        # The victim may grow again, and there is no room.
        c.wait(lambda: rig.condition(low, "Preempted")["status"] == "Unknown", "the victim is not preempted any more")
        self.assertEqual(self.names(low), ["low-1-0", "low-1-1"])
        self.assertEqual(rig.status(low)["attempt"], 1)
        for name, reason, message in ((low, "Preempted", "default/high (priority 100) needs room: from 4 to 2 workers"),
                                      (low, "PreemptionEnded", "default/high does not wait for room any more: "
                                                               "the job grows again as there is room"),
                                      (high, "Preempting", "default/low makes room: from 4 to 2 workers")):
            c.wait(lambda: self.events(name, reason), f"the event {reason}")
            self.assertEqual(self.events(name, reason), [message])
        c.kubectl("delete", "tj", high)
        c.wait(lambda: rig.running(low, 4), "the victim has grown again")

    def test_a_whole_job_stops_waits_in_its_old_place_and_resumes_under_another_leader(self):
        rig, c = self.rig, self.cluster
        elastic = rig.apply(sized("elastic", 2, native=True, min=1, max=2))
        c.wait(lambda: rig.running(elastic, 2), "two workers")
        fixed = rig.apply(sized("fixed", 2))
        rig.wait_phase(fixed, "Running")
        younger = rig.apply(sized("younger", 2))  # of the same priority: it waits behind
        rig.wait_condition(younger, "Scheduled", "False", "WaitingForCapacity")
        high = rig.apply(sized("high", 3, {"priorityClassName": "rig-high", "preempt": True}))
        whole = rig.wait_condition(fixed, "Preempted", "True", "PreemptedWhole")
        self.assertIn("default/high (priority 100) needs room", whole["message"])
        rig.wait_condition(elastic, "Preempted", "True", "PreemptedToFewer")  # in this order or the other
        # The next leader goes by what is written.
        self.assertEqual(self.operator.stop(), 0)
        type(self).operator = rig.start(**STEADY).wait_leading()
        rig.wait_phase(high, "Running")
        self.assertEqual(self.names(elastic), ["elastic-1-0"])
        c.wait(lambda: rig.status(fixed).get("attempt") == 2, "the victim has resumed")
        rig.wait_condition(fixed, "Scheduled", "False", "WaitingForCapacity")
        self.assertEqual((rig.pods(fixed), rig.pods(younger)), ([], []), "a job that waits has no pods")
        c.kubectl("delete", "tj", high)
        rig.wait_phase(fixed, "Running")  # before the younger one
        c.wait(lambda: rig.condition(fixed, "Preempted")["status"] == "Unknown", "its preemption is over")
        self.assertEqual(rig.pods(younger), [])

    def test_never_in_vain_and_never_without_permission(self):
        rig, c = self.rig, self.cluster
        low = rig.apply(sized("low", 2, native=True, min=1, max=2))
        c.wait(lambda: rig.running(low, 2), "two workers")
        equal = rig.apply(sized("equal", 2, {"priorityClassName": "rig-high"}))
        rig.wait_phase(equal, "Running")
        # Of the same priority as one, and too large for the room of the other.
        vain = rig.apply(sized("vain", 3, {"priorityClassName": "rig-high", "preempt": True}))
        rig.wait_condition(vain, "Scheduled", "False", "WaitingForCapacity")
        polite = rig.apply(sized("polite", 1, {"priorityClassName": "rig-higher"}))
        rig.wait_condition(polite, "Scheduled", "False", "WaitingForCapacity")
        c.kubectl("label", "tj", low, "note=changed")  # an occasion for another plan
        self.assertTrue(rig.running(low, 2))
        self.assertTrue(rig.running(equal, 2))
        c.kubectl("delete", "tj", polite)
        # It fits once it asks for less; its victim is released when it goes before it has started.
        c.kubectl("patch", "tj", vain, "--type=merge", "-p", '{"spec":{"workers":{"replicas":1}}}')
        rig.wait_condition(low, "Preempted", "True", "PreemptedToFewer")
        c.kubectl("delete", "tj", vain)
        c.wait(lambda: rig.running(low, 2) and rig.condition(low, "Preempted")["status"] == "Unknown", "the victim is released")

    def test_the_rules_of_the_field(self):
        for scheduling, message in (({"gang": "none"}, "allowed only when spec.scheduling.gang is auto or gate"),
                                    ({"autoscaler": True}, "must be false when spec.scheduling.autoscaler is true")):
            with self.assertRaisesRegex(KubectlError, message):
                self.rig.apply(sized("refused", 1, {"preempt": True, **scheduling}))


if __name__ == "__main__":
    unittest.main()
