"""The command line: ``streamkernel demo | run CONFIG.toml | replay CONFIG.toml DIR | inspect | report STATE_DIR``."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from streamkernel.engine.config import Config

app = typer.Typer(
    help="Kernel machines that learn from a stream, in bounded memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXPECTED = (OSError, ValueError, RuntimeError, ImportError)
"""Errors whose message is all a user needs; anything else is a bug, and shows where."""


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="The TOML file that says what to run.", show_default=False)],
    check: Annotated[bool, typer.Option("--check", help="Validate the file and stop.")] = False,
) -> None:
    """Predict and learn from a stream as CONFIG says, and go on where the last run stopped."""
    found = _loaded(config)
    if check:
        typer.echo(f"{config} is valid")
    else:
        _run(found, str(config))


@app.command()
def replay(
    config: Annotated[Path, typer.Argument(help="The TOML file of a run, or of another model.", show_default=False)],
    directory: Annotated[Path, typer.Argument(help="Where the new state and all results go.", show_default=False)],
    start: Annotated[
        str | None, typer.Option(help="Where to begin in topics: an offset, or a time with its zone.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Where to end; by default where topics end now.")] = None,
) -> None:
    """Run a stream, or a range of its topics, again into another state directory, and touch nothing else."""
    from streamkernel.engine.replay import replayed

    found = _loaded(config, lambda found: replayed(found, directory, start, until))
    directory.mkdir(parents=True, exist_ok=True)
    _run(found, f"{config} again, in {directory}")
    inspect(directory)


def _loaded(path: Path, change: Callable[[Config], Config] = lambda found: found) -> Config:
    """Return a configuration that can be run."""
    from streamkernel.engine import logs
    from streamkernel.engine.config import load_config

    logs.configure()
    try:
        found = change(load_config(path))
        found.check()
    except EXPECTED as error:
        _fail(error)
    return found


def _run(found: Config, title: str) -> None:
    from streamkernel.engine.assemble import engine_of
    from streamkernel.engine.view import ProgressLog, compile_all, showing

    stop = StopSignal()
    compile_all(Console(stderr=True))
    try:
        engine = engine_of(found)
        if found.http.port is not None:
            from streamkernel.engine.http import serve

            token = found.http.token.get_secret_value() if found.http.token else None
            port = serve(engine, found.http.host, found.http.port, token)
            address = f"http://{found.http.host}:{port}"
            typer.echo(f"live page at {address}/, metrics at {address}/metrics", err=True)
        with showing(engine, title) as view:
            engine.run(stopping=stop.requested, watch=ProgressLog(view))
    except EXPECTED as error:
        _fail(error)


@app.command()
def inspect(
    state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)],
) -> None:
    """Print what the newest checkpoint holds: the model, its quality, and where the stream stands."""
    from streamkernel.engine.description import checkpoint_rows

    table = Table(show_header=False)
    for row in checkpoint_rows(_newest(state)):
        table.add_row(*row)
    Console().print(table)


@app.command()
def report(
    state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)],
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
) -> None:
    """Write a page with the plots of a run, one file that needs nothing else."""
    from streamkernel.engine.report import report

    text = report(_newest(state), state)
    try:
        output.write_text(text)
    except OSError as error:
        _fail(error)
    typer.echo(f"{output}, {len(text):,} bytes")


def _newest(state: Path) -> dict[str, Any]:
    """Return the newest checkpoint in a directory."""
    from streamkernel.engine.checkpoint import read_newest

    try:
        if not state.is_dir():
            raise FileNotFoundError(f"Expected a state directory, found none - at {state}")
        found = read_newest(state)
        if found is None:
            raise FileNotFoundError(f"Expected a checkpoint, found none - in {state}")
    except EXPECTED as error:
        _fail(error)
    return found


@app.command()
def demo(
    directory: Annotated[
        Path, typer.Option(help="Where plot, model and predictions go; an earlier demo's are replaced.")
    ] = Path("streamkernel-demo"),
    events: Annotated[int, typer.Option(help="Events of the drifting stream.", min=1000)] = 50_000,
    port: Annotated[int, typer.Option(help="Port of /metrics on loopback; 0 takes a free one.", min=0)] = 0,
) -> None:
    """Run the main job on data that ships with River, beside River's LogisticRegression."""
    from streamkernel import demo as demonstration

    try:
        demonstration.run(directory, events, port, Console(stderr=True))
    except EXPECTED as error:
        _fail(error)


class StopSignal:
    """Becomes true at SIGINT or SIGTERM; a second SIGINT interrupts as usual."""

    def __init__(self) -> None:
        self._requested = False
        signal.signal(signal.SIGINT, self._request)
        signal.signal(signal.SIGTERM, self._request)

    def requested(self) -> bool:
        """Say whether a signal has come."""
        return self._requested

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _fail(error: Exception) -> NoReturn:
    typer.echo(f"streamkernel: {error}", err=True)
    raise typer.Exit(2) from None


def main() -> None:
    """Run the command line."""
    app()
