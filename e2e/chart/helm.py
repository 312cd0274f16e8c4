# SPDX-License-Identifier: Apache-2.0
"""Helm 3 and Helm 4 for tests, and the operator with the configuration of the chart.

    helm = Helm("helm4", cluster)
    helm("install", "ringmaster", CHART, "-n", "ringmaster-system", "--wait")
"""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHART = ROOT / "helm/ringmaster"
NAMESPACE = "ringmaster-system"
KUBERNETES = "1.37.0"

sys.path.insert(0, str(HERE.parent / "operator"))
import rig  # noqa: E402  of e2e/operator


class NotBuilt(Exception):
    """The programs do not exist; e2e/chart/build builds them."""


class HelmError(Exception):
    def __init__(self, arguments, done):
        self.stdout, self.stderr = done.stdout, done.stderr
        super().__init__(f"helm {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")


def folder():
    """Returns the folder that e2e/chart/build made."""
    done = subprocess.run([HERE / "build", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuilt(done.stderr.strip())
    return pathlib.Path(done.stdout.strip())


class Helm:
    """One version of Helm. Without a cluster it can only lint and render."""

    def __init__(self, version, cluster=None):
        self.version = version
        self._program = folder() / version
        home = cluster.folder if cluster else pathlib.Path("/nonexistent")
        self._environment = {**os.environ, "HOME": str(home), "HELM_NO_PLUGINS": "1",
                             "KUBECONFIG": str(cluster.kubeconfig if cluster else "/nonexistent")}
        for name in ("CACHE", "CONFIG", "DATA"):
            self._environment[f"HELM_{name}_HOME"] = str(home / f"helm-{name.lower()}")

    def __call__(self, *arguments, timeout_s=180):
        arguments = [str(argument) for argument in arguments]
        done = subprocess.run([self._program, *arguments], env=self._environment, capture_output=True, text=True,
                              timeout=timeout_s, check=False)
        if done.returncode:
            raise HelmError(arguments, done)
        return done.stdout

    def template(self, *arguments, chart=CHART, release="ringmaster", namespace=NAMESPACE):
        return self("template", release, chart, "-n", namespace, "--kube-version", KUBERNETES, *arguments)

    def start(self, *arguments):
        """Starts a command in the background."""
        return subprocess.Popen([self._program, *map(str, arguments)], env=self._environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class ChartRig(rig.Rig):
    """The operator under the ServiceAccount of a release, with the arguments of its Deployment."""

    def __init__(self, cluster, namespace=NAMESPACE, deployment="ringmaster-operator"):
        super().__init__(cluster)
        self._namespace, self._deployment = namespace, deployment

    def install(self):
        pass  # the chart installs it

    def __enter__(self):
        return self

    def start_as_deployed(self):
        pod = self.cluster.get("deployment", self._deployment, self._namespace)["spec"]["template"]["spec"]
        account = f"system:serviceaccount:{self._namespace}:{pod['serviceAccountName']}"
        container = pod["containers"][0]
        assert container["command"] == ["ringmaster-operator"], container
        arguments = dict(argument.split("=", 1) for argument in container["args"])
        # The process has no pod network: it listens on free ports of a loopback address that an EndpointSlice accepts.
        arguments.update({"--kubeconfig": self.cluster.kubeconfig_of(account), "--health-address": "127.0.0.1:0",
                          "--metrics-address": "127.0.0.1:0", "--rendezvous-address": "127.0.0.1:0",
                          "--identity": f"replica-{len(self.operators)}"})
        fields = {"metadata.name": f"replica-{len(self.operators)}", "metadata.namespace": self._namespace,
                  "status.podIP": "10.11.12.13"}
        environment = {entry["name"]: entry.get("value") or fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
                       for entry in container["env"]}
        operator = rig.Operator(self, len(self.operators), arguments, environment)
        self.operators.append(operator)
        return operator


def objects(cluster, text):
    """Returns the objects of a YAML text, as kubectl reads them."""
    printed = cluster.kubectl("create", "--dry-run=client", "--validate=ignore", "-o", "json", "-f", "-", stdin=text)
    found, decoder, at = [], json.JSONDecoder(), 0
    while at < len(printed.rstrip()):
        value, at = decoder.raw_decode(printed, at)
        found.extend(value["items"] if value["kind"] == "List" else [value])
        while at < len(printed) and printed[at].isspace():
            at += 1
    return found
