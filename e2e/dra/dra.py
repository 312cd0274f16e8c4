# SPDX-License-Identifier: Apache-2.0
"""Runs the Kubernetes project's example driver of dynamic resource allocation (./build), for tests.

    with Cluster(nodes=2, gpus=0) as c, Drivers(c, ["node-0", "node-1"]):
        c.apply_text(json.dumps(claim_template("four", 4)))

The driver invents GPUs, publishes them as ResourceSlices and prepares claims. Where the nodes are fake, no kubelet asks it to
prepare any: then the slices and the scheduler's allocations are real, and nothing else.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
API = "/apis/resource.k8s.io/v1"
CLASS = "gpu.example.com"


def built():
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.strip())
    return pathlib.Path(done.stdout.strip()) / "dra-example-kubeletplugin"


def device_class(name=CLASS, selector=f"device.driver == '{CLASS}'", extended=None):
    """The class of the driver's chart, or another one."""
    spec = {"selectors": [{"cel": {"expression": selector}}], **({"extendedResourceName": extended} if extended else {})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def claim_template(name, count, of=CLASS, **request):
    exactly = {"deviceClassName": of, "count": count, **request}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}}}


def pod_template(template=None, image="registry.local/worker:1", limits=None):
    """The pods of a job, with a claim of this template."""
    container = {"name": "worker", "image": image, "resources": {}}
    spec = {"containers": [container]}
    if limits:
        container["resources"]["limits"] = limits
    if template:
        container["resources"]["claims"] = [{"name": "gpus"}]
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": template}]
    return {"spec": spec}


class Drivers:
    """One process per node, and the driver's DeviceClass."""

    def __init__(self, cluster, nodes, devices=8, start=None):
        """start: starts a command for a node, with a file for its output (default: here, with folders of the test as those
        of the kubelet)."""
        self.cluster, self.nodes, self.devices = cluster, nodes, devices
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-dra-"))
        self._start = start or self._start_here
        self.processes = {}

    def __enter__(self):
        self.cluster.apply_text(json.dumps(device_class()))
        for node in self.nodes:
            with open(self.folder / f"{node}.log", "wb") as log:
                self.processes[node] = self._start(node, [
                    built(), "--kubeconfig", self.cluster.kubeconfig, "--node-name", node, "--num-devices", self.devices,
                    "--v", 6], log)
        self.cluster.wait(lambda: len(self.slices()) == len(self.nodes), "every node has a ResourceSlice")
        return self

    def __exit__(self, kind, *_):
        for node, process in self.processes.items():
            process.kill()
            process.wait()
            if kind is not None:
                print(f"--- driver of {node}\n{self.log(node)[-4000:]}", file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, node):
        return (self.folder / f"{node}.log").read_text(errors="replace")

    def slices(self):
        for node, process in self.processes.items():
            if process.poll() is not None:
                raise AssertionError(f"the driver of {node} has ended; its log:\n{self.log(node)[-4000:]}")
        return self.cluster.api.get(f"{API}/resourceslices")["items"]

    def allocated(self):
        """Returns {pod: [(pool, device)]} of the claims that were made for pods."""
        found = {}
        for claim in self.cluster.api.get(f"{API}/namespaces/default/resourceclaims")["items"]:
            pod = next((owner["name"] for owner in claim["metadata"].get("ownerReferences", [])), "")
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []):
                found.setdefault(pod, []).append((result["pool"], result["device"]))
        return found

    def _start_here(self, node, command, log):
        folder = self.folder / node
        words = ["--cdi-root", folder / "cdi", "--kubelet-registrar-directory-path", folder / "registry",
                 "--kubelet-plugins-directory-path", folder / "plugins"]
        (folder / "registry").mkdir(parents=True)
        return subprocess.Popen([str(word) for word in [*command, *words]], stdout=log, stderr=subprocess.STDOUT,
                                start_new_session=True)
