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
        Of each worker: how many events it read, and how long that took; both 0 if there was nothing for it to read.
    round_seconds, merge_seconds
        How long the whole round took, and of that merging.
    spread
        How far the replicas were from their mean before they were merged, in units of its size.
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
        Events and seconds of each.
    rounds, merges
        How long rounds and merging took.
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
