# SPDX-License-Identifier: Apache-2.0
"""Tests of the test cluster itself: the properties that other tests rely on."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import cluster
from cluster import ApiError, Cluster, ClusterError, KubectlError

HERE = pathlib.Path(cluster.__file__).resolve().parent


def pod(name, gpus=0, group=None, **metadata):
    spec = {"containers": [{"name": "main", "image": "registry.local/none:1"}], "restartPolicy": "Never"}
    if gpus:
        spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def condition(thing, kind):
    return next((c for c in thing.get("status", {}).get("conditions", []) if c["type"] == kind), {})


class WithCluster(unittest.TestCase):
    options = {}

    @classmethod
    def setUpClass(cls):
        cls.c = Cluster(**cls.options)
        cls.addClassCleanup(cls.c.stop)
        cls.c.start()

    def create(self, thing, namespace="default"):
        kind = {"Pod": "api/v1/{}/pods", "ConfigMap": "api/v1/{}/configmaps"}[thing["kind"]]
        return self.c.api.request("POST", "/" + kind.format(f"namespaces/{namespace}"), thing)

    def pod(self, name, namespace="default"):
        return self.c.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def delete_pod(self, name, query=""):
        self.c.api.request("DELETE", f"/api/v1/namespaces/default/pods/{name}{query}")

    def wait_phase(self, name, phase):
        return self.c.wait(lambda: self.pod(name)["status"].get("phase") == phase and self.pod(name),
                           f"pod {name} is {phase}")

    def gone(self, path):
        try:
            self.c.api.get(path)
            return False
        except ApiError as error:
            self.assertEqual(error.code, 404)
            return True

    def wait_gone(self, name):
        self.c.wait(lambda: self.gone(f"/api/v1/namespaces/default/pods/{name}"), f"pod {name} is gone")


class Works(WithCluster):
    options = {"nodes": 4}

    def test_nodes_have_devices_and_topology(self):
        nodes = self.c.api.get("/api/v1/nodes")["items"]
        self.assertEqual([node["metadata"]["name"] for node in nodes], ["node-0", "node-1", "node-2", "node-3"])
        for node in nodes:
            self.assertEqual(condition(node, "Ready")["status"], "True")
            self.assertEqual(node["status"]["allocatable"]["nvidia.com/gpu"], "8")
            self.assertEqual(node["status"]["allocatable"]["rdma/ib"], "8")
        self.assertEqual([node["metadata"]["labels"]["rack"] for node in nodes], ["rack-0", "rack-0", "rack-1", "rack-1"])
        self.assertEqual(nodes[3]["metadata"]["labels"]["topology.kubernetes.io/zone"], "zone-0")

    def test_a_deployment_becomes_available_and_its_pods_stay(self):
        self.c.apply_text(json.dumps({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                     "template": {"metadata": {"labels": {"app": "web"}},
                                  "spec": {"containers": [{"name": "main", "image": "registry.local/none:1"}],
                                           "initContainers": [{"name": "init", "image": "registry.local/none:1"}]}}}}))
        self.c.kubectl("wait", "deployment/web", "--for=condition=Available", "--timeout=180s")
        pods = self.c.api.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb")["items"]
        self.assertEqual(len(pods), 3)
        self.assertEqual(len({pod["status"]["podIP"] for pod in pods}), 3)
        self.assertEqual({condition(pod, "PodScheduled")["status"] for pod in pods}, {"True"})
        self.c.kubectl("delete", "deployment", "web", "--timeout=180s")

    def test_a_gang_is_bound_as_a_whole_or_not_at_all(self):
        self.create(pod("in-the-way", gpus=8))
        self.wait_phase("in-the-way", "Running")
        self.c.apply_text(json.dumps({
            "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "gang"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}))
        names = [f"gang-{i}" for i in range(4)]
        for name in names:
            self.create(pod(name, gpus=8, group="gang"))
        group = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/gang"
        self.c.wait(lambda: condition(self.c.api.get(group), "PodGroupInitiallyScheduled").get("status") == "False",
                    "the scheduler refuses the gang")
        self.assertEqual([self.pod(name)["spec"].get("nodeName") for name in names], [None] * 4)
        self.delete_pod("in-the-way")
        self.c.wait(lambda: all(self.pod(name)["spec"].get("nodeName") for name in names), "the whole gang is bound")
        self.assertEqual(len({self.pod(name)["spec"]["nodeName"] for name in names}), 4)
        for name in names:
            self.wait_phase(name, "Running")
            self.delete_pod(name)
        for name in names:
            self.wait_gone(name)

    def test_a_projected_token_says_which_pod_it_is(self):
        created = self.create(pod("bound"))
        answer = self.c.api.request("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["ringmaster.dev"], "expirationSeconds": 3600,
                     "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "bound",
                                        "uid": created["metadata"]["uid"]}}})
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                  "spec": {"token": answer["status"]["token"], "audiences": ["ringmaster.dev"]}}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        status = self.c.api.request("POST", path, review)["status"]
        self.assertTrue(status["authenticated"])
        self.assertEqual(status["user"]["username"], "system:serviceaccount:default:default")
        self.assertEqual(status["user"]["extra"]["authentication.kubernetes.io/pod-uid"], [created["metadata"]["uid"]])
        self.assertEqual(status["audiences"], ["ringmaster.dev"])

        review["spec"]["audiences"] = ["another.audience"]
        self.assertFalse(self.c.api.request("POST", path, review)["status"].get("authenticated", False))
        review["spec"]["audiences"] = ["ringmaster.dev"]
        self.delete_pod("bound", "?gracePeriodSeconds=0")
        self.wait_gone("bound")
        self.c.wait(lambda: not self.c.api.request("POST", path, review)["status"].get("authenticated", False),
                    "the token ends with its pod")

    def test_pod_exit_ends_pods(self):
        for name, code, phase, reason in (("good", 0, "Succeeded", "Completed"), ("bad", 3, "Failed", "Error")):
            self.create(pod(name))
            self.wait_phase(name, "Running")
            done = subprocess.run([HERE / "pod-exit", self.c.folder, "default", name, str(code), "a message"], check=False)
            self.assertEqual(done.returncode, 0)
            ended = self.pod(name)
            self.assertEqual(ended["status"]["phase"], phase)
            state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
            self.assertEqual((state["exitCode"], state["reason"], state["message"]), (code, reason, "a message"))
            self.assertEqual(condition(ended, "Ready")["status"], "False")
            self.assertEqual(condition(ended, "PodScheduled")["status"], "True")
            self.delete_pod(name)
            self.wait_gone(name)
        with self.assertRaises(ApiError):
            self.c.pod_exit("default", "missing", 0)

    def test_one_container_of_two_ends(self):
        two = pod("two")
        two["spec"]["containers"].append({"name": "side", "image": "registry.local/none:1"})
        self.create(two)
        self.wait_phase("two", "Running")
        self.c.pod_exit("default", "two", 137, container="side", reason="OOMKilled")
        self.assertEqual(self.pod("two")["status"]["phase"], "Running")
        self.assertEqual(condition(self.pod("two"), "Ready")["reason"], "ContainersNotReady")
        self.c.pod_exit("default", "two", 0)
        states = {s["name"]: s["state"]["terminated"] for s in self.pod("two")["status"]["containerStatuses"]}
        self.assertEqual((states["main"]["exitCode"], states["side"]["reason"]), (0, "OOMKilled"))
        self.assertEqual(self.pod("two")["status"]["phase"], "Failed")
        self.delete_pod("two")

    def test_a_deleted_pod_ends_before_it_goes(self):
        created = self.create(pod("leaving"))
        self.wait_phase("leaving", "Running")
        self.delete_pod("leaving")
        seen = []
        path = f"/api/v1/namespaces/default/pods?watch=true&fieldSelector=metadata.name%3Dleaving&resourceVersion={created['metadata']['resourceVersion']}"
        for event in self.c.api.watch(path):
            deleting = "deletionTimestamp" in event["object"]["metadata"]
            seen.append((event["type"], deleting, event["object"]["status"].get("phase")))
            if event["type"] == "DELETED":
                break
        self.assertIn(("MODIFIED", True, "Running"), seen)
        self.assertIn(("MODIFIED", True, "Failed"), seen)

    def test_a_stubborn_pod_stays_for_its_grace_period(self):
        stubborn = pod("stubborn", annotations={"e2e.ringmaster.dev/stop-after-ms": "3600000"})
        stubborn["spec"]["terminationGracePeriodSeconds"] = 2
        self.create(stubborn)
        self.wait_phase("stubborn", "Running")
        begin = time.monotonic()
        self.delete_pod("stubborn")
        self.wait_gone("stubborn")
        self.assertGreater(time.monotonic() - begin, 1.5)

    def test_a_pod_that_starts_late_can_be_deleted_before(self):
        self.create(pod("late", annotations={"e2e.ringmaster.dev/start-after-ms": "3600000"}))
        self.c.wait(lambda: self.pod("late")["spec"].get("nodeName"), "bound")
        self.assertEqual(self.pod("late")["status"]["phase"], "Pending")
        self.delete_pod("late")
        self.wait_gone("late")

    def test_rights_are_enforced(self):
        self.c.apply_text('{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}')
        for user in ("system:serviceaccount:default:robot", "someone"):
            config = self.c.kubeconfig_of(user, *(["some-group"] if user == "someone" else []))
            with self.assertRaisesRegex(KubectlError, f'User "{user}" cannot list resource "pods"'):
                self.c.kubectl("get", "pods", kubeconfig=config)
        self.c.kubectl("create", "rolebinding", "viewers", "--clusterrole=view", "--group=some-group")
        self.c.wait(lambda: self.c.kubectl("auth", "can-i", "list", "pods", kubeconfig=config).strip() == "yes",
                    "the group may list pods")

    def test_pod_security_is_enforced(self):
        self.c.kubectl("create", "namespace", "strict")
        self.c.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
        with self.assertRaisesRegex(ApiError, "violates PodSecurity"):
            self.create(pod("loose"), namespace="strict")
        self.c.kubectl("delete", "namespace", "strict", "--timeout=180s")


class Nodes(WithCluster):
    options = {"nodes": 2, "node_grace_s": 12, "eviction_s": 1, "gpus": 2, "rdma": {"openshift.io/mlnx": 1}}

    def test_a_node_is_lost_and_comes_back(self):
        self.assertEqual(self.c.api.get("/api/v1/nodes/node-0")["status"]["allocatable"]["openshift.io/mlnx"], "1")
        there = pod("there")
        there["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-1"}
        self.create(there)
        self.wait_phase("there", "Running")
        self.c.lose_node("node-1")
        node = lambda: condition(self.c.api.get("/api/v1/nodes/node-1"), "Ready")["status"]
        self.c.wait(lambda: node() == "Unknown", "node-1 is Unknown")
        self.c.wait(lambda: "deletionTimestamp" in self.pod("there")["metadata"], "its pod is deleted")
        self.assertEqual(condition(self.c.api.get("/api/v1/nodes/node-0"), "Ready")["status"], "True")
        self.assertEqual(self.pod("there")["status"]["phase"], "Running")
        self.c.find_node("node-1")
        self.c.wait(lambda: node() == "True", "node-1 is Ready")
        self.wait_gone("there")

    def test_a_node_is_added(self):
        self.c.add_nodes("extra")
        self.c.wait(lambda: condition(self.c.api.get("/api/v1/nodes/extra"), "Ready").get("status") == "True", "Ready")


class Faults(WithCluster):
    options = {"nodes": 1}

    def test_objects_outlive_the_processes(self):
        self.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}})
        for name, how in (("apiserver", "stop"), ("apiserver", "kill9"), ("etcd", "stop"), ("etcd", "kill9")):
            with self.subTest(name=name, how=how):
                component = self.c.component(name)
                getattr(component, how)()
                self.assertIsNone(component.pid)
                if name == "apiserver":
                    with self.assertRaises(OSError):
                        self.c.api.get("/readyz")
                component.start()
                # Behind a new etcd the API server needs a moment to connect again.
                kept = self.c.wait(lambda: self.found("/api/v1/namespaces/default/configmaps/kept"), "ConfigMap kept")
                self.assertEqual(kept["data"], {"a": "b"})

    def found(self, path):
        try:
            return self.c.api.get(path)
        except (ApiError, OSError):
            return None

    def test_pods_go_on_after_a_restart_of_any_component(self):
        for name in cluster.COMPONENTS:
            with self.subTest(name=name):
                self.c.component(name).restart()
                self.c.wait(lambda: self.found("/readyz"), "the API server is ready")
                if name in ("etcd", "apiserver"):
                    self.c.wake_clients()
                self.c.wait(lambda: self.created(f"after-{name}"), "a pod is created")
                self.wait_phase(f"after-{name}", "Running")

    def created(self, name):
        try:
            return self.create(pod(name))
        except ApiError as error:
            return error.code == 409
        except OSError:
            return False

    def test_an_old_watch_gets_410_after_compaction(self):
        old = self.c.api.get("/api/v1/namespaces/default/configmaps")["metadata"]["resourceVersion"]
        page = self.c.api.get("/api/v1/namespaces/kube-system/serviceaccounts?limit=1")["metadata"]["continue"]
        watch = f"/api/v1/namespaces/default/configmaps?watch=true&resourceVersion={old}"
        self.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}})
        self.assertEqual(next(self.c.api.watch(watch))["type"], "ADDED")
        revision = self.c.compact()
        self.assertGreater(revision, int(old))
        try:
            event = next(self.c.api.watch(watch))
            self.assertEqual((event["type"], event["object"]["code"]), ("ERROR", 410))
        except ApiError as error:
            self.assertEqual(error.code, 410)
        with self.assertRaises(ApiError) as refused:
            self.c.api.get(f"/api/v1/namespaces/kube-system/serviceaccounts?limit=1&continue={page}")
        self.assertEqual(refused.exception.code, 410)

    def test_a_component_that_does_not_run_cannot_be_stopped(self):
        self.c.component("scheduler").stop()
        with self.assertRaisesRegex(ClusterError, "scheduler is not running"):
            self.c.component("scheduler").stop()
        self.c.component("scheduler").start()
        with self.assertRaisesRegex(ClusterError, "scheduler is already running"):
            self.c.component("scheduler").start()
        with self.assertRaisesRegex(ClusterError, "no component 'proxy'"):
            self.c.component("proxy").stop()


def processes_of(folder):
    """Returns the command lines of the processes that name this folder. A process that is ending has none."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in words:
                found.append(words.replace(b"\0", b" ").decode())
    return found


