# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/ train for two steps as jobs of one worker, each with a Python that has what it imports.

Those without such a Python are skipped: RINGMASTER_PYTHON and RINGMASTER_FRAMEWORKS name further ones (scripts/test).
"""

import os
import subprocess
import sys
import unittest

from training import PACKAGE, Case

EXAMPLES = PACKAGE.parent / "examples"
PYTHONS = [sys.executable, os.environ.get("RINGMASTER_PYTHON", ""), os.environ.get("RINGMASTER_FRAMEWORKS", "")]
IMAGES = "/usr/share/datasets/fashion-mnist"  # of the Debian package dataset-fashion-mnist


def python_with(*modules):
    find = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(name) is None for name in sys.argv[1:]))"
    for python in PYTHONS:
        if os.access(python, os.X_OK) and subprocess.run([python, "-c", find, *modules], check=False).returncode == 0:
            return python
    raise unittest.SkipTest(f"no Python has {' and '.join(modules)}")


class Examples(Case):
    def trains(self, example, *modules):
        python = python_with(*modules)
        done = subprocess.run(
            [python, "-B", str(EXAMPLES / example), "--steps", "2"], capture_output=True, text=True, timeout=600, check=False,
            cwd=self.folder(), env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^step 2: loss \d+\.\d{4}")

    @unittest.skipUnless(os.path.isdir(IMAGES), f"{IMAGES} is not there")
    def test_pytorch_residual_network(self):
        self.trains("pytorch/train.py", "torch")

    def test_pytorch_gpt(self):
        self.trains("pytorch/gpt.py", "torch")

    def test_pytorch_llama_with_adapters(self):
        self.trains("pytorch/llama_lora.py", "torch", "transformers", "peft")

    @unittest.skipUnless(os.path.isdir(IMAGES), f"{IMAGES} is not there")
    def test_jax_network(self):
        self.trains("jax/mlp.py", "jax")

    @unittest.skipUnless(os.path.isdir(IMAGES), f"{IMAGES} is not there")
    def test_jax_network_in_flax(self):
        self.trains("jax/flax_cnn.py", "jax", "flax", "optax")


if __name__ == "__main__":
    unittest.main(verbosity=2)
