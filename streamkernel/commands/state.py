"""Commands that show the content of a state directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from streamkernel.commands.errors import EXPECTED, fail


def inspect(
    state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)],
) -> None:
    """Print what the newest checkpoint holds: the model, its quality, and the position in the stream."""
    from streamkernel.engine.telemetry.description import checkpoint_rows

    table = Table(show_header=False)
    for row in checkpoint_rows(newest_checkpoint(state)):
        table.add_row(*row)
    Console().print(table)


def report(
    state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)],
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
) -> None:
    """Write the live page of a run to one self-contained file."""
    from streamkernel.engine.telemetry.report import report

    text = report(newest_checkpoint(state), state)
    try:
        output.write_text(text)
    except OSError as error:
        fail(error)
    typer.echo(f"{output}, {len(text):,} bytes")


def promote(
    state: Annotated[Path, typer.Argument(help="The state directory of a run that is stopped.", show_default=False)],
    name: Annotated[str, typer.Argument(help="The name of a challenger.", show_default=False)],
) -> None:
    """Make a challenger the champion, whose predictions are written; the champion becomes a challenger."""
    from streamkernel.engine import roles

    echo(lambda: roles.promote(state, name))


def rollback(
    state: Annotated[Path, typer.Argument(help="The state directory of a run that is stopped.", show_default=False)],
) -> None:
    """Undo the last promotion: the former champion, which has kept learning as a challenger, is the champion again."""
    from streamkernel.engine import roles

    echo(lambda: roles.rollback(state))


def echo(call: Callable[[], str]) -> None:
    """Print what a call returns, or its error."""
    try:
        typer.echo(call())
    except EXPECTED as error:
        fail(error)


def newest_checkpoint(state: Path) -> dict[str, Any]:
    """Return the newest checkpoint in a directory."""
    from streamkernel.engine.checkpoint.state_directory import existing_checkpoints, read_newest

    try:
        existing_checkpoints(state)
        checkpoint = read_newest(state)
    except EXPECTED as error:
        fail(error)
    assert checkpoint is not None
    return checkpoint
