"""The versions of kafka-python whose private names are used; with another one only its public interface is."""

from __future__ import annotations

import functools
import logging
from types import ModuleType

from kafka import __version__

TRIED = ("3.0.12",)
"""The versions that the tests have passed with."""

log = logging.getLogger("streamkernel")


def private() -> ModuleType | None:
    """Return the module that uses private names, or ``None`` with a version of kafka-python that was not tried."""
    if __version__ not in TRIED:
        _announce()
        return None
    from streamkernel.connectors.kafka.kafka_python import private as found

    return found


@functools.cache
def _announce() -> None:
    log.warning(
        "kafka-python %s was not tried, %s was: records are read and written one by one, which is slower, and defects "
        "of connections and groups that were found in the other version are not avoided",
        __version__,
        ", ".join(TRIED),
    )
