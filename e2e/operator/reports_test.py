# SPDX-License-Identifier: Apache-2.0
"""What users of other operators reported: each is tried here, and the right behaviour is kept as a test."""

import json
import pathlib
import tempfile
import unittest

from agent_pods import AgentPods
from rendezvous_test import Agent
from rig import STEADY, Cluster, Rig, job
from supervisor import free_ports

WHOLE_NODE = {"spec": {"containers": [{"name": "worker", "image": "registry.local/worker:1",
                                       "resources": {"limits": {"nvidia.com/gpu": 8}}}]}}
# The part of Volcano's API that the operator uses. No scheduler of Volcano runs: the tests bind the pods.
VOLCANO = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
           "metadata": {"name": "podgroups.scheduling.volcano.sh"},
           "spec": {"group": "scheduling.volcano.sh", "scope": "Namespaced",
                    "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"},
                    "versions": [{"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}},
                                  "schema": {"openAPIV3Schema": {
                                      "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=4))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        address = f"127.0.0.1:{free_ports(1)[0]}"
        cls.flags = {"rendezvous_address": address, "rendezvous_advertise": address, **STEADY}
        cls.operator = cls.rig.start(**cls.flags).wait_leading()

    def setUp(self):
        self.operator.must_live()

    def tearDown(self):
        self.operator.resume()
        self.cluster.kubectl("delete", "tj", "--all", "--timeout=180s")
        self.cluster.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--timeout=180s")

    def another_leader(self):
        self.operator.kill9()
        type(self).operator = self.rig.start(**self.flags).wait_leading()

    def decide_all(self):
        """Returns when the leader has decided all jobs that exist now: they come before a new one."""
        cpu = {"template": {"spec": {"containers": [{"name": "worker", "image": "registry.local/worker:1"}]}}}
        probe = self.rig.apply(job("probe", replicas=1, workers=cpu))
        self.rig.wait_phase(probe, "Running")
        self.cluster.kubectl("delete", "tj", probe, "--timeout=180s")

    def test_failures_whose_pods_are_deleted_at_once_use_up_the_budget(self):
        rig, c = self.rig, self.cluster
        budget = 3
        name = rig.apply(job("budget", replicas=3, spec={"restart": {
            "maxRestarts": budget, "maxWithoutProgress": 100, "backoff": {"initialSeconds": 1, "maxSeconds": 1}}}))
        for failure in range(1, budget + 1):
            c.wait(lambda: rig.status(name).get("attempt") == failure and rig.running(name, 3), f"attempt {failure}")
            self.operator.pause()  # it sees the end and the deletions together
            c.pod_exit("default", f"{name}-{failure}-1", 1, "boom")
            c.kubectl("delete", "pods", "-l", f"ringmaster.dev/job={name}", "--grace-period=0", "--force", "--wait=false")
            self.operator.resume()
        c.wait(lambda: rig.status(name).get("attempt") == budget + 1 or rig.status(name)["phase"] == "Failed", "the last failure")
        if rig.status(name)["phase"] != "Failed":
            c.wait(lambda: rig.running(name, 3), "the last attempt")
            for rank in range(3):  # with all of them no lost node explains the failure
                c.pod_exit("default", f"{name}-{budget + 1}-{rank}", 1, "boom")
        failed = rig.wait_condition(name, "Failed", "True", "RestartBudgetSpent")
        self.assertIn("boom", failed["message"])

    def test_an_ended_job_whose_objects_are_deleted_does_not_run_again(self):
        rig, c = self.rig, self.cluster
        keep = {"lifecycle": {"cleanPods": "None"}}
        for name, code, phase in (("won", 0, "Succeeded"), ("lost", 64, "Failed")):
            rig.apply(job(name, replicas=2, spec=keep))
            rig.wait_phase(name, "Running")
            for rank in range(2):
                c.pod_exit("default", f"{name}-1-{rank}", code)
            rig.wait_phase(name, phase)
        self.operator.kill9()
        for kind in ("pods", "services", "configmaps"):
            c.kubectl("delete", kind, "-l", "ringmaster.dev/job", "--grace-period=0", "--force", "--wait=false")
        type(self).operator = rig.start(**self.flags).wait_leading()
        self.decide_all()
        for name, phase in (("won", "Succeeded"), ("lost", "Failed")):
            c.wait(lambda: not rig.pods(name), "nothing holds the pods")
            self.assertEqual((rig.status(name)["phase"], rig.status(name)["attempt"]), (phase, 1))

    def test_a_finished_rank_whose_node_is_removed_does_not_run_again(self):
        rig, c = self.rig, self.cluster
        c.add_nodes("short-lived")
        template = {**WHOLE_NODE, "spec": {**WHOLE_NODE["spec"], "tolerations": [{"operator": "Exists"}]}}
        name = rig.apply(job("finishes", replicas=5, workers={"template": template}))
        rig.wait_phase(name, "Running")
        there = next(pod["metadata"]["name"] for pod in rig.pods(name) if pod["spec"]["nodeName"] == "short-lived")
        c.pod_exit("default", there, 0)
        c.kubectl("delete", "node", "short-lived")
        self.decide_all()
        self.assertEqual((rig.status(name)["attempt"], len(rig.live(name))), (1, 4))
        # As the garbage collector of pods does.
        c.kubectl("delete", "pod", there, "--grace-period=0", "--force", "--wait=false")
        self.another_leader()
        c.wait(lambda: there not in [pod["metadata"]["name"] for pod in rig.pods(name)], "nothing holds the pod")
        for pod in rig.live(name):
            c.pod_exit("default", pod["metadata"]["name"], 0)
        rig.wait_phase(name, "Succeeded")
        self.assertEqual(rig.status(name)["attempt"], 1)

    def test_an_ended_or_suspended_job_leaves_no_pod_group(self):
        """A PodGroup without pods would hold quota of its queue."""
        rig, c = self.rig, self.cluster
        c.apply_text(json.dumps(VOLCANO))
        self.addCleanup(c.kubectl, "delete", "crd", VOLCANO["metadata"]["name"], "--timeout=180s")
        path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"

        def groups(name):
            owner = rig.job(name)["metadata"]["uid"]
            return [group["metadata"]["name"] for group in c.api.get(path)["items"]
                    if any(one["uid"] == owner for one in group["metadata"].get("ownerReferences", []))]

        def bind(name, attempt):
            c.wait(lambda: len(rig.live(name)) == 2, "the pods, after the operator has found the API", 120)
            for rank, pod in enumerate(rig.live(name)):
                self.assertEqual(pod["spec"]["schedulerName"], "volcano")
                c.api.request("POST", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/binding", {
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": f"node-{rank}"}})
            c.wait(lambda: rig.running(name, 2), "they run")
            self.assertEqual(groups(name), [f"{name}-{attempt}"])

        for name, code, phase in (("good", 0, "Succeeded"), ("bad", 64, "Failed"), ("paused", None, "Suspended")):
            with self.subTest(phase):
                rig.apply(job(name, replicas=2, spec={"scheduling": {"gang": "volcano"}}))
                bind(name, 1)
                if code is None:
                    c.kubectl("patch", "tj", name, "--type=merge", "-p", '{"spec":{"suspend":true}}')
                else:
                    for rank in range(2):
                        c.pod_exit("default", f"{name}-1-{rank}", code)
                rig.wait_phase(name, phase)
                c.wait(lambda: not groups(name), "the PodGroup is gone", 30)
        c.kubectl("patch", "tj", "paused", "--type=merge", "-p", '{"spec":{"suspend":false}}')
        bind("paused", 2)

    def test_a_gang_completes_when_a_filler_has_taken_a_node_and_the_drained_one_is_back(self):
        rig, c = self.rig, self.cluster
        for native in (False, True):
            with self.subTest(native=native):
                name = rig.apply(job("drained", replicas=3, native=native, spec={"scheduling": {"gang": "gate"}},
                                     workers={"template": WHOLE_NODE, **({"min": 3, "max": 3} if native else {})}))
                c.wait(lambda: rig.running(name, 3), "all workers run")
                lost = rig.pods(name)[1]
                node = lost["spec"]["nodeName"]
                self.operator.pause()
                self.addCleanup(c.kubectl, "uncordon", node)
                c.kubectl("cordon", node)
                c.api.request("POST", f"/api/v1/namespaces/default/pods/{lost['metadata']['name']}/eviction", {
                    "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": lost["metadata"]["name"]}})
                filler = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "filler"}, "spec": WHOLE_NODE["spec"]}
                c.apply_text(json.dumps(filler))
                c.wait(lambda: c.get("pod", "filler")["status"].get("phase") == "Running", "the filler runs")
                self.operator.resume()
                rig.wait_condition(name, "Scheduled", "False")
                c.kubectl("uncordon", node)
                c.wait(lambda: rig.running(name, 3), "the gang is complete")
                self.assertEqual(c.get("pod", "filler")["status"]["phase"], "Running")
                self.assertEqual(rig.status(name).get("restarts", {}).get("charged", 0), 0)
                c.kubectl("delete", "pod", "filler", "--grace-period=0", "--force")
                c.kubectl("delete", "tj", name, "--timeout=180s")

    def test_a_program_that_ignores_the_signal_does_not_meet_the_next_attempt(self):
        """Its pod is deleted by force, and the kubelet has not reported its end: no pod of another attempt is created."""
        rig, c = self.rig, self.cluster
        name = rig.apply(job("stubborn", replicas=2))
        rig.wait_phase(name, "Running")
        first = rig.pods(name)[0]
        c.lose_node(first["spec"]["nodeName"])  # the test reports what the kubelet would
        self.addCleanup(c.find_node, first["spec"]["nodeName"])
        c.kubectl("delete", "pod", f"{name}-1-0", "--grace-period=0", "--force", "--wait=false")
        self.operator.wait_log(rf"job=default/{name} attempt=2 .*decision=")
        self.assertNotIn(f"UntrackPod({name}-1-0", self.operator.log)
        self.assertEqual(rig.pods(name)[0]["metadata"]["uid"], first["metadata"]["uid"])
        c.pod_exit("default", f"{name}-1-0", 137)
        c.find_node(first["spec"]["nodeName"])
        c.wait(lambda: rig.status(name).get("attempt") == 2 and rig.running(name, 2), "the second attempt")
        self.assertNotIn(f"DeletePod({name}-1-0 uid {first['metadata']['uid']}, grace 0 ms)", self.operator.log)
        for pod in rig.live(name):
            variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
            self.assertEqual((variables["RINGMASTER_ATTEMPT"], pod["metadata"]["labels"]["ringmaster.dev/attempt"]), ("2", "2"))

    def test_a_stop_does_not_wait_for_a_replacement_that_starts(self):
        """Kueue evicts a gang, or a user suspends it, while the replacement of a lost pod pulls its image."""
        rig, c = self.rig, self.cluster
        manifest = job("evicted", replicas=2, native=True, spec={"checkpoint": {"gracePeriodSeconds": 3600}},
                       workers={"min": 2, "max": 2})
        name = rig.apply(manifest)
        c.wait(lambda: rig.running(name, 2), "the pods run")
        agents = [Agent(rig, pod, rig.folder) for pod in rig.pods(name)]
        for agent in agents:
            self.addCleanup(agent.end)
        rig.wait_condition(name, "FabricReady")
        agents[1].end()
        c.pod_exit("default", f"{name}-1-1", 137)
        uid = rig.pods(name)[1]["metadata"]["uid"]
        c.wait(lambda: any(pod["metadata"]["uid"] != uid and pod["metadata"]["name"].endswith("-1") for pod in rig.live(name)),
               "the replacement, whose agent never starts")
        c.kubectl("patch", "tj", name, "--type=merge", "-p", '{"spec":{"suspend":true}}')
        rig.wait_phase(name, "Suspended", timeout_s=180)
        self.assertEqual(rig.live(name), [])

    def test_torchrun_with_one_of_two_nodes(self):
        """The node of one worker is lost and no other is free: the other worker starts again alone."""
        rig, c = self.rig, self.cluster
        for index in (2, 3):
            c.kubectl("cordon", f"node-{index}")
            self.addCleanup(c.kubectl, "uncordon", f"node-{index}")
        manifest = job("alone", replicas=2, spec={"launch": {}}, workers={"template": {"spec": {"containers": [
            {**WHOLE_NODE["spec"]["containers"][0],
             "command": ["sh", "-c", "echo nodes=$PET_NNODES rank=$PET_NODE_RANK; exec sleep 1000"]}]}}, "min": 1, "max": 2})
        name = rig.apply(manifest)
        c.wait(lambda: rig.running(name, 2), "the pods run")
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        pods = AgentPods(rig, name, folder, RINGMASTER_ADDRESS="127.0.0.1", RINGMASTER_SOCKET_FOLDER=str(folder))
        self.addCleanup(pods.end)
        pods.wait(lambda: pods.logs().count("nodes=2") == 2, "both programs run", 180)
        lost = rig.pods(name)[1]
        c.kubectl("cordon", lost["spec"]["nodeName"])
        self.addCleanup(c.kubectl, "uncordon", lost["spec"]["nodeName"])
        agent = pods.agents[lost["metadata"]["uid"]]
        agent.end()
        c.pod_exit("default", lost["metadata"]["name"], 137)
        pods.wait(lambda: "nodes=1" in pods.logs(), "the other worker runs alone", 120)
        c.kubectl("uncordon", lost["spec"]["nodeName"])
        pods.wait(lambda: pods.logs().count("nodes=2") == 4, "both run again", 120)
        self.assertEqual(rig.status(name)["attempt"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
