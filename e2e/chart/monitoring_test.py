# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus with the chart on real nodes scrapes the targets of its monitors, loads its rules and fires its alerts,
and has data for every panel of the dashboard. Needs root and the images (images/build)."""

import json
import os
import pathlib
import subprocess
import sys
import unittest
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "nodes"))
from helm import CHART, NAMESPACE, ROOT, Helm, folder  # noqa: E402
from nodes import Nodes  # noqa: E402
from rig import job  # noqa: E402
from supervisor import free_ports  # noqa: E402

IMAGES = pathlib.Path(os.environ.get("RINGMASTER_IMAGES", ROOT / "build/images"))
OWNER = "kubernetes.io/service-name"
READER = {"name": "prometheus", "namespace": "monitoring"}
VALUES = ["metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.interval=1s", "metrics.prometheusRule.enabled=true",
          "metrics.dashboard.enabled=true", *(f"metrics.readers[0].{key}={value}" for key, value in READER.items())]


def found_by(cluster, monitor):
    """Returns the targets that the Prometheus Operator would find for a ServiceMonitor, as static targets of Prometheus."""
    space, spec = monitor["metadata"]["namespace"], monitor["spec"]
    services = {it["metadata"]["name"] for it in cluster.get("services", namespace=space)
                if spec["selector"]["matchLabels"].items() <= it["metadata"]["labels"].items()}
    (endpoint,) = spec["endpoints"]
    return [{"targets": [f"{address}:{port['port']}"],
             "labels": {"namespace": space, "service": part["metadata"]["labels"][OWNER], "pod": it["targetRef"]["name"]}}
            for part in cluster.get("endpointslices", namespace=space) if part["metadata"]["labels"].get(OWNER) in services
            for port in part["ports"] if port["name"] == endpoint["port"]
            for it in part["endpoints"] for address in it["addresses"]]


class Prometheus:
    """Debian's Prometheus on this machine, configured for one ServiceMonitor and one PrometheusRule as the Prometheus Operator
    would do it. Its targets are static, because it cannot discover them in the cluster."""

    def __init__(self, place, cluster, token, monitor, rule):
        self._place, (port,) = place, free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        (place / "rules.json").write_text(json.dumps(rule["spec"]))
        (place / "token").write_text(token)
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token", endpoint
        (place / "prometheus.json").write_text(json.dumps({
            "global": {"evaluation_interval": "1s"}, "rule_files": [str(place / "rules.json")],
            "scrape_configs": [{
                "job_name": "ringmaster", "scheme": endpoint["scheme"], "scrape_interval": endpoint["interval"],
                "scrape_timeout": endpoint["interval"], "static_configs": found_by(cluster, monitor),
                "tls_config": {"insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"]},
                "authorization": {"credentials_file": str(place / "token")}}]}))
        with open(place / "log", "ab") as log:
            self._process = subprocess.Popen(
                [folder() / "prometheus", f"--config.file={place}/prometheus.json", f"--storage.tsdb.path={place}/data",
                 f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"], stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
        print((self._place / "log").read_text()[-4000:], flush=True)

    def ask(self, path, **parameters):
        """Returns the data of an API answer; None while Prometheus starts."""
        assert self._process.poll() is None, "Prometheus has ended"
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionRefusedError):
                return None
            raise

    def query(self, expression):
        return (self.ask("query", query=expression) or {"result": []})["result"]

    def targets(self):
        return (self.ask("targets", state="active") or {"activeTargets": []})["activeTargets"]

    def rules(self):
        return {rule["name"]: rule for group in (self.ask("rules") or {"groups": []})["groups"] for rule in group["rules"]}


class Monitoring(unittest.TestCase):
    def test_prometheus(self):
        nodes = self.enterContext(Nodes(images=sorted(IMAGES.glob("ringmaster-*.tar"))))
        c, helm = nodes.cluster, Helm("helm4", nodes.cluster)
        for name in (NAMESPACE, READER["namespace"]):
            c.kubectl("create", "namespace", name)
        c.kubectl("create", "serviceaccount", READER["name"], "-n", READER["namespace"])
        c.kubectl("apply", "--server-side", "-f", folder() / "monitoring")
        c.wait(lambda: "prometheusrules" in c.kubectl("api-resources", "-o", "name"), "the CRDs are served")
        helm("install", "ringmaster", CHART, "-n", NAMESPACE, "--wait", "--timeout", "120s", timeout_s=150)
        helm("upgrade", "ringmaster", CHART, "-n", NAMESPACE, "--reset-then-reuse-values", "--wait",
             *(word for value in VALUES for word in ("--set", value)))
        helm("test", "ringmaster", "-n", NAMESPACE, "--timeout", "300s", timeout_s=330)

        token = c.kubectl("create", "token", READER["name"], "-n", READER["namespace"]).strip()
        place = nodes.folder / "prometheus"
        place.mkdir()
        monitor, rule = (c.get(kind, "ringmaster-operator", NAMESPACE) for kind in ("servicemonitor", "prometheusrule"))

        def replicas():
            return {pod["metadata"]["name"] for pod in c.get("pods", namespace=NAMESPACE)}

        # The replicas from before the upgrade may still be terminating.
        c.wait(lambda: len(replicas()) == 2 and
               {target["labels"]["pod"] for target in found_by(c, monitor)} == replicas(), "only the two new replicas")
        prometheus = self.enterContext(Prometheus(place, c, token, monitor, rule))
        c.wait(lambda: {it["labels"]["pod"] for it in prometheus.targets() if it["health"] == "up"} == replicas(),
               "both replicas are read")

        self.assert_dashboard(c, prometheus)

        calm = {it["alert"]: ("ok", "inactive") for group in rule["spec"]["groups"] for it in group["rules"]}
        c.wait(lambda: {name: (it["health"], it["state"]) for name, it in prometheus.rules().items()} == calm,
               "all rules are evaluated, and no alert is active")
        c.apply_text(json.dumps(job("doomed", spec={"lifecycle": {"activeDeadlineSeconds": 1}})))
        c.wait(lambda: prometheus.rules()["RingmasterJobsFail"]["state"] == "firing", "the failed job is reported")
        c.kubectl("scale", "deployment", "ringmaster-operator", "-n", NAMESPACE, "--replicas=0")
        c.wait(lambda: prometheus.rules()["RingmasterNoLeader"]["state"] == "pending",
               "no operator is leading, and the alert is pending", 120)

    def assert_dashboard(self, c, prometheus):
        board = json.loads(c.get("configmap", "ringmaster-operator-dashboard", NAMESPACE)["data"]["ringmaster.json"])
        drawn = [(panel["title"], target["expr"].replace("$namespace", NAMESPACE))
                 for panel in board["panels"] for target in panel.get("targets", [])]
        self.assertTrue(drawn)
        for title, expression in drawn:
            with self.subTest(panel=title):
                c.wait(lambda expression=expression: prometheus.query(expression), f"{expression} has a value", 30)
        print({title: [it["value"][1] for it in prometheus.query(expression)] for title, expression in drawn}, flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
