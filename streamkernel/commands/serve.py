"""The command that serves the models of checkpoints, apart from learning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import structlog
import typer

from streamkernel.commands.errors import EXPECTED, fail
from streamkernel.commands.signals import StopSignal

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)=(?P<path>.+)")


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
    from streamkernel.engine.telemetry import logs

    logs.configure()
    stop, log = StopSignal(), structlog.get_logger("streamkernel")
    try:
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
    except EXPECTED as error:
        fail(error, as_json=logs.is_json("auto"))
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
