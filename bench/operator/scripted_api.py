# SPDX-License-Identifier: Apache-2.0
"""An API server for bench/operator/scale that keeps nothing but what the operator reads: lists in pages, watches, and
writes that come back through the watches. A real one with 100,000 pods needs more machine than the operator does.

Nodes and pods have the size that they have on a cluster: about 4 KB each, half of it managedFields. A pod that is created or
whose gates are removed runs at once. Run as a process: scripted_api.py NODES JOBS WAITING PODS_PER_JOB. It prints its port, and
reads commands from stdin, one a line: `fail POD`, `report`, `end`; each has one line of JSON as its answer.
"""

import asyncio
import json
import sys
import time
import urllib.parse

NAMESPACES = 20
WAITING_PODS = 6
SHAPES = 24  # of the pods of waiting jobs
FILLER = {f"f:{group}": {f"k:{{\"name\":\"member-{i}\"}}": {"f:a": {}} for i in range(25)} for group in ("spec", "status")}
MANAGED = json.dumps([{"manager": "m", "fieldsV1": FILLER}])
NOTHING = 0
STARTED = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Pod:
    __slots__ = ("name", "space", "job", "attempt", "rank", "node", "phase", "gated", "version", "cpu")

    def __init__(self, name, space, job, attempt, rank, node, gated, cpu):
        self.name, self.space, self.job, self.attempt, self.rank = name, space, job, attempt, rank
        self.node, self.gated, self.cpu = node, gated, cpu
        self.phase = "Pending" if gated else "Running"
        self.version = 1

    def text(self):
        gates = '"schedulingGates":[{"name":"ringmaster.dev/gang"}],' if self.gated else f'"nodeName":"{self.node}",'
        state = (f'{{"running":{{"startedAt":"{STARTED}"}}}}' if self.phase == "Running" else
                 f'{{"terminated":{{"exitCode":1,"reason":"Error","message":"boom","finishedAt":"{now_text()}"}}}}')
        containers = "" if self.gated else f',"containerStatuses":[{{"name":"worker","state":{state}}}]'
        return (f'{{"metadata":{{"name":"{self.name}","namespace":"{self.space}","uid":"uid-{self.name}",'
                f'"resourceVersion":"{self.version}","creationTimestamp":"{STARTED}","labels":{{"ringmaster.dev/job":'
                f'"{self.job}","ringmaster.dev/attempt":"{self.attempt}","ringmaster.dev/rank":"{self.rank}"}},'
                f'"ownerReferences":[{{"apiVersion":"ringmaster.dev/v1alpha1","kind":"TrainingJob","name":"{self.job}",'
                f'"uid":"uid-{self.job}","controller":true}}],"managedFields":{MANAGED}}},"spec":{{{gates}"containers":'
                f'[{{"name":"worker","image":"registry.example.com/team/image:v1","env":[{{"name":"A","value":"{"v" * 200}"}}],'
                f'"resources":{{"requests":{{"cpu":"{self.cpu}"}}}}}}]}},"status":{{"phase":"{self.phase}","conditions":'
                f'[{{"type":"PodScheduled","status":"True"}},{{"type":"Ready","status":"True"}}]{containers}}}}}')


