"""The parts of pages that the site's build writes: the commands with their options, the metrics and the alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import yaml

from streamkernel.cli import app
from streamkernel.engine.telemetry.figures import FIGURES

RULES = Path(__file__).parents[1] / "dashboards" / "prometheus" / "alerts.yml"
VARIABLE = re.compile(r"{{ \$(?:labels\.)?(\w+).*?}}")
"""A label or the value in the text of an alert."""


def form(parameter: Any) -> str:
    """Return how an argument or an option is written."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`{' ...' if parameter.nargs != 1 else ''}"
    return ", ".join(f"`{name}`" for name in sorted(parameter.opts, key=len))


def note(parameter: Any) -> str:
    """Return the help text of a parameter, with its default."""
    default, text = parameter.default, (parameter.help or "").replace("|", "\\|")
    if parameter.required or default is None or isinstance(default, bool) or callable(default):
        return text
    return f"{text} Default: `{default}`."


def commands_of(group: Any) -> Iterator[tuple[str, Any]]:
    """Yield the commands of a group with their names, in the order of the help."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from ((f"{name} {one}", each) for one, each in commands_of(command))
        else:
            yield name, command


def commands() -> str:
    """Return a section for each command."""
    parts = []
    for name, command in commands_of(typer.main.get_command(app)):
        words = " ".join(p.name.upper() for p in command.params if p.param_type_name == "argument")
        rows = [f"| {form(p)} | {note(p)} |" for p in command.params if p.name != "help"]
        parts.append(f"## {name}\n\n`streamkernel {name} {words}`".rstrip("` ") + f"`\n\n{command.help.strip()}\n")
        if rows:
            parts.append("\n".join(["| | |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def metrics() -> str:
    """Return a table of the metrics with their labels, types, units and help texts."""
    rows = ["| name | type | unit | meaning |", "|---|---|---|---|"]
    for figure in (figure for figures in FIGURES.values() for figure in figures if figure.name):
        name = f"streamkernel_{figure.name}" + "_total" * (figure.kind == "counter")
        labels = f"{{{','.join(figure.labels)}}}" if figure.labels else ""
        rows.append(f"| `{name}{labels}` | {figure.kind} | {figure.unit} | {figure.help} |")
    return "\n".join(rows) + "\n"


def alerts() -> str:
    """Return a table of the alerts: how long each must hold, its summary, and what to do."""
    rows = ["| alert | for | meaning | what to do |", "|---|---|---|---|"]
    for rule in (rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]):
        texts = rule["annotations"]
        meaning = VARIABLE.sub(r"*\1*", texts["summary"])
        rows.append(f"| `{rule['alert']}` | {rule.get('for', '')} | {meaning} | {texts['runbook']} |")
    return "\n".join(rows) + "\n"


PARTS = {"<!-- commands -->": commands, "<!-- metrics -->": metrics, "<!-- alerts -->": alerts}
"""The lines of pages that the build replaces, each with the function that returns the text."""
