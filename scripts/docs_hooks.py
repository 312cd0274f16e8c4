# SPDX-License-Identifier: Apache-2.0
"""MkDocs hooks of the documentation site (mkdocs.yml).

Pages link to files outside docs/, such as ../examples; these links work in a repository browser, but the site does not
contain the files. The hook replaces such a link by its text. A link to a file that does not exist is a warning, which
is an error in strict mode. A second hook adds Mermaid to the site when scripts/docs has fetched it.
"""

import logging
import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LOG = logging.getLogger("mkdocs.hooks.docs")
FENCE = re.compile(r"(?ms)^(```|~~~).*?^\1[^\n]*$")
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
MERMAID = "assets/mermaid.min.js"


def on_config(config):
    if os.environ.get("RINGMASTER_MERMAID"):
        config.extra_javascript.append(MERMAID)
    return config


def on_files(files, config):
    source = os.environ.get("RINGMASTER_MERMAID")
    if source:
        files.append(File.generated(config, MERMAID, content=pathlib.Path(source).read_bytes()))
    return files


def on_page_markdown(markdown, page, config, files):
    folder = DOCS / pathlib.Path(page.file.src_uri).parent

    def replace(link):
        text, target = link.group(1), link.group(2)
        if re.match(r"[a-z]+:", target):
            return link.group(0)
        path = (folder / target).resolve()
        if path.is_relative_to(DOCS):
            return link.group(0)  # MkDocs checks it
        if not path.exists():
            LOG.warning("%s: link to %s leads nowhere", page.file.src_uri, target)
        return text if text.startswith("`") else f"`{text}`" if "/" in text and " " not in text else text

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(replace, markdown[end:fence.start()]), fence.group(0)]
        end = fence.end()
    return "".join(parts) + LINK.sub(replace, markdown[end:])
