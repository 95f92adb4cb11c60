"""A synthetic snapshot of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from streamkernel.engine.telemetry.figure import CHECKPOINT_BOUNDS, Durations, Histogram
from streamkernel.engine.telemetry.snapshot import ClusterSnapshot, RoundSnapshot


def cluster_snapshot(n: int, workers: int = 2, spread: float = 0.25) -> ClusterSnapshot:
    """Return the numbers of a cluster after `n` rounds, in which each worker is slower than the one before it."""
    rounds = [one_round(i, workers, spread) for i in range(n)]
    by_worker = {
        worker: (sum(one.events[worker] for one in rounds), sum(one.seconds[worker] for one in rounds))
        for worker in range(workers)
    }
    whole, merging = histogram([one.round_seconds for one in rounds]), histogram([one.merge_seconds for one in rounds])
    return ClusterSnapshot(by_worker, whole, merging, rounds[-1], tuple(rounds[-64:]))


def one_round(i: int, workers: int, spread: float) -> RoundSnapshot:
    """Return a round."""
    events = tuple(1000 + i % 7 for _ in range(workers))
    seconds = tuple(0.5 * (worker + 1) for worker in range(workers))
    merging = 0.05 + 0.01 * (i % 3)
    return RoundSnapshot(events, seconds, max(seconds) + merging + 0.02, merging, spread)


def histogram(seconds: Sequence[float]) -> Histogram:
    """Return how often something took how long."""
    durations = Durations(CHECKPOINT_BOUNDS)
    durations.new.extend(seconds)
    return durations.histogram()
