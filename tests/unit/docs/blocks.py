# SPDX-License-Identifier: Apache-2.0
"""The fenced blocks of a Markdown page, and the scripts that they form.

A block in the language `sh` is a command for the reader. Two comments in the line above a block direct the tests:

    <!-- not run by the test: REASON -->     the block is left out
    <!-- file: NAME -->                      the block is the contents of this file
"""

import dataclasses
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parents[3]
FENCE = re.compile(r"(?ms)(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$")


@dataclasses.dataclass
class Block:
    language: str
    text: str
    note: str = ""

    @property
    def is_run(self):
        return self.language == "sh" and not self.note.startswith("not run")


def blocks(page):
    """The blocks of docs/PAGE, in order."""
    text = (ROOT / "docs" / page).read_text()
    return [Block(found["language"], found["text"], found["note"] or "") for found in FENCE.finditer(text)]


def script(page, replace=()):
    """One shell script that does what the page says, in its order. `replace`: pairs of texts, each of which must occur."""
    parts = ["set -euo pipefail"]
    for block in blocks(page):
        if block.note.startswith("file: "):
            name = shlex.quote(block.note.removeprefix("file: "))
            parts.append(f"cat >{name} <<'END_OF_FILE'\n{block.text}END_OF_FILE")
        elif block.is_run:
            parts.append(f"echo {shlex.quote('$ ' + block.text.strip())}\n{block.text}")
    text = "\n".join(parts) + "\n"
    for old, new in replace:
        if old not in text:
            raise AssertionError(f"docs/{page} does not contain {old!r} any more")
        text = text.replace(old, new)
    return text
