# SPDX-License-Identifier: Apache-2.0
"""`kubectl ringmaster` with a real API server: kubectl finds the plugin by its name on PATH."""

import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import threading
import unittest

from fake_kubelet import FakeKubelet
from plugin_rig import STEADY, PluginCase, job

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/process"))
import harness  # noqa: E402


class Plugin(PluginCase):
    def pods(self):
        return {pod["metadata"]["name"]: pod for pod in self.cluster.get("pods")}

    def another_operator(self):
        self.operator.resume()
        self.operator.kill9()  # it has lost the Lease
        type(self).operator = self.rig.start(**STEADY).wait_leading()

    def test_help_names_kubectl(self):
        said, _ = self.plugin("--help")
        self.assertIn("kubectl ringmaster status", said)
        _, complaint = self.plugin("stauts", "x", code=2)
        self.assertIn("`kubectl ringmaster --help` lists them", complaint)

    def test_status(self):
        name = self.running("shows", replicas=3)
        screen, _ = self.plugin("status", name)
        self.assertRegex(screen, r"^default/shows  Running  3/3 workers ready  attempt 1  age ")
        self.assertIn("this framework does not report its steps", screen)
        for pod in self.rig.pods(name):
            self.assertRegex(screen, rf"(?m)^  \d +{pod['metadata']['name']} +{pod['spec']['nodeName']} .* Running$")
        self.cluster.pod_exit("default", "shows-1-1", 137, "out of memory", reason="OOMKilled")
        self.cluster.wait(lambda: self.rig.status(name).get("attempt") == 2 and self.rig.running(name, 3), "attempt 2")
        self.rig.wait_phase(name, "Running")
        screen, _ = self.plugin("status", f"tj/{name}", "-n", "default")
        self.assertRegex(screen, r"last failure +shows-1-1 on node-\d, .* ago: exit code 137 \(Exit\): out of memory")
        self.assertRegex(screen, r"restarts +1, of which 1 count")

    def test_status_waits_for_the_end(self):
        name = self.running("ends", replicas=2)
        self.plugin("status", name, "--wait", 1, code=3)
        words, environment = self.command(["status", name, "--wait", 60])
        waiting = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        self.addCleanup(waiting.kill)
        for rank in range(2):
            self.cluster.pod_exit("default", f"ends-1-{rank}", 0)
        self.assertIn("Succeeded", waiting.communicate(timeout=60)[0])
        self.assertEqual(waiting.returncode, 0)
        name = self.running("breaks", replicas=1)
        self.cluster.pod_exit("default", "breaks-1-0", 64, "no such path")
        self.assertIn("no such path", self.plugin("status", name, "--wait", 60, code=1)[0])

    def test_watching_on_terminals(self):
        """A terminal that does not obey escape sequences gets lines, NO_COLOR gets the screen without colours, and no line wraps."""
        name = self.running("watched", replicas=2)
        for rank in range(2):
            self.cluster.pod_exit("default", f"watched-1-{rank}", 0)
        self.rig.wait_phase(name, "Succeeded")
        words, environment = self.command(["status", name, "-w"])
        environment = {key: environment[key] for key in environment if key not in ("NO_COLOR", "COLUMNS", "TERM")}
        for term in ("dumb", ""):
            code, shown = harness.on_terminal(words, **{**environment, "TERM": term})
            self.assertEqual((code, b"\x1b" in shown), (0, False), shown)
            self.assertIn(b"default/watched  Succeeded  step 0 of 0", shown)
        colour = rb"\x1b\[[\d;]*m"
        for columns in (7, 30, 100):
            code, shown = harness.on_terminal(words, columns=columns, **environment)
            self.assertEqual(code, 0, shown)
            self.assertRegex(shown, colour)
            lines = re.findall(rb"\r([^\r\n]*)\x1b\[K\r\n", shown)
            self.assertGreater(len(lines), 1)
            self.assertLess(max(len(re.sub(colour, b"", line).decode()) for line in lines), columns, lines)
        code, shown = harness.on_terminal(words, **environment, NO_COLOR="1")
        self.assertEqual(code, 0, shown)
        self.assertIn(b"\x1b[K", shown)
        self.assertNotRegex(shown, colour)

    def test_queue(self):
        self.assertEqual(self.plugin("queue")[0], "no job waits in namespace default\n")
        eight = {"template": {"spec": {"containers": [{"name": "worker", "image": "registry.local/w:1", "resources": {
            "limits": {"nvidia.com/gpu": 8}}}]}}}
        gate = {"gang": "gate"}
        nodes = len(self.cluster.get("nodes"))
        self.cluster.kubectl("create", "priorityclass", "plugin-urgent", "--value=1000")
        self.addCleanup(self.cluster.kubectl, "delete", "priorityclass", "plugin-urgent")
        runs = self.rig.apply(job("runs", replicas=nodes, workers=eight, spec={"scheduling": gate}))
        self.rig.wait_phase(runs, "Running")
        for name, scheduling in (("older", gate), ("younger", gate | {"priorityClassName": "plugin-urgent"})):
            self.rig.apply(job(name, replicas=nodes, workers=eight, spec={"scheduling": scheduling}))
            self.rig.wait_condition(name, "Scheduled", "False", "WaitingForCapacity")
        screen, _ = self.plugin("queue", "-A")
        head, first, second = screen.splitlines()
        self.assertEqual(head.split(), ["POSITION", "JOB", "PRIORITY", "PODS", "WAITS", "WHY"])
        self.assertRegex(first, rf"^1 +default/younger +1000 \(plugin-urgent\) +{nodes} +\S+ +WaitingForCapacity: needs ")
        self.assertRegex(second, rf"^2 +default/older +0 +{nodes} +\S+ +WaitingForCapacity: ")
        self.cluster.kubectl("delete", "tj", runs)
        self.rig.wait_phase("younger", "Running")

    def test_missing_jobs_and_commands(self):
        _, complaint = self.plugin("status", "nothing", code=2)
        self.assertIn("there is no job nothing in namespace default", complaint)
        _, complaint = self.plugin("status", "nothing", code=2, kubeconfig="/nonexistent")
        self.assertIn("/nonexistent", complaint)

    def test_scale(self):
        name = self.running("grows", replicas=2, workers={"min": 1, "max": 4})
        said, _ = self.plugin("scale", name, "--replicas", 3)
        self.assertEqual(said, "default/grows: from 2 to 3 workers\n")
        self.cluster.wait(lambda: self.rig.running(name, 3), "three workers")
        _, complaint = self.plugin("scale", name, "--replicas", 9, code=2)
        self.assertIn("may have 1 to 4 workers", complaint)
        managers = [entry["manager"] for entry in self.rig.job(name)["metadata"]["managedFields"]]
        self.assertIn("kubectl-ringmaster", managers)

    def test_suspend_and_resume(self):
        name = self.running("pauses", replicas=2)
        self.assertIn("suspending", self.plugin("suspend", name)[0])
        self.rig.wait_phase(name, "Suspended")
        self.assertIn("is suspended already", self.plugin("suspend", name)[0])
        self.assertIn("kubectl ringmaster resume pauses", self.plugin("diagnose", name, code=1)[0])
        self.assertIn("resuming", self.plugin("resume", name)[0])
        self.rig.wait_phase(name, "Running")

    def test_diagnose_a_healthy_job(self):
        name = self.running("well", replicas=2)
        self.assertNotIn("BAD", self.plugin("diagnose", name)[0])

    def test_diagnose_a_gang_without_capacity(self):
        limits = {"template": {"spec": {"containers": [{"name": "worker", "image": "registry.local/w:1", "resources": {
            "limits": {"nvidia.com/gpu": 9}}}]}}}
        self.rig.apply(job("big", replicas=2, workers=limits, spec={"scheduling": {"gang": "gate"}}))
        self.rig.wait_condition("big", "Scheduled", "False", "WaitingForCapacity")
        said, _ = self.plugin("diagnose", "big", code=1)
        self.assertRegex(said, r"(?m)^ok  an operator is leading: replica-0")
        self.assertRegex(said, r"(?m)^BAD every worker has a node: WaitingForCapacity: .*nvidia.com/gpu.*\n      -> ")

    def test_diagnose_without_an_operator(self):
        name = self.running("alone", replicas=1)
        self.operator.pause()
        self.addCleanup(self.another_operator)
        # The plugin tolerates clocks that differ by a few seconds.
        self.cluster.wait(lambda: "BAD an operator is leading" in subprocess.run(
            self.command(["diagnose", name])[0], env=self.command([])[1], capture_output=True, text=True,
            check=False).stdout, "the silent operator is reported", every_s=1)

    def test_with_the_rights_of_a_user_of_the_namespace(self):
        name = self.running("users", replicas=1)
        self.cluster.apply_text(json.dumps({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "user"},
            "rules": [{"apiGroups": ["ringmaster.dev"], "resources": ["trainingjobs"], "verbs": ["get"]},
                      {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}))
        self.cluster.apply_text(json.dumps({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "user"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"},
            "subjects": [{"kind": "User", "name": "alice"}]}))
        alice = self.cluster.kubeconfig_of("alice")
        self.assertIn("Running", self.plugin("status", name, kubeconfig=alice)[0])
        said, _ = self.plugin("diagnose", name, kubeconfig=alice)
        self.assertRegex(said, r"(?m)^\?   an operator is leading: .*forbidden")
        _, complaint = self.plugin("suspend", name, kubeconfig=alice, code=2)
        self.assertIn("forbidden", complaint)

    def test_render_prints_what_the_operator_created(self):
        name = self.running("drawn", replicas=2)
        drawn, _ = self.plugin("render", name)
        self.assertIn(self.rig.job(name)["metadata"]["uid"], drawn)
        for pod in self.rig.pods(name):
            self.assertIn(f"name: {pod['metadata']['name']}", drawn)
        _, complaint = self.plugin("render", "nothing", code=2)
        self.assertIn("no such file", complaint)

    def test_export_by_a_pod_with_the_volumes(self):
        volumes = {"template": {"spec": {"volumes": [{"name": "ckpt", "emptyDir": {}}], "containers": [
            {"name": "worker", "image": "registry.local/w:1", "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}]}]}}}
        name = self.running("keeps", replicas=1, workers=volumes, spec={"checkpoint": {"path": "/ckpt"}})
        _, complaint = self.plugin("export", name, "--to", "model.safetensors", code=2)
        self.assertIn("give an absolute path", complaint)
        for ended, code in ((0, 0), (1, 2)):
            words, environment = self.command(["export", name, "--to", "/ckpt/model.safetensors", "--wait", 100])
            exporting = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(exporting.kill)
            pod = self.cluster.wait(lambda: self.pods().get("keeps-export", {}).get("status", {}).get("phase") == "Running"
                                    and self.pods()["keeps-export"], "the pod runs")
            self.assertEqual(pod["spec"]["containers"][0]["command"],
                             ["ringmaster", "export", "/ckpt", "--to", "/ckpt/model.safetensors"])
            self.cluster.pod_exit("default", "keeps-export", ended)
            said = exporting.communicate(timeout=60)
            self.assertEqual(exporting.returncode, code, said)
            # A pod that failed is kept for inspection.
            self.cluster.wait(lambda: ended == ("keeps-export" in self.pods()), "the pod is gone, or left")
        self.assertEqual(len(self.rig.live(name)), 1)

    def test_logs_are_read_concurrently(self):
        ranks = 12
        self.rig.apply(job("many", replicas=ranks, native=True))
        self.cluster.wait(lambda: self.rig.running("many", ranks), "all run")
        with FakeKubelet(self.cluster) as kubelet:
            for node in range(4):
                kubelet.serve_node(f"node-{node}")
            for rank in range(ranks):
                kubelet.logs[f"many-1-{rank}"] = [f"2026-11-21T10:00:{rank:02}Z generation=1 rank={rank}"]
            met = []
            for command in ("status", "logs"):
                kubelet.together = threading.Barrier(ranks, lambda command=command: met.append(command))
                said, complaint = self.plugin(command, "many")
                self.assertEqual(complaint, "")
            self.assertEqual(met, ["status", "logs"])
            self.assertEqual(re.findall(r"(?m)^\[ *(\d+)\] generation", said), [str(rank) for rank in range(ranks)])

    def test_logs(self):
        name = self.running("talks", replicas=2)
        with FakeKubelet(self.cluster) as kubelet:
            for node in range(4):
                kubelet.serve_node(f"node-{node}")
            kubelet.logs["talks-1-0"] = ["2026-11-21T10:00:00.1Z first", "2026-11-21T10:00:02Z third"]
            kubelet.logs["talks-1-1"] = ["2026-11-21T10:00:01.123456789Z second", "2026-11-21T10:00:03Z fourth"]
            said, _ = self.plugin("logs", name)
            self.assertEqual(said, "[0] first\n[1] second\n[0] third\n[1] fourth\n")
            said, _ = self.plugin("logs", name, "--rank", "1", "--tail", 1)
            self.assertEqual(said, "[1] fourth\n")

            # A terminal gets the colours of a log, and no other escape sequence; a pipe gets every byte.
            kubelet.logs["talks-1-0"] = ["2026-11-21T10:00:00Z \x1b[31mred\x1b[2J\x1b]0;title\x07 text"]
            self.assertEqual(self.plugin("logs", name, "--rank", "0")[0], "[0] \x1b[31mred\x1b[2J\x1b]0;title\x07 text\n")
            words, environment = self.command(["logs", name, "--rank", "0"])
            terminal, worker = pty.openpty()
            subprocess.run(words, env=environment, stdout=worker, check=True, timeout=60)
            os.close(worker)
            self.assertEqual(os.read(terminal, 1000), b"[0] \x1b[31mred text\x1b[0m\r\n")
            os.close(terminal)
            kubelet.logs["talks-1-0"] = ["2026-11-21T10:00:00.1Z first", "2026-11-21T10:00:02Z third"]

            words, environment = self.command(["logs", name, "-f"])
            following = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
            self.addCleanup(following.kill)
            lines = sorted(following.stdout.readline() for _ in range(4))
            self.assertEqual(lines, ["[0] first\n", "[0] third\n", "[1] fourth\n", "[1] second\n"])
            kubelet.follows.set()
            rest, _ = following.communicate(timeout=60)
            self.assertEqual(sorted(rest.splitlines()), ["[0] the last line", "[1] the last line"])
            self.assertEqual(following.returncode, 0)

            # After a failure, the failed pod and its log come first.
            self.cluster.pod_exit("default", "talks-1-1", 1, "boom")
            self.cluster.wait(lambda: self.rig.status(name).get("attempt") == 2 and self.rig.running(name, 2), "attempt 2")
            kubelet.logs["talks-2-0"] = kubelet.logs["talks-2-1"] = ["2026-11-21T11:00:00Z again"]
            said, _ = self.plugin("logs", name)
            self.assertRegex(said, r"^== last failure: talks-1-1 on node-\d, .* ago: exit code 1 \(.*\): boom\n")
            self.assertTrue(said.endswith("[0] again\n[1] again\n"), said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
