"""Logs of the process on standard error: readable lines on a terminal, elsewhere one JSON object per line."""

from __future__ import annotations

import logging
import sys
import warnings

import structlog

from streamkernel.engine.telemetry.folding import Folding
from streamkernel.errors import DataWarning


def is_json(form: str = "auto") -> bool:
    """Return whether a format, ``"auto"``, ``"console"`` or ``"json"``, means JSON here."""
    return form == "json" or (form == "auto" and not sys.stderr.isatty())


def configure(level: str = "info", form: str = "auto") -> None:
    """Send all logs and warnings of the process through one formatter.

    Parameters
    ----------
    level
        The lowest level of this project's lines: ``"debug"``, ``"info"``, ``"warning"`` or ``"error"``. Libraries
        write warnings and errors.
    form
        ``"json"``, ``"console"``, or ``"auto"``: JSON unless standard error is a terminal.
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
