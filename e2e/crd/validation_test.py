# SPDX-License-Identifier: Apache-2.0
"""The CRD on a real API server accepts and rejects the same objects, and names the same fields, as our validator.

The test posts every manifest of tests/unit/api/manifests (dry run, fieldValidation=Strict) and sends every change of
tests/unit/api/updates.json as a patch. The unit tests of api/ check our validator with the same files.
"""

import http.client
import json
import pathlib
import re
import ssl
import unittest
import urllib.parse

from cluster import Cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "tests/unit/api/manifests"
CRD = ROOT / "crds/ringmaster.dev_trainingjobs.yaml"
BASE = "/apis/ringmaster.dev/v1alpha1/namespaces"

# Files that cannot be sent to an API server as they are, and why.
NOT_FOR_A_SERVER = {
    "yaml-duplicate-key.yaml": "an error of the text, not of the object: kubectl and the server reject it as well, but name no field",
    "yaml-leading-zero.yaml": "an error of the text: kubectl reads 08 as the number 8, other readers as text",
    "name-generated.yaml": "the server generates the name; without a server it is missing",
    "from-api-server.yaml": "an object read from a server: fields that the server sets cannot be set at creation",
    "with-status.yaml": "a status of a newer version: our parser ignores all of it, the server validates it",
}

# Files whose meaning depends on the reader of YAML, and what kubectl makes of them; tests/unit/api/manifest_test.cc expects the
# same of our parser. kubectl sends JSON. A server that gets the text itself accepts the same fields, but a strict one calls a key
# that a merge (<<) and the object both have a duplicate.
READ_BY_KUBECTL = {
    "yaml-merge-key.yaml": lambda spec: [rule["when"] for rule in spec["restart"]["rules"]] == [{"hang": True}, {"exitCodes": [7]}],
    "yaml-octal.yaml": lambda spec: (spec["workers"]["replicas"], spec["workers"]["slots"]) == (2, 4) and
    spec["workers"]["template"]["spec"]["volumes"][0]["secret"]["defaultMode"] == 256,
    "yaml-yes.yaml": lambda spec: spec["suspend"] is True,
}

# The server's own texts for schema errors. Any other text comes from one of our rules, which use our validator's texts.
SCHEMA_MESSAGES = re.compile(
    "Unsupported value|Required value|must be of type|should match|should be (less|greater)|should have at (most|least)|"
    "Too (long|many)|Duplicate value|unknown field|evaluating rule|must be no more than|may not be more than|"
    "must consist of|cannot unmarshal|the object provided is unrecognized|does not match|not found|is missing|"
    "name part must|must be TrainingJob|a lowercase RFC 1123|a valid label|should be at least|conversion error|no such overload")

# Messages of the server that name no field, with the field that they are about.
FIELDS_OF_MESSAGES = (
    ("Object 'Kind' is missing", "kind"),
    ("Object 'apiVersion' is missing", "apiVersion"),
    ("does not match the expected API version", "apiVersion"),
    ("the API version in the data", "apiVersion"),
)


def served(cluster):
    # Not `kubectl wait`: it fails on a new CRD that has no conditions yet.
    crd = cluster.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.ringmaster.dev")
    return any(condition["type"] == "Established" and condition["status"] == "True"
               for condition in crd.get("status", {}).get("conditions") or [])


class Server:
    """Sends requests over one connection. Returns (code, decoded body), for errors as well."""

    def __init__(self, cluster):
        config = json.loads(cluster.kubeconfig.read_text())
        address = urllib.parse.urlsplit(cluster.server)
        tls = ssl.create_default_context(cafile=cluster.folder / "pki/ca.crt")
        self._connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=30, context=tls)
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Accept": "application/json"}

    def send(self, method, path, body, content_type, **query):
        query = urllib.parse.urlencode(query)
        body = body.encode() if body else None
        self._connection.request(method, f"{path}?{query}", body, {**self._headers, "Content-Type": content_type})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def close(self):
        self._connection.close()


