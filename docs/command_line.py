"""The page docs/reference/command_line.md, from the commands themselves: ``python docs/command_line.py`` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from streamkernel.cli import app

PAGE = Path(__file__).parent / "reference" / "command_line.md"
HEAD = """# Command line

`streamkernel COMMAND --help` shows what is below. `pip install 'streamkernel[engine]'` installs the command.
The exit codes are as of [a run](configuration.md#start-stop-and-continue), and 2 for a wrong argument.
`streamkernel --version` prints the version.

"""


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


def commands(group: Any) -> Iterator[tuple[str, Any]]:
    """Yield the commands of a group with their names, in the order of the help."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from ((f"{name} {one}", each) for one, each in commands(command))
        else:
            yield name, command


def page() -> str:
    """Return the text of the page."""
    parts = []
    for name, command in commands(typer.main.get_command(app)):
        words = " ".join(p.name.upper() for p in command.params if p.param_type_name == "argument")
        rows = [f"| {form(p)} | {note(p)} |" for p in command.params if p.name != "help"]
        parts.append(f"## {name}\n\n`streamkernel {name} {words}`".rstrip("` ") + f"`\n\n{command.help.strip()}\n")
        if rows:
            parts.append("\n".join(["| | |", "|---|---|", *rows]) + "\n")
    return HEAD + "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE}\n")
