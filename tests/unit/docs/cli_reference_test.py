# SPDX-License-Identifier: Apache-2.0
"""docs/reference/cli.md, cli-run.md and cli-cluster.md contain the help of every command; RINGMASTER_UPDATE=1 writes it."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

BIN = pathlib.Path(sys.argv.pop(sys.argv.index("--bin") + 1))
sys.argv.remove("--bin")
REFERENCE = pathlib.Path(__file__).resolve().parents[3] / "docs/reference"
BEGIN = "<!-- BEGIN cli: written by cli_reference with RINGMASTER_UPDATE=1 -->\n"
END = "<!-- END cli -->"


def printed(*command):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RINGMASTER_")}
    done = subprocess.run([BIN / command[0], *command[1:], "--help"], env=environment, capture_output=True, text=True,
                          check=True)
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines()) + "\n"


RUN = ["launch", "run", "plot", "compare"]
CHECKPOINTS = ["ls", "show", "verify", "rm", "fork"]
CLUSTER = ["attach", "cancel", "status", "queue", "diagnose", "logs", "scale", "suspend", "resume"]


def chapters(program, commands):
    return "".join(f"\n## {program} {command}\n\n```\n{printed('ringmaster', command)}```\n" for command in commands)


def checkpoints():
    text = printed("ringmaster", "checkpoints")
    assert re.findall(r"(?m)^  ([a-z]+) {2,}\S", text.split("Subcommands:")[1]) == CHECKPOINTS, text
    parts = [text, *(printed("ringmaster", "checkpoints", verb) for verb in CHECKPOINTS)]
    return "".join(f"\n```\n{part}```\n" for part in parts) + "\n"


def generated():
    """The generated part of each page."""
    overview = printed("ringmaster")
    commands = re.findall(r"(?m)^  ([a-z]+) {2,}\S", overview.split("Subcommands:")[1].split("\n\n")[0])
    assert set(RUN + CLUSTER) < set(commands), commands
    local = [command for command in commands if command not in [*RUN, *CLUSTER, "checkpoints"]]
    return {
        "cli.md": f"\n```\n{overview}```\n" + chapters("ringmaster", local) +
                  f"\n## ringmaster-worker\n\n```\n{printed('ringmaster-worker')}```\n\n",
        "cli-checkpoints.md": checkpoints(),
        "cli-run.md": chapters("ringmaster", RUN) + "\n",
        "cli-cluster.md": chapters("kubectl ringmaster", CLUSTER) + "\n",
    }


class CliReference(unittest.TestCase):
    maxDiff = None

    def test_pages_have_the_help_of_every_command(self):
        for name, text in generated().items():
            page = REFERENCE / name
            head, rest = page.read_text().split(BEGIN)
            now, tail = rest.split(END)
            if os.environ.get("RINGMASTER_UPDATE"):
                page.write_text(head + BEGIN + text + END + tail)
                continue
            with self.subTest(page=name):
                self.assertEqual(now, text, f"docs/reference/{name} is out of date: run this test with RINGMASTER_UPDATE=1")


if __name__ == "__main__":
    unittest.main()