def problems_of(code, answer):
    """Returns {field: [the server's messages]}; empty when it accepted the object."""
    if code < 300:
        return {}
    problems = {}

    def add(field, text):
        problems.setdefault(field, []).append(text)

    details, message = answer.get("details") or {}, answer["message"]
    causes = [(cause.get("field", ""), cause["message"]) for cause in details.get("causes", [])]
    fields = {field for field, _ in causes}
    for field, text in causes:
        # The scale subresource reports spec.workers.replicas or a parent again, with a leading dot.
        again = field.startswith(".") and any(is_under(field[1:], other) for other in fields)
        change = re.fullmatch(r"Forbidden: ([\w.]+): (can(?:not)? be changed.*)", text) if field == "spec" else None
        if change:  # one rule is about all fields, and its message names the first that may not change
            field, text = f"spec.{change[1]}", change[2]
        if field == "<nil>":  # an integer out of range; the other causes are rules that were not evaluated
            for field in re.findall(r"^Invalid value: .* in (\S+)$", text):
                add(field, text)
        elif not again:
            add(field, text)
    if code == 404 and details.get("kind") == "namespaces":
        add("metadata.namespace", message)
    for field in re.findall(r"cannot unmarshal \w+ into Go struct field ObjectMeta.(\w+)", message):
        add(f"metadata.{field}", message)
    for field in re.findall(r'unknown field "([^"]*)"', message):
        add(field, f"unknown field {field}")
    if not problems:
        add(next((field for part, field in FIELDS_OF_MESSAGES if part in message), "?"), message)
    return problems


def is_under(field, other):
    """Returns whether `field` is `other` or inside it."""
    return field == other or field.startswith((other + ".", other + "["))


def expected_of(text):
    """Reads the `# problem: path: text` lines at the head of a manifest."""
    lines = re.findall(r"^# problem: (.*?): (.*)$", text, re.MULTILINE)
    return {field: text for field, text in lines}


