# SPDX-License-Identifier: Apache-2.0
"""Faults of the API server and the network, and crashes of the operator. After each of them jobs converge; two pod sets of a
job are never alive at the same time, no pod is orphaned and no restart is lost."""

import json
import os
import signal
import struct
import threading
import time
import unittest

from agent_pods import AgentPods
from fault_proxy import LOSE_REPLY, LOSE_REQUEST, Answer, FaultProxy, storm
from rig import QUICK, ApiError, Cluster, Rig, job
from supervisor import free_ports

SEED = int(os.environ.get("RINGMASTER_SEED", "1"))


# For a single replica that must survive an outage: with the rig's Lease it would exit, and no replica would take over.
PATIENT = {"lease_duration_seconds": 60, "renew_deadline_seconds": 40}


EXIT_LOST_LEASE = 1  # kExitLostLease of operator/main.cc


class Watchman:
    """Checks all pods of all jobs continuously, by a watch that bypasses the proxy."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.problems = []
        self._pods = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        revision = None
        while not self._stop.is_set():
            try:
                if revision is None:
                    found = self.cluster.api.get("/api/v1/pods?labelSelector=ringmaster.dev/job")
                    revision = found["metadata"]["resourceVersion"]
                    self._pods = {pod["metadata"]["uid"]: pod for pod in found["items"]}
                    self._check()
                path = f"/api/v1/pods?watch=true&labelSelector=ringmaster.dev/job&resourceVersion={revision}"
                for event in self.cluster.api.watch(path, timeout_s=2):
                    if event["type"] == "ERROR":
                        revision = None
                        break
                    pod = event["object"]
                    revision = pod["metadata"]["resourceVersion"]
                    if event["type"] == "DELETED":
                        self._pods.pop(pod["metadata"]["uid"], None)
                    else:
                        self._pods[pod["metadata"]["uid"]] = pod
                    self._check()
            except Exception:  # the API server is down, or no event arrives
                time.sleep(0.05)

    def _check(self):
        attempts = {}
        for pod in self._pods.values():
            if pod["status"].get("phase") in ("Pending", "Running"):
                # The name cannot be edited: <job>-<attempt>-<rank>.
                owner = pod["metadata"]["ownerReferences"][0]["uid"]
                attempts.setdefault(owner, set()).add(pod["metadata"]["name"].split("-")[-2])
        for owner, alive in attempts.items():
            if len(alive) > 1:
                self.problems.append(f"job {owner}: attempts {sorted(alive)} alive at once")

    def stop(self):
        self._stop.set()
        return self.problems


class WallClock:
    """The wall clock of one operator. It can be set while the operator runs."""

    def __init__(self, rig, days=0):
        shim = os.environ["RINGMASTER_WALL_CLOCK_SHIM"]
        if not os.path.exists(shim):
            raise FileNotFoundError(shim)  # without the library the loader only warns, and the clock never changes
        self.file = rig.folder / f"wall-clock-{time.monotonic_ns()}"
        self.file.write_bytes(bytes(8))
        self.set(days)
        # The address sanitizer insists on being loaded first; that is not necessary.
        checks = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0"]))
        self.environment = {"LD_PRELOAD": shim, "RINGMASTER_WALL_CLOCK": str(self.file),
                            "ASAN_OPTIONS": checks}

    def set(self, days):
        with open(self.file, "r+b") as file:
            file.write(struct.pack("<q", int(days * 86_400e9)))


class Faults(unittest.TestCase):
    """All tests share a cluster, since starting one takes as long as a test. Every test leaves it running and empty."""

    @classmethod
    def setUpClass(cls):
        print(f"RINGMASTER_SEED={SEED}")
        cls.cluster = cls.enterClassContext(Cluster(nodes=4, components=("etcd", "apiserver", "kcm", "scheduler", "kwok")))

    def setUp(self):
        began = time.monotonic()
        self.addCleanup(lambda: print(f"{self.id().split('.')[-1]}: {time.monotonic() - began:.0f} s"))
        self.rig = self.enterContext(Rig(self.cluster))
        self.addCleanup(self.clear)
        self.watchman = Watchman(self.cluster)

    def tearDown(self):
        self.assertEqual(self.watchman.stop(), [])

    def clear(self):
        """Removes what this test leaves: jobs, pods and the holder of the Lease."""
        for operator in self.rig.operators:
            if operator.process.poll() is None:
                operator.resume()
                operator.kill9()
        self.cluster.kubectl("delete", "tj", "--all", "--timeout=180s")
        for pod in self.cluster.get("pods"):  # no operator runs that would let go of them
            if not pod["metadata"].get("finalizers"):
                continue
            self.cluster.kubectl("patch", "pod", pod["metadata"]["name"], "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        self.cluster.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--timeout=180s")
        # The garbage collector may not know TrainingJobs at this moment.
        self.cluster.kubectl("delete", "services,configmaps,podgroups.scheduling.k8s.io", "-l", "ringmaster.dev/job")
        self.cluster.kubectl("delete", "lease", "ringmaster-operator", "-n", "ringmaster-system", "--ignore-not-found")

    def restart(self, name):
        self.cluster.component(name).restart()
        self.cluster.wake_clients()

    def kill_pod(self, name):
        pods = [pod for pod in self.rig.live(name) if pod["status"]["phase"] == "Running"]
        if pods:
            self.cluster.pod_exit("default", pods[0]["metadata"]["name"], 1, "killed by the test")
        return bool(pods)

    def fail_and_wait(self, name, attempt, size, timeout_s=180):
        """Fails a pod and waits until all pods of the next attempt run."""
        self.cluster.wait(lambda: self.kill_pod(name), "a pod to kill", timeout_s)
        self.cluster.wait(lambda: self.rig.status(name).get("attempt") == attempt and self.rig.running(name, size),
                          f"attempt {attempt}", timeout_s)

    def test_api_server_restarts(self):
        self.rig.start(**PATIENT).wait_leading()
        name = self.rig.apply(job("a", replicas=3))
        self.rig.wait_phase(name, "Running")
        for attempt in (2, 3):
            self.restart("apiserver")
            self.fail_and_wait(name, attempt, 3)
        self.assertEqual(self.rig.status(name)["restarts"]["total"], 2)

    def test_etcd_restarts_and_every_watch_gets_410(self):
        self.rig.start(**PATIENT).wait_leading()
        name = self.rig.apply(job("a", replicas=3))
        self.rig.wait_phase(name, "Running")
        self.restart("etcd")
        self.fail_and_wait(name, 2, 3)
        self.cluster.compact()
        self.fail_and_wait(name, 3, 3)

    def test_long_outage_of_the_api_server(self):
        operator = self.rig.start(**PATIENT).wait_leading()
        name = self.rig.apply(job("a", replicas=3))
        self.rig.wait_phase(name, "Running")
        self.cluster.component("apiserver").stop()
        time.sleep(12)  # the outage under test
        self.cluster.component("apiserver").start()
        self.cluster.wake_clients()
        self.fail_and_wait(name, 2, 3)
        self.assertIsNone(operator.process.poll())

    def test_random_faults(self):
        with FaultProxy(self.cluster) as proxy:
            self.rig.start(kubeconfig=proxy.kubeconfig(self.rig.kubeconfig)).wait_leading()
            proxy.rule = storm(SEED)
            names = [self.rig.apply(job(f"s{i}", replicas=3, spec={"restart": {
                "maxRestarts": 50, "backoff": {"initialSeconds": 1, "maxSeconds": 1}}})) for i in range(4)]
            for attempt in (2, 3, 4):
                for name in names:
                    self.fail_and_wait(name, attempt, 3, timeout_s=180)
            proxy.rule = lambda request: None
            for name in names:
                self.assertEqual(self.rig.status(name)["restarts"]["total"], 3)

    def test_replies_of_all_writes_are_lost_once(self):
        with FaultProxy(self.cluster) as proxy:
            self.rig.start(kubeconfig=proxy.kubeconfig(self.rig.kubeconfig)).wait_leading()
            seen = set()

            def rule(request):
                key = (request.method, request.target.split("?")[0])
                if not request.is_write or request.about("/leases") or request.about("reviews") or key in seen:
                    return None
                seen.add(key)
                return LOSE_REPLY

            proxy.rule = rule
            name = self.rig.apply(job("a", replicas=3))
            self.rig.wait_phase(name, "Running")
            self.fail_and_wait(name, 2, 3)
            self.assertEqual(self.rig.status(name)["restarts"]["total"], 1)

    def test_slice_of_the_service_is_written_and_repaired(self):
        """The leader writes its address again after errors, deletions and edits, and is not ready without it."""
        path = "/apis/discovery.k8s.io/v1/namespaces/ringmaster-system/endpointslices"
        name = f"{path}/ringmaster-rendezvous"
        api = self.cluster.api

        def addresses():
            slices = [s for s in api.get(path)["items"] if s["metadata"]["name"] == "ringmaster-rendezvous"]
            return [(s["addressType"], e["addresses"]) for s in slices for e in s["endpoints"] or []]

        with FaultProxy(self.cluster) as proxy:
            proxy.rule = lambda r: Answer(500, "InternalError") if r.is_write and r.about("endpointslices") else None
            operator = self.rig.start(kubeconfig=proxy.kubeconfig(self.rig.kubeconfig), pod_ip="10.1.2.3", **PATIENT)
            operator.wait_leading()
            operator.wait_log(r"endpoint=unpublished")
            status, text = operator.get("health", "/readyz")
            self.assertEqual(status, 503, text)
            self.assertIn("[-]rendezvous failed: the EndpointSlice ringmaster-rendezvous does not lead", text)
            self.assertEqual(addresses(), [])
            proxy.rule = lambda request: None
            ours = [("IPv4", ["10.1.2.3"])]
            self.cluster.wait(lambda: addresses() == ours, "the slice after the errors")
            self.cluster.wait(lambda: operator.get("health", "/readyz")[0] == 200, "the leader is ready")
            api.request("DELETE", name)
            self.cluster.wait(lambda: addresses() == ours, "the slice after its deletion")
            other = {"endpoints": [{"addresses": ["10.9.9.9"]}], "metadata": {"labels": {"kubernetes.io/service-name": None}}}
            api.patch(name, other)
            self.cluster.wait(lambda: addresses() == ours and api.get(name)["metadata"]["labels"].get(
                "kubernetes.io/service-name") == "ringmaster-rendezvous", "the slice after an edit")
            # The kind of address cannot be changed: the leader replaces the slice.
            wrong = {**api.get(name), "addressType": "IPv6", "endpoints": [{"addresses": ["fd00::1"]}]}
            wrong["metadata"] = {"name": "ringmaster-rendezvous", "labels": wrong["metadata"]["labels"]}
            proxy.rule = lambda r: Answer(500, "InternalError") if r.is_write and r.about("endpointslices") else None
            api.request("DELETE", name)
            api.request("POST", path, wrong)
            proxy.rule = lambda request: None
            self.cluster.wait(lambda: addresses() == ours, "a slice for the right kind of address")
            self.cluster.wait(lambda: operator.get("health", "/readyz")[0] == 200, "the leader is ready again")

    def test_leader_killed_at_every_write(self):
        """The proxy counts writes. The leader is killed before a write arrives, or after the server has executed it."""
        with FaultProxy(self.cluster) as proxy:
            config = proxy.kubeconfig(self.rig.kubeconfig)
            operators = []

            def two_replicas():
                """Replaces replicas that have ended: by the test, or because the machine was too busy to renew the short Lease. Fails
                if one ended otherwise, such as by a CHECK."""
                for operator in operators:
                    if operator.process.poll() not in (None, -signal.SIGKILL, EXIT_LOST_LEASE):
                        operator.must_live()
                operators[:] = [o for o in operators if o.process.poll() is None]
                while len(operators) < 2:
                    operators.append(self.rig.start(kubeconfig=config, **QUICK))

            two_replicas()
            self.cluster.wait(lambda: any("controller=started" in o.log for o in operators), "a leader")
            restarts = int(os.environ.get("RINGMASTER_FAULT_POINTS", "10"))
            name = self.rig.apply(job("a", replicas=2, spec={"restart": {
                "maxRestarts": 100, "maxWithoutProgress": 100, "backoff": {"initialSeconds": 1, "maxSeconds": 1}}}))
            self.rig.wait_phase(name, "Running")
            for point in range(restarts):
                done = threading.Event()
                writes = [0]

                def rule(request, point=point, done=done, writes=writes):
                    if not request.is_write or request.about("/leases") or request.about("events") or done.is_set():
                        return None
                    writes[0] += 1
                    if writes[0] <= point // 2:
                        return None
                    done.set()
                    leader = next((o for o in operators if "controller=started" in o.log and o.process.poll() is None), None)
                    if leader is None:
                        return None
                    leader.kill9()
                    return LOSE_REPLY if point % 2 else LOSE_REQUEST

                two_replicas()
                before = self.rig.status(name)
                proxy.rule = rule
                self.cluster.wait(lambda: self.kill_pod(name), "a pod to kill", 180)
                self.cluster.wait(lambda: two_replicas() or (self.rig.status(name).get("attempt", 0) > before["attempt"]
                                  and self.rig.running(name, 2)), f"the next attempt after fault point {point}")
                proxy.rule = lambda request: None
                after = self.rig.status(name)
                self.assertEqual(after["restarts"]["total"], before.get("restarts", {}).get("total", 0) + 1,
                                 f"fault point {point}")

    def test_leader_continued_after_its_lease_expired_writes_nothing(self):
        """A leader is stopped for longer than its Lease and then continues in the middle of its work."""
        first = self.rig.start().wait_leading()
        name = self.rig.apply(job("a", replicas=3))
        self.rig.wait_phase(name, "Running")
        second = self.rig.start()
        first.pause()
        self.cluster.wait(lambda: self.kill_pod(name), "a pod to kill")
        second.wait_leading()
        self.cluster.wait(lambda: self.rig.status(name).get("attempt") == 2 and self.rig.running(name, 3), "attempt 2")
        first.resume()
        self.cluster.wait(lambda: first.process.poll() is not None, "the replica that lost the Lease exits")
        self.fail_and_wait(name, 3, 3)

    def test_failover_within_the_lease(self):
        first = self.rig.start().wait_leading()
        second = self.rig.start()
        second.wait_log(r"holder=replica-0")
        name = self.rig.apply(job("a", replicas=2))
        self.rig.wait_phase(name, "Running")
        began = time.monotonic()
        first.kill9()
        second.wait_leading()
        print(f"failover after kill -9: {time.monotonic() - began:.1f} s with a lease of 15 s")
        began = time.monotonic()
        third = self.rig.start()
        third.wait_log(r"holder=replica-1")
        self.assertEqual(second.stop(), 0)
        third.wait_leading()
        print(f"handed over after SIGTERM: {time.monotonic() - began:.1f} s")
        self.fail_and_wait(name, 2, 2)

    def test_namespace_deleted_while_running(self):
        self.rig.start().wait_leading()
        self.cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}))
        self.cluster.wait(lambda: self.cluster.get("serviceaccounts", namespace="team"), "the namespace's account")
        self.rig.apply(job("a", replicas=2, namespace="team"))
        self.rig.wait_phase("a", "Running", namespace="team")
        self.cluster.kubectl("delete", "namespace", "team", "--timeout=180s")
        other = self.rig.apply(job("b", replicas=2))
        self.rig.wait_phase(other, "Running")

    def test_crd_deleted_and_created_again(self):
        self.rig.start().wait_leading()
        # The garbage collector discovers new kinds every half a minute.
        first = self.rig.apply(job("first", replicas=1))
        self.rig.wait_phase(first, "Running")
        self.cluster.kubectl("delete", "tj", first)
        self.cluster.wait(lambda: not self.rig.pods(first), "the garbage collector deletes pods of TrainingJobs", 180)
        name = self.rig.apply(job("a", replicas=2))
        self.rig.wait_phase(name, "Running")
        self.cluster.kubectl("delete", "crd", "trainingjobs.ringmaster.dev", "--timeout=180s")
        self.cluster.wait(lambda: not self.rig.pods(name), "the pods are deleted with the job", 180)
        self.rig.install()
        name = self.rig.apply(job("b", replicas=2))
        self.rig.wait_phase(name, "Running", timeout_s=180)

    def test_wall_clock_jumps(self):
        """Decisions do not depend on the wall clock of this operator, or of the one before it."""
        with FaultProxy(self.cluster) as proxy:  # plain HTTP, since certificates depend on the clock
            config = proxy.kubeconfig(self.rig.kubeconfig)
            clock = WallClock(self.rig)
            first = self.rig.start(kubeconfig=config, environment=clock.environment, **PATIENT).wait_leading()
            name = self.rig.apply(job("a", replicas=2, spec={"lifecycle": {"activeDeadlineSeconds": 3600}}))
            self.rig.wait_phase(name, "Running")
            clock.set(days=3)
            self.fail_and_wait(name, 2, 2)
            clock.set(days=-3)
            self.fail_and_wait(name, 3, 2)
            first.kill9()
            self.cluster.kubectl("delete", "lease", "ringmaster-operator", "-n", "ringmaster-system")
            # For the second operator, the times written by the first are days in the future.
            late = WallClock(self.rig, days=-5)
            second = self.rig.start(kubeconfig=config, environment=late.environment, **PATIENT).wait_leading()
            self.fail_and_wait(name, 4, 2)
            late.set(days=5)
            self.fail_and_wait(name, 5, 2)
            second.kill9()
            self.cluster.kubectl("delete", "lease", "ringmaster-operator", "-n", "ringmaster-system")
            # To the third, the deadline would have passed days ago.
            ahead = WallClock(self.rig, days=5)
            self.rig.start(kubeconfig=config, environment=ahead.environment, **PATIENT).wait_leading()
            self.fail_and_wait(name, 6, 2)
            for pod in self.rig.live(name):
                self.cluster.pod_exit("default", pod["metadata"]["name"], 0)
            self.rig.wait_phase(name, "Succeeded")
            self.assertEqual(self.rig.status(name)["restarts"]["total"], 5)

    def test_huge_foreign_objects(self):
        """Other controllers' objects of the maximum size that change all the time are not kept, and do not stop the watch."""
        operator = self.rig.start().wait_leading()
        before = operator.rss_mib()
        self.cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "huge"}, "spec": {
            "containers": [{"name": "x", "image": "registry.local/x:1"}]}}))
        self.cluster.wait(lambda: self.cluster.api.get("/api/v1/namespaces/default/pods/huge")["status"]["phase"] == "Running",
                          "the foreign pod runs")

        def conditions(turn):
            return {"status": {"conditions": [{"type": f"example.com/c{i}", "status": "True", "reason": "R",
                                               "message": f"{turn} " + "x" * 450} for i in range(2000)]}}

        node = next(n["metadata"]["name"] for n in self.cluster.get("nodes"))
        def patched(path, turn):
            try:
                return self.cluster.api.patch(path, conditions(turn), "strategic")
            except ApiError as error:  # a busy server gives up after 34 s: merging such lists takes it long
                if error.code != 504:
                    raise
            return None

        for turn in range(10):
            for path in ("/api/v1/namespaces/default/pods/huge/status", f"/api/v1/nodes/{node}/status"):
                self.cluster.wait(lambda path=path, turn=turn: patched(path, turn), f"{path} is patched")
        name = self.rig.apply(job("a", replicas=2))
        self.rig.wait_phase(name, "Running")
        self.fail_and_wait(name, 2, 2)
        self.assertEqual(operator.get("health", "/readyz")[0], 200)
        self.assertEqual(operator.metric("rest_client_requests_total", method="WATCH", code="<error>"), 0)
        print(f"RSS {before:.0f} MiB, {operator.rss_mib():.0f} MiB after 2 x 10 objects of 1.2 MB")
        # Their memory must be freed: it may hold a few of them at a time.
        self.assertLess(operator.rss_mib() - before, 64)
        self.cluster.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [
            {"type": f"example.com/c{i}", "$patch": "delete"} for i in range(2000)]}}, "strategic")

    def test_work_that_ends_while_no_operator_runs_is_not_done_again(self):
        name = self.rig.apply(job("a", replicas=2))
        operator = self.rig.start().wait_leading()
        self.rig.wait_phase(name, "Running")
        operator.kill9()
        for rank in range(2):
            self.cluster.pod_exit("default", f"a-1-{rank}", 0)
        ended = int(time.time())
        self.cluster.wait(lambda: int(time.time()) > ended, "the times of the API, whole seconds, show what came first")
        self.cluster.kubectl("delete", "pods", "-l", "ringmaster.dev/job=a", "--wait=false")
        self.rig.start().wait_leading()
        self.cluster.kubectl("wait", "--for=condition=Succeeded", f"tj/{name}", "--timeout=180s")
        self.assertEqual(self.rig.status(name)["attempt"], 1)
        self.cluster.wait(lambda: not self.rig.pods(name), "nothing holds the pods")

    def test_programs_that_finished_before_the_leader_recorded_it_are_not_run_again(self):
        """Their agents have exited when the leader dies, and the next one finds their pods only."""
        address = f"127.0.0.1:{free_ports(1)[0]}"
        flags = {"rendezvous_address": address, "rendezvous_advertise": address}
        proxy = self.enterContext(FaultProxy(self.cluster))
        proxy.rule = lambda request: Answer(503, "ServiceUnavailable") if b'"phase":"Succeeded"' in request.body else None
        operator = self.rig.start(kubeconfig=proxy.kubeconfig(self.rig.kubeconfig), **flags).wait_leading()
        manifest = job("done", replicas=2, spec={"launch": {}})
        manifest["spec"]["workers"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", "echo it runs"]
        name = self.rig.apply(manifest)
        pods = AgentPods(self.rig, name, self.rig.folder, RINGMASTER_ADDRESS="127.0.0.1",
                         RINGMASTER_SOCKET_FOLDER=str(self.rig.folder))
        self.addCleanup(pods.end)
        phases = lambda: [pod["status"].get("phase") for pod in self.rig.pods(name)]  # noqa: E731
        pods.wait(lambda: phases() == ["Succeeded", "Succeeded"], "the agents exit", 180)
        self.cluster.wait(lambda: any(what == 503 for _, _, what in proxy.requests), "the leader could not record it")
        operator.kill9()
        self.assertNotEqual(self.rig.status(name)["phase"], "Succeeded")
        self.rig.start(**flags).wait_leading()
        pods.wait(lambda: self.rig.status(name)["phase"] == "Succeeded", "the next leader records it", 180)
        self.assertEqual(len(pods.agents), 2, "no other agent has run")
        self.assertEqual(pods.logs().count("it runs"), 2)
        self.assertEqual(self.rig.status(name)["attempt"], 1)
        self.assertEqual(self.rig.status(name).get("restarts", {}).get("total", 0), 0)

    def test_user_edits_labels(self):
        self.rig.start().wait_leading()
        name = self.rig.apply(job("a", replicas=2))
        self.rig.wait_phase(name, "Running")
        self.cluster.kubectl("label", "pod", "a-1-0", "ringmaster.dev/attempt=7", "ringmaster.dev/rank=x", "--overwrite")

        # Owner and name decide which job a pod belongs to; wrong labels have no effect.
        self.cluster.pod_exit("default", "a-1-0", 1, "after the edit")
        self.cluster.wait(lambda: self.rig.status(name).get("attempt") == 2 and self.rig.running(name, 2), "attempt 2", 180)
        self.assertEqual([pod["metadata"]["name"] for pod in self.rig.live(name)], ["a-2-0", "a-2-1"])
        self.assertEqual(self.rig.status(name)["restarts"]["total"], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
