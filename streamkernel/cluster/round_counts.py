"""Durations of rounds, and the events of each worker in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from streamkernel.cluster.replica import Report
from streamkernel.engine.cluster_snapshot import ClusterSnapshot, RoundSnapshot
from streamkernel.engine.telemetry.histogram import CHECKPOINT_BOUNDS, Durations

RECENT = 64
"""Number of recent rounds that are kept individually."""


class RoundCounts:
    """Counts the rounds of this process."""

    def __init__(self) -> None:
        self._rounds, self._merges = Durations(CHECKPOINT_BOUNDS), Durations(CHECKPOINT_BOUNDS)
        self._by_worker: dict[int, tuple[int, float]] = {}
        self._recent: deque[RoundSnapshot] = deque(maxlen=RECENT)

    def add_round(
        self, reports: Sequence[Report], workers: int, seconds: float, merge_seconds: float, spread: float
    ) -> None:
        """Count a round.

        Parameters
        ----------
        reports
            The reports of the workers that had records to read.
        workers
            The number of workers.
        seconds, merge_seconds, spread
            As for `RoundSnapshot`.
        """
        of_each = [(0, 0.0)] * workers  # a worker with nothing to read has no report
        for report in reports:
            of_each[report.number] = report.events, report.seconds
            events, busy = self._by_worker.get(report.number, (0, 0.0))
            self._by_worker[report.number] = events + report.events, busy + report.seconds
        self._rounds.new.append(seconds)
        self._merges.new.append(merge_seconds)
        counts, times = zip(*of_each, strict=True)
        self._recent.append(RoundSnapshot(counts, times, seconds, merge_seconds, spread))

    def snapshot(self) -> ClusterSnapshot:
        """Return the rounds so far as an immutable value, for any thread."""
        rounds, merges = self._rounds.histogram(), self._merges.histogram()
        return ClusterSnapshot(dict(self._by_worker), rounds, merges, self._recent[-1], tuple(self._recent))
