"""How a command behaves as a process: its log, its exit codes, messages of errors, and the signals that stop it."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import structlog
import typer

from streamkernel.connectors import OutputClosedError
from streamkernel.errors import DataWarning

if TYPE_CHECKING:
    from streamkernel.engine.config.config import Config


EXPECTED = (OSError, ValueError, RuntimeError, ImportError, MemoryError)
"""Errors whose message is sufficient for users; any other error is a bug and has a traceback."""

LOGGERS = ("kafka", "librdkafka", "opentelemetry")
"""Loggers whose lines repeat: they log each of many attempts."""

SIMILAR_SECONDS = 60.0
"""Seconds between two similar lines."""

MOST_LINES = 1000
"""Largest number of distinct lines that are stored."""

_CHANGES = re.compile(r"0x[0-9a-f]+|\d+")
"""Parts in which similar lines differ: addresses in memory, and numbers."""


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


class Folding(logging.Filter):
    """Passes a log line of these loggers unless a similar one was recent, and counts the suppressed ones.

    `clock` returns seconds.

    Examples
    --------
    >>> folding, found = Folding(clock=iter([0.0, 1.0, 2.0, 61.0]).__next__), []
    >>> for n in range(4):
    ...     line = logging.LogRecord("kafka.net", logging.ERROR, "", 0, "attempt %d failed", (n,), None)
    ...     if folding.filter(line):
    ...         found.append(line.getMessage())
    >>> found
    ['attempt 0 failed', 'attempt 3 failed (2 more like it since the last one)']
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # last time it passed, and suppressed since

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a line."""
        if record.name.partition(".")[0] not in LOGGERS:
            return True
        text = record.getMessage()
        kind, now = (record.name, _CHANGES.sub("#", text)), self._clock()
        passed, held = self._seen.pop(kind, (None, 0))
        if passed is not None and now - passed < SIMILAR_SECONDS:
            self._seen[kind] = passed, held + 1
            return False
        self._seen[kind] = now, 0
        if len(self._seen) > MOST_LINES:
            del self._seen[next(iter(self._seen))]
        if held:
            record.msg, record.args = f"{text} ({held} more like it since the last one)", ()
        return True


def is_json(form: str = "auto") -> bool:
    """Return whether a format, ``"auto"``, ``"console"`` or ``"json"``, means JSON here."""
    return form == "json" or (form == "auto" and not sys.stderr.isatty())


def configure_logs(level: str = "info", form: str = "auto") -> None:
    """Send all logs and warnings of the process through one formatter.

    `level` is the lowest level of this project's lines: ``"debug"``, ``"info"``, ``"warning"`` or ``"error"``.
    Libraries write warnings and errors. `form` is ``"json"``, ``"console"``, or ``"auto"``: JSON unless standard error
    is a terminal.
    """
    steps: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*steps, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    render: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if not is_json(form):
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=steps, processor=render))
    handler.addFilter(Folding())
    logging.captureWarnings(True)
    warnings.simplefilter("ignore", DataWarning)  # a run reads numbers in texts, and has its own warning of codes
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(logging.WARNING, _number(level)))
    logging.getLogger("streamkernel").setLevel(_number(level))


def write_lines_once() -> None:
    """Write each different line of the log only once, where a command reads the same records again."""
    logging.getLogger().handlers[0].addFilter(_Once())


class _Once(logging.Filter):
    """Lets a line pass that was not there before."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = set[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        line = str(record.msg) if isinstance(record.msg, dict) else record.getMessage()
        is_new = line not in self._lines
        self._lines.add(line)
        return is_new


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
