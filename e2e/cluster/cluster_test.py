"""Tests of the test cluster itself."""

import unittest

from cluster import Cluster


class Start(unittest.TestCase):
    def test_nodes_are_ready(self):
        with Cluster(nodes=4) as c:
            self.assertEqual(len(c.api.get("/api/v1/nodes")["items"]), 4)


if __name__ == "__main__":
    unittest.main()
