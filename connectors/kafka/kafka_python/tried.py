"""Private names of kafka-python: some are used if it has them, others if its version was tried."""

from __future__ import annotations

import functools
import logging
from types import ModuleType

from kafka import __version__

TRIED = ("3.0.12",)
"""The versions with which records are encoded and decoded together: the tests have passed with them."""

log = logging.getLogger("streamkernel")


def private() -> ModuleType | None:
    """Return the module that uses private names, or ``None`` if kafka-python has other ones."""
    if not is_tried():
        _announce("records are read and written one by one, which is slower")
    try:
        from streamkernel.connectors.kafka.kafka_python import private as found
    except (ImportError, AttributeError) as missing:
        _announce(f"defects of its connections are not avoided, and new partitions are read later: {missing}")
        return None
    return found


def is_tried() -> bool:
    """Return whether this version was tried."""
    return __version__ in TRIED


@functools.cache
def _announce(effect: str) -> None:
    log.warning("kafka-python %s was not tried, %s was: %s", __version__, ", ".join(TRIED), effect)
