# SPDX-License-Identifier: Apache-2.0
"""A proxy between the operator and the API server that injects the faults of networks and overloaded servers.

    proxy = FaultProxy(cluster)                 # plain HTTP on loopback; proxy.kubeconfig(path_of_a_kubeconfig)
    proxy.rule = lambda request: LOSE_REPLY if request.is_write and request.number == 7 else None

The proxy calls the rule once per request, on that request's thread. The rule returns one of the faults below, or None.
"""

import dataclasses
import http.client
import json
import pathlib
import random
import socket
import ssl
import threading
import time
import urllib.parse

LOSE_REQUEST = "lose the request: the connection ends before the server sees it"
LOSE_REPLY = "lose the reply: the server executes the request, and the connection ends"


@dataclasses.dataclass
class Answer:
    """Answers with this error instead of the server."""
    code: int
    reason: str
    retry_after_s: int | None = None


@dataclasses.dataclass
class Delay:
    seconds: float


@dataclasses.dataclass
class Cut:
    """Ends a stream (or a response) after this many bytes."""
    bytes: int


@dataclasses.dataclass
class Request:
    method: str
    target: str
    headers: dict
    body: bytes
    number: int  # counts requests of this kind (write or not) from 1

    @property
    def is_write(self):
        return self.method != "GET"

    @property
    def is_watch(self):
        return "watch=true" in self.target or "watch=1" in self.target

    def about(self, text):
        return text in self.target


class FaultProxy:
    def __init__(self, cluster):
        url = urllib.parse.urlsplit(cluster.server)
        self._upstream = (url.hostname, url.port)
        self._tls = ssl.create_default_context(cafile=cluster.folder / "pki/ca.crt")
        self.rule = lambda request: None
        self.requests = []  # (method, target, status or fault), for tests
        self._counts = {True: 0, False: 0}
        self._lock = threading.Lock()
        self._connections = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closed = True
        self._listener.close()
        self.cut_all()

    def kubeconfig(self, original):
        """Returns a copy of a kubeconfig (JSON, as e2e/cluster writes it) with this proxy as its server."""
        config = json.loads(pathlib.Path(original).read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
        copy = pathlib.Path(f"{original}-proxied")
        copy.write_text(json.dumps(config))
        copy.chmod(0o600)
        return copy

    @property
    def writes(self):
        return self._counts[True]

    def cut_all(self):
        """Ends all connections, as when a network device drops their state."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    # --- one connection, one thread

    def _accept(self):
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with self._lock:
            self._connections.add(connection)
        upstream = http.client.HTTPSConnection(*self._upstream, context=self._tls, timeout=600)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = connection.makefile("rb")
            while not self._closed:
                request = self._read(stream)
                if request is None or not self._handle(request, connection, upstream):
                    return
        except (OSError, http.client.HTTPException, ValueError):
            pass
        finally:
            upstream.close()
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _read(self, stream):
        line = stream.readline()
        if not line.strip():
            return None
        method, target, _ = line.decode().split()
        headers = {}
        while (line := stream.readline().strip()):
            name, _, value = line.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0)))
        write = method != "GET"
        with self._lock:
            self._counts[write] += 1
            return Request(method, target, headers, body, self._counts[write])

    def _handle(self, request, connection, upstream):
        """Returns False when the connection has ended."""
        fault = self.rule(request)
        limit = None
        if isinstance(fault, Delay):
            time.sleep(fault.seconds)
        elif isinstance(fault, Cut):
            limit = fault.bytes
        elif isinstance(fault, Answer):
            self._note(request, fault.code)
            return self._refuse(fault, connection)
        elif fault == LOSE_REQUEST:
            self._note(request, fault)
            return False
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "connection")}
        upstream.request(request.method, request.target, request.body or None, headers)
        answer = upstream.getresponse()
        if fault == LOSE_REPLY:
            answer.read()
            self._note(request, fault)
            return False
        self._note(request, answer.status)
        if request.is_watch and answer.status == 200:
            return self._stream(answer, connection, limit)
        body = answer.read()
        head = [f"HTTP/1.1 {answer.status} {answer.reason}", f"Content-Length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in answer.getheaders()
                 if name.lower() not in ("content-length", "transfer-encoding", "connection")]
        data = ("\r\n".join(head) + "\r\n\r\n").encode() + body
        connection.sendall(data if limit is None else data[:limit])
        return limit is None

    def _refuse(self, fault, connection):
        body = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": fault.reason,
                           "message": f"{fault.reason} by the test", "code": fault.code}).encode()
        extra = "" if fault.retry_after_s is None else f"Retry-After: {fault.retry_after_s}\r\n"
        connection.sendall(f"HTTP/1.1 {fault.code} X\r\nContent-Type: application/json\r\n{extra}"
                           f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return True

    @staticmethod
    def _stream(answer, connection, limit):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        while (data := answer.read1(65536)):
            if limit is not None and sent + len(data) >= limit:
                data = data[:max(0, limit - sent)]
                if data:
                    connection.sendall(f"{len(data):x}\r\n".encode() + data)  # the last chunk is incomplete
                return False
            connection.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            sent += len(data)
        connection.sendall(b"0\r\n\r\n")
        return True

    def _note(self, request, what):
        with self._lock:
            self.requests.append((request.method, request.target, what))


def storm(seed, share=0.15):
    """Returns a rule that injects random faults into this share of the requests. Requests for Leases are excluded: an
    operator that loses its Lease exits by design."""
    source = random.Random(seed)
    lock = threading.Lock()

    def rule(request):
        with lock:
            if request.about("/leases") or source.random() > share:
                return None
            if request.is_watch:
                return Cut(source.randrange(1, 20000))
            faults = [Delay(source.uniform(0, 1.5)), Answer(429, "TooManyRequests", 1), Answer(500, "InternalError"),
                      LOSE_REQUEST, LOSE_REPLY]
            if request.is_write:
                faults.append(Answer(409, "Conflict"))
            return source.choice(faults)

    return rule
