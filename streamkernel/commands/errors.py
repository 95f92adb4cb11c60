"""Exit codes and messages of commands that fail."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

import structlog
import typer

from streamkernel.connectors import OutputClosedError

EXPECTED = (OSError, ValueError, RuntimeError, ImportError, MemoryError)
"""Errors whose message is sufficient for users; any other error is a bug and has a traceback."""


def fail(error: Exception, *, as_json: bool = False, code: int = 2) -> NoReturn:
    text = str(error) or type(error).__name__
    if as_json:
        structlog.get_logger("streamkernel").error(text)
    else:
        typer.echo(f"streamkernel: {text}", err=True)
    if isinstance(error, OutputClosedError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python fails again when it flushes what is left
        raise typer.Exit(128 + signal.SIGPIPE) from None
    raise typer.Exit(code) from None
