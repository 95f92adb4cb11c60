"""The command line: ``streamkernel --help`` lists the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from streamkernel import __version__
from streamkernel.commands.models import export, merge, prune, refit
from streamkernel.commands.run import redrive, replay, run, size, topics
from streamkernel.commands.setup import dashboards, demo, warm_up
from streamkernel.commands.state import inspect, promote, report, rollback, serve, state, top

COMMANDS = (
    run,
    top,
    serve,
    replay,
    topics,
    size,
    redrive,
    inspect,
    report,
    promote,
    rollback,
    demo,
    warm_up,
    dashboards,
    prune,
    refit,
    export,
    merge,
)
"""In the order in which the help lists them."""

app = typer.Typer(
    help="Kernel machines that learn from a stream, in bounded memory.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in COMMANDS:
    app.command()(command)  # warm_up becomes warm-up
app.add_typer(state, name="state")


@app.callback()
def common(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Print the version if it is requested."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    app()
