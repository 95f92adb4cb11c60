"""Commands on the state of a run: inspect, report, promote, rollback, and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from streamkernel.commands.errors import EXPECTED, fail

if TYPE_CHECKING:
    from streamkernel.engine.checkpoint.state_directory import Checkpoint

STOPPED = typer.Argument(help="The state directory of a run that is stopped.", show_default=False)

state = typer.Typer(
    help="List, restore or delete the checkpoints of a run.", no_args_is_help=True, add_completion=False
)


def inspect(
    state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)],
) -> None:
    """Print what the newest checkpoint holds: the model, its quality, and the position in the stream."""
    from streamkernel.engine.telemetry.status import checkpoint_rows

    table = Table(show_header=False)
    for row in checkpoint_rows(newest_checkpoint(state)):
        table.add_row(*row)
    Console().print(table)


def report(
    state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)],
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
) -> None:
    """Write the live page of a run to one self-contained file."""
    from streamkernel.engine.telemetry.observed import report

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


@state.command()
def history(
    state: Annotated[
        str,
        typer.Argument(help="The state directory of a run, or its mirror, as s3://BUCKET/PREFIX.", show_default=False),
    ],
) -> None:
    """Print the checkpoints, oldest first: when each was written, its format, size and number of learned events."""
    table = Table("checkpoint", "written (UTC)", "format", "bytes", "learned", "problem")
    try:
        for one in _checkpoints(state):
            learned = "" if one.learned is None else f"{one.learned:,}"
            written = "" if one.written is None else f"{one.written:%Y-%m-%d %H:%M:%S}"
            table.add_row(str(one.number), written, one.format, f"{one.size:,}", learned, one.problem)
    except EXPECTED as error:
        fail(error)
    Console().print(table)


@state.command()
def restore(
    mirror: Annotated[str, typer.Argument(help="The mirror of a run, as s3://BUCKET/PREFIX.", show_default=False)],
    state: Annotated[Path, typer.Argument(help="An empty or new state directory.", show_default=False)],
) -> None:
    """Write the newest whole checkpoint of a mirror into a state directory, as a start of the run would."""
    from streamkernel.engine.checkpoint.state_directory import StateDirectory
    from streamkernel.engine.mirror.bucket import Bucket
    from streamkernel.engine.mirror.mirror import restore

    def change() -> str:
        bucket = Bucket(mirror)
        with StateDirectory(state) as directory:
            return f"checkpoint {restore(directory, bucket)} restored into {state}"

    echo(change)


@state.command()
def prune(
    state: Annotated[Path, STOPPED],
    keep: Annotated[int, typer.Option(min=1, help="The newest checkpoints that stay.")] = 1,
) -> None:
    """Delete all checkpoints but the newest."""
    from streamkernel.engine.checkpoint import state_directory

    def change() -> str:
        numbers = state_directory.prune(state, keep)
        return f"{_counted(numbers)} deleted" if numbers else "nothing to delete"

    echo(change)


def _checkpoints(place: str) -> Iterator[Checkpoint]:
    if "://" in place:
        from streamkernel.engine.mirror import manifests

        return manifests.history(place)
    from streamkernel.engine.checkpoint import state_directory

    return state_directory.history(Path(place))


def _counted(numbers: list[int]) -> str:
    return f"{len(numbers)} {'checkpoint' if len(numbers) == 1 else 'checkpoints'}"
