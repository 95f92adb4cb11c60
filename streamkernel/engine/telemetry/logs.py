"""Logs of the process on standard error: readable lines on a terminal, elsewhere one JSON object per line.

Repeated lines of Kafka's clients and of OpenTelemetry are reduced to one per minute with their number.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import warnings
from collections.abc import Callable

import structlog

from streamkernel.errors import DataWarning

LOGGERS = ("kafka", "librdkafka", "opentelemetry")
"""Loggers whose lines repeat: they log each of many attempts."""

SECONDS = 60.0
"""Seconds between two similar lines."""

MOST_LINES = 1000
"""Largest number of distinct lines that are stored."""

_CHANGES = re.compile(r"0x[0-9a-f]+|\d+")
"""Parts in which similar lines differ: addresses in memory, and numbers."""


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
        if passed is not None and now - passed < SECONDS:
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


def configure(level: str = "info", form: str = "auto") -> None:
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