class Validation(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(components=["etcd", "apiserver"]))
        cls.cluster.kubectl("apply", "--server-side", "-f", CRD)
        cls.cluster.wait(lambda: served(cls.cluster), "the CRD is established")
        cls.server = Server(cls.cluster)
        cls.addClassCleanup(cls.server.close)
        cls.cluster.wait(lambda: cls.server.send("GET", f"{BASE}/default/trainingjobs", None, "")[0] == 200, "the API")
        cls.cluster.kubectl("create", "namespace", "research")

    def ask(self, text):
        """Returns the server's messages about a manifest. Unknown fields end a strict request early, so it is sent again without."""
        found = re.search(r"^  namespace: *(\S+)", text, re.MULTILINE)
        namespace = urllib.parse.quote(found.group(1).strip("'\"")) if found else "default"
        problems = {}
        for validation in ("Strict", "Ignore"):
            code, answer = self.server.send("POST", f"{BASE}/{namespace}/trainingjobs", text, "application/yaml",
                                            dryRun="All", fieldValidation=validation)
            self.assertLess(code, 500, answer)
            unknown = list(problems)
            for field, texts in problems_of(code, answer).items():
                inside = [other for other in unknown if is_under(other, field)]
                if any("must be of type" in text for text in texts):  # with a wrong type the server checks no fields inside it
                    for other in inside:
                        problems.pop(other, None)
                elif inside:
                    continue  # an unknown field leaves its parent empty: a consequence
                problems.setdefault(field, []).extend(texts)
            if "strict decoding error" not in answer.get("message", ""):
                break
        # With a wrong kind or version the server checks no fields and sets no defaults.
        wrong = {"kind", "apiVersion"} & set(problems)
        return {field: texts for field, texts in problems.items() if not wrong or field in wrong}

    def compare(self, problems, expected):
        self.assertEqual(sorted(problems), sorted(expected), problems)
        for field, text in expected.items():
            ours = [said for said in problems[field] if not SCHEMA_MESSAGES.search(said)]
            for said in ours:
                self.assertIn(text, said)
            type(self).our_messages += bool(ours)

    our_messages = 0

    def test_good_manifests_are_accepted(self):
        files = sorted(MANIFESTS.glob("good/*.yaml"))
        self.assertGreaterEqual(len(files), 60)
        for file in files:
            if file.name not in NOT_FOR_A_SERVER and file.name not in READ_BY_KUBECTL:
                with self.subTest(file.name):
                    self.assertEqual(self.ask(file.read_text()), {})

    def test_kubectl_reads_yaml_as_we_do(self):
        self.assertEqual(sorted(READ_BY_KUBECTL), sorted(file.name for file in MANIFESTS.glob("good/yaml-*.yaml")))
        for name, is_as_ours in READ_BY_KUBECTL.items():
            with self.subTest(name):
                spec = json.loads(self.cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-o", "json", "-f",
                                                       MANIFESTS / "good" / name))["spec"]
                self.assertTrue(is_as_ours(spec), spec)

    def test_bad_manifests_are_rejected_for_the_same_fields(self):
        files = sorted(MANIFESTS.glob("bad/*.yaml"))
        self.assertGreaterEqual(len(files), 150)
        for file in files:
            if file.name not in NOT_FOR_A_SERVER:
                with self.subTest(file.name):
                    text = file.read_text()
                    self.compare(self.ask(text), expected_of(text))
        self.assertGreaterEqual(self.our_messages, 30)

    def test_every_excluded_file_exists(self):
        names = {file.name for file in MANIFESTS.glob("*/*.yaml")}
        self.assertLessEqual(set(NOT_FOR_A_SERVER), names)

    def test_changes(self):
        table = json.loads((MANIFESTS.parent / "updates.json").read_text())
        self.assertGreaterEqual(len(table["changes"]), 30)
        for job, state in sorted({(change["job"], change["state"]) for change in table["changes"]}):
            self.make(f"{job}-{state}", table["jobs"][job], table["states"][state])
        for change in table["changes"]:
            with self.subTest(change["name"]):
                path = f"{BASE}/default/trainingjobs/{change['job']}-{change['state']}"
                code, answer = self.server.send("PATCH", path, json.dumps(change["patch"]), "application/merge-patch+json",
                                                dryRun="All", fieldValidation="Strict")
                problems = problems_of(code, answer)
                expected = {field: text for field, text in change["problems"].items()
                            if field in problems or "be changed" not in text}
                self.assertEqual(bool(expected), bool(change["problems"]), problems)
                self.compare(problems, expected)

    def test_largest_job_stays_within_the_servers_cost_limits(self):
        rules = [{"when": {"exitCodes": list(range(1, 256)), "podCondition": "C" * 60, "messageRegex": f"{i:02}" + "x" * 510}}
                 for i in range(64)]
        environment = [{"name": f"V{i}", "value": "x" * 100} for i in range(1024)]
        spec = {"framework": "native", "workers": {"replicas": 4096, "min": 1, "max": 4096, "template": {"spec": {
                    "containers": [{"name": f"c{i}", "image": "x", "env": environment} for i in range(8)]}}},
                "training": {"model": {"kind": "gpt"}, "data": {"kind": "text", "path": "/" + "x" * 4095},
                             "batch": {"samplesPerStep": 65536, "microBatches": 65536}, "steps": 100},
                "network": {"networks": [f"n{i}" for i in range(32)]}, "restart": {"rules": rules}}
        conditions = [{"type": f"C{i}", "status": "True", "reason": "R", "message": "x" * 10_000,
                       "lastTransitionTime": "2026-01-02T03:04:05Z"} for i in range(32)]
        self.make("largest", spec, {"suspend": True, "status": {"conditions": conditions}})
        path = f"{BASE}/default/trainingjobs/largest"
        for spec, problems in (({"health": {"stepSeconds": 5}}, {}),
                               ({"checkpoint": {"keep": 5}}, {"spec.checkpoint": "only while the job is stopped"})):
            code, answer = self.server.send("PATCH", path, json.dumps({"spec": spec}), "application/merge-patch+json")
            self.compare(problems_of(code, answer), problems)

    def make(self, name, spec, state):
        """Creates a job in this state."""
        job = {"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
               "spec": {**spec, "suspend": state["suspend"]}}
        code, answer = self.server.send("POST", f"{BASE}/default/trainingjobs", json.dumps(job), "application/json")
        self.assertEqual(code, 201, answer)
        code, answer = self.server.send("PATCH", f"{BASE}/default/trainingjobs/{name}/status",
                                        json.dumps({"status": state["status"]}), "application/merge-patch+json")
        self.assertEqual(code, 200, answer)


if __name__ == "__main__":
    unittest.main()
