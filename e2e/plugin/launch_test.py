# SPDX-License-Identifier: Apache-2.0
"""`kubectl ringmaster launch`, attach and cancel with a real API server and the operator."""

import base64
import io
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import time
import unittest

from fake_kubelet import FakeKubelet
from plugin_rig import PluginCase


class LaunchOnCluster(PluginCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        # The garbage collector may not have removed yet what a job of another test has left: names and code differ.
        self.name = self.id().split(".test_")[1].split("_")[0]
        (self.folder / "train.py").write_text(f"import torch  # {self.id()}\n")
        (self.folder / ".env").write_text("TOKEN=hidden\n")
        self.before = os.getcwd()
        os.chdir(self.folder)  # kubectl starts the plugin here
        self.addCleanup(os.chdir, self.before)
        self.kubelet = self.enterContext(FakeKubelet(self.cluster))
        for node in range(4):
            self.kubelet.serve_node(f"node-{node}")

    def launch(self, *arguments):
        arguments = arguments if "--name" in arguments else ("--name", self.name, *arguments)
        words, environment = self.command(["launch", "--image", "registry.local/torch:1", *arguments])
        launched = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(launched.kill)
        return launched

    def codes(self):
        return [config for config in self.cluster.get("configmaps")
                if "ringmaster.dev/code" in config["metadata"].get("labels", {})]

    def end(self, name, ranks, code):
        for rank in range(ranks):
            self.cluster.pod_exit("default", f"{name}-1-{rank}", code)

    def test_follows_the_job_and_ends_with_its_code(self):
        self.kubelet.logs[f"{self.name}-1-0"] = ["2026-11-21T10:00:00.1Z first", "2026-11-21T10:00:02Z second"]
        launched = self.launch("--workers", "2", "--min", "1", "--kind", "none", "--", "python3", "train.py", "--epochs", "3")
        self.cluster.wait(lambda: self.rig.running(self.name, 2), "two workers")
        self.assertEqual([launched.stdout.readline() for _ in range(2)], ["first\n", "second\n"])
        pod = self.rig.pods(self.name)[0]["spec"]
        self.assertEqual(pod["containers"][0]["command"], ["python3", "train.py", "--epochs", "3"])
        self.assertEqual(pod["containers"][0]["workingDir"], "/workspace")
        self.end(self.name, 2, 0)
        self.rig.wait_phase(self.name, "Succeeded")
        self.kubelet.follows.set()
        said, notes = launched.communicate(timeout=60)
        self.assertEqual((launched.returncode, said), (0, "the last line\n"), notes)
        self.assertIn(f"{self.name}: Succeeded", notes)
        self.assertIn("not sent: .env", notes)

    def test_code_travels_once_and_goes_with_its_last_job(self):
        for name in ("one", "two"):
            launched = self.launch("--workers", "1", "--name", name, "--detach", "--", "train.py")
            said, notes = launched.communicate(timeout=60)
            self.assertEqual((launched.returncode, said), (0, f"{name}\n"), notes)
            self.assertEqual("not sent again" in notes, name == "two")
        (code,) = [code for code in self.codes() if code["metadata"]["name"] in notes]
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(code["binaryData"]["code.tar.gz"]))) as tar:
            self.assertEqual(tar.getnames(), ["train.py"])
        self.assertTrue(code["immutable"])
        self.assertEqual({owner["name"] for owner in code["metadata"]["ownerReferences"]}, {"one", "two"})
        uids = {self.rig.job(name)["metadata"]["uid"] for name in ("one", "two")}
        self.assertEqual({owner["uid"] for owner in code["metadata"]["ownerReferences"]}, uids)
        again = self.launch("--name", "one", "--detach", "--", "train.py")
        self.assertIn("`ringmaster cancel one -n default`", again.communicate(timeout=60)[1])
        self.assertEqual(again.returncode, 2)
        sent = code["metadata"]["name"]
        for name in ("one", "two"):
            self.assertIn(sent, [code["metadata"]["name"] for code in self.codes()])
            self.assertIn("deleted", self.plugin("cancel", name)[0])
        self.cluster.wait(lambda: sent not in [code["metadata"]["name"] for code in self.codes()], "the code is gone")
        self.assertIn("there is no job one", self.plugin("cancel", "one", code=2)[1])

    def test_refused_job_leaves_no_code(self):
        self.cluster.kubectl("create", "namespace", "full")
        self.cluster.kubectl("create", "quota", "none", "-n", "full", "--hard=count/trainingjobs.ringmaster.dev=0")
        launched = self.launch("-n", "full", "--detach", "--", "train.py")
        _, notes = launched.communicate(timeout=60)
        self.assertEqual(launched.returncode, 2, notes)
        self.assertRegex(notes, "ringmaster: .*quota")
        sent = re.search(r"as (ringmaster-code-[0-9a-f]{20})\n", notes)[1]
        self.assertNotIn(sent, self.cluster.kubectl("get", "configmaps", "-n", "full", "-o", "name"))

    def test_attach_to_a_job_that_fails(self):
        launched = self.launch("--workers", "2", "--max-restarts", "0", "--detach", "--kind", "none", "train.py")
        self.assertEqual(launched.wait(60), 0, launched.stderr.read())
        self.cluster.wait(lambda: self.rig.running(self.name, 2), "two workers")
        for rank in range(2):
            self.kubelet.logs[f"{self.name}-1-{rank}"] = [f"2026-11-21T10:00:00.1Z of {rank}"]
        words, environment = self.command(["attach", self.name, "--rank", "0,1"])
        attached = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(attached.kill)
        self.assertEqual(sorted(attached.stdout.readline() for _ in range(2)), ["[0] of 0\n", "[1] of 1\n"])
        self.cluster.pod_exit("default", f"{self.name}-1-1", 64, "out of luck")
        self.kubelet.follows.set()
        _, notes = attached.communicate(timeout=60)
        self.assertEqual(attached.returncode, 1, notes)
        self.assertRegex(notes, rf"(?m)^{self.name}: last failure: {self.name}-1-1.*out of luck")

    def test_done_job_that_is_deleted_while_its_log_is_read(self):
        launched = self.launch("--kind", "none", "--", "train.py")
        self.cluster.wait(lambda: self.rig.running(self.name, 1), "a worker")
        self.end(self.name, 1, 0)
        self.rig.wait_phase(self.name, "Succeeded")
        time.sleep(2)  # launch sees that, and waits for the end of the log
        self.plugin("cancel", self.name)
        _, notes = launched.communicate(timeout=60)
        self.assertEqual(launched.returncode, 0, notes)
        self.assertIn(f"{self.name}: Succeeded", notes)

    def test_running_job_that_is_deleted(self):
        launched = self.launch("--kind", "none", "--", "train.py")
        self.cluster.wait(lambda: self.rig.running(self.name, 1), "a worker")
        self.plugin("cancel", self.name)
        _, notes = launched.communicate(timeout=60)
        self.assertEqual(launched.returncode, 3, notes)
        self.assertIn("was deleted while it was followed", notes)

    def test_dry_run_is_what_the_api_server_accepts(self):
        launched = self.launch("--workers", "2", "--gpus", "1", "--kind", "none", "--dry-run", "--", "train.py")
        printed, notes = launched.communicate(timeout=60)
        self.assertEqual(launched.returncode, 0, notes)
        self.cluster.apply_text(printed)
        self.rig.wait_phase(self.name, "Running")
        applied = re.search(r"as ([a-z]+-ringmaster-code-[0-9a-f]{20})\n", notes)[1]
        # A later job with the same code sends its own ConfigMap, and its end does not delete the applied one.
        launched = self.launch("--name", "later", "--kind", "none", "--detach", "--", "train.py")
        _, notes = launched.communicate(timeout=60)
        self.assertEqual(launched.returncode, 0, notes)
        self.assertNotIn("not sent again", notes)
        sent = re.search(r"as (ringmaster-code-[0-9a-f]{20})\n", notes)[1]
        self.assertEqual(applied, f"{self.name}-{sent}")
        self.plugin("cancel", "later")
        self.cluster.wait(lambda: sent not in [code["metadata"]["name"] for code in self.codes()], "the code is gone")
        self.assertIn(applied, [code["metadata"]["name"] for code in self.codes()])


if __name__ == "__main__":
    unittest.main()
