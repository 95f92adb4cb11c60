"""How a command ends: its exit codes, the messages of its errors, and the signals that stop it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import structlog
import typer

from streamkernel.connectors import OutputClosedError

if TYPE_CHECKING:
    from streamkernel.engine.config.config import Config

EXPECTED = (OSError, ValueError, RuntimeError, ImportError, MemoryError)
"""Errors whose message is sufficient for users; any other error is a bug and has a traceback."""


@contextmanager
def expected_errors(*, as_json: bool = False) -> Iterator[None]:
    """End the command with the message of an expected error that is raised within."""
    try:
        yield
    except EXPECTED as error:
        fail(error, as_json=as_json)


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


class StopSignal:
    """Becomes true at SIGINT, SIGTERM or SIGHUP; a second SIGINT interrupts as usual, and others are ignored.

    SIGHUP, sent when a terminal closes, keeps its handler where it already has one: on a cluster and under nohup.
    """

    def __init__(self) -> None:
        self._requested = False
        signal.signal(signal.SIGINT, self._request)
        signal.signal(signal.SIGTERM, self._request)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            signal.signal(signal.SIGHUP, self._request)

    def is_requested(self) -> bool:
        """Whether a signal has arrived."""
        return self._requested

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for other in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(other) == self._request:  # which Python resets at its end, where one more would kill
                signal.signal(other, signal.SIG_IGN)


class WorkerCount:
    """The number of workers that a run should have, from its file, which is read again at SIGHUP."""

    def __init__(self, path: Path, config: Config) -> None:
        self._path, self._count, self._is_due = path, config.cluster.workers, False
        signal.signal(signal.SIGHUP, self._request)

    def target(self) -> int | None:
        """Return the number, or ``None`` for as many as fit on the cluster."""
        if self._is_due:
            from streamkernel.engine.config.config import load_config

            self._is_due = False
            try:
                self._count = load_config(self._path).cluster.workers
            except EXPECTED as error:
                log = structlog.get_logger("streamkernel")
                log.error(f"{error}; the number of workers stays as it is", workers=self._count or "all")
        return self._count

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._is_due = True
