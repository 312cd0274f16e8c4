# SPDX-License-Identifier: Apache-2.0
"""How jobs wait and end on real nodes: the status of each names the reason and the remedy."""

import contextlib
import datetime
import json
import time
import unittest

from on_nodes import CPU_LIMIT, JOBS, ApiError, Rig

STEPS = 200
FOREVER = 100000


class Ends(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cls.enterClassContext(Rig())
        cls.cluster = cls.rig.cluster
        # These jobs end without further action while other tests run.
        cls.apply("typo", training={"data": {"kind": "text", "path": "/data/typo", "validationFraction": "0.05"}})
        cls.apply("no-image", container={"image": "registry.invalid/none:1"}, health={"startupSeconds": 30},
                  restart={"maxRestarts": 0})
        cls.apply("no-memory", container={"resources": {"limits": {"cpu": CPU_LIMIT, "memory": "14Mi"}}})
        # Both workers from the start: on a busy machine the first one would otherwise train alone and commit steps.
        cls.apply("no-rdma", network={"rdma": {"resource": "rdma/ib"}}, workers={"min": 2})
        cls.apply("too-long", steps=FOREVER, lifecycle={"activeDeadlineSeconds": 15})

    @classmethod
    def apply(cls, name, container=None, training=None, **options):
        """Applies a job. container, training: changes to the default ones. Returns the manifest."""
        manifest = cls.rig.job(name, **{"replicas": 2, "steps": STEPS, **options})
        manifest["spec"]["workers"]["template"]["spec"]["containers"][0].update(container or {})
        manifest["spec"]["training"].update(training or {})
        cls.rig.apply(manifest)
        return manifest

    def start(self, name, **options):
        """Applies a job that is deleted at the end of the test. Returns its name."""
        self.addCleanup(self.rig.delete, name)
        self.apply(name, **options)
        return name

    def condition(self, name, kind):
        found = [it for it in self.rig.status(name).get("conditions", []) if it["type"] == kind]
        return found[0] if found else {"status": "Unknown", "reason": "", "message": ""}

    def wait_condition(self, name, kind, reason, *says, timeout_s=120):
        """Waits for the reason of a condition, and checks that its message names cause and remedy."""
        try:
            found = self.cluster.wait(lambda: self.condition(name, kind)["reason"] == reason and self.condition(name, kind),
                                      "", timeout_s)
        except AssertionError:
            self.rig.report(name)
            raise AssertionError(f"{name}: {kind} has not the reason {reason} but {self.condition(name, kind)}") from None
        print(f"{self.id()}: {kind} {reason}: {found['message']}", flush=True)
        for words in says:
            self.assertIn(words, found["message"])
        return found

    def gone(self, name):
        """Waits until all objects of the job are deleted, and checks that its volume is kept."""
        own = {"configmaps": f"{name}-config", "podgroups.scheduling.k8s.io": f"{name}-1"}
        self.cluster.wait(lambda: not self.rig.pods(name) and not [
            kind for kind, its in own.items() if its in [it["metadata"]["name"] for it in self.cluster.get(kind)]],
            f"pods and {' '.join(own)} of {name} are gone")
        self.assertEqual(self.cluster.get("pvc", name)["status"]["phase"], "Bound")
        self.assertTrue(self.rig.manifests(name), "its checkpoints are gone")

    # --- requested ends

    def test_suspended_and_resumed(self):
        name = self.start("pause")
        self.rig.wait_full(name, 2, 20)
        self.cluster.kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))
        self.rig.wait_phase(name, "Suspended", 60)
        self.assertEqual(self.condition(name, "Suspended")["reason"], "SuspendRequested")
        self.assertEqual(self.rig.pods(name), {})
        at = self.rig.status(name)["checkpoint"]["step"]
        self.assertGreaterEqual(at, 20, "no checkpoint was written at the end")
        self.cluster.kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": False}}))
        self.rig.wait_phase(name, "Succeeded")
        self.assertEqual(self.rig.status(name)["weightsHash"], self.rig.expected_hash(STEPS))

    def test_deleted_while_it_runs(self):
        name = self.start("deleted", steps=FOREVER)
        self.rig.wait_full(name, 2, 120)
        began = time.monotonic()
        self.cluster.kubectl("delete", "tj", name, "--timeout=60s")
        self.gone(name)
        self.assertLess(time.monotonic() - began, 60)

    def test_time_to_live(self):
        ttl_s = 6
        name = self.start("short-lived", replicas=1, steps=20, lifecycle={"ttlSecondsAfterFinished": ttl_s})
        self.rig.wait_phase(name, "Succeeded")
        ended = datetime.datetime.fromisoformat(self.rig.status(name)["completionTime"])
        self.cluster.wait(lambda: not self.exists(name), "its time to live is over")
        lived = datetime.datetime.now(datetime.timezone.utc) - ended
        self.assertGreaterEqual(lived.total_seconds(), ttl_s, "it was deleted too early")
        self.gone(name)

    def exists(self, name):
        try:
            return self.cluster.api.get(f"{JOBS}/{name}")
        except ApiError as error:
            self.assertEqual(error.code, 404)
            return None

    def test_deadline(self):
        found = self.wait_condition("too-long", "Failed", "DeadlineExceeded", "active for 15 s",
                                    "lifecycle.activeDeadlineSeconds", "raise it")
        self.assertEqual(found["status"], "True")
        self.cluster.wait(lambda: not self.rig.pods("too-long"), "its pods are gone")

    # --- errors

    def test_no_such_data(self):
        self.wait_condition("typo", "Failed", "BadConfiguration", "/data/typo: No such file or directory",
                            "check the path, as the worker sees it")

    def test_no_rdma(self):
        """The pods have the requested device, but it does not work. The job fails instead of using TCP."""
        self.wait_condition("no-rdma", "Failed", "BadConfiguration", "spec.network.rdma: RDMA is required",
                            "ringmaster-worker devices --health", "spec.network.fallback")

    def test_without_a_folder_for_checkpoints(self):
        """The job writes no checkpoints, and no event or log mentions one."""
        name = self.start("no-folder", checkpoint={"everySteps": 20})
        self.rig.wait_phase(name, "Succeeded")
        self.assertEqual(self.rig.status(name)["weightsHash"], self.rig.expected_hash(STEPS))
        self.assertNotIn("checkpoint", self.cluster.kubectl("events", "--for", f"tj/{name}").lower())
        for pod in self.rig.pods(name):
            self.assertNotIn("checkpoint of step", self.cluster.kubectl("logs", pod))

    def test_no_such_image(self):
        self.wait_condition("no-image", "Failed", "RestartBudgetSpent", "cannot start on node-", "registry.invalid/none:1",
                            "correct the image's name", "imagePullSecrets")

    def test_an_image_that_cannot_be_pulled(self):
        name = self.start("late-image", container={"image": "registry.invalid/late:1"})
        self.wait_condition(name, "Ready", "ImagePullFailed", "registry.invalid/late:1", "correct the image's name")

    def test_too_little_memory(self):
        self.wait_condition("no-memory", "Failed", "NoProgress", "ended with exit code 71", "MiB", "limits.memory",
                            timeout_s=180)
        self.assertEqual(self.rig.status("no-memory")["lastFailure"]["exitCode"], 71)

    def test_full_checkpoint_volume(self):
        """Training continues while checkpoints fail, and the job fails at its end. With free space, a new job continues from
        the last complete checkpoint."""
        node, place = "node-1", "/mnt/small"
        folder = self.rig.nodes.root(node) / place[1:]
        folder.mkdir()
        self.rig.nodes.run(node, "mount", "-t", "tmpfs", "-o", "size=12m,mode=1777", "tmpfs", place)
        self.addCleanup(self.rig.delete, "full")
        job = self.apply("full", folder=place, template={"nodeSelector": {"kubernetes.io/hostname": node}},
                         checkpoint={"everySteps": 20, "keep": 2, "volumeClaim": "full"})
        self.rig.wait("full", lambda status: status.get("checkpoint", {}).get("step", 0) >= 20, "a checkpoint")
        ballast, warned = folder / "ballast", []

        def failed():
            with contextlib.suppress(OSError), open(ballast, "ab", buffering=0) as file:
                while file.write(bytes(1 << 16)):  # fills the space of deleted checkpoints, too
                    pass
            degraded = self.condition("full", "Degraded")
            if degraded["reason"] == "CheckpointFailing":
                warned.append(degraded["message"])
            return self.condition("full", "Failed")["status"] == "True"

        self.cluster.wait(failed, "it fails", 300)  # the last checkpoint is tried for two minutes
        self.assertTrue(warned, "no warning while the job trained")
        self.assertIn("No space left on device; free space there", warned[-1])
        self.wait_condition("full", "Failed", "TrainingFailed", f"the checkpoint of step {STEPS} could not be written",
                            "No space left on device; free space there, or keep checkpoints on another volume")
        at = self.rig.status("full")["checkpoint"]["step"]
        self.assertTrue(20 <= at < STEPS, at)
        ballast.unlink()
        self.rig.delete("full")
        self.cluster.wait(lambda: not self.rig.pods("full"), "its pods are gone")
        self.rig.apply(job)
        self.rig.wait_phase("full", "Succeeded")
        self.assertIn(f"continuing from /checkpoints/step-{at:012}", self.cluster.kubectl("logs", "full-1-0") +
                      self.cluster.kubectl("logs", "full-1-1"))
        self.assertEqual(self.rig.status("full")["weightsHash"], self.rig.expected_hash(STEPS))

    # --- competing jobs

    def gangs(self, provider):
        """Applies two jobs at the same time that each need all GPUs; returns the condition of the one that waits."""
        names = [f"{provider}-{side}" for side in ("left", "right")]
        gpus = {"resources": {"limits": {"cpu": CPU_LIMIT, "nvidia.com/gpu": 2}}}
        for name in names:
            self.start(name, replicas=3, workers={"min": 3, "max": 3}, container=gpus, steps=60,
                       scheduling={"gang": provider})
        waits = None
        deadline = time.monotonic() + 180
        while not all(self.rig.status(name).get("phase") == "Succeeded" for name in names):
            if time.monotonic() > deadline:
                for name in names:
                    self.rig.report(name)
                self.fail("the gangs did not end in 180 s")
            holders = self.holders(names)
            self.assertLess(len(holders), 2, "both have GPUs")
            if holders:
                other = names[1 - names.index(holders[0])]
                waits = self.why_it_waits(other) or waits
            time.sleep(0.1)
        self.assertTrue(waits, "no job waited with a reason")
        print(f"{self.id()}: {waits['reason']}: {waits['message']}", flush=True)
        for name in names:
            self.assertEqual(self.rig.status(name)["weightsHash"], self.rig.expected_hash(60))
        return waits

    def holders(self, names):
        """Returns the jobs that have pods on nodes, from one list request."""
        label = "ringmaster.dev/job"
        pods = self.cluster.api.get(f"/api/v1/namespaces/default/pods?labelSelector={label}+in+({','.join(names)})")["items"]
        return sorted({pod["metadata"]["labels"][label] for pod in pods
                       if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running")})

    def why_it_waits(self, name):
        found = self.condition(name, "Scheduled")
        return found if found["reason"] in ("Unschedulable", "WaitingForCapacity") else None

    def test_gangs_of_the_scheduler(self):
        waits = self.gangs("native")
        self.assertEqual(waits["reason"], "Unschedulable")
        self.assertRegex(waits["message"], "nvidia.com/gpu|minCount .* cannot be satisfied")

    def test_gangs_of_the_gate(self):
        waits = self.gangs("gate")
        self.assertEqual(waits["reason"], "WaitingForCapacity")
        self.assertIn("needs 2 x nvidia.com/gpu on 3 nodes", waits["message"])


if __name__ == "__main__":
    unittest.main()
