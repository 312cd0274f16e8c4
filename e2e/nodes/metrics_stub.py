# SPDX-License-Identifier: Apache-2.0
"""A server of external metrics for autoscalers in tests, in place of the adapter of a monitoring system.

    with MetricsStub(nodes, {"backlog": 20}) as metrics:
        metrics.values["backlog"] = 40

It runs in this process, on the address of this machine in the network of the nodes, behind an APIService: the API server
forwards requests for external.metrics.k8s.io to it. It uses TLS with a certificate of the cluster's CA, and accepts only
the API server as a client. The API server must reach Services by their endpoints (--enable-aggregator-routing=true).
"""

import http.server
import json
import ssl
import threading
import time

import pki

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
SERVICE = "metrics-stub"
NAMESPACE = "kube-system"
CALLER = "front-proxy-client"  # pki.py


class MetricsStub:
    def __init__(self, nodes, values):
        """values: {name: number}, for every namespace; may change at any time."""
        self.values = values
        self._nodes, self._cluster = nodes, nodes.cluster

    def __enter__(self):
        keys = pki.Pki(self._cluster.folder / "pki")
        keys.issue(SERVICE, f"/CN={SERVICE}", "serverAuth", [f"DNS:{SERVICE}.{NAMESPACE}.svc"])
        address = self._nodes.host
        self._server = http.server.ThreadingHTTPServer((address, 0), handler(self.values))
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=keys.ca)
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_cert_chain(keys.certificate(SERVICE), keys.key(SERVICE))
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        port = self._server.server_address[1]
        self._objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": NAMESPACE},
             "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]}},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
             "metadata": {"name": SERVICE, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": SERVICE}},
             "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
             "ports": [{"name": "https", "port": port, "protocol": "TCP"}]},
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
             "metadata": {"name": ".".join(reversed(GROUP_VERSION.split("/")))},
             "spec": {"group": GROUP_VERSION.split("/")[0], "version": GROUP_VERSION.split("/")[1],
                      "caBundle": pki.encoded(keys.ca), "groupPriorityMinimum": 100, "versionPriority": 100,
                      "service": {"name": SERVICE, "namespace": NAMESPACE}}}]})
        self._cluster.apply_text(self._objects)
        self._cluster.kubectl("wait", "--for=condition=Available", "--timeout=60s",
                              f"apiservice/{'.'.join(reversed(GROUP_VERSION.split('/')))}")
        return self

    def __exit__(self, *_):
        self._cluster.kubectl("delete", "-f", "-", stdin=self._objects)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def handler(values):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_GET(self):  # noqa: N802  the base class defines the name
            caller = dict(pair[0] for pair in self.connection.getpeercert()["subject"])["commonName"]
            prefix = f"/apis/{GROUP_VERSION}"
            path = self.path.partition("?")[0].rstrip("/")
            if caller != CALLER:
                self.answer(401, {"kind": "Status", "message": f"{caller} is not the API server"})
            elif path == prefix:
                self.answer(200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION,
                                  "resources": [{"name": name, "singularName": "", "namespaced": True,
                                                 "kind": "ExternalMetricValueList", "verbs": ["get"]} for name in values]})
            elif path.startswith(f"{prefix}/namespaces/") and (name := path.rpartition("/")[2]) in values:
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                self.answer(200, {"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": [
                    {"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(values[name])}]})
            else:
                self.answer(404, {"kind": "Status", "message": f"no metric at {self.path}"})

        def answer(self, code, body):
            text = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    return Handler
