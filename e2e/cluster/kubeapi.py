# SPDX-License-Identifier: Apache-2.0
"""A small client of a Kubernetes API server. Uses only the standard library.

Api is stateless (a connection per request) and thread-safe.
"""

import http.client
import json
import ssl
import urllib.parse


class ApiError(Exception):
    """The server answered with an error. `code` is the HTTP status, `reason` the machine-readable reason ("NotFound")."""

    def __init__(self, method, path, code, body):
        self.code = code
        self.reason = ""
        message = body.strip()
        try:
            status = json.loads(body)
            self.reason = status.get("reason", "")
            message = status.get("message", message)
        except ValueError:
            pass
        super().__init__(f"{method} {path}: {code} {self.reason}: {message}")


PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Api:
    def __init__(self, server, ca_file, token):
        url = urllib.parse.urlsplit(server)
        self._host, self._port = url.hostname, url.port
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._token = token

    def request(self, method, path, body=None, content_type="application/json", timeout_s=120):
        """Sends one request and returns the decoded answer: a dict, or text if it is not JSON.

        Raises ApiError when the server answers with an error, OSError or http.client.HTTPException when it is unreachable.
        """
        connection = self._connect(timeout_s)
        try:
            answer = self._send(connection, method, path, body, content_type)
            text = answer.read().decode()
            if answer.status >= 300:
                raise ApiError(method, path, answer.status, text)
            return json.loads(text) if answer.headers.get_content_type() == "application/json" else text
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def patch(self, path, body, kind="merge"):
        return self.request("PATCH", path, body, PATCH_TYPES[kind])

    def watch(self, path, timeout_s=30):
        """Yields the events of a watch as dicts until the stream ends or is silent for timeout_s (TimeoutError)."""
        connection = self._connect(timeout_s)
        try:
            answer = self._send(connection, "GET", path, None, "application/json")
            if answer.status >= 300:
                raise ApiError("GET", path, answer.status, answer.read().decode())
            for line in answer:
                yield json.loads(line)
        finally:
            connection.close()

    def _connect(self, timeout_s):
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)

    def _send(self, connection, method, path, body, content_type):
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = content_type
            body = body if isinstance(body, str) else json.dumps(body)
        connection.request(method, path, body, headers)
        return connection.getresponse()
