# SPDX-License-Identifier: Apache-2.0
"""The CRD on a real API server gives the verdicts, and names the fields, that our own validator does.

Every manifest of tests/unit/api/manifests is posted (dry run, fieldValidation=Strict), every change of
tests/unit/api/updates.json is tried as a patch. The unit tests of api/ hold our validator to the same files.
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

# Files that an API server cannot be asked about as they are, and why.
NOT_FOR_A_SERVER = {
    "yaml-duplicate-key.yaml": "of text, not of the object: kubectl and the server refuse it too, but name no field",
    "yaml-yes.yaml": "of text: to the server's reader this is true, as in YAML 1.1",
    "yaml-leading-zero.yaml": "of text: to the server's reader this is octal, as in YAML 1.1",
    "yaml-merge-key.yaml": "of text: the server's reader merges before anybody looks at the object",
    "name-generated.yaml": "a server makes up the name; where nobody does, it is missing",
    "from-api-server.yaml": "an object as read back: what the server itself wrote cannot be given at creation",
    "with-status.yaml": "a status of a newer version: our reader of files skips it whole, the server is strict about it",
}

# What the server says where the schema decides, in its own words. A problem that it reports in other words is one of our
# rules, and those speak as our validator does.
WORDS_OF_THE_SCHEMA = re.compile(
    "Unsupported value|Required value|must be of type|should match|should be (less|greater)|should have at (most|least)|"
    "Too (long|many)|Duplicate value|unknown field|evaluating rule|must be no more than|may not be more than|"
    "must consist of|cannot unmarshal|the object provided is unrecognized|does not match|not found|is missing|"
    "name part must|must be TrainingJob|a lowercase RFC 1123|a valid label|should be at least|conversion error|no such overload")

# Sentences of the server that name no field, and the field that they are about.
FIELDS_OF_SENTENCES = (
    ("Object 'Kind' is missing", "kind"),
    ("Object 'apiVersion' is missing", "apiVersion"),
    ("does not match the expected API version", "apiVersion"),
    ("the API version in the data", "apiVersion"),
)


class Server:
    """Requests over one connection; answers are (code, decoded body), refusals too."""

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
    """{field: [what the server says of it]}; empty when it let the object in."""
    if code < 300:
        return {}
    problems = {}

    def add(field, text):
        problems.setdefault(field, []).append(text)

    details, message = answer.get("details") or {}, answer["message"]
    causes = [(cause.get("field", ""), cause["message"]) for cause in details.get("causes", [])]
    fields = {field for field, _ in causes}
    for field, text in causes:
        # The scale subresource reports spec.workers.replicas once more, with a dot before it, or what is above it.
        again = field.startswith(".") and any(is_under(field[1:], other) for other in fields)
        if field == "<nil>":  # an integer beyond its format; the others are about rules that were not checked
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
        add(next((field for sentence, field in FIELDS_OF_SENTENCES if sentence in message), "?"), message)
    return problems


def is_under(field, other):
    """Whether `field` is `other`, or lies in it."""
    return field == other or field.startswith((other + ".", other + "["))


def expected_of(text):
    """The `# problem: path: text` lines at the head of a manifest."""
    lines = re.findall(r"^# problem: (.*?): (.*)$", text, re.MULTILINE)
    return {field: text for field, text in lines}


class Verdicts(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(components=["etcd", "apiserver"]))
        cls.cluster.kubectl("apply", "--server-side", "-f", CRD)
        cls.cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/trainingjobs.ringmaster.dev")
        cls.server = Server(cls.cluster)
        cls.addClassCleanup(cls.server.close)
        cls.cluster.wait(lambda: cls.server.send("GET", f"{BASE}/default/trainingjobs", None, "")[0] == 200, "the API")
        cls.cluster.kubectl("create", "namespace", "research")

    def ask(self, text):
        """What the server says of a manifest. Unknown fields end a strict request early, so that one is asked again."""
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
                if any("must be of type" in text for text in texts):  # of another type, it knows no fields at all
                    for other in inside:
                        problems.pop(other, None)
                elif inside:
                    continue  # that something is empty without an unknown field is a consequence
                problems.setdefault(field, []).extend(texts)
            if "strict decoding error" not in answer.get("message", ""):
                break
        # Of another kind or version, the server knows no fields and fills in no defaults.
        wrong = {"kind", "apiVersion"} & set(problems)
        return {field: texts for field, texts in problems.items() if not wrong or field in wrong}

    def compare(self, problems, expected):
        self.assertEqual(sorted(problems), sorted(expected), problems)
        for field, text in expected.items():
            ours = [said for said in problems[field] if not WORDS_OF_THE_SCHEMA.search(said)]
            for said in ours:
                self.assertIn(text, said)
            type(self).our_words += bool(ours)

    our_words = 0

    def test_good_manifests_are_let_in(self):
        files = sorted(MANIFESTS.glob("good/*.yaml"))
        self.assertGreaterEqual(len(files), 60)
        for file in files:
            if file.name not in NOT_FOR_A_SERVER:
                with self.subTest(file.name):
                    self.assertEqual(self.ask(file.read_text()), {})

    def test_bad_manifests_are_refused_for_the_same_fields(self):
        files = sorted(MANIFESTS.glob("bad/*.yaml"))
        self.assertGreaterEqual(len(files), 150)
        for file in files:
            if file.name not in NOT_FOR_A_SERVER:
                with self.subTest(file.name):
                    text = file.read_text()
                    self.compare(self.ask(text), expected_of(text))
        self.assertGreaterEqual(self.our_words, 30)

    def test_no_file_is_left_out_without_a_reason(self):
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
                self.compare(problems_of(code, answer), change["problems"])

    def test_the_largest_job_stays_within_the_servers_cost_limits(self):
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
