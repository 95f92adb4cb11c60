"""Hooks of the build: generated parts of pages, links that leave docs/, and the home page without a side menu."""

from __future__ import annotations

import os
import re
from typing import Any

from generated import PARTS

REPOSITORY = "https://github.com/streamkernel/streamkernel/blob/main/"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Insert generated parts, rewrite links that leave the folder, and hide the menu beside the list of pages."""
    for line, part in PARTS.items():
        if line in markdown:
            markdown = markdown.replace(line, part())
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # in the page itself, GitHub would show it as a table
    folder = os.path.dirname(f"docs/{page.file.src_uri}")  # noqa: PTH120

    def rewritten(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        path = os.path.normpath(os.path.join(folder, target))  # noqa: PTH118
        inside = "://" in target or not target or path.startswith("docs/")
        return match[0] if inside else f"]({REPOSITORY}{path}{'#' + anchor if anchor else ''})"

    return re.sub(r"\]\(([^)\s]+)\)", rewritten, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Turn the roles of docstrings, such as ``:class:`~streamkernel.load```, into links to the reference."""

    def linked(match: re.Match[str]) -> str:
        name = match[1].lstrip("~")
        shown = name.rpartition(".")[2] if match[1].startswith("~") else name
        return f'<autoref optional identifier="{name}"><code>{shown}</code></autoref>'

    return re.sub(r":(?:class|func|meth|mod|attr):<code>([^<]+)</code>", linked, html)
