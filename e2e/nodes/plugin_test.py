# SPDX-License-Identifier: Apache-2.0
"""`kubectl ringmaster` with jobs that train on real nodes: its output matches the cluster, and its changes take effect."""

import datetime
import json
import re
import unittest

from helm import objects
from training import TrainingTest

STEPS = 1200  # enough that training is not finished when the job is suspended
LINE = re.compile(r"(?m)^\[(\d+)\] (\S+) [A-Z] (\S+) ")


class Plugin(TrainingTest):
    def test_a_job_that_trains(self):
        """Runs all commands on one job, from its first steps to the export of its weights."""
        name, plugin = "shown", self.rig.plugin
        pods = self.start(name, replicas=2, steps=STEPS)
        self.assert_status(name, pods)
        self.assertNotIn("BAD", plugin("diagnose", name))
        self.assert_rendered(name, pods)

        self.assertEqual(plugin("scale", name, "--replicas", 4), "default/shown: from 2 to 4 workers\n")
        self.rig.wait_full(name, 4)
        self.assertEqual(plugin("scale", f"tj/{name}", "--replicas", 3), "default/shown: from 4 to 3 workers\n")
        self.rig.wait_full(name, 3)
        self.assertIn("may have 1 to 8 workers", plugin("scale", name, "--replicas", 9, code=2))
        self.untouched(name, pods)
        self.goes_on(name)

        self.cluster.kubectl("exec", "shown-1-1", "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
        self.rig.wait(name, lambda status: status.get("lastFailure", {}).get("exitCode") == 137, "its failure is reported")
        self.rig.wait_full(name, 3)
        self.assertRegex(plugin("status", name), r"last failure +shown-1-1, .* ago: exit code 137 ")
        self.assert_logs(name)

        self.assertIn("suspending", plugin("suspend", name))
        self.rig.wait_phase(name, "Suspended", 60)
        self.assertRegex(plugin("diagnose", name, code=1), r"BAD the job is not suspended.*\n +-> .*kubectl ringmaster resume shown")
        at = self.rig.status(name)["checkpoint"]["step"]
        self.assertNotIn("weightsHash", self.rig.status(name))
        self.assertIn("resuming", plugin("resume", name))
        self.rig.wait_full(name, 3, at + 20)
        self.assertNotIn("BAD", plugin("diagnose", name))
        self.assertRegex(plugin("status", name), r"^default/shown  Running  3/3 workers ready  attempt 2 ")

        self.assertIn("Succeeded", plugin("status", name, "--wait", 300))
        self.assertEqual(self.rig.status(name)["weightsHash"], self.rig.expected_hash(STEPS))
        self.assertIn(f"continuing from /checkpoints/step-{at:012}", plugin("logs", name, "--tail", 1000))
        plugin("export", name, "--to", "/checkpoints/model.safetensors")
        begin = (self.rig.nodes.shared / name / "model.safetensors").read_bytes()
        self.assertIn("wte.weight", json.loads(begin[8:8 + int.from_bytes(begin[:8], "little")]))

    def assert_status(self, name, pods):
        """The screen has each rank with its node, its step and its transport."""
        screen = self.rig.plugin("status", name)
        self.assertRegex(screen, rf"^default/{name}  Running  {len(pods)}/{len(pods)} workers ready  attempt 1  age ")
        self.assertRegex(screen, rf"(?m)^  progress +step \d+ of {STEPS} .*, ETA \S+, [0-9.]+ samples/s, loss [0-9.]+$")
        self.assertRegex(screen, r"(?m)^  goodput +0\.\d+ of the time in steps that count")
        self.assertRegex(screen, r"(?m)^  RANK +POD +NODE +AGE +STEP +TRANSPORT +STATE$")
        for pod, its in pods.items():
            self.assertRegex(screen, rf"(?m)^  \d +{pod} +{its['spec']['nodeName']} +\w+ +\d+ +ucx:tcp +Running$")

    def assert_rendered(self, name, pods):
        """The pods that `render` prints match the running ones."""
        drawn = {it["metadata"]["name"]: it for it in objects(self.cluster, self.rig.plugin("render", name)) if it["kind"] == "Pod"}
        self.assertEqual(set(drawn), set(pods))
        for pod, its in pods.items():
            for wanted, there in zip(drawn[pod]["spec"]["containers"], its["spec"]["containers"], strict=True):
                for field in ("name", "image", "command"):
                    self.assertEqual(wanted[field], there[field], f"{pod}: {field}")
                self.assertEqual(wanted["resources"]["limits"], there["resources"]["limits"])
                self.assertEqual([entry["name"] for entry in wanted["env"]], [entry["name"] for entry in there["env"]])
            self.assertEqual(drawn[pod]["metadata"]["labels"], its["metadata"]["labels"])
            self.assertEqual(drawn[pod]["metadata"]["ownerReferences"][0]["uid"], its["metadata"]["ownerReferences"][0]["uid"])

    def assert_logs(self, name):
        """The root cause comes first, then all ranks ordered by time."""
        said = self.rig.plugin("logs", name, "--tail", 60)
        self.assertRegex(said, rf"^== last failure: {name}-1-1, .* ago: exit code 137 .*\n== log of {name}-1-1\n")
        self.assertRegex(said.partition("== ranks\n")[0], rf"\[{name}-1-1\] .*ended code=137")
        lines = LINE.findall(said.partition("== ranks\n")[2])
        self.assertEqual({rank for rank, _, _ in lines}, {"0", "1", "2"})
        times = [datetime.datetime.fromisoformat(time) for _, time, _ in lines]
        # Lines are sorted by the time at which the node received them, slightly after the time in the line.
        latest = times[0]
        for time in times:
            self.assertLess(latest - time, datetime.timedelta(seconds=2), "lines of ranks are not merged by time")
            latest = max(latest, time)

    def test_a_job_that_may_do_without_rdma(self):
        """The job trains over TCP, and `diagnose` reports that it requests RDMA."""
        name = "slow"
        pods = self.start(name, replicas=2, network={"rdma": {"resource": "rdma/ib"}, "fallback": "warn"})
        for its in pods.values():
            worker = next(it for it in its["spec"]["containers"] if it["name"] == "worker")
            self.assertEqual(worker["resources"]["limits"]["rdma/ib"], "1")
        said = self.rig.plugin("diagnose", name, code=1)
        self.assertRegex(said, r"(?m)^ok  the workers are connected$")
        self.assertRegex(said, r"(?m)^BAD gradients use the requested fabric: the job requests RDMA and runs over ucx:tcp\n      -> ")
        self.assertEqual(said.count("\nBAD "), 1)
        fabric = next(it for it in self.rig.status(name)["conditions"] if it["type"] == "FabricReady")
        self.assertEqual((fabric["status"], fabric["reason"]), ("False", "TCPFallback"))
        self.finish(name)

    def test_a_job_without_room(self):
        """`diagnose` runs the checks in order, and prints a remedy at the first failed one."""
        self.addCleanup(self.rig.delete, "big")
        manifest = self.rig.job("big", replicas=3, workers={"min": 3, "max": 3})
        manifest["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 3}}
        self.rig.apply(manifest)
        self.cluster.wait(lambda: "Unschedulable" in json.dumps(self.rig.status("big").get("conditions", [])), "it waits")
        said = self.rig.plugin("diagnose", "big", code=1)
        self.assertRegex(said, r"(?m)^ok  an operator is leading: ringmaster-operator-")
        self.assertRegex(said, r"(?m)^BAD every worker has a node: Unschedulable: .*\n      -> ")
        self.assertLess(said.index("an operator is leading"), said.index("every worker has a node"))
        self.assertIn("Pending", self.rig.plugin("status", "big"))


if __name__ == "__main__":
    unittest.main()