def now_text():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Server:
    def __init__(self, nodes, jobs, waiting, pods_per_job):
        self.version = 1000
        self.objects = {}  # plural -> {namespace/name: dict}; pods are in self.pods
        self.pods = {}
        self.watches = {}  # plural -> writers
        self.snapshots = {}
        self.writes = []  # (time, method, what)
        self.seen = {}  # job -> time of the last status write
        self.nodes = nodes
        self.objects["namespaces"] = {f"team-{i}": {"metadata": {"name": f"team-{i}", "uid": f"ns-{i}", "resourceVersion": "1"}}
                                      for i in range(NAMESPACES)}
        self.objects["nodes"] = {f"node-{i}": self.node(i) for i in range(nodes)}
        placed = 0
        for i in range(jobs):
            name, space, waits = f"job-{i}", f"team-{i % NAMESPACES}", i < waiting
            size, cpu = (WAITING_PODS, 16) if waits else (pods_per_job + i % 2, 1)
            self.objects.setdefault("trainingjobs", {})[f"{space}/{name}"] = self.job(name, space, size, cpu, 1 + i % SHAPES, waits)
            for rank in range(0 if waits else size):  # what waits for room has no pods
                pod = Pod(f"{name}-1-{rank}", space, name, 1, rank, f"node-{placed % nodes}", False, cpu)
                placed += 1
                self.pods[f"{space}/{pod.name}"] = pod

    @staticmethod
    def node(i):
        labels = {f"feature.node.example.com/property-{k}": "true" for k in range(25)}
        return {"metadata": {"name": f"node-{i}", "uid": f"node-{i}", "resourceVersion": "1",
                             "labels": {**labels, "kubernetes.io/hostname": f"node-{i}"}},
                "spec": {}, "status": {"allocatable": {"cpu": "20", "memory": "1Ti", "pods": "110"},
                                       "images": [{"names": [f"registry.example.com/image-{k}"]} for k in range(50)],
                                       "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": STARTED}]}}

    @staticmethod
    def job(name, space, size, cpu, gigabytes, waits):
        container = {"name": "worker", "image": "registry.example.com/team/image:v1",
                     "resources": {"requests": {"cpu": str(cpu), "memory": f"{gigabytes}Gi"}}}
        return {"apiVersion": "ringmaster.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": name, "namespace": space, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1,
                             "creationTimestamp": STARTED, "managedFields": json.loads(MANAGED)},
                "spec": {"framework": "pytorch", "launch": {"kind": "none"},
                         "scheduling": {"gang": "gate", "timeoutSeconds": 86400},
                         "restart": {"backoff": {"initialSeconds": 0, "maxSeconds": 0}},
                         "workers": {"replicas": size, "template": {"spec": {"containers": [container]}}}},
                "status": {"observedGeneration": 1, "phase": "Pending" if waits else "Running", "attempt": 1,
                           "ledger": {"gangSize": size, "placed": not waits, "attemptSince": STARTED,
                                      **({} if waits else {"readySince": STARTED})}}}

    # --- requests

    def text_of(self, plural, found):
        return found.text() if plural == "pods" else json.dumps(found)

    def collection(self, plural):
        return self.pods if plural == "pods" else self.objects.setdefault(plural, {})

    def publish(self, plural, kind, found):
        line = f'{{"type":"{kind}","object":{self.text_of(plural, found)}}}\n'.encode()
        for writer in self.watches.get(plural, ()):
            writer.write(b"%x\r\n%s\r\n" % (len(line), line))

    def bump(self, plural, found):
        self.version += 1
        if plural == "pods":
            found.version = self.version
        else:
            found["metadata"]["resourceVersion"] = str(self.version)

    def answer(self, method, path, query, body):
        """Returns (status, text)."""
        parts = path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if not rest:  # discovery, of the groups or of one version
            return 404, '{"kind":"Status","reason":"NotFound"}'
        space = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            space, rest = rest[1], rest[2:]
        plural, name, part = rest[0], rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""
        found = self.collection(plural)
        key = f"{space}/{name}" if space else name
        if method == "GET" and not name:
            return 200, self.listed(plural, space, query)
        if method == "GET":
            return (200, self.text_of(plural, found[key])) if key in found else (404, '{"reason":"NotFound"}')
        if plural not in ("leases", "secrets", "events"):
            self.writes.append((time.monotonic(), method, plural + (f"/{part}" if part else "")))
        value = json.loads(body) if body else {}
        if method == "POST":
            key = f"{space}/{value['metadata']['name']}"
            if key in found:
                return 409, '{"reason":"AlreadyExists"}'
            return self.put(plural, key, value, "ADDED", 201)
        if key not in found and plural != "services" and plural != "configmaps" and method != "PUT":
            return 404, '{"reason":"NotFound"}'
        if method == "DELETE":
            gone = found.pop(key)
            self.bump(plural, gone)
            self.publish(plural, "DELETED", gone)
            return 200, self.metadata(plural, gone)
        if part == "status":
            job = found[key]
            if value["metadata"]["resourceVersion"] != job["metadata"]["resourceVersion"]:
                return 409, '{"reason":"Conflict"}'
            self.seen[name] = time.monotonic()
            return self.put(plural, key, {**job, "metadata": dict(job["metadata"]), "status": value["status"]}, "MODIFIED", 200)
        if plural == "pods":
            pod = found[key]
            pod.gated, pod.phase, pod.node = False, "Running", f"node-{pod.rank % self.nodes}"
            self.bump(plural, pod)
            self.publish(plural, "MODIFIED", pod)
            return 200, self.metadata(plural, pod)
        return self.put(plural, key, value, "MODIFIED" if key in found else "ADDED", 200)

    def put(self, plural, key, value, kind, status):
        if plural == "pods":
            meta, spec = value["metadata"], value["spec"]
            labels = meta["labels"]
            gated = bool(spec.get("schedulingGates"))
            rank = int(labels["ringmaster.dev/rank"])
            value = Pod(meta["name"], key.split("/")[0], labels["ringmaster.dev/job"], labels["ringmaster.dev/attempt"], rank,
                        f"node-{rank % self.nodes}", gated, 1)
        else:
            value["metadata"].setdefault("uid", f"uid-{plural}-{key}")
        self.bump(plural, value)
        self.collection(plural)[key] = value
        self.publish(plural, kind, value)
        return status, self.metadata(plural, value)

    def metadata(self, plural, found):
        if plural != "pods":
            return json.dumps(found if plural in ("leases", "secrets") else {"metadata": found["metadata"]})
        return json.dumps({"metadata": {"name": found.name, "namespace": found.space, "uid": f"uid-{found.name}",
                                        "resourceVersion": str(found.version)}})

    def listed(self, plural, space, query):
        limit = int(query.get("limit", "0")) or 1 << 30
        version, offset = self.version, 0
        if "continue" in query:
            version, offset = map(int, query["continue"].split(":"))
            keys = self.snapshots[plural, version]
        else:
            keys = [key for key in self.collection(plural) if not space or key.startswith(space + "/")]
            name = query.get("fieldSelector", "").removeprefix("metadata.name=")
            label = query.get("labelSelector", "").partition("=")[2]
            if name or label:
                keys = [key for key in keys if key == f"{space}/{name}" or
                        (label and plural == "pods" and self.pods[key].job == label)]
            self.snapshots[plural, version] = keys
        found = self.collection(plural)
        items = ",".join(self.text_of(plural, found[key]) for key in keys[offset:offset + limit] if key in found)
        more = f',"continue":"{version}:{offset + limit}"' if offset + limit < len(keys) else ""
        if not more:
            self.snapshots.pop((plural, version), None)
        return f'{{"metadata":{{"resourceVersion":"{version}"{more}}},"items":[{items}]}}'

    # --- connections

    async def serve(self, reader, writer):
        watched = None
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split("\r\n", 1)[0].split(" ")
                length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length:")),
                              0)
                body = await reader.readexactly(length) if length else b""
                url = urllib.parse.urlsplit(target)
                query = dict(urllib.parse.parse_qsl(url.query))
                if query.get("watch"):
                    watched = url.path.rsplit("/", 1)[1]
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
                    self.watches.setdefault(watched, set()).add(writer)
                    await reader.read()  # until the client closes it
                    return
                status, text = self.answer(method, url.path, query, body)
                data = text.encode()
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
                             + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if watched:
                self.watches[watched].discard(writer)
            writer.close()

    def command(self, words):
        if words[0] == "fail":
            pod = self.pods[words[1]]
            pod.phase = "Failed"
            self.bump("pods", pod)
            self.publish("pods", "MODIFIED", pod)
            return {"at": time.monotonic()}
        if words[0] == "seen":
            return {"at": self.seen.get(words[1], 0)}
        if words[0] == "running":
            pods = [pod for pod in self.pods.values() if pod.job == words[1]]
            return {"running": sum(pod.phase == "Running" for pod in pods), "attempt": max(int(pod.attempt) for pod in pods)}
        return {"writes": len(self.writes), "last": self.writes[-1][0] if self.writes else 0, "now": time.monotonic(),
                "kinds": self.kinds()}

    def kinds(self):
        counts = {}
        for _, method, what in self.writes:
            counts[f"{method} {what}"] = counts.get(f"{method} {what}", 0) + 1
        return counts


async def main():
    server = Server(*map(int, sys.argv[1:5]))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 24)
    print(listener.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if line.strip() in ("", "end"):
            return
        print(json.dumps(server.command(line.split())), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
