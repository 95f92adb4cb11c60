"""Reports of dead letters in the log: how many came, and the most frequent reasons."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from streamkernel.engine.telemetry.dead_letter_groups import DeadLetterGroups, n_and_reason

SECONDS, MOST_REASONS = 60.0, 3
"""Seconds between two reports, and reasons in one at most."""

log = structlog.get_logger("streamkernel")


class DeadLetterReports:
    """Logs the first dead letter at once and later ones together, at most once a minute and at the end.

    Parameters
    ----------
    clock
        Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next = clock, 0.0
        self._n, self._groups = 0, DeadLetterGroups()

    def add(self, reason: str, stream: str) -> None:
        """Count a dead letter."""
        self._n += 1
        self._groups.add(reason, stream, "")
        self.report_if_due()

    def report_if_due(self) -> None:
        """Log what came since the last report, unless that was a short time ago."""
        if self._n and self._clock() >= self._next:
            self.report()

    def report(self) -> None:
        """Log what came since the last report, if anything did."""
        if not self._n:
            return
        reasons = [f"{count:,} x {reason}" for count, reason in map(n_and_reason, self._groups.rows()[:MOST_REASONS])]
        log.warning("records are refused and become dead letters", count=self._n, reasons=reasons)
        self._n, self._groups, self._next = 0, DeadLetterGroups(), self._clock() + SECONDS
