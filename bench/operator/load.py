# SPDX-License-Identifier: Apache-2.0
"""Load generation and measurement for bench/operator/run: kept connections, a watch, CPU and memory of processes.

Everything here is cheap on purpose: it runs on the machine that is measured.
"""

import http.client
import json
import multiprocessing
import os
import pathlib
import ssl
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TICKS = os.sysconf("SC_CLK_TCK")
KEPT_S = 30  # the API server closes idle connections
JOB, ATTEMPT = "ringmaster.dev/job", "ringmaster.dev/attempt"


class Client:
    """A kept connection. Not thread-safe."""

    def __init__(self, kubeconfig):
        config = json.loads(pathlib.Path(kubeconfig).read_text())
        url = urllib.parse.urlsplit(config["clusters"][0]["cluster"]["server"])
        self._address = url.hostname, url.port
        self._token = config["users"][0]["user"]["token"]
        self._connection = None
        self._used = 0.0

    def _send(self, method, path, body, content_type, accept):
        if time.monotonic() - self._used > KEPT_S:
            self._connection = None
        self._used = time.monotonic()
        if self._connection is None:
            tls = ssl.create_default_context()
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # loopback; the server is measured, not TLS verification
            self._connection = http.client.HTTPSConnection(*self._address, context=tls)
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        self._connection.request(method, path, body, headers)
        return self._connection.getresponse()

    def text(self, method, path, body=None, content_type="application/json", accept="application/json"):
        answer = self._send(method, path, body, content_type, accept)
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:500].decode(errors='replace')}")
        return text

    def json(self, *arguments, **options):
        return json.loads(self.text(*arguments, **options))

    def stream(self, path, accept):
        answer = self._send("GET", path, None, None, accept)
        if answer.status != 200:
            raise SystemExit(f"watch {path}: {answer.status} {answer.read()[:500]}")
        return answer


def parallel(kubeconfig, connections, call, items):
    """Runs call(client, item) for all items over this many kept connections."""
    local = threading.local()

    def one(item):
        if not hasattr(local, "client"):
            local.client = Client(kubeconfig)
        call(local.client, item)

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(one, items))


def _poster(kubeconfig, path, bodies, barrier):
    client = Client(kubeconfig)
    client.text("GET", "/version")  # connected before the clock starts
    barrier.wait()
    for body in bodies:
        client.text("POST", path, body)
    os._exit(0)  # a forked child must not run exit handlers


def post_from_processes(kubeconfig, path, bodies, clients):
    """POSTs all bodies from this many processes with one kept connection each. Returns the seconds."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(clients + 1)
    processes = [context.Process(target=_poster, args=(kubeconfig, path, bodies[i::clients], barrier))
                 for i in range(clients)]
    for process in processes:
        process.start()
    barrier.wait()
    began = time.monotonic()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("a client of the baseline failed")
    return time.monotonic() - began


class PodWatch:
    """Counts created and deleted pods with a metadata-only watch in a thread.

    added: (monotonic seconds, job, attempt, name) in order. overlaps: pods that were made while one of another attempt of
    their job still existed, in the order of the API server's own history. Which job and which attempt: by these labels.
    """

    def __init__(self, kubeconfig, namespace, selector=JOB, job_label=JOB, attempt_label=ATTEMPT):
        self._kubeconfig, self._selector = kubeconfig, urllib.parse.quote(selector)
        self._job_label, self._attempt_label = job_label, attempt_label
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        listed = Client(kubeconfig).json("GET", self._path, accept=METADATA_LIST)
        if listed["items"]:
            raise SystemExit(f"there are {len(listed['items'])} pods before the measurement")
        self._version = listed["metadata"]["resourceVersion"]
        self.added, self.deleted, self.overlaps = [], [], []
        self._there = {}  # job -> {attempt: pods}
        self._seen = set()
        self._closed = False
        self._error = None
        self._client = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._closed:
            self._client = Client(self._kubeconfig)
            path = f"{self._path}?watch=1&resourceVersion={self._version}&labelSelector={self._selector}"
            try:
                for line in self._client.stream(path, METADATA):
                    self._on(line)
            except (OSError, http.client.HTTPException, ValueError, AttributeError):
                pass  # closed by us, or by the server because we read too slowly: continue from the last version

    def _on(self, line):
        now = time.monotonic()
        kind = line[9:14]  # {"type":"ADDED",...: most lines are MODIFIED, of which only the version matters
        if kind == b"MODIF":
            self._version = line.partition(b'"resourceVersion":"')[2].partition(b'"')[0].decode()
            return
        event = json.loads(line)
        if event["type"] == "ERROR":
            self._error = event["object"]
            self._closed = True
            return
        meta = event["object"]["metadata"]
        self._version = meta["resourceVersion"]
        job = meta["labels"][self._job_label]
        attempt = int(meta["labels"].get(self._attempt_label, 0))
        there = self._there.setdefault(job, {})
        if event["type"] == "ADDED" and meta["uid"] not in self._seen:
            self._seen.add(meta["uid"])
            others = {other: count for other, count in there.items() if other != attempt and count > 0}
            if others:
                self.overlaps.append((meta["name"], others))
            there[attempt] = there.get(attempt, 0) + 1
            self.added.append((now, job, attempt, meta["name"]))
        elif event["type"] == "DELETED":
            there[attempt] -= 1
            self.deleted.append((now, job, attempt, meta["name"]))

    def wait(self, condition, what, timeout_s):
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self._error:
                raise SystemExit(f"the watch of pods: {self._error}")
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {timeout_s} s: {what} ({len(self.added)} pods created, "
                                 f"{len(self.deleted)} deleted)")
            time.sleep(0.02)

    def close(self):
        self._closed = True


def requests(client):
    """Yields (verb, resource or resource/subresource, count) of what the API server has answered."""
    for line in client.text("GET", "/metrics", accept="text/plain").decode().splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(part.split("=", 1) for part in line[len("apiserver_request_total{"):line.rindex("}")]
                          .replace('"', "").split(",") if "=" in part)
            what = labels["resource"] + ("/" + labels["subresource"] if labels["subresource"] else "")
            yield labels["verb"], what, float(line.rsplit(" ", 1)[1])


def ended(container, code):
    """Returns the patch of a pod's status that says that its container has ended."""
    return json.dumps({"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [
        {"name": container, "image": "x", "imageID": "", "ready": False, "restartCount": 0,
         "state": {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}}]}})


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid, field="VmRSS"):
    """Returns megabytes (10^6 bytes)."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit(f"process {pid} has no {field}")


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
