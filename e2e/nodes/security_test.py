# SPDX-License-Identifier: Apache-2.0
"""Which pods may join a rendezvous on real nodes, which are rejected, and what the operator may read."""

import json
import re
import socket
import ssl
import struct
import unittest

from on_nodes import NAMESPACE, ApiError, KubectlError, Rig

AUDIENCE = "ringmaster.dev"
API_AUDIENCE = "https://kubernetes.default.svc.cluster.local"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:ringmaster-operator"
ELSEWHERE = "elsewhere"


class Security(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cls.enterClassContext(Rig(nodes=2))
        cls.cluster = cls.rig.cluster
        cls.cluster.kubectl("create", "namespace", ELSEWHERE)
        for name in ("mine", "other"):
            cls.rig.apply(cls.rig.job(name, replicas=2, steps=100000))
        for name in ("mine", "other"):
            cls.rig.wait_full(name, 2, 1)
        cls.worker = cls.rig.pods("mine")["mine-1-0"]
        cls.environment = {entry["name"]: entry["value"] for entry in cls.container()["env"] if "value" in entry}
        cls.name_called = cls.environment["RINGMASTER_COORDINATOR"].rpartition(":")[0]
        slices = cls.cluster.get("endpointslice", "ringmaster-rendezvous", NAMESPACE)
        cls.leader = slices["endpoints"][0]["addresses"][0], slices["ports"][0]["port"]
        cls.authority = cls.cluster.get("configmap", "mine-config")["data"]["ca.crt"]

    def setUp(self):
        self.before = self.rig.status("mine")["generation"], self.rig.uids("mine")

    def tearDown(self):
        """The job was not affected by the rejected connections."""
        self.rig.wait_step("mine", self.rig.step("mine") + 5)
        self.assertEqual((self.rig.status("mine")["generation"], self.rig.uids("mine")), self.before)

    @classmethod
    def container(cls):
        return next(it for it in cls.worker["spec"]["containers"] if it["name"] == "worker")

    # --- the connection

    def connect(self):
        return self.enterContext(socket.create_connection(self.leader, timeout=30))

    def connect_tls(self):
        context = ssl.create_default_context(cadata=self.authority)
        return self.enterContext(context.wrap_socket(self.connect(), server_hostname=self.name_called))

    @staticmethod
    def hello(job, pod, token):
        body = json.dumps({"type": "hello", "job": f"default/{job}", "pod": pod, "agent": "a-stranger", "secret": token,
                           "attempt": 1}).encode()
        return struct.pack(">I", len(body)) + body

    @staticmethod
    def everything(connection):
        """Returns the bytes that the server sends until it closes the connection."""
        said = b""
        try:
            while part := connection.recv(4096):
                said += part
        except (ConnectionResetError, ssl.SSLError):
            pass
        return said

    def test_the_server_does_not_answer_in_plain_text(self):
        plain = self.connect()
        plain.sendall(self.hello("mine", "mine-1-0", self.token("mine-1-0")))
        self.assertNotIn(b"{", self.everything(plain), "an answer to a plain client")

    def test_the_certificate_has_the_right_issuer_and_name(self):
        secure = self.connect_tls()
        self.assertIn(secure.version(), ("TLSv1.2", "TLSv1.3"))
        for authority, name, why in ((None, self.name_called, "self-signed certificate|unable to get local issuer"),
                                     (self.authority, "another.example", "Hostname mismatch")):
            with self.subTest(why), self.assertRaisesRegex(ssl.SSLCertVerificationError, why):
                ssl.create_default_context(cadata=authority).wrap_socket(self.connect(), server_hostname=name)

    # --- authentication

    def token(self, pod, namespace="default", audience=AUDIENCE):
        """Requests a token as the kubelet does for a pod; without a pod, one that is bound to the ServiceAccount only."""
        request = {"audiences": [audience], "expirationSeconds": 3600}
        if pod:
            uid = self.cluster.get("pod", pod, namespace)["metadata"]["uid"]
            request["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
        return self.cluster.api.request("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                                                       "spec": request})["status"]["token"]

    def refused(self, address, why):
        """Waits until the leader logs that it closed a connection from this address, and the reason."""
        line = re.compile(f"closed connection from {re.escape(address)}.*: refused: {re.escape(why)}")
        self.cluster.wait(lambda: line.search(self.log()), f"{address} is refused: {why}", 90)

    def log(self):
        return self.cluster.kubectl("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=ringmaster-operator", "--tail=-1")

    def test_other_tokens_are_rejected(self):
        for what, job, pod, token, why in (
                ("none", "mine", "mine-1-0", "", "no token"),
                ("nonsense", "mine", "mine-1-0", "nonsense", "the token is not valid"),
                ("for the API server", "mine", "mine-1-0", self.token("mine-1-0", audience=API_AUDIENCE),
                 "the token is not valid, or not for this audience"),
                ("of no pod", "mine", "mine-1-0", self.token(None), "the token is not bound to a pod"),
                ("of another job", "mine", "mine-1-0", self.token("other-1-0"),
                 "the token belongs to pod other-1-0, not mine-1-0"),
                ("of another job, as itself", "mine", "other-1-0", self.token("other-1-0"), "pod other-1-0 ("),
                ("of a missing job", "none", "mine-1-0", self.token("mine-1-0"),
                 f"pod mine-1-0 ({self.worker['metadata']['uid']}) is not a known worker of default/none")):
            with self.subTest(what):
                secure = self.connect_tls()
                secure.sendall(self.hello(job, pod, token))
                self.assertEqual(self.everything(secure), b"")
                self.refused(":".join(map(str, secure.getsockname())), why)

    def test_the_right_token_is_accepted(self):
        """The probe of the other tests can succeed, so those rejections are caused by the token alone."""
        secure = self.connect_tls()
        secure.sendall(self.hello("other", "other-1-0", self.token("other-1-0")))
        self.assertIn(b'"welcome"', secure.recv(4096))

    def foreign_pod(self, name, namespace, sources):
        """Creates a foreign pod with the environment of a worker and the given files of its namespace."""
        environment = dict(self.environment)
        folder = environment["RINGMASTER_CA_FILE"].rpartition("/")[0]
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "securityContext": {"runAsUser": 65532},
            "volumes": [{"name": "files", "projected": {"sources": sources}}],
            "containers": [{"name": "worker", "image": self.container()["image"], "env": [
                {"name": key, "value": value} for key, value in {**environment, "RINGMASTER_NODE": "somewhere"}.items()],
                "volumeMounts": [{"name": "files", "mountPath": folder}]}]}}
        self.cluster.apply_text(json.dumps(manifest))
        self.addCleanup(self.cluster.kubectl, "delete", "pod", name, "-n", namespace, "--force", "--grace-period=0")

    def test_a_foreign_pod_is_rejected(self):
        projected = {"serviceAccountToken": {"audience": AUDIENCE, "path": "token"}}
        config = {"configMap": {"name": "mine-config"}}
        data = self.cluster.get("configmap", "mine-config")["data"]
        self.cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                                            "metadata": {"name": "mine-config", "namespace": ELSEWHERE}}))
        self.cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "found"},
                                            "stringData": {"token": self.token("other-1-1")}}))
        for name, namespace, source, why in (
                ("with-its-own", "default", projected, "the token belongs to pod with-its-own, not mine-1-0"),
                ("with-a-found-one", "default", {"secret": {"name": "found"}},
                 "the token belongs to pod other-1-1, not mine-1-0"),
                ("from-elsewhere", ELSEWHERE, projected, f"a pod of namespace {ELSEWHERE} may not join default/mine")):
            with self.subTest(name):
                self.foreign_pod(name, namespace, [config, source])
                address = self.cluster.wait(lambda name=name, namespace=namespace: self.cluster.get(
                    "pod", name, namespace)["status"].get("podIP"), f"{name} runs")
                self.refused(f"{address}:", why)
                said = self.cluster.kubectl("logs", name, "-n", namespace)
                self.assertNotIn("generation=", said, "it was let in")

    def test_a_pod_without_a_token_does_not_connect(self):
        self.cluster.apply_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "empty"},
                                            "data": {"token": ""}}))
        self.foreign_pod("with-none", "default", [{"configMap": {"name": "mine-config"}}, {"configMap": {"name": "empty"}}])
        self.cluster.wait(lambda: self.cluster.get("pod", "with-none")["status"]["phase"] == "Running", "it runs")
        self.cluster.wait(lambda: "the secret is empty" in self.cluster.kubectl("logs", "with-none"), "it says why",
                          every_s=0.5)

    # --- the operator itself

    def test_the_operator_reads_only_its_own_secret(self):
        config = self.cluster.kubeconfig_of(ACCOUNT)
        api = self.cluster.api_of(config)
        for namespace in ("default", NAMESPACE, ELSEWHERE):
            self.cluster.kubectl("create", "secret", "generic", "private", "-n", namespace, "--from-literal=key=value")
            for verb in ("get", "list", "watch"):
                with self.subTest(f"{verb} in {namespace}"):
                    self.assertFalse(self.can(config, verb, "secrets", namespace))
            all_of_it = f"/api/v1/namespaces/{namespace}/secrets"
            for path in (f"{all_of_it}/private", all_of_it, "/api/v1/secrets"):
                with self.subTest(path), self.assertRaises(ApiError) as refused:
                    api.get(path)
                self.assertEqual(refused.exception.code, 403)
        own = f"/api/v1/namespaces/{NAMESPACE}/secrets/ringmaster-rendezvous"
        self.assertIn("data", api.get(own))
        self.assertTrue(self.can(config, "get", "secrets/ringmaster-rendezvous", NAMESPACE))

    def can(self, config, verb, what, namespace):
        try:
            return self.cluster.kubectl("auth", "can-i", verb, what, "-n", namespace, kubeconfig=config).strip() == "yes"
        except KubectlError as refused:
            self.assertEqual(refused.stdout.strip(), "no", refused.stderr)
            return False


if __name__ == "__main__":
    unittest.main()
