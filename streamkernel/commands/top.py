"""The command that shows a run of another process."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from streamkernel.commands.errors import EXPECTED, fail
from streamkernel.commands.signals import StopSignal

REFRESH_SECONDS, STEP_SECONDS = 1.0, 0.1


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

    try:
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
    except EXPECTED as error:
        fail(error)
