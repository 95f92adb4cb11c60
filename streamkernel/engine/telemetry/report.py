"""A run as one file: the live page with the data of a checkpoint."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from streamkernel.connectors.json_text import to_json
from streamkernel.engine.explanations import importances
from streamkernel.engine.http.applications import FILES, page_text
from streamkernel.engine.telemetry.dead_letters import DeadLetterGroups
from streamkernel.engine.telemetry.figures import Reading, figures_of_page
from streamkernel.engine.telemetry.history import marks_of
from streamkernel.engine.telemetry.quality import stored_scores
from streamkernel.engine.telemetry.status import checkpoint_rows, checkpoint_table, finite, is_mean

_TAGS = re.compile(r'<link rel="stylesheet" href="(?P<css>[^"]+)">|<script src="(?P<js>[^"]+)"></script>')

_IMPORTED = re.compile(r'from "\./([^"]+)"')


def report(state: Mapping[str, Any], directory: Path) -> str:
    """Return a self-contained HTML page."""
    title = f"{directory.resolve().name}, checkpoint {state['checkpoint']}"
    run = to_json(run_of(state, directory), orjson.OPT_SERIALIZE_NUMPY).decode()
    modules = [name for name in FILES.values() if name.endswith(".js") and "/" not in name]
    imports = orjson.dumps({"imports": {name: _module(name) for name in modules}}).decode()
    parts = {
        '<script id="run" type="application/json"></script>': '<script id="run" type="application/json" '
        f'data-title="{_escape(title)}">{run.replace("<", chr(92) + "u003c")}</script>',
        "<title>streamkernel</title>": f"<title>{_escape(title)}</title>",
        '<script type="module" src="page.js"></script>': f'<script type="importmap">{imports}</script>\n'
        '<script type="module">import "page.js";</script>',
    }
    html = _TAGS.sub(_inline, page_text("index.html"))
    for old, new in parts.items():
        html = html.replace(old, new)
    return html


def _inline(tag: re.Match[str]) -> str:
    style, script = tag["css"], tag["js"]
    return f"<style>\n{page_text(style)}</style>" if style else f"<script>\n{page_text(script)}</script>"


def _module(name: str) -> str:
    """Return a module as an address; other modules are imported by the names of an import map."""
    text = _IMPORTED.sub(r'from "\1"', page_text(name))
    return "data:text/javascript;base64," + base64.b64encode(text.encode()).decode()


def run_of(state: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Return the data of the live page that a checkpoint has."""
    history = state.get("history") or {"events": 0, "columns": {}}
    scores, monitoring = stored_scores(state), state.get("monitoring") or {}
    alarms = [one for name in ("drift", "novelty") for one in (monitoring.get(name) or {}).get("alarms", ())]
    promotions = list((state.get("challengers") or {}).get("promotions", ()))
    return {
        "clock": 0.0,
        "events": history["events"],
        "metric": {"name": scores.name, "bigger_is_better": scores.bigger_is_better},
        "quality": {"since start": finite(scores.ours)},
        "now": figures_of_page(Reading(outcomes=state["outcomes"], scores=scores)),
        "history": history["columns"],
        "marks": marks_of([], alarms, promotions, history["columns"]),
        "is_mean": is_mean(scores.metric),
        "targets": {name: {"since start": finite(of)} for name, of in scores.by_target.items()},
        "models": checkpoint_table(state),
        "dead_letter_groups": _dead_letters(directory / "dead_letters.jsonl"),
        "refused": {kind: count for kind, count in (state.get("refused") or {}).items() if count},
        "incidents": {},
        "monitoring": {"drift": {"alarms": alarms}} if monitoring.get("drift") or monitoring.get("novelty") else {},
        "about": dict(checkpoint_rows(state)),
        "importances": importances(state["model"]),
    }


def _dead_letters(path: Path) -> list[dict[str, Any]]:
    """Return the dead letters in the last part of a file by reason, if it exists."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 20)))
            lines = file.read().splitlines()
    except OSError:
        return []
    groups = DeadLetterGroups()
    for line in lines:
        try:
            letter = orjson.loads(line)
            stream = letter["stream"] if "stream" in letter else f"{letter['topic']}:{letter['partition']}"
            groups.add(str(letter["reason"]), str(stream), str(letter["raw"]), 0.0)
        except (orjson.JSONDecodeError, KeyError, TypeError):  # half a line, cut at the beginning of what was read
            continue
    return groups.rows()


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