class Ends(unittest.TestCase):
    """No process is left, whichever process ends first."""

    def assert_nothing_left(self, folder):
        deadline = time.monotonic() + 120
        while (processes_of(folder) or folder.exists()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(processes_of(folder), [])
        self.assertFalse(folder.exists())

    def child(self, text):
        """Starts a Python program that prints the folder of its cluster and waits."""
        process = subprocess.Popen([sys.executable, "-B", "-c", "import signal\nfrom cluster import Cluster\n" + text],
                                   cwd=HERE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        folder = pathlib.Path(process.stdout.readline().strip())
        return process, folder

    def test_two_clusters_at_once(self):
        with Cluster(nodes=1) as a, Cluster(nodes=2) as b:
            a.kubectl("create", "configmap", "only-in-a")
            self.assertIn("only-in-a", a.kubectl("get", "configmaps"))
            self.assertNotIn("only-in-a", b.kubectl("get", "configmaps"))
            self.assertEqual(len(b.api.get("/api/v1/nodes")["items"]), 2)
            folders = [a.folder, b.folder]
        for folder in folders:
            self.assert_nothing_left(folder)

    def test_the_test_is_killed(self):
        process, folder = self.child("c = Cluster(nodes=1).start(); print(c.folder, flush=True); signal.pause()")
        self.assertTrue(folder.is_dir())
        self.assertEqual(len(processes_of(folder)), 1 + len(cluster.COMPONENTS))
        process.kill()
        process.wait()
        self.assert_nothing_left(folder)

    def test_the_test_is_killed_while_the_cluster_starts(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-e2e-test-"))
        process, _ = self.child(f"print(flush=True); Cluster({str(folder)!r}).start(); signal.pause()")
        deadline = time.monotonic() + 180
        while not any("kube-apiserver" in words for words in processes_of(folder)):
            self.assertLess(time.monotonic(), deadline, "the API server is started")
            time.sleep(0.01)
        process.kill()
        process.wait()
        self.assert_nothing_left(folder)

    def test_the_supervisor_is_killed(self):
        with Cluster(nodes=0, components=["etcd", "apiserver"]) as c:
            supervisor = c._supervisor.pid
            self.assertEqual(len(processes_of(c.folder)), 3)
            os.kill(supervisor, signal.SIGKILL)
            c._supervisor.wait()
            c.wait(lambda: not processes_of(c.folder), "the components are gone")
            with self.assertRaisesRegex(ClusterError, "no cluster runs in"):
                c.status()
        self.assert_nothing_left(c.folder)

    def test_the_commands(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-e2e-test-")) / ("long-" * 20)
        up = subprocess.run([HERE / "up", "--dir", folder, "--nodes", "1", "--without", "scheduler", "--without", "kcm"],
                            capture_output=True, text=True, check=True)
        self.addCleanup(subprocess.run, [HERE / "down", folder], capture_output=True, check=False)
        self.assertEqual(up.stdout.splitlines()[-1], str(folder / "kubeconfig"))
        self.assertEqual(subprocess.run([HERE / "up", "--dir", folder], capture_output=True, check=False).returncode, 1)

        def ctl(*arguments):
            return subprocess.run([HERE / "ctl", folder, *arguments], capture_output=True, text=True, check=True).stdout

        self.assertEqual(json.loads(ctl("status"))["components"],
                         {"etcd": "running", "apiserver": "running", "kwok": "running"})
        ctl("stop", "etcd")
        self.assertEqual(json.loads(ctl("status"))["components"]["etcd"], "ended with -15")
        ctl("start", "etcd")
        self.assertGreater(int(ctl("compact")), 0)
        ctl("node", "add", "more")
        config = pathlib.Path(ctl("kubeconfig", "boss", "system:masters").strip())
        self.assertIn("more", Cluster.attach(folder).kubectl("get", "nodes", kubeconfig=config))
        subprocess.run([HERE / "down", folder], check=True)
        self.assert_nothing_left(folder)
        self.assertEqual(subprocess.run([HERE / "down", folder], capture_output=True, check=False).returncode, 1)
        folder.parent.rmdir()

    def test_a_detached_cluster_ends_with_its_folder(self):
        c = Cluster(detached=True, components=["etcd"]).start()
        self.addCleanup(c.stop)
        self.assertTrue(processes_of(c.folder))
        shutil.rmtree(c.folder)
        self.assert_nothing_left(c.folder)

    def test_up_in_the_foreground_ends_with_its_parent(self):
        parent = subprocess.Popen(["sh", "-c", f"'{HERE}/up' --foreground --nodes 0 --without kwok & echo; wait"],
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(parent.stdout.close)
        self.assertEqual(parent.stdout.readline(), "\n")
        folder = pathlib.Path(parent.stdout.readline().strip()).parent
        self.assertTrue(processes_of(folder))
        parent.kill()
        parent.wait()
        self.assert_nothing_left(folder)

    def test_a_cluster_that_cannot_start_names_the_reason(self):
        c = Cluster(components=["etcd", "apiserver"], apiserver_flags=["--no-such-flag"])
        with self.assertRaisesRegex(ClusterError, "(?s)apiserver ended at start.*unknown flag: --no-such-flag"):
            c.start()
        c.stop()
        self.assert_nothing_left(c.folder)

    def test_a_missing_binary_is_named(self):
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run([HERE / "up"], env={**os.environ, "XDG_CACHE_HOME": empty}, capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("run e2e/cluster/build", done.stderr)


if __name__ == "__main__":
    unittest.main()
