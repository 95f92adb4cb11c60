"""Incidents of a run, and whether its main loop advances."""

from __future__ import annotations

import time

import structlog

from streamkernel.connectors import Source

log = structlog.get_logger("streamkernel")

INCIDENTS = (
    "rebalance", "commit_refused", "record_refused", "write_forbidden", "unreachable", "topic_missing",
    "checkpoint_failed", "stalled", "worker_lost", "not_shared",
)  # fmt: skip
"""Kinds of incidents from which a run recovers."""

STALLED_SECONDS = 60.0
"""Seconds without an event, despite a lag, after which that is reported."""

ILL_SECONDS = 300.0
"""Seconds without a turn of the main loop after which the process is unhealthy."""


class Health:
    """Counts incidents, and records the last turn of the main loop and the arrival of the last events.

    `incidents` are incidents of this process by kind.

    Examples
    --------
    >>> health = Health()
    >>> health.count("rebalance")
    >>> health.incidents["rebalance"], health.ill()
    (1, '')
    """

    def __init__(self) -> None:
        self.incidents = dict.fromkeys(INCIDENTS, 0)
        self._alive = self._moved = time.monotonic()

    def turn(self) -> None:
        """Record that the main loop turns, or waits for a known reason."""
        self._alive = time.monotonic()

    def count(self, incident: str) -> None:
        """Count an incident; a loop that reports incidents is not stuck."""
        self.incidents[incident] += 1
        self.turn()

    def note_events(self) -> None:
        """Record the arrival of events."""
        self._moved = time.monotonic()

    def watch(self, source: Source, has_come: bool) -> None:
        """Report a source with unread records that returns none."""
        if has_come or not any(source.lag().values()):
            self.note_events()
        elif time.monotonic() - self._moved > STALLED_SECONDS:
            self.note_events()
            self.count("stalled")
            log.error("the lag is not 0, and nothing has been read for a minute", lag=sum(source.lag().values()))

    def ill(self) -> str:
        """Return the reason why this process should be restarted, or an empty string."""
        silent = time.monotonic() - self._alive
        return f"the main loop has not advanced for {silent:.0f} s" if silent > ILL_SECONDS else ""
