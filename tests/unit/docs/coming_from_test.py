# SPDX-License-Identifier: Apache-2.0
"""docs/start/coming-from.md: each command prints what the page shows, and each pair is what `convert` makes of it.

A block with the note `file: NAME` is a file for the commands. A block without a language that starts with `$` is a command and
its output. The yaml block after it is the file that the command has written.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from blocks import blocks

BIN = pathlib.Path(sys.argv.pop(sys.argv.index("--bin") + 1))
sys.argv.remove("--bin")
PAGE = "start/coming-from.md"


class ComingFrom(unittest.TestCase):
    maxDiff = None

    def test_every_command_prints_what_the_page_shows(self):
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        commands = results = 0
        written = None
        with tempfile.TemporaryDirectory() as folder:
            for block in blocks(PAGE):
                if block.note.startswith("file: "):
                    pathlib.Path(folder, block.note.removeprefix("file: ")).write_text(block.text)
                elif block.text.startswith("$ "):
                    command, _, output = block.text.removeprefix("$ ").partition("\n")
                    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True, check=False,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                    self.assertEqual(done.stdout, output, command)
                    commands += 1
                    found = re.search(r"> (\S+)$", command)
                    written = found and pathlib.Path(folder, found[1]).read_text()
                elif block.language == "yaml" and written is not None:
                    self.assertEqual(written, block.text)
                    results += 1
                    written = None
        self.assertGreaterEqual((commands, results), (4, 2))


if __name__ == "__main__":
    unittest.main()
