"""The command that measures what a run needs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streamkernel.commands.errors import EXPECTED, fail
from streamkernel.commands.run import load_or_fail
from streamkernel.commands.signals import StopSignal


def size(
    config: Annotated[Path, typer.Argument(help="The TOML file of a run.", show_default=False)],
    events_per_second: Annotated[
        float | None,
        typer.Option(help="The rate to plan for; by default the recommended rate of one process.", min=0.001),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="The time of each of the two measurements; a model that grows needs longer.", min=1.0)
    ] = 20.0,
) -> None:
    """Measure on this machine the events per second of one process, its memory, its checkpoints and its lag."""
    from streamkernel.engine.sizing import measure
    from streamkernel.engine.telemetry import logs
    from streamkernel.engine.telemetry.terminal import compile_for

    loaded = load_or_fail(config, is_run=False)
    logs.configure("warning", "auto")
    console, stop = Console(stderr=True), StopSignal()
    for model in loaded.build_models():
        compile_for(model, console)
    try:
        with tempfile.TemporaryDirectory() as folder, console.status("") as status:
            sizing = measure(loaded, Path(folder), events_per_second, seconds, status.update, stop.is_requested)
    except EXPECTED as error:
        fail(error)
    table = Table(show_header=False)
    for row in sizing.rows():
        table.add_row(*row)
    Console().print(table)
