# SPDX-License-Identifier: Apache-2.0
"""The rendezvous server in the leader, with real agents: which of them are admitted.

Pods of the fake nodes run nothing, so the agents run here, as processes with exactly what a pod would have: the token that the
API server issues for that pod, the job's ConfigMap, the environment of the pod's own container."""

import json
import os
import pathlib
import socket
import ssl
import subprocess
import time
import unittest

from agent_environment import agent_container, agent_environment
from rig import BIN, Cluster, Rig, job
from supervisor import free_ports

FAKE_TRAINER = os.environ.get("RINGMASTER_FAKE_TRAINER", "")


class Agent:
    """ringmaster-agent in place of a pod."""

    def __init__(self, rig, pod, folder, token=None, **overrides):
        self.rig = rig
        self.folder = pathlib.Path(folder) / f"agent-{pod['metadata']['name']}-{time.monotonic_ns()}"
        self.folder.mkdir()
        environment = agent_environment(rig.cluster.api, pod, self.folder, token)
        environment["RINGMASTER_TRAINER"] = FAKE_TRAINER
        environment.update(overrides)
        self.log_file = self.folder / "log"
        with open(self.log_file, "wb") as log:
            words = agent_container(pod).get("command", [])[1:]  # the first one is the agent
            self.process = subprocess.Popen([str(BIN / "ringmaster-agent"), *words], stdout=log, stderr=subprocess.STDOUT,
                                            env={"PATH": os.environ["PATH"], "RINGMASTER_LOG": "debug", **environment},
                                            start_new_session=True)

    @property
    def log(self):
        return self.log_file.read_text(errors="replace")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Rendezvous(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=2))
        cls.rig = cls.enterClassContext(Rig(cls.cluster))
        cls.port, = free_ports(1)
        # Every leader listens on the same port, as behind a Service.
        address = f"127.0.0.1:{cls.port}"
        cls.flags = {"rendezvous_address": address, "rendezvous_advertise": address}
        cls.operator = cls.rig.start(**cls.flags).wait_leading()

    def agent(self, pod, **more):
        agent = Agent(self.rig, pod, self.rig.folder, **more)
        self.addCleanup(agent.end)
        return agent

    def another_leader(self, expires=False):
        """Kills the leader and waits for the next one. `expires`: it takes over the Lease once that has expired, as it mostly does;
        otherwise the Lease is deleted, which takes less time."""
        self.operator.kill9()
        if not expires:
            self.cluster.kubectl("delete", "lease", "ringmaster-operator", "-n", "ringmaster-system", "--ignore-not-found")
        type(self).operator = self.rig.start(**self.flags).wait_leading()

    def lease_transitions(self):
        return self.cluster.get("lease", "ringmaster-operator", "ringmaster-system")["spec"]["leaseTransitions"]

    def config_map(self, pod):
        name = next(source["configMap"]["name"] for volume in pod["spec"]["volumes"]
                    for source in volume.get("projected", {}).get("sources", []) if "configMap" in source)
        return self.cluster.get("configmap", name, pod["metadata"]["namespace"])["data"]

    def start(self, name, replicas=2, **workers):
        self.rig.apply(job(name, replicas=replicas, native=True, workers=workers))
        self.cluster.wait(lambda: self.rig.running(name, replicas), "the pods run")
        return self.rig.pods(name)

    def test_a_gang_forms_by_tokens_and_the_job_reports_it(self):
        pods = self.start("forms")
        agents = [self.agent(pod) for pod in pods]
        self.cluster.wait(lambda: all("connected to the coordinator" in a.log for a in agents), "both are connected",
                          timeout_s=180)
        found = self.rig.wait_condition("forms", "FabricReady")
        self.assertEqual(found["reason"], "GangFormed")
        self.assertGreater(self.rig.status("forms")["generation"], 0)
        self.assertEqual(self.operator.metric("ringmaster_workers_connected"), len(agents))

    def test_the_slots_of_a_pod_share_a_connection(self):
        before = self.operator.metric("ringmaster_workers_connected")
        pods = self.start("slots", slots=3)
        agents = [self.agent(pod) for pod in pods]
        self.rig.wait_condition("slots", "FabricReady")
        self.assertEqual(self.operator.metric("ringmaster_workers_connected"), before + 6)
        for agent in agents:
            self.assertEqual(agent.log.count("connected to the coordinator"), 1, agent.log)
            self.assertEqual(agent.log.count("connected to the relay"), 3, agent.log)
        generation = self.rig.status("slots")["generation"]
        self.another_leader()
        self.cluster.wait(lambda: self.rig.status("slots")["generation"] > generation, "a generation of the new leader")
        self.rig.wait_condition("slots", "FabricReady")
        self.assertEqual(self.rig.status("slots")["attempt"], 1)

    def test_agents_without_a_valid_token_are_refused(self):
        mine, other = self.start("mine"), self.start("other")
        refused = self.agent(mine[0], RINGMASTER_JOB="default/other", RINGMASTER_POD=other[0]["metadata"]["name"])
        self.operator.wait_log(rf"the token belongs to pod {mine[0]['metadata']['name']}")
        self.assertNotIn("welcome", refused.log.lower())
        self.agent(other[0], token=self.cluster.api.request(
            "POST", "/api/v1/namespaces/default/serviceaccounts/default/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
             "spec": {"audiences": ["ringmaster.dev"]}})["status"]["token"])
        self.operator.wait_log(r"the token is not bound to a pod")
        self.agent(other[1], token="nonsense")
        self.operator.wait_log(r"the token is not valid")

    def test_plain_tcp_and_old_attempts_are_refused(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain:
            plain.sendall(b"\0\0\0\2{}")
            answer = plain.recv(100)  # at most a TLS alert
            self.assertFalse(answer.startswith(b"\0"), answer)
            self.assertEqual(plain.recv(100), b"")
        # The connection is encrypted, and the certificate is valid for the name that agents use.
        pods = self.start("old")
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as raw:
            # The authority in the job's ConfigMap signs it, for the name that agents use.
            context = ssl.create_default_context(cadata=self.config_map(pods[0])["ca.crt"])
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as secure:
                self.assertIn(secure.version(), ("TLSv1.2", "TLSv1.3"))
        stale = self.agent(pods[0], RINGMASTER_ATTEMPT="7")
        self.operator.wait_log(r"belongs to attempt 1, not 7")
        self.assertIsNone(stale.process.poll())

    def test_another_authority_reaches_a_gang_that_runs(self):
        """An authority that lives for a minute is replaced while a gang runs that has only got the first one."""
        self.operator.stop()
        self.cluster.kubectl("delete", "secret", "ringmaster-rendezvous", "-n", "ringmaster-system", "--ignore-not-found")
        type(self).operator = self.rig.start(ca_life_seconds=60, **self.flags).wait_leading()
        pods = self.start("rotates")
        first = self.config_map(pods[0])["ca.crt"]
        self.assertEqual(first.count("BEGIN CERTIFICATE"), 1)
        agents = [self.agent(pod) for pod in pods]
        self.rig.wait_condition("rotates", "FabricReady")
        before = self.cluster.wait(lambda: self.rig.status("rotates").get("generation"), "a generation")

        def bundle():
            """Updates the files in the pods from the ConfigMap, as the kubelet does."""
            bundle = self.config_map(pods[0])["ca.crt"]
            for agent in agents:
                fresh = agent.folder / "ca.crt.new"
                fresh.write_text(bundle)
                fresh.rename(agent.folder / "ca.crt")
            return bundle

        self.cluster.wait(lambda: bundle().count("BEGIN CERTIFICATE") == 2, "the bundle has the next authority", 300, every_s=0.5)
        self.cluster.wait(lambda: first not in bundle(), "the bundle has dropped the first authority", 300, every_s=0.5)
        self.another_leader()
        self.cluster.wait(lambda: bundle() and self.rig.status("rotates")["generation"] > before,
                          "the agents have found the next leader", 180, every_s=0.5)
        self.rig.wait_condition("rotates", "FabricReady")
        self.assertTrue(all(a.process.poll() is None for a in agents))
        self.assertEqual(self.rig.status("rotates")["attempt"], 1)
        self.assertEqual({pod["metadata"]["uid"] for pod in pods},
                         {pod["metadata"]["uid"] for pod in self.rig.live("rotates")})

    def test_agents_of_a_job_that_is_gone_exit(self):
        pods = self.start("gone")
        agents = [self.agent(pod) for pod in pods]
        self.rig.wait_condition("gone", "FabricReady")
        self.cluster.kubectl("delete", "tj", "gone", "--cascade=orphan", "--timeout=180s")
        self.assertEqual([agent.process.wait(180) for agent in agents], [75, 75])
        # One that was not connected then asks a leader that has never heard of the job.
        self.another_leader()
        late = self.agent(pods[0])
        self.assertEqual(late.process.wait(180), 75, late.log)
        self.assertIn("the job default/gone of pod gone-1-0 is gone", late.log)
        self.assertEqual(len(self.rig.live("gone")), 2, "the operator deletes none of them")
        self.cluster.kubectl("delete", "pod", "-l", "ringmaster.dev/job=gone", "--timeout=180s")

    def test_agents_find_the_next_leader(self):
        pods = self.start("moves")
        agents = [self.agent(pod) for pod in pods]
        self.rig.wait_condition("moves", "FabricReady")
        before = self.cluster.wait(lambda: self.rig.status("moves").get("generation"), "a generation")
        transitions = self.lease_transitions()
        self.another_leader(expires=True)
        self.assertGreater(self.lease_transitions(), transitions)
        self.cluster.wait(lambda: self.rig.status("moves")["generation"] > before, "a generation of the new leader")
        self.rig.wait_condition("moves", "FabricReady")
        self.assertTrue(all(a.process.poll() is None for a in agents))
        self.assertEqual(self.rig.status("moves")["attempt"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
