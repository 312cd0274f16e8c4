# SPDX-License-Identifier: Apache-2.0
"""JAX programs of a user on real nodes: data parallel over the processes, and what happens when a part of them fails."""

import unittest

from framework_jobs import Faults, FrameworkTest


class Jax(FrameworkTest, Faults):
    FRAMEWORK = "jax"
    PROGRAM = "train_jax.py"


if __name__ == "__main__":
    unittest.main(verbosity=2)
