"""A snapshot of a cluster, for any thread to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from streamkernel.engine.telemetry.histogram import Histogram


class RoundSnapshot(NamedTuple):
    """Figures of one round.

    Parameters
    ----------
    events, seconds
        The number of events that each worker read, and the time that this took; both 0 for a worker without an
        assignment.
    round_seconds, merge_seconds
        Duration of the whole round, and of its merge.
    spread
        Distance of the replicas from their mean before the merge, in units of the mean's size.
    """

    events: tuple[int, ...]
    seconds: tuple[float, ...]
    round_seconds: float
    merge_seconds: float
    spread: float


class ClusterSnapshot(NamedTuple):
    """The rounds of this process so far.

    Parameters
    ----------
    by_worker
        Events and seconds of each worker.
    rounds, merges
        Durations of rounds and merges.
    last
        The last round.
    recent
        The last few rounds.
    """

    by_worker: Mapping[int, tuple[int, float]]
    rounds: Histogram
    merges: Histogram
    last: RoundSnapshot
    recent: tuple[RoundSnapshot, ...]
