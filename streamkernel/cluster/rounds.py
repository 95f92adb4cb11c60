"""Rounds of a cluster: the plan in the state directory, by which a lost round is repeated, and their durations."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import structlog

from streamkernel import tensor_file
from streamkernel.cluster.replica import Report
from streamkernel.connectors import WorkAssignment
from streamkernel.connectors.json_text import to_json
from streamkernel.engine.checkpoint.state_directory import PRIVATE, StateDirectory, no_link
from streamkernel.engine.health import Health
from streamkernel.engine.telemetry.figure import CHECKPOINT_BOUNDS, Durations
from streamkernel.engine.telemetry.snapshot import ClusterSnapshot, RoundSnapshot

PLAN = "round.json"
"""Name of the plan's file in the state directory."""

log = structlog.get_logger("streamkernel")

RECENT = 64
"""Number of recent rounds that are kept individually."""


class RoundPlan:
    """The file with the plan of the current round.

    Parameters
    ----------
    state
        The directory; without one, no plan is written or read.
    health
        Counts plans that could not be written.
    """

    def __init__(self, state: StateDirectory | None, health: Health) -> None:
        self._state, self._health = state, health

    def read(self, positions: Mapping[str, Any]) -> list[WorkAssignment] | None:
        """Return the plan of the round that begins at these positions, or ``None`` if there is none."""
        if self._state is not None and (path := no_link(self._state.path / PLAN)).exists():
            plan = orjson.loads(path.read_bytes())
            if plan.get("positions") == positions:
                return [WorkAssignment(*assignment) for assignment in plan["shares"]]
        return None

    def write(self, positions: Mapping[str, Any], assignments: Sequence[WorkAssignment]) -> bool:
        """Write a plan durably, and return whether that succeeded."""
        if self._state is None:
            return True
        plan = {"positions": positions, "shares": [[*assignment] for assignment in assignments]}
        try:
            tensor_file.put(self._state.path / PLAN, to_json(plan, 0), PRIVATE)
        except OSError as error:
            self._health.count("checkpoint_failed")
            log.error("the plan of a round could not be written; retrying later", reason=str(error))
            return False
        return True


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
