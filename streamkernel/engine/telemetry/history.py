"""The history of a run: its figures at evenly spaced events, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel.engine.telemetry.marks import Marks

MOST = 128
"""Largest number of points; then every second one is dropped, and later points are twice as far apart."""

FIRST = 64
"""Events between two points at the beginning."""


MOMENTARY = ("time", "lag")
"""Figures that are not stored in checkpoints, because they would differ if the events were read again."""


class History:
    """Points of named numbers, evenly spaced over all events so far.

    The position of an event decides whether it has a point, so a killed run has the same points after its restart.
    Marks are those of this process.

    Examples
    --------
    >>> history = History()
    >>> for event in range(100_000):
    ...     if history.is_due():
    ...         history.add({"square": event**2})
    >>> len(history), history.every, history.columns()["events"][:3].tolist()
    (97, 1024, [1024.0, 2048.0, 3072.0])
    """

    def __init__(self) -> None:
        self.events = 0
        self.every = FIRST
        self._points: list[dict[str, float]] = []
        self.marks = Marks()

    def __len__(self) -> int:
        return len(self._points)

    def until_due(self) -> int:
        """Return the number of events until the next point."""
        return self.every - self.events % self.every

    def is_due(self, events: int = 1) -> bool:
        """Count one or more events, and return whether a point is due."""
        before, self.events = self.events, self.events + events
        return self.events // self.every > before // self.every

    def add(self, numbers: Mapping[str, float]) -> None:
        """Add a point for the last event."""
        self._points.append({"events": float(self.events), **numbers})
        if len(self._points) == MOST:
            self._points = self._points[1::2]  # a new list, because other threads may be reading the old one
            self.every *= 2

    def columns(self) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """Return the points by name, as arrays of equal length; NaN for missing values."""
        points = list(self._points)
        names = dict.fromkeys(name for point in points for name in point)
        return {name: np.array([point.get(name, np.nan) for point in points]) for name in names}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        lasting = {name: column for name, column in self.columns().items() if name not in MOMENTARY}
        return {"events": self.events, "every": self.every, "columns": lasting}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.events, self.every = state["events"], state["every"]
        columns = state["columns"]
        rows = zip(*columns.values(), strict=True)
        self._points = [
            {name: float(value) for name, value in zip(columns, row, strict=True) if not np.isnan(value)}
            for row in rows
        ]
