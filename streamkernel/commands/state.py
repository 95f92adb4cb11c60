"""Commands on the states of runs: inspect, report, top, serve, promote, rollback, and their checkpoints."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from streamkernel.commands.process import StopSignal, configure_logs, expected_errors, is_json

if TYPE_CHECKING:
    from streamkernel.engine.checkpoint.state_directory import Checkpoint

REFRESH_SECONDS, STEP_SECONDS = 1.0, 0.1

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)=(?P<path>.+)")

STOPPED = typer.Argument(help="The state directory of a run that is stopped.", show_default=False)

state = typer.Typer(
    help="List, restore or delete the checkpoints of a run.", no_args_is_help=True, add_completion=False
)


def inspect(state: Annotated[Path, typer.Argument(help="The state directory of a run.", show_default=False)]) -> None:
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
    with expected_errors():
        output.write_text(text)
    typer.echo(f"{output}, {len(text):,} bytes")


def top(
    target: Annotated[
        str,
        typer.Argument(
            metavar="STATE|URL",
            help="The state directory of a run, or the address of its live page.",
            show_default=False,
        ),
    ],
    once: Annotated[bool, typer.Option("--once", help="Print the figures once; so without a terminal.")] = False,
    certificate: Annotated[
        Path | None, typer.Option(help="The certificate to trust, as a PEM file; by default the system's certificates.")
    ] = None,
) -> None:
    """Show the figures of a running process in the terminal, as `run` does, until Ctrl-C.

    Of a state directory whose run is unavailable, it shows the newest checkpoint, and says so; where an address is
    unavailable, it waits. The variable STREAMKERNEL_HTTP_TOKEN has the token.
    """
    from streamkernel.engine.config.schema import HttpTable
    from streamkernel.engine.telemetry.observed import ObservedRun
    from streamkernel.engine.telemetry.terminal import rate_between, rows_of, table_of

    with expected_errors():
        token = HttpTable().token
        run = ObservedRun(target, None if token is None else token.get_secret_value(), certificate)
        if once or not sys.stdout.isatty():
            origin, status = run.read()
            Console().print(table_of(origin, rows_of(status, rate_between(None, status))))
            return
        stop, before = StopSignal(), None
        with Live(auto_refresh=False) as live:
            while not stop.is_requested():
                try:
                    origin, status = run.read()
                except ConnectionError as error:
                    live.update(table_of(f"{error}; waiting", rows_of(before, None) if before else []), refresh=True)
                else:
                    live.update(table_of(origin, rows_of(status, rate_between(before, status))), refresh=True)
                    before = status
                began = time.monotonic()
                while not stop.is_requested() and time.monotonic() - began < REFRESH_SECONDS:
                    time.sleep(STEP_SECONDS)


def serve(
    states: Annotated[
        list[str],
        typer.Argument(
            metavar="STATES...",
            help="State directories of runs, or copies of them, each as PATH or NAME=PATH; by default "
            "a model has the name of its directory.",
            show_default=False,
        ),
    ],
    host: Annotated[str, typer.Option(help="The name or address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 chooses a free one.", min=0, max=65535)] = 9465,
    workers: Annotated[int, typer.Option(help="Processes that answer requests.", min=1, max=256)] = 1,
    poll_seconds: Annotated[
        float, typer.Option(help="Seconds between checks for a new checkpoint.", min=0.05, max=3600.0)
    ] = 1.0,
    certificate: Annotated[Path | None, typer.Option(help="A certificate for TLS, as a PEM file.")] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key, as a PEM file.")] = None,
) -> None:
    """Serve predictions over HTTP from the newest checkpoints of runs, which need not be running here.

    Without the variable STREAMKERNEL_HTTP_TOKEN, only requests from this machine are answered.
    """
    from streamkernel.engine.config.schema import HttpTable
    from streamkernel.engine.serving.serve import ModelServer

    configure_logs()
    stop, log = StopSignal(), structlog.get_logger("streamkernel")
    with expected_errors(as_json=is_json("auto")):
        files = {"certificate": certificate, "key": key}
        table = HttpTable.model_validate({name: path for name, path in files.items() if path is not None})
        server = ModelServer(
            names_of(states),
            host,
            port,
            workers=workers,
            poll_seconds=poll_seconds,
            token=None if table.token is None else table.token.get_secret_value(),
            certificate=table.read_certificate(),
        )
    scheme = "http" if table.certificate is None else "https"
    log.info(f"serving at {scheme}://{host}:{server.port}/", models=states, workers=workers)
    server.run(stop.is_requested)
    log.info("stopped")


def names_of(states: list[str]) -> dict[str, Path]:
    """Return the state directories by the name of their model.

    Raise `ValueError` if two have the same name, or one has none that is usable.

    Examples
    --------
    >>> names_of(["/srv/clicks", "fraud=/srv/fraud/state"])
    {'clicks': PosixPath('/srv/clicks'), 'fraud': PosixPath('/srv/fraud/state')}
    >>> names_of(["a/state", "b/state"])
    Traceback (most recent call last):
    ValueError: Expected a different name for each model, got "state" twice; name them, as NAME=b/state
    """
    paths: dict[str, Path] = {}
    for text in states:
        named = _NAMED.fullmatch(text)
        path = Path(named["path"] if named else text)
        name = named["name"] if named else path.absolute().name
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise ValueError(
                f"Expected a name of letters, digits, dots, - and _, got {name!r}; name it, as NAME={text}"
            )
        if name in paths:
            raise ValueError(f'Expected a different name for each model, got "{name}" twice; name them, as NAME={path}')
        paths[name] = path
    return paths


def promote(
    state: Annotated[Path, typer.Argument(help="The state directory of a run that is stopped.", show_default=False)],
    name: Annotated[str, typer.Argument(help="The name of a challenger.", show_default=False)],
) -> None:
    """Make a challenger the champion, whose predictions are written; the champion becomes a challenger."""
    from streamkernel.engine import roles

    with expected_errors():
        typer.echo(roles.promote(state, name))


def rollback(
    state: Annotated[Path, typer.Argument(help="The state directory of a run that is stopped.", show_default=False)],
) -> None:
    """Undo the last promotion: the former champion, which has kept learning as a challenger, is the champion again."""
    from streamkernel.engine import roles

    with expected_errors():
        typer.echo(roles.rollback(state))


def newest_checkpoint(state: Path) -> dict[str, Any]:
    """Return the newest checkpoint in a directory."""
    from streamkernel.engine.checkpoint.state_directory import existing_checkpoints, read_newest

    with expected_errors():
        existing_checkpoints(state)
        checkpoint = read_newest(state)
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
    with expected_errors():
        for one in _checkpoints(state):
            learned = "" if one.learned is None else f"{one.learned:,}"
            written = "" if one.written is None else f"{one.written:%Y-%m-%d %H:%M:%S}"
            table.add_row(str(one.number), written, one.format, f"{one.size:,}", learned, one.problem)
    Console().print(table)


@state.command()
def restore(
    mirror: Annotated[str, typer.Argument(help="The mirror of a run, as s3://BUCKET/PREFIX.", show_default=False)],
    state: Annotated[Path, typer.Argument(help="An empty or new state directory.", show_default=False)],
) -> None:
    """Write the newest whole checkpoint of a mirror into a state directory, as a start of the run would."""
    from streamkernel.engine.checkpoint.bucket import Bucket
    from streamkernel.engine.checkpoint.mirror import restore
    from streamkernel.engine.checkpoint.state_directory import StateDirectory

    with expected_errors():
        bucket = Bucket(mirror)
        with StateDirectory(state) as directory:
            number = restore(directory, bucket)
        typer.echo(f"checkpoint {number} restored into {state}")


@state.command()
def prune(
    state: Annotated[Path, STOPPED],
    keep: Annotated[int, typer.Option(min=1, help="The newest checkpoints that stay.")] = 1,
) -> None:
    """Delete all checkpoints but the newest."""
    from streamkernel.engine.checkpoint import state_directory

    with expected_errors():
        n = len(state_directory.prune(state, keep))
        typer.echo(f"{n} {'checkpoint' if n == 1 else 'checkpoints'} deleted" if n else "nothing to delete")


def _checkpoints(place: str) -> Iterator[Checkpoint]:
    if "://" in place:
        from streamkernel.engine.checkpoint import bucket

        return bucket.history(place)
    from streamkernel.engine.checkpoint import state_directory

    return state_directory.history(Path(place))
