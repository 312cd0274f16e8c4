# SPDX-License-Identifier: Apache-2.0
"""What holds for every autoscaler: the tests of autoscaler_test.py and of ../karpenter/karpenter_test.py. The decisions of the
autoscaler and of the scheduler are real; the nodes that it adds, and their pods, are fake."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "operator"))
from rig import job  # noqa: E402

GPUS = 8  # of a node
CHECKPOINTS = {"checkpoint": {"path": "/ckpt", "gracePeriodSeconds": 30}}
LEAVING_MS = 3000  # that a worker needs to leave


def built(folder, program):
    """Returns the program that folder/build has built."""
    done = subprocess.run([folder / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.strip())
    return pathlib.Path(done.stdout.strip()) / program


def workers(name, gpus, replicas=1, spec=None, gang="gate", autoscaler=True, annotations=None, **options):
    """Returns a job whose workers need so many GPUs each."""
    scheduling = {"gang": gang, "autoscaler": autoscaler, **(spec or {}).get("scheduling", {})}
    manifest = job(name, replicas=replicas, spec={**(spec or {}), "scheduling": scheduling}, **options)
    template = manifest["spec"]["workers"]["template"]
    template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = gpus
    if annotations:
        template["metadata"] = {"annotations": annotations}
    return manifest


class ScalingTests:
    """REQUIRES of the class: cluster, rig, log (a file), process, nodes(), is_kept(), TAINT and SCALED_UP."""

    def wait(self, condition, what, timeout_s=120):
        def or_ended():
            self.assertIsNone(self.process.poll(), self.log.read_text(errors="replace")[-3000:])
            return condition()
        try:
            return self.cluster.wait(or_ended, what, timeout_s)
        except AssertionError:
            print(self.cluster.kubectl("get", "pods,nodes", "-o", "wide"), self.cluster.kubectl("events", "-A"),
                  self.log.read_text(errors="replace")[-6000:], file=sys.stderr)
            raise

    def tearDown(self):
        for name in [one["metadata"]["name"] for one in self.cluster.get("tj")]:
            self.cluster.kubectl("delete", "tj", name, "--timeout=60s")
        self.wait(lambda: self.nodes() == [], "the nodes are taken away", 180)

    def comes_and_goes(self, name, gang):
        """Applies a job of three workers that each need all GPUs of a node, in a cluster without such a node."""
        self.assertEqual(self.nodes(), [])
        self.rig.apply(workers(name, GPUS, replicas=3, gang=gang))
        self.wait(lambda: self.rig.running(name, 3), "the gang runs on new nodes")
        hosts = sorted(pod["spec"]["nodeName"] for pod in self.rig.pods(name))
        # It may have added more nodes while the first were not ready. It removes the unused ones.
        self.wait(lambda: self.nodes() == hosts, "only the used nodes are left")
        self.assertTrue(self.rig.running(name, 3))
        self.assertEqual(self.rig.status(name)["attempt"], 1)
        self.assertIn(self.SCALED_UP, self.cluster.kubectl("events", "-n", "default"))

    def test_gang_of_the_scheduler(self):
        self.comes_and_goes("native", "auto")

    def test_gang_of_the_gate(self):
        self.comes_and_goes("gated", "gate")

    def half_empty(self, **options):
        """Starts a job of two workers, each alone on a node that has room for both. Returns its pods."""
        self.rig.apply(workers("filler", 5))
        self.wait(lambda: self.rig.running("filler", 1), "a job runs on a new node")
        self.wait(lambda: self.nodes() == [self.rig.pods("filler")[0]["spec"]["nodeName"]], "it is the only node")
        self.rig.apply(workers("pair", 3, replicas=2, annotations={"e2e.ringmaster.dev/stop-after-ms": str(LEAVING_MS)}, **options))
        self.wait(lambda: self.rig.running("pair", 2), "one of two workers runs next to it")
        pods = self.rig.pods("pair")
        self.assertEqual(len({pod["spec"]["nodeName"] for pod in pods}), 2)
        self.cluster.kubectl("delete", "tj", "filler", "--timeout=60s")
        return pods

    def test_an_elastic_job_leaves_a_node(self):
        """Two half empty nodes become one. The worker leaves before its node goes, the other one is not touched, and the job
        gets its second worker back on the node that is left. What a worker does when it leaves: ../nodes/survive_test.py."""
        pods = self.half_empty(native=True, workers={"min": 1, "max": 2}, spec=CHECKPOINTS)
        leaving = self.wait(lambda: [pod for pod in self.rig.pods("pair") if "deletionTimestamp" in pod["metadata"]],
                            "a worker is asked to leave", 180)
        self.assertEqual(len(leaving), 1)
        self.assertEqual(leaving[0]["metadata"]["deletionGracePeriodSeconds"], CHECKPOINTS["checkpoint"]["gracePeriodSeconds"])
        node = self.cluster.api.get(f"/api/v1/nodes/{leaving[0]['spec']['nodeName']}")
        self.assertIn(self.TAINT, [taint["key"] for taint in node["spec"].get("taints", [])])
        (stays,) = [pod for pod in pods if pod["metadata"]["uid"] != leaving[0]["metadata"]["uid"]]
        self.wait(lambda: self.nodes() == [stays["spec"]["nodeName"]] and self.rig.running("pair", 2),
                  "both workers run on the node that is left")
        self.assertIn(stays["metadata"]["uid"], [pod["metadata"]["uid"] for pod in self.rig.live("pair")])
        status = self.rig.status("pair")
        self.assertEqual((status["attempt"], status.get("restarts", {}).get("total", 0)), (1, 0))

    def test_a_job_that_is_not_elastic_stays(self):
        """Nodes are not saved at the cost of a restart. When the job has ended, they go."""
        pods = self.half_empty()
        self.wait(self.is_kept, "the autoscaler reports why it keeps the nodes", 240)
        self.assertEqual([pod["metadata"]["uid"] for pod in self.rig.live("pair")], [pod["metadata"]["uid"] for pod in pods])
        self.assertEqual(self.nodes(), sorted(pod["spec"]["nodeName"] for pod in pods))
        for pod in pods:
            self.cluster.pod_exit("default", pod["metadata"]["name"], 0)
        self.rig.wait_phase("pair", "Succeeded")
        self.wait(lambda: self.nodes() == [], "the nodes of the ended job are taken away", 180)
