"""Commands for the checkpoints of a state directory: ``streamkernel state``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from streamkernel.commands.errors import EXPECTED, fail
from streamkernel.commands.state import echo

if TYPE_CHECKING:
    from streamkernel.engine.checkpoint.maintenance import Checkpoint

STOPPED = typer.Argument(help="The state directory of a run that is stopped.", show_default=False)

state = typer.Typer(
    help="List, restore or delete the checkpoints of a run.", no_args_is_help=True, add_completion=False
)


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
    from streamkernel.engine.checkpoint import maintenance

    def change() -> str:
        numbers = maintenance.prune(state, keep)
        return f"{_counted(numbers)} deleted" if numbers else "nothing to delete"

    echo(change)


def _checkpoints(place: str) -> Iterator[Checkpoint]:
    if "://" in place:
        from streamkernel.engine.mirror import manifests

        return manifests.history(place)
    from streamkernel.engine.checkpoint import maintenance

    return maintenance.history(Path(place))


def _counted(numbers: list[int]) -> str:
    return f"{len(numbers)} {'checkpoint' if len(numbers) == 1 else 'checkpoints'}"
