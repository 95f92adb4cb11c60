"""Logs: readable lines on a terminal, JSON elsewhere, both on standard error."""

from __future__ import annotations

import logging
import sys

import structlog

from streamkernel.engine.folding import Folding


def configure() -> None:
    """Send all logs of the process through one formatter."""
    steps: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*steps, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    terminal = sys.stderr.isatty()
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=steps,
            processor=structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        )
    )
    handler.addFilter(Folding())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("streamkernel").setLevel(logging.INFO)
