# SPDX-License-Identifier: Apache-2.0
"""Checks the objects of operator/wiring on a real API server: it accepts every object, each job needs the Pod
Security level of its header, and kubectl merges the same way. The tables are those of tests/unit/wiring."""

import json
import os
import pathlib
import subprocess
import unittest

from cluster import ApiError, Cluster, KubectlError

UNIT = pathlib.Path(__file__).resolve().parents[2] / "tests/unit/wiring"
HERE = pathlib.Path(__file__).resolve().parent
LEVELS = ("baseline", "restricted")
FLAGS = ("gang", "attempt", "excluded", "host-ports")

# Lists that merge by key, with that key: their order does not matter.
KEYED = {"containers": "name", "initContainers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath",
         "volumeDevices": "devicePath", "ports": "containerPort", "imagePullSecrets": "name", "hostAliases": "ip",
         "topologySpreadConstraints": "topologyKey", "schedulingGates": "name", "resourceClaims": "name"}


def table(name):
    return json.loads((UNIT / name).read_text())


def header(manifest):
    """Reads the "# key: value" lines at the top of a manifest in jobs/."""
    found = {}
    for line in manifest.read_text().splitlines():
        if not line.startswith("# "):
            return found
        key, colon, value = line[2:].partition(": ")
        if colon:
            found[key] = value
    return found


def render(manifest, *flags):
    found = header(manifest)
    given = [text for key in FLAGS if key in found for text in (f"--{key}", found[key])]
    command = [os.environ["RINGMASTER"], "render", manifest, "--set", "spec.workers.replicas=2", *given, *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def unordered(value):
    if isinstance(value, list):
        return [unordered(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: unordered(item) for key, item in value.items()}
    for key, by in KEYED.items():
        if isinstance(result.get(key), list):
            result[key].sort(key=lambda item: str(item.get(by)))
    return result


def manifests():
    return sorted((UNIT / "jobs").glob("*.yaml"))


class Wiring(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.c = Cluster(nodes=0, components=["etcd", "apiserver", "kcm"])
        cls.addClassCleanup(cls.c.stop)
        cls.c.start()
        cls.c.kubectl("apply", "--server-side", "-f", HERE / "groups.yaml")
        cls.c.kubectl("wait", "--for=condition=Established", "crd", "--all")
        cls.c.kubectl("create", "priorityclass", "training", "--value=1000")
        for name, level in {"research": "privileged", **{level: level for level in LEVELS}}.items():
            cls.c.kubectl("create", "namespace", name)
            cls.c.kubectl("label", "namespace", name, f"pod-security.kubernetes.io/enforce={level}")
            cls.c.kubectl("create", "serviceaccount", "trainer", "-n", name)
            cls.c.wait(lambda n=name: "default" in {account["metadata"]["name"] for account in
                                                    cls.c.get("serviceaccount", namespace=n)}, f"{name} is usable")

    def last_object(self, text):
        """Returns the last document of the YAML as kubectl reads it."""
        last = text.split("---\n")[-1]
        return json.loads(self.c.kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-",
                                         stdin=last))

    def refused_by(self, pod):
        """Returns the least strict Pod Security level that rejects the pod, or "none"."""
        for level in LEVELS:
            pod["metadata"]["namespace"] = level
            try:
                self.c.api.request("POST", f"/api/v1/namespaces/{level}/pods?dryRun=All", pod)
            except ApiError as error:
                if error.code != 403 or "violates PodSecurity" not in str(error):
                    raise
                return level
        return "none"

    def test_every_object_is_accepted(self):
        for manifest in manifests():
            with self.subTest(manifest.stem):
                text = render(manifest)
                said = self.c.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict",
                                      "--field-manager=ringmaster", "-f", "-", stdin=text)
                self.assertEqual(len(said.splitlines()), text.count("---\n"), said)

    def test_an_object_with_an_error_is_rejected(self):
        text = render(UNIT / "jobs/plain.yaml").replace("restartPolicy:", "restartPolcy:")
        with self.assertRaisesRegex(KubectlError, "restartPolcy"):
            self.c.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)

    def test_each_job_needs_the_pod_security_level_of_its_header(self):
        """docs/operate/security.md has the table."""
        for manifest in manifests():
            with self.subTest(manifest.stem):
                pod = self.last_object(render(manifest))
                self.assertEqual(self.refused_by(pod), header(manifest).get("refused-by", "none"))

    def test_kubectl_merges_the_same_way(self):
        same = 0
        for case in table("merge_cases.json"):
            with self.subTest(case["name"]):
                base = {"apiVersion": "v1", "kind": "Pod", **case["base"]}
                base["metadata"] = {"name": "x", **base.get("metadata", {})}
                merged = json.loads(self.c.kubectl("patch", "--local", "--type=strategic", "-o", "json", "-f", "-", "-p",
                                                   json.dumps(case["over"]), stdin=json.dumps(base)))
                wanted = {"apiVersion": "v1", "kind": "Pod", **case["merged"]}
                wanted["metadata"] = {"name": "x", **wanted.get("metadata", {})}
                if "unlike_kubectl" in case:
                    self.assertNotEqual(unordered(merged), unordered(wanted), "the note unlike_kubectl is not true")
                else:
                    self.assertEqual(unordered(merged), unordered(wanted))
                    same += 1
        self.assertGreaterEqual(same, 20)


if __name__ == "__main__":
    unittest.main()
