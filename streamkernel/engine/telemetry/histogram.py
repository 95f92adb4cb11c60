"""Durations as histograms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

EVENT_BOUNDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 1.0)
CHECKPOINT_BOUNDS = (5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Histogram(NamedTuple):
    """Cumulative counts for each bound, as in Prometheus, and the sum."""

    buckets: tuple[tuple[str, float], ...]
    total: float


class Durations:
    """Durations in seconds, counted by bounds.

    Parameters
    ----------
    bounds
        Upper bounds of the buckets except the last one, which has none.

    Attributes
    ----------
    new : list of float
        Durations not counted yet; the code that measures appends to it.

    Examples
    --------
    >>> durations = Durations((0.1, 1.0))
    >>> durations.new += [0.05, 0.1, 3.0]
    >>> durations.histogram()
    Histogram(buckets=(('0.1', 2.0), ('1.0', 2.0), ('+Inf', 3.0)), total=3.15)
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.new: list[float] = []
        self._bounds = np.array(bounds)
        self._names = (*map(str, bounds), "+Inf")
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._total = 0.0

    def fold(self) -> None:
        """Count the durations collected since the last call."""
        new = np.array(self.new)
        self.new.clear()
        self._counts += np.bincount(np.searchsorted(self._bounds, new), minlength=len(self._counts))
        self._total += float(new.sum())

    def add(self, other: Durations) -> None:
        """Add the counts of another object with the same bounds."""
        self._counts += other._counts
        self._total += other._total

    def histogram(self) -> Histogram:
        """Return the histogram of all durations."""
        self.fold()
        cumulated = self._counts.cumsum().astype(float).tolist()
        return Histogram(tuple(zip(self._names, cumulated, strict=True)), self._total)
