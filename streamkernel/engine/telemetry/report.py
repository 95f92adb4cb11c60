"""A run as one file: the live page with the data of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import orjson

from connectors.json_text import to_json
from streamkernel.engine.explanations import importances
from streamkernel.engine.telemetry.challengers import checkpoint_table
from streamkernel.engine.telemetry.description import checkpoint_rows
from streamkernel.engine.telemetry.quality import name_of_metric, value
from streamkernel.engine.telemetry.status import is_mean

DEAD_LETTERS = 8
"""Number of dead letters that are shown, the last ones of the file."""


def report(state: Mapping[str, Any], directory: Path) -> str:
    """Return a self-contained HTML page.

    Parameters
    ----------
    state
        A checkpoint.
    directory
        The directory of the checkpoint.
    """
    page = resources.files("streamkernel.engine.http").joinpath("page")
    html, style, script = (page.joinpath(name).read_text() for name in ("index.html", "page.css", "page.js"))
    title = f"{directory.resolve().name}, checkpoint {state['checkpoint']}"
    run = to_json(_run(state, directory), orjson.OPT_SERIALIZE_NUMPY).decode()
    parts = {
        '<link rel="stylesheet" href="page.css">': f"<style>\n{style}</style>",
        '<script src="page.js"></script>': f"<script>\n{script}</script>",
        '<script id="run" type="application/json"></script>': '<script id="run" type="application/json" '
        f'data-title="{_escape(title)}">{run.replace("<", chr(92) + "u003c")}</script>',
        "<title>streamkernel</title>": f"<title>{_escape(title)}</title>",
    }
    for old, new in parts.items():
        html = html.replace(old, new)
    return html


def _run(state: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    history = state.get("history") or {"events": 0, "columns": {}}
    metric, outcomes = state["metric"], state["outcomes"]
    return {
        "clock": 0.0,
        "events": history["events"],
        "now": {
            name_of_metric(metric): value(metric),
            "learned": outcomes["learned"],
            "dead letters": outcomes["dead_letter"],
        },
        "history": history["columns"],
        "is_mean": is_mean(metric),
        "models": checkpoint_table(state),
        "dead_letters": list(_dead_letters(directory / "dead_letters.jsonl")),
        "about": dict(checkpoint_rows(state)),
        "importances": importances(state["model"]),
    }


def _dead_letters(path: Path) -> list[dict[str, str]]:
    """Return the last dead letters of a file, if it exists."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 20)))
            lines = file.read().splitlines()[-DEAD_LETTERS:]
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            letter = orjson.loads(line)
            stream = letter["stream"] if "stream" in letter else f"{letter['topic']}:{letter['partition']}"
            told = {"stream": stream, "reason": letter["reason"], "raw": letter["raw"]}
        except (orjson.JSONDecodeError, KeyError, TypeError):  # half a line, cut at the beginning of what was read
            continue
        found.append({name: str(value)[:300] for name, value in told.items()})
    return found


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
