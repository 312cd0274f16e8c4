# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates of a test cluster, created with the openssl command. All keys are EC P-256."""

import base64
import json
import pathlib
import secrets
import subprocess


class Pki:
    """The files in `folder`. The certificate authority is created first and signs all other certificates."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.ca = self.folder / "ca.crt"
        self.ca_key = self.folder / "ca.key"

    def create(self, address):
        """Creates the files for an API server at this address."""
        self.folder.mkdir(mode=0o700)
        _openssl("req", "-x509", "-new", "-nodes", *_NEW_KEY, "-keyout", self.ca_key, "-out", self.ca,
                 "-subj", "/CN=ringmaster-e2e", "-days", "3650",
                 "-addext", "keyUsage=critical,digitalSignature,keyCertSign")
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
                 "kubernetes.default.svc.cluster.local"]
        self.issue("apiserver", "/CN=kube-apiserver", "serverAuth",
                   [f"DNS:{name}" for name in names] + ["IP:127.0.0.1", "IP:10.96.0.1", f"IP:{address}"])
        self.issue("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client", "clientAuth")
        self.issue("front-proxy", "/CN=front-proxy-client", "clientAuth")
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self.key("sa"))
        _openssl("pkey", "-in", self.key("sa"), "-pubout", "-out", self.folder / "sa.pub")

    def issue(self, name, subject, usage, alternative_names=()):
        """Creates name.key and name.crt."""
        request = self.folder / f"{name}.csr"
        extensions = self.folder / f"{name}.ext"
        lines = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature", f"extendedKeyUsage={usage}"]
        if alternative_names:
            lines.append("subjectAltName=" + ",".join(alternative_names))
        extensions.write_text("\n".join(lines) + "\n")
        _openssl("req", "-new", "-nodes", *_NEW_KEY, "-keyout", self.key(name), "-out", request, "-subj", subject)
        _openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key, "-out", self.certificate(name),
                 "-set_serial", str(secrets.randbits(63)), "-days", "3650", "-extfile", extensions)
        request.unlink()
        extensions.unlink()

    def key(self, name):
        return self.folder / f"{name}.key"

    def certificate(self, name):
        return self.folder / f"{name}.crt"


def kubeconfig(server, ca_file, user):
    """Returns the text of a kubeconfig (JSON is YAML). `user` is the value of users[].user."""
    return json.dumps({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority-data": encoded(ca_file)}}],
        "users": [{"name": "e2e", "user": user}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    }, indent=2) + "\n"


def encoded(file):
    return base64.b64encode(pathlib.Path(file).read_bytes()).decode()


def write_secret(file, text):
    """Writes a file that only its owner can read."""
    file = pathlib.Path(file)
    file.touch(mode=0o600)
    file.write_text(text)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


def _openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stdout.strip()}")
