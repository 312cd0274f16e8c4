"""What a training job survives on real nodes, each from a user's commands: the weights are the same, bit for bit."""

import contextlib
import time
import unittest

from on_nodes import NAMESPACE, Rig

STEPS = 500


class Survive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cls.enterClassContext(Rig())
        cls.cluster = cls.rig.cluster
        cls.expected = cls.rig.expected_hash(STEPS)

    def start(self, name, replicas=4, at=30, **options):
        """A job that trains with all its workers; its pods, as they are then."""
        self.addCleanup(self.rig.delete, name)
        self.rig.apply(self.rig.job(name, replicas=replicas, steps=STEPS, **options))
        self.rig.wait_full(name, replicas, at)
        return self.rig.pods(name)

    def finish(self, name):
        self.rig.wait_phase(name, "Succeeded")
        status = self.rig.status(name)
        self.assertEqual(status["weightsHash"], self.expected)
        self.assertEqual(status["attempt"], 1, "the whole group was started anew")
        print(f"{self.id()}: restarts {status['restarts']}, lost {status['goodput']['lostSeconds']}\n"
              f"{self.cluster.kubectl('events', '--for', f'tj/{name}')}", flush=True)
        return status

    def goes_on(self, name, steps=20):
        begin, clock = self.rig.step(name), time.monotonic()
        self.rig.wait_step(name, begin + steps, 60)
        print(f"{self.id()}: {steps} more steps after {time.monotonic() - clock:.2f} s", flush=True)

    def victim(self, pods):
        """A node with workers, and without the operator; the names of the workers that are there."""
        operators = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        spared = {pod["spec"]["nodeName"] for pod in operators if pod["status"]["phase"] == "Running"}
        nodes = sorted({pod["spec"]["nodeName"] for pod in pods.values()} - spared)
        self.assertTrue(nodes, "no node has workers, and not the operator")
        return nodes[0], sorted(name for name, pod in pods.items() if pod["spec"]["nodeName"] == nodes[0])

    def lose(self, name, lose, find):
        """A node is lost, the job goes on, its workers are made anew elsewhere; then the node comes back."""
        pods = self.start(name, health={"unreachableNodeSeconds": 5})
        node, lost = self.victim(pods)
        print(f"{self.id()}: losing {node} with {' '.join(lost)}", flush=True)
        lose(node)
        back = self.enterContext(contextlib.ExitStack())
        back.callback(find, node)
        self.goes_on(name)
        self.rig.wait(name, lambda _: self.replaced(name, pods, lost, node), f"{' '.join(lost)} run elsewhere")
        self.rig.wait_full(name, 4)
        back.pop_all().close()  # the node comes back while the others train
        self.cluster.wait(lambda: not self.rig.nodes.processes(node, "ringmaster"), "the old workers are gone", 60)
        self.finish(name)
        after = self.rig.uids(name)
        for other in set(pods) - set(lost):
            self.assertEqual(after[other], pods[other]["metadata"]["uid"], f"{other} was restarted")
        self.cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")

    def replaced(self, name, pods, lost, node):
        now = self.rig.pods(name)
        return all(pod in now and now[pod]["metadata"]["uid"] != pods[pod]["metadata"]["uid"] and
                   now[pod]["spec"].get("nodeName") not in (None, node) and now[pod]["status"]["phase"] == "Running"
                   for pod in lost)

    def test_node_powered_off(self):
        self.lose("powered-off", self.rig.nodes.power_off, self.rig.nodes.boot)

    def test_node_cut_off(self):
        self.lose("cut-off", self.rig.nodes.cut, self.rig.nodes.heal)

    def test_node_frozen(self):
        self.lose("frozen", self.rig.nodes.freeze, self.rig.nodes.thaw)

    def test_node_drained(self):
        pods = self.start("drained")
        node, moved = self.victim(pods)
        self.addCleanup(self.cluster.kubectl, "uncordon", node)
        self.cluster.kubectl("drain", node, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=60s")
        self.rig.wait("drained", lambda _: self.replaced("drained", pods, moved, node), f"{' '.join(moved)} run elsewhere")
        status = self.finish("drained")
        self.assertEqual(status["goodput"]["lostSeconds"]["redone"], 0, "a step was lost")

    def test_pod_deleted_by_force(self):
        pods = self.start("pod-deleted")
        victim = "pod-deleted-1-2"
        self.cluster.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
        self.goes_on("pod-deleted")
        self.rig.wait("pod-deleted", lambda _: self.rig.uids("pod-deleted").get(victim) not in
                      (None, pods[victim]["metadata"]["uid"]), "the pod is made again")
        self.rig.wait_full("pod-deleted", 4)
        after = self.rig.uids("pod-deleted")
        self.assertEqual({name: uid for name, uid in after.items() if name != victim},
                         {name: pod["metadata"]["uid"] for name, pod in pods.items() if name != victim})
        self.finish("pod-deleted")

    def test_trainer_killed(self):
        pods = self.start("trainer-killed")
        self.cluster.kubectl("exec", "trainer-killed-1-1", "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
        self.goes_on("trainer-killed")
        self.finish("trainer-killed")
        self.assertIn("trainer-killed-1-1 ended with exit code 137",
                      self.cluster.kubectl("events", "--for", "tj/trainer-killed"))
        self.assertEqual(self.rig.uids("trainer-killed"), {name: pod["metadata"]["uid"] for name, pod in pods.items()})

    def test_operator_gone(self):
        pods = self.start("no-operator")
        self.cluster.kubectl("delete", "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=ringmaster-operator",
                             "--grace-period=0", "--force")
        self.finish("no-operator")
        self.assertEqual(self.rig.uids("no-operator"), {name: pod["metadata"]["uid"] for name, pod in pods.items()})

    def writes_checkpoints(self, name, beyond):
        """Training goes on, as its volume shows: nothing else need be there to ask."""
        folder = self.rig.nodes.shared / name

        def newest():
            whole = [found.parent.name.removeprefix("step-") for found in folder.glob("step-*/MANIFEST")]
            return max((int(step) for step in whole if step.isdigit()), default=0)  # the others are being written

        self.cluster.wait(lambda: newest() > beyond, f"a checkpoint after step {beyond}", 120)

    def test_without_operator_and_api_server(self):
        name = "alone"
        pods = self.start(name)
        operator = f"deploy/ringmaster-operator -n {NAMESPACE}".split()
        self.addCleanup(self.cluster.kubectl, "scale", *operator, "--replicas=2")
        self.cluster.kubectl("scale", *operator, "--replicas=0")
        self.cluster.kubectl("wait", "--for=delete", "pod", "-n", NAMESPACE, "--all", "--timeout=60s")
        at = self.rig.step(name)
        self.cluster.component("apiserver").kill9()
        self.cluster.component("etcd").kill9()
        self.writes_checkpoints(name, at)
        self.cluster.component("etcd").start()
        self.cluster.component("apiserver").start()
        self.assertEqual(self.rig.step(name), at, "somebody wrote its status")
        self.cluster.kubectl("scale", *operator, "--replicas=2")
        self.finish(name)
        self.assertEqual(self.rig.uids(name), {pod: it["metadata"]["uid"] for pod, it in pods.items()})

    def test_scaled(self):
        pods = self.start("scaled", replicas=2)
        self.cluster.kubectl("scale", "tj/scaled", "--replicas=4")
        self.rig.wait_full("scaled", 4)
        self.goes_on("scaled")
        self.cluster.kubectl("scale", "tj/scaled", "--replicas=3")
        self.rig.wait_full("scaled", 3)
        self.goes_on("scaled")
        after = self.rig.uids("scaled")
        for name, pod in pods.items():
            self.assertEqual(after.get(name), pod["metadata"]["uid"], f"{name} was restarted")
        self.finish("scaled")


if __name__ == "__main__":
    unittest.main()
