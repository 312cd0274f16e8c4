# SPDX-License-Identifier: Apache-2.0
"""Runs client_checks against a separate control plane: with full rights, without rights, and during a restart."""

import os
import pathlib
import shlex
import subprocess
import sys
import unittest

import cluster

CTL = pathlib.Path(cluster.__file__).resolve().parent / "ctl"


class Client(unittest.TestCase):
    def test_checks(self):
        with cluster.Cluster(nodes=1) as c:
            kubeconfig = pathlib.Path(c.kubeconfig)
            powerless = c.kubeconfig_of("powerless")
            environment = dict(os.environ, KUBECONFIG=str(kubeconfig), POWERLESS_KUBECONFIG=str(powerless),
                               RESTART=shlex.join([str(CTL), str(kubeconfig.parent), "restart", "apiserver"]),
                               COMPACT=shlex.join([str(CTL), str(kubeconfig.parent), "compact"]))
            done = subprocess.run([os.environ["RINGMASTER_CLIENT_CHECKS"], *sys.argv[1:]], env=environment)
            self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
