# SPDX-License-Identifier: Apache-2.0
"""A kubelet that serves only logs, for the fake nodes of kwok. The API server requests the logs over TLS.

    with FakeKubelet(cluster) as kubelet:
        kubelet.serve_node("node-0")
        kubelet.logs["gpt-1-0"] = ["2026-11-21T10:00:00.1Z hello"]
"""

import contextlib
import http.server
import ssl
import threading
import urllib.parse

import pki


class FakeKubelet:
    def __init__(self, cluster):
        self._cluster = cluster
        self.logs = {}  # pod -> lines, each with its time
        self.follows = threading.Event()  # set: streams end
        self.together = None  # a threading.Barrier: no request is answered before its number of requests has arrived
        kubelet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                query = urllib.parse.parse_qs(url.query)
                pod = url.path.split("/")[3]  # /containerLogs/NAMESPACE/POD/CONTAINER
                lines = kubelet.logs.get(pod)
                if lines is None:
                    self.send_error(404, f"no logs of {pod}")
                    return
                if kubelet.together:
                    try:
                        kubelet.together.wait(20)
                    except threading.BrokenBarrierError:
                        self.send_error(503, "the other requests did not arrive")
                        return
                tail = int(query.get("tailLines", ["1000000"])[0])
                with_time = query.get("timestamps") == ["true"]
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for line in lines[-tail:] if tail else []:
                    self._chunk((line if with_time else line.split(" ", 1)[1]) + "\n")
                if query.get("follow") == ["true"]:
                    sent = len(lines)
                    for _ in range(15_000):
                        if kubelet.follows.wait(0.02):
                            break
                        while sent < len(lines):  # a test appends to the log
                            self._chunk(lines[sent] + "\n")
                            sent += 1
                    self._chunk("2026-11-21T23:00:00Z the last line\n")
                with contextlib.suppress(OSError):
                    self.wfile.write(b"0\r\n\r\n")

            def _chunk(self, text):
                data = text.encode()
                with contextlib.suppress(OSError):  # the client of a followed log does not wait for its end
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                    self.wfile.flush()

        keys = pki.Pki(cluster.folder / "pki")
        keys.issue("fake-kubelet", "/CN=kubelet", "serverAuth", ["IP:127.0.0.1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys.certificate("fake-kubelet"), keys.key("fake-kubelet"))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.follows.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve_node(self, name):
        """Makes this server the kubelet of the node."""
        port = self._server.server_address[1]
        self._cluster.api.patch(f"/api/v1/nodes/{name}/status", {"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}})
