# SPDX-License-Identifier: Apache-2.0
"""`helm install` and `helm test` on real nodes, and the plugin with a job that trains. Needs root and the images
(images/build)."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "nodes"))
from helm import CHART, NAMESPACE, ROOT, Helm, objects  # noqa: E402
from nodes import Nodes  # noqa: E402

BIN = pathlib.Path(os.environ.get("RINGMASTER_BIN", ROOT / "build/release/bin"))
IMAGES = pathlib.Path(os.environ.get("RINGMASTER_IMAGES", ROOT / "build/images"))


class OnNodes(unittest.TestCase):
    def test_install_and_helm_test(self):
        images = sorted(IMAGES.glob("ringmaster-*.tar"))
        self.assertEqual(len(images), 2, f"{IMAGES} does not hold the two images; run images/build")
        nodes = self.enterContext(Nodes(images=images))
        c = nodes.cluster
        helm = Helm("helm4", c)
        c.kubectl("create", "namespace", NAMESPACE)
        c.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        began = time.monotonic()
        helm("install", "ringmaster", CHART, "-n", NAMESPACE, "--wait", "--timeout", "120s", timeout_s=150)
        print(f"helm install --wait: {time.monotonic() - began:.1f} s", flush=True)
        replicas = c.get("pods", namespace=NAMESPACE)
        self.assertEqual(len({pod["spec"]["nodeName"] for pod in replicas}), 2, "the replicas are on different nodes")

        began = time.monotonic()
        said = helm("test", "ringmaster", "-n", NAMESPACE, "--timeout", "300s", "--logs", timeout_s=330)
        print(f"helm test: {time.monotonic() - began:.1f} s\n{said}", flush=True)
        # The log of the pod that waited is a screen of the plugin: two workers finished the job.
        self.assertRegex(said, r"ringmaster-system/ringmaster-test  Succeeded")
        self.assertRegex(said, r"step 20 of 20")
        c.wait(lambda: not [pod for pod in c.get("pods", namespace=NAMESPACE)
                            if pod["metadata"]["name"].startswith("ringmaster-test")], "all objects of the test are deleted")

        # A user's job with checkpoints on a disk that the nodes share, and the plugin.
        kept = nodes.shared / "kept"
        kept.mkdir()
        kept.chmod(0o777)
        for found in objects(c, helm.template("--set", "fullnameOverride=mine", "--show-only", "templates/tests/job.yaml")):
            if found["kind"] not in ("ConfigMap", "TrainingJob"):
                continue
            del found["metadata"]["annotations"]  # remove the hooks
            found["metadata"]["namespace"] = "default"
            if found["kind"] == "TrainingJob":
                pod = found["spec"]["workers"]["template"]["spec"]
                pod["volumes"].append({"name": "kept", "hostPath": {"path": "/mnt/shared/kept"}})
                pod["containers"][0]["volumeMounts"].append({"name": "kept", "mountPath": "/kept"})
                found["spec"]["checkpoint"] = {"path": "/kept"}
            c.apply_text(json.dumps(found))
        folder = self.enterContext(tempfile.TemporaryDirectory())
        (pathlib.Path(folder) / "kubectl-ringmaster").symlink_to(BIN / "ringmaster")

        def plugin(*words):
            done = subprocess.run([(c.folder / "binary").read_text().strip(), "kubectl", "ringmaster", *words],
                                  env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "KUBECONFIG": str(c.kubeconfig)},
                                  capture_output=True, text=True, timeout=300, check=False)
            print(f"$ kubectl ringmaster {' '.join(words)}\n{done.stdout}{done.stderr}", flush=True)
            self.assertEqual(done.returncode, 0)
            return done.stdout

        self.assertIn("Succeeded", plugin("status", "mine-test", "--wait", "240"))
        self.assertIn("step 20 of 20", plugin("status", "mine-test"))
        self.assertNotIn("BAD", plugin("diagnose", "mine-test"))
        self.assertRegex(plugin("logs", "mine-test"), r"(?m)^\[0\] .*\n(.*\n)*\[1\] |^\[1\] .*\n(.*\n)*\[0\] ")
        plugin("export", "mine-test", "--to", "/kept/model.safetensors")
        # safetensors: the length of the JSON header, and the header.
        begin = (kept / "model.safetensors").read_bytes()
        self.assertIn("wte.weight", str(list(json.loads(begin[8:8 + int.from_bytes(begin[:8], "little")]))))
        helm("uninstall", "ringmaster", "-n", NAMESPACE, "--wait")
        self.assertIn("mine-test", c.kubectl("get", "tj"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
