"""Repeated lines in the logs of Kafka's clients and of OpenTelemetry, reduced to one per minute with their number."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

LOGGERS = ("kafka", "librdkafka", "opentelemetry")
"""Loggers whose lines repeat: they log each of many attempts."""

SECONDS = 60.0
"""Seconds between two similar lines."""

MOST = 1000
"""Largest number of distinct lines that are stored."""

_CHANGES = re.compile(r"0x[0-9a-f]+|\d+")
"""Parts in which similar lines differ: addresses in memory, and numbers."""


class Folding(logging.Filter):
    """Passes a log line of these loggers unless a similar one was recent, and counts the suppressed ones.

    Parameters
    ----------
    clock
        Returns seconds.

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
        if len(self._seen) > MOST:
            del self._seen[next(iter(self._seen))]
        if held:
            record.msg, record.args = f"{text} ({held} more like it since the last one)", ()
        return True
