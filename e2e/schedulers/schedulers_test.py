# SPDX-License-Identifier: Apache-2.0
"""Real gang schedulers and the operator: Volcano, coscheduling of scheduler-plugins, and Kubernetes' own gangs. The nodes and
their pods are fake: every pod that is bound runs until it is ended. All or nothing is read from the pods' bindings."""

import json
import pathlib
import re
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "operator"))
from cluster import Cluster  # noqa: E402
from rig import STEADY, Rig, job  # noqa: E402
from schedulers import Coscheduling, Native, Volcano  # noqa: E402

NODES = 4  # with 8 GPUs each; a worker of these tests takes a whole node unless it says otherwise
WHOLE_NODE = {"spec": {"containers": [{"name": "worker", "image": "registry.local/worker:1",
                                       "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "1500m"}}}]}}

# An operator that keeps its Lease while the API server restarts, however slow the machine is.
PATIENT = {"lease_duration_seconds": 90, "renew_deadline_seconds": 80, "retry_period_seconds": 2}


class OnOneCluster:
    """The tests of each scheduler. REQUIRES of the class that uses it: gang, start_scheduler()."""

    gang = ""
    scheduler_name = ""
    options = {}  # of the cluster
    timeout_s = 600  # of gangs that want the same room
    at_once = True  # a gang that finds no nodes holds none, so its pods stay

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=NODES, **cls.options))
        cls.gangs = cls.enterClassContext(cls.start_scheduler(cls.cluster))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.operator = cls.rig.start(**STEADY).wait_leading()

    def tearDown(self):
        for name in [one["metadata"]["name"] for one in self.cluster.get("tj")]:
            self.cluster.kubectl("delete", "tj", name, "--timeout=90s")
        self.cluster.wait(lambda: self.cluster.get("pods") == [], "all pods are gone", 60)
        for index in range(NODES):
            self.cluster.kubectl("uncordon", f"node-{index}")

    def submit(self, name, workers=NODES, **options):
        scheduling = {"gang": self.gang, **options.pop("scheduling", {})}
        sizes = {"template": WHOLE_NODE, **options.pop("workers_spec", {})}
        return self.rig.apply(job(name, replicas=workers, workers=sizes, spec={"scheduling": scheduling, **options.pop("spec", {})},
                                  **options))

    def bound(self, name):
        return sum("nodeName" in pod["spec"] for pod in self.rig.live(name))

    def wait_running(self, name, count, timeout_s=60):
        try:
            self.cluster.wait(lambda: self.rig.running(name, count), "", timeout_s)
        except AssertionError:
            seen = [(pod["metadata"]["name"], pod["spec"].get("schedulerName"), pod["spec"].get("nodeName"), pod["status"])
                    for pod in self.rig.pods(name)]
            raise AssertionError(f"{name} does not run with {count} workers within {timeout_s} s: {seen}\n"
                                 f"{self.rig.status(name)}") from None

    def stays_unbound(self, name, seconds):
        """Asserts that no pod of the job gets a node: a part of a gang that is bound even for a moment stays bound."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.assertEqual(self.bound(name), 0, f"a part of {name} has nodes")
            time.sleep(0.1)

    def finish(self, name):
        for pod in self.rig.live(name):
            self.cluster.pod_exit("default", pod["metadata"]["name"], 0)
        self.rig.wait_phase(name, "Succeeded")

    # --- the tests

    def test_a_gang_that_fits(self):
        self.submit("fits")
        self.wait_running("fits", NODES)
        self.rig.wait_condition("fits", "Scheduled", "True", "AllPodsPlaced")
        for pod in self.rig.live("fits"):
            self.assertEqual(pod["spec"]["schedulerName"], self.scheduler_name)
        groups = self.gangs.groups("fits")
        self.assertEqual([one["metadata"]["name"] for one in groups], ["fits-1"])
        self.check_group(groups[0])
        self.finish("fits")

    def test_a_gang_that_does_not_fit(self):
        """Nothing is bound, the condition names what is missing, and with more room the same pods run."""
        self.cluster.kubectl("cordon", "node-3")
        self.submit("tight", scheduling={"timeoutSeconds": 4} if self.at_once else {})
        found = self.rig.wait_condition("tight", "Scheduled", "False", "Unschedulable")
        print(f"{self.gang}: {found['message']}", flush=True)
        self.assertRegex(found["message"], self.missing)
        self.stays_unbound("tight", 5)
        before = sorted(pod["metadata"]["uid"] for pod in self.rig.live("tight"))
        self.assertEqual(len(before), NODES)
        self.cluster.kubectl("uncordon", "node-3")
        self.wait_running("tight", NODES)
        self.assertEqual(sorted(pod["metadata"]["uid"] for pod in self.rig.live("tight")), before)
        self.assertEqual(self.rig.status("tight")["attempt"], 1)

    def test_two_gangs_that_want_the_same_room(self):
        """Three of four nodes each: one runs whole, the other has nothing, and follows."""
        for name in ("left", "right"):
            self.submit(name, workers=3)
        first = self.cluster.wait(lambda: next((name for name in ("left", "right") if self.rig.running(name, 3)), None),
                                  "one of the gangs runs whole")
        second = "left" if first == "right" else "right"
        self.stays_unbound(second, 8)
        self.assertTrue(self.rig.running(first, 3))
        self.finish(first)
        self.wait_running(second, 3)

    def test_two_gangs_that_waited_for_the_same_room(self):
        """Both wait when room for one of them appears at once: their pods may come in any order."""
        for index in range(NODES):
            self.cluster.kubectl("cordon", f"node-{index}")
        for name in ("left", "right"):
            self.submit(name, workers=3, scheduling={"timeoutSeconds": self.timeout_s})
        for name in ("left", "right"):
            self.rig.wait_condition(name, "Scheduled", "False", "Unschedulable")
        for index in range(NODES):
            self.cluster.kubectl("uncordon", f"node-{index}")
        first = self.cluster.wait(lambda: next((name for name in ("left", "right") if self.rig.running(name, 3)), None),
                                  "one of the gangs runs whole", 120)
        second = "left" if first == "right" else "right"
        self.stays_unbound(second, 8)
        self.finish(first)
        self.wait_running(second, 3)

    def test_another_scheduler_in_the_template(self):
        """It would place each worker alone, so nothing is created."""
        manifest = job("odd", replicas=2, spec={"scheduling": {"gang": self.gang}})
        manifest["spec"]["workers"]["template"]["spec"]["schedulerName"] = "default-scheduler"
        self.rig.apply(manifest)
        found = self.rig.wait_condition("odd", "Admitted", "False", "OtherScheduler")
        self.assertIn("spec.workers.template.spec.schedulerName: default-scheduler", found["message"])
        self.assertIn("remove schedulerName", found["message"])
        self.assertEqual((self.rig.pods("odd"), self.gangs.groups("odd")), ([], []))

    def test_a_replacement_of_an_elastic_job(self):
        """A worker of an elastic job that is lost is replaced under the same gang, while the others run on."""
        self.submit("elastic", workers=3, native=True, workers_spec={"min": 2, "max": 3},
                    spec={"checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 5}})
        self.wait_running("elastic", 3)
        groups = self.gangs.groups("elastic")
        lost = self.rig.live("elastic")[1]["metadata"]
        others = {pod["metadata"]["uid"] for pod in self.rig.live("elastic")} - {lost["uid"]}
        self.cluster.pod_exit("default", lost["name"], 1)
        self.cluster.wait(lambda: self.rig.running("elastic", 3) and lost["uid"] not in
                          {pod["metadata"]["uid"] for pod in self.rig.live("elastic")}, "the worker is replaced")
        self.assertLess(others, {pod["metadata"]["uid"] for pod in self.rig.live("elastic")}, "the others run on")
        self.assertEqual([one["metadata"]["uid"] for one in self.gangs.groups("elastic")],
                         [one["metadata"]["uid"] for one in groups])
        self.assertEqual(self.rig.status("elastic")["attempt"], 1)


class VolcanoTest(OnOneCluster, unittest.TestCase):
    gang = "volcano"
    scheduler_name = "volcano"
    # What it says of a pod, or before that of its gang.
    missing = r"^tight-1-\d: (0/4 nodes are unavailable: .*Insufficient nvidia\.com/gpu|pod group is not ready, \d)"

    @staticmethod
    def start_scheduler(cluster):
        return Volcano(cluster)

    def check_group(self, group):
        spec = group["spec"]
        self.assertEqual(spec["minMember"], NODES)
        self.assertEqual(spec["minResources"], {"cpu": "6", "nvidia.com/gpu": "32"})
        self.assertEqual(spec["queue"], "default")

    def test_more_than_the_cluster_has(self):
        """Volcano does not even queue a gang that asks for more than the cluster has, and says so."""
        self.submit("huge", workers=NODES + 2)
        found = self.rig.wait_condition("huge", "Scheduled", "False", "Unschedulable")
        print(f"more than there is: {found['message']}", flush=True)
        self.assertEqual(self.gangs.groups("huge")[0]["status"]["phase"], "Pending")
        self.stays_unbound("huge", 3)

    def test_a_queue_that_does_not_exist(self):
        """Nothing is created, the condition says what to do, and the job runs when the queue is created."""
        self.submit("queued", workers=1, scheduling={"queue": "team-a"})
        found = self.rig.wait_condition("queued", "Admitted", "False", "NoQueue")
        self.assertEqual(found["message"], "Volcano has no queue team-a; create it, and the job continues by itself; or correct "
                                           "scheduling.queue")
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            self.assertEqual((self.rig.pods("queued"), self.gangs.groups("queued")), ([], []))
            time.sleep(0.1)
        self.gangs.queue("team-a")
        self.wait_running("queued", 1)
        self.assertEqual(self.gangs.groups("queued")[0]["spec"]["queue"], "team-a")
        self.rig.wait_condition("queued", "Admitted", "True")

    def test_a_topology(self):
        """Both workers need one rack, and only the second rack has two free nodes."""
        self.make_racks()
        self.cluster.kubectl("cordon", "node-1")
        self.submit("near", workers=2, scheduling={"topology": {"required": "rack"}})
        self.wait_running("near", 2)
        self.assertEqual(self.gangs.groups("near")[0]["spec"]["networkTopology"]["mode"], "hard")
        self.assertEqual({pod["spec"]["nodeName"] for pod in self.rig.live("near")}, {"node-2", "node-3"})

    def test_a_preferred_topology(self):
        """Two workers get the rack that has room for both; three, which no rack has room for, run all the same."""
        self.make_racks()
        self.cluster.kubectl("cordon", "node-1")
        self.submit("near", workers=2, scheduling={"topology": {"preferred": "rack"}})
        self.wait_running("near", 2)
        self.cluster.wait(lambda: self.gangs.groups("near")[0]["spec"]["networkTopology"] == {"mode": "soft", "highestTierAllowed": 1},
                          "Volcano has replaced the name of the tier by its number")
        self.assertEqual({pod["spec"]["nodeName"] for pod in self.rig.live("near")}, {"node-2", "node-3"})
        self.finish("near")
        self.submit("wide", workers=3, scheduling={"topology": {"preferred": "rack"}})
        self.wait_running("wide", 3)
        self.assertEqual(self.gangs.groups("wide")[0]["spec"]["networkTopology"]["mode"], "soft")

    def make_racks(self):
        for rack in ("rack-0", "rack-1"):
            self.gangs.hyper_node(rack, "rack", {"rack": rack})
            self.addCleanup(self.cluster.kubectl, "delete", "hypernode", rack)


class CoschedulingTest(OnOneCluster, unittest.TestCase):
    gang = "coscheduling"
    at_once = False
    scheduler_name = "scheduler-plugins-scheduler"
    missing = r"^tight-1-\d: 0/\d nodes are available: .*(Insufficient nvidia\.com/gpu|optimistic rejection in PostFilter)"

    @staticmethod
    def start_scheduler(cluster):
        return Coscheduling(cluster)

    def check_group(self, group):
        spec = group["spec"]
        self.assertEqual((spec["minMember"], spec["scheduleTimeoutSeconds"]), (NODES, 600))
        self.assertEqual(spec["minResources"], {"cpu": "6", "nvidia.com/gpu": "32"})


class NativeTest(OnOneCluster, unittest.TestCase):
    gang = "native"
    scheduler_name = "default-scheduler"
    missing = "nvidia.com/gpu|minCount"
    smaller_minimum = 2
    priority_of_a_gang = "urgent"
    test_another_scheduler_in_the_template = None  # any profile of Kubernetes' scheduler knows its gangs

    @staticmethod
    def start_scheduler(cluster):
        return Native(cluster)

    def check_group(self, group):
        self.assertEqual(self.gangs.min_count(group), NODES)

    def test_a_restart(self):
        """The next attempt has a gang of its number, and the one before is deleted, which Kubernetes delays until its pods are
        gone."""
        self.submit("again")
        self.wait_running("again", NODES)
        self.cluster.pod_exit("default", self.rig.live("again")[0]["metadata"]["name"], 1)
        self.cluster.wait(lambda: self.rig.status("again")["attempt"] == 2 and self.rig.running("again", NODES),
                          "the second attempt runs")
        self.cluster.wait(lambda: [one["metadata"]["name"] for one in self.gangs.groups("again")] == ["again-2"],
                          "the gang of the first attempt is gone")

    def test_a_smaller_minimum_of_an_elastic_job(self):
        """The policy of a gang is immutable before 1.37: then it stays as it is while its pods live."""
        elastic = {"workers": 3, "native": True, "spec": {"checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 5}}}
        self.submit("less", workers_spec={"min": 3, "max": 3}, **elastic)
        self.wait_running("less", 3)
        before = {pod["metadata"]["uid"] for pod in self.rig.live("less")}
        group = self.gangs.groups("less")[0]["metadata"]
        self.submit("less", workers_spec={"min": 2, "max": 3}, **elastic)
        self.cluster.wait(lambda: self.gangs.groups("less")[0]["metadata"]["annotations"] != group["annotations"],
                          "the gang is prepared again")
        time.sleep(3)
        found = self.gangs.groups("less")
        self.assertEqual([one["metadata"]["uid"] for one in found], [group["uid"]])
        self.assertEqual(self.gangs.min_count(found[0]), self.smaller_minimum)
        self.assertEqual({pod["metadata"]["uid"] for pod in self.rig.live("less")}, before)
        self.assertEqual(self.rig.status("less")["attempt"], 1)

    def test_a_priority(self):
        """A job with a PriorityClass has its gang and its pods, whether this version of a gang has a priority or not."""
        self.cluster.apply_text(json.dumps({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                                            "metadata": {"name": "urgent"}, "value": 1000}))
        self.addCleanup(self.cluster.kubectl, "delete", "priorityclass", "urgent")
        self.submit("first", scheduling={"priorityClassName": "urgent"})
        self.wait_running("first", NODES)
        self.assertEqual({pod["spec"]["priority"] for pod in self.rig.live("first")}, {1000})
        self.assertEqual(self.gangs.groups("first")[0]["spec"].get("priorityClassName"), self.priority_of_a_gang)


class Native136Test(NativeTest):
    options = {"kubernetes": "1.36"}
    smaller_minimum = 3
    priority_of_a_gang = None  # a field of another feature gate


class Native135Test(NativeTest):
    options = {"kubernetes": "1.35"}
    # This scheduler places pods one by one, and may keep nodes for a part of each gang for five minutes. The operator withdraws such
    # gangs, and creates them again at different times.
    timeout_s = 20
    at_once = False
    smaller_minimum = 3
    priority_of_a_gang = None


class Uninstalled(unittest.TestCase):
    """The API of a scheduler goes while jobs run, and comes back."""

    def check(self, gang, gangs_of, **options):
        with Cluster(nodes=NODES, **options) as cluster, gangs_of(cluster) as gangs, Rig(cluster) as rig:
            operator = rig.start(**PATIENT).wait_leading()
            rig.apply(job("runs", replicas=2, spec={"scheduling": {"gang": gang}}))
            cluster.wait(lambda: rig.running("runs", 2), "the job runs")
            before = [pod["metadata"]["uid"] for pod in rig.live("runs")]
            gangs.uninstall()
            rig.apply(job("late", replicas=2, spec={"scheduling": {"gang": gang}}))
            found = rig.wait_condition("late", "Admitted", "False", "NoGangProvider")
            self.assertIn(f"spec.scheduling.gang is {gang}", found["message"])
            self.assertIn("install it", found["message"])
            self.assertEqual(rig.condition("late", "Stalled")["reason"], "NoGangProvider")
            cluster.wait(lambda: operator.get("health", "/readyz")[0] == 200, "the operator is ready")
            rig.apply(job("other", replicas=2, spec={"scheduling": {"gang": "gate"}}))
            cluster.wait(lambda: rig.running("other", 2), "a job of another provider runs")
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                self.assertEqual(operator.get("health", "/readyz")[0], 200)
                self.assertEqual([pod["metadata"]["uid"] for pod in rig.live("runs")], before)
                time.sleep(0.2)
            self.assertEqual(rig.pods("late"), [])
            self.assertEqual(rig.condition("runs", "Scheduled")["status"], "True")
            gangs.stop()
            gangs.install()
            gangs.start()
            cluster.wait(lambda: rig.running("late", 2), "the job that waited runs")
            self.assertEqual([pod["metadata"]["uid"] for pod in rig.live("runs")], before)
            for pod in rig.live("runs"):
                cluster.pod_exit("default", pod["metadata"]["name"], 0)
            rig.wait_phase("runs", "Succeeded")

    def test_volcano(self):
        self.check("volcano", Volcano)

    def test_coscheduling(self):
        self.check("coscheduling", Coscheduling)

    def test_native(self):
        self.check("native", Native)

    def test_native_1_36(self):
        self.check("native", Native, kubernetes="1.36")

    def test_native_1_35(self):
        self.check("native", Native, kubernetes="1.35")


class Auto(unittest.TestCase):
    """`auto` goes by the scheduler that runs, not by the definitions that are installed."""

    def wait_seen(self, operator, runs):
        self.cluster.wait(lambda: re.findall(r"scheduler=volcano runs=(\w+)", operator.log)[-1:] == [runs],
                          f"the operator sees whether Volcano runs: {runs}")

    def schedulers(self, name):
        return {pod["spec"]["schedulerName"] for pod in self.rig.live(name)}

    def test_auto(self):
        self.cluster = self.enterContext(Cluster(nodes=NODES, gangs=False))
        volcano = Volcano(self.cluster, leader_election=True)
        self.addCleanup(volcano.__exit__, None)
        volcano.install()
        self.rig = self.enterContext(Rig(self.cluster))
        operator = self.rig.start(**STEADY).wait_leading()

        # The definitions alone.
        self.rig.apply(job("first", replicas=2))
        self.cluster.wait(lambda: self.rig.running("first", 2), "auto takes the gate")
        self.assertEqual((self.schedulers("first"), volcano.groups("first")), ({"default-scheduler"}, []))
        self.rig.apply(job("explicit", replicas=2, spec={"scheduling": {"gang": "volcano"}}))
        found = self.rig.wait_condition("explicit", "Scheduled", "False", "NoScheduler")
        self.assertIn("start the scheduler volcano", found["message"])
        waiting = [pod["metadata"]["uid"] for pod in self.rig.live("explicit")]
        self.assertEqual(len(waiting), 2)

        # The scheduler starts: nothing of the job that waited is lost.
        volcano.start()
        self.cluster.wait(lambda: self.rig.running("explicit", 2), "the job of volcano runs")
        self.assertEqual([pod["metadata"]["uid"] for pod in self.rig.live("explicit")], waiting)
        self.wait_seen(operator, "true")
        self.rig.apply(job("second", replicas=2))
        self.cluster.wait(lambda: self.rig.running("second", 2), "auto takes volcano")
        self.assertEqual((self.schedulers("second"), len(volcano.groups("second"))), ({"volcano"}, 1))
        named = job("named", replicas=2)
        named["spec"]["workers"]["template"]["spec"]["schedulerName"] = "default-scheduler"
        self.rig.apply(named)
        self.cluster.wait(lambda: self.rig.running("named", 2), "a job with another scheduler takes the gate")
        self.assertEqual((self.schedulers("named"), volcano.groups("named")), ({"default-scheduler"}, []))

        # And ends. What runs under it runs on.
        volcano.stop()
        self.wait_seen(operator, "false")
        self.rig.apply(job("third", replicas=2))
        self.cluster.wait(lambda: self.rig.running("third", 2), "auto takes the gate again")
        self.assertEqual(self.schedulers("third"), {"default-scheduler"})
        self.assertTrue(self.rig.running("second", 2))

        # Another operator finds the Lease of a scheduler that is gone.
        operator.kill9()
        self.rig.start(**STEADY).wait_leading()
        self.rig.apply(job("fourth", replicas=2))
        self.cluster.wait(lambda: self.rig.running("fourth", 2), "auto takes the gate after a restart")
        self.assertTrue(self.rig.running("second", 2))


class AutoNative(unittest.TestCase):
    """`auto` and Kubernetes' own gangs: 1.37 has them with one feature gate, older versions have a second one for the scheduler."""

    def start(self, operator_flags=None, **options):
        self.cluster = self.enterContext(Cluster(nodes=NODES, **options))
        self.gangs = self.enterContext(Native(self.cluster))
        self.rig = self.enterContext(Rig(self.cluster))
        self.operator = self.rig.start(**PATIENT, **(operator_flags or {})).wait_leading()

    def run_job(self, name, native):
        """Runs a job of `auto`, and asserts whether Kubernetes' own gangs place it."""
        self.rig.apply(job(name, replicas=2))
        self.cluster.wait(lambda: self.rig.running(name, 2), f"{name} runs")
        self.assertEqual(self.in_gang(name), {native})

    def in_gang(self, name):
        return {"schedulingGroup" in pod["spec"] or "workloadRef" in pod["spec"] for pod in self.rig.live(name)}

    def uids(self, name):
        return [pod["metadata"]["uid"] for pod in self.rig.live(name)]

    def stays_ready(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.assertEqual(self.operator.get("health", "/readyz")[0], 200)
            time.sleep(0.2)

    def test_the_api_goes_and_comes_back(self):
        """The servers restart without the feature, and then with it. Running jobs run on; others are placed by the gate."""
        self.start()
        for name in ("runs", "restarts", "deleted"):
            self.run_job(name, native=True)
        before = self.uids("runs")
        self.rig.apply(job("elastic", native=True, workers={"replicas": 3, "min": 2, "max": 3},
                           spec={"checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 5}}))
        self.cluster.wait(lambda: self.rig.running("elastic", 3), "elastic runs")
        *others, lost = self.rig.live("elastic")

        self.gangs.uninstall()
        self.cluster.wait(lambda: self.operator.get("health", "/readyz")[0] == 200, "the operator is ready")
        self.run_job("gated", native=False)
        self.rig.apply(job("waits", replicas=2, spec={"scheduling": {"gang": "native"}}))
        self.rig.wait_condition("waits", "Admitted", "False", "NoGangProvider")
        self.cluster.pod_exit("default", self.rig.live("restarts")[0]["metadata"]["name"], 1)
        self.cluster.wait(lambda: self.rig.status("restarts")["attempt"] == 2 and self.rig.running("restarts", 2),
                          "the next attempt of a job runs without the API")
        self.assertEqual(self.in_gang("restarts"), {False})
        self.cluster.pod_exit("default", lost["metadata"]["name"], 1)
        self.cluster.wait(lambda: self.rig.running("elastic", 3) and lost["metadata"]["uid"] not in self.uids("elastic"),
                          "a worker of an elastic job is replaced without the API")
        self.assertLess({pod["metadata"]["uid"] for pod in others}, set(self.uids("elastic")))
        self.assertEqual(self.rig.status("elastic")["attempt"], 1)
        self.cluster.kubectl("delete", "tj", "deleted", "--timeout=90s")
        self.stays_ready(5)
        self.assertEqual(self.uids("runs"), before)

        self.gangs.install()
        self.cluster.wait(lambda: self.operator.get("health", "/readyz")[0] == 200, "the operator is ready")
        self.cluster.wait(lambda: self.gangs.groups("deleted") == [], "the gang of a job that is gone is deleted", 120)
        self.cluster.wait(lambda: self.rig.running("waits", 2), "the job that waited runs")
        self.assertEqual(self.in_gang("waits"), {True})
        self.run_job("native", native=True)
        self.assertEqual(self.uids("runs"), before)
        self.assertEqual(self.in_gang("gated"), {False})
        for pod in self.rig.live("runs"):
            self.cluster.pod_exit("default", pod["metadata"]["name"], 0)
        self.rig.wait_phase("runs", "Succeeded")

    def test_auto_takes_the_gate_in_1_36(self):
        self.start(kubernetes="1.36")
        self.run_job("first", native=False)

    def test_auto_takes_the_gate_in_1_35(self):
        self.start(kubernetes="1.35")
        self.run_job("first", native=False)

    def test_the_operators_flag_in_1_36(self):
        self.start(kubernetes="1.36", operator_flags={"gang": "native"})
        self.run_job("first", native=True)

    def check_a_scheduler_without_gangs(self, kubernetes):
        """The API server serves the gangs, and the scheduler does not know them: it places workers alone, and nothing in the API
        shows it before. This is why `auto` does not go by the API of a version that has a gate for the scheduler alone."""
        self.start(kubernetes=kubernetes, gang_scheduler=False)
        self.cluster.kubectl("cordon", "node-3")
        self.rig.apply(job("torn", replicas=NODES, workers={"template": WHOLE_NODE},
                           spec={"scheduling": {"gang": "native", "timeoutSeconds": 8}}))
        self.cluster.wait(lambda: sum("nodeName" in pod["spec"] for pod in self.rig.live("torn")) == 3, "three are placed")
        found = self.rig.wait_condition("torn", "Scheduled", "False", "GangTimeout")
        self.assertIn("only 3/4 pods had a node: enable gangs in the scheduler", found["message"])

    def test_auto_leaves_a_scheduler_without_gangs(self):
        """The first gang that is placed in part shows it. The next attempt, and jobs that come later, take the gate."""
        self.start(gang_scheduler=False)
        self.cluster.kubectl("cordon", "node-3")
        self.rig.apply(job("torn", replicas=NODES, workers={"template": WHOLE_NODE}, spec={"scheduling": {"timeoutSeconds": 8}}))
        self.cluster.wait(lambda: sum("nodeName" in pod["spec"] for pod in self.rig.live("torn")) == 3, "three are placed")
        found = self.rig.wait_condition("torn", "Scheduled", "False", "GangTimeout")
        self.assertIn("only 3/4 pods had a node: gangs are not enabled in the scheduler, so auto chooses another provider",
                      found["message"])
        self.rig.wait_condition("torn", "Scheduled", "False", "WaitingForCapacity")
        self.assertEqual((self.rig.pods("torn"), self.rig.status("torn")["attempt"]), ([], 2))
        self.cluster.kubectl("uncordon", "node-3")
        self.cluster.wait(lambda: self.rig.running("torn", NODES), "the second attempt runs")
        self.assertEqual((self.in_gang("torn"), self.gangs.groups("torn")), ({False}, []))
        self.assertEqual(self.rig.status("torn")["attempt"], 2)
        self.cluster.kubectl("delete", "tj", "torn", "--timeout=90s")
        self.run_job("later", native=False)

    def test_a_scheduler_without_gangs(self):
        self.check_a_scheduler_without_gangs("")

    def test_a_scheduler_without_gangs_1_36(self):
        self.check_a_scheduler_without_gangs("1.36")

    def test_a_scheduler_without_gangs_1_35(self):
        self.check_a_scheduler_without_gangs("1.35")


if __name__ == "__main__":
    unittest.main(verbosity=2)
