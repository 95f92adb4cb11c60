"""The command that sends the records of dead letters back to their source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from streamkernel.commands.errors import EXPECTED, fail
from streamkernel.commands.run import load_or_fail


def redrive(
    config: Annotated[
        Path, typer.Argument(help="The TOML file of the run that wrote the dead letters.", show_default=False)
    ],
    kind: Annotated[list[str] | None, typer.Option(help="Only letters of this kind, one option for each.")] = None,
    reason: Annotated[str, typer.Option(help="Only letters whose reason contains this text.", show_default=False)] = "",
    limit: Annotated[int | None, typer.Option(help="Maximum number of letters.", min=1)] = None,
    rate: Annotated[float | None, typer.Option(help="Maximum number of letters per second.", min=0.001)] = None,
    to_topic: Annotated[str | None, typer.Option(help="A topic for the records instead of their source.")] = None,
    to_file: Annotated[Path | None, typer.Option(help="A file for the records instead of their source.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the letters by kind and reason, and exit.")] = False,
) -> None:
    """Send the records of dead letters back to their source, each once, for the run to read again."""
    from streamkernel.connectors import CommitRefusedError
    from streamkernel.connectors.redrive import OUTPUT
    from streamkernel.engine.redrive import Choice, Redrive, lines_of
    from streamkernel.engine.telemetry.dead_letters import KINDS

    kinds = [name for name in KINDS if name != OUTPUT]
    for name in kind or ():
        if name not in kinds:
            why = ", whose records were learned: only their predictions are missing" if name == OUTPUT else ""
            fail(ValueError(f'--kind: expected one of {", ".join(kinds)}, got "{name}"{why}'))
    if to_topic is not None and to_file is not None:
        fail(ValueError("expected --to-topic or --to-file, got both"))
    loaded = load_or_fail(config, is_run=False)
    try:
        work = Redrive(loaded, Choice(tuple(kind or ()), reason, limit), to_topic, to_file)
        try:
            total = work.count()
            typer.echo("\n".join(lines_of(work.chosen, work.left)) or "no dead letters are left")
            if not dry_run and total:
                with Progress(console=Console(stderr=True), transient=True) as bar:
                    task = bar.add_task("sending", total=total)
                    done = work.drive(total, rate, lambda sent: bar.update(task, completed=sent))
                typer.echo(f"{done:,} sent back")
        finally:
            work.close()
    except CommitRefusedError as error:
        fail(OSError(f"brokers refused the last letters: {error}; start the command again; no record is sent twice"))
    except EXPECTED as error:
        fail(error)
