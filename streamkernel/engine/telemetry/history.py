"""The history of a run: columns of figures by time, and the marks of events above them."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

MOST_MARKS = 32
"""Maximum number of marks of each kind, the most recent ones."""

Mark = dict[str, Any]
"""A kind, an event and a time, each ``None`` if it is unknown, and a text."""

MOST = 128
"""Largest number of points; then every second one is dropped, and later points are twice as far apart."""

FIRST = 64
"""Events between two points at the beginning."""

MOMENTARY = ("time", "lag")
"""Figures that are not stored in checkpoints, because they would differ if the events were read again."""


class Marks:
    """The last marks of a process, a few of each kind.

    Examples
    --------
    >>> marks = Marks()
    >>> for number in range(100):
    ...     marks.add("checkpoint", event=64 * number, text=f"checkpoint {number}")
    >>> len(marks.all()), marks.all()[-1]["text"]
    (32, 'checkpoint 99')
    """

    def __init__(self) -> None:
        self._kinds: dict[str, deque[Mark]] = {}

    def add(self, kind: str, event: int, text: str) -> None:
        """Add a mark at this moment."""
        mark = {"kind": kind, "event": event, "time": time.time(), "text": text}
        self._kinds.setdefault(kind, deque(maxlen=MOST_MARKS)).append(mark)

    def all(self) -> list[Mark]:
        """Return the marks, for any thread."""
        return [one for kind in list(self._kinds.values()) for one in list(kind)]


def marks_of(
    marks: Iterable[Mark],
    alarms: Sequence[Mapping[str, Any]],
    promotions: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Any],
) -> list[Mark]:
    """Return all marks of a run by event: its own, alarms of drift, and promotions.

    `marks` are of the process, `alarms` and `promotions` as checkpoints have them. `columns` are the history, which
    relates events, learned events and time.

    Examples
    --------
    >>> columns = {"events": [0, 200], "learned": [0, 100], "time": [1000.0, 1010.0]}
    >>> moved = [{"field": "a", "shift": 2.0, "spread": 0.1, "correlation": 0.0, "with": None}]
    >>> (mark,) = marks_of([], [{"event": 100, "detector": "kernel", "moved": moved}], [], columns)
    >>> mark["event"], mark["time"], mark["text"]
    (100, 1005.0, 'drift (kernel): mean of a +2.0 standard deviations')
    """
    all_marks = [
        *marks,
        *map(_drift, alarms[-MOST_MARKS:]),
        *(_promotion(one, columns) for one in promotions[-MOST_MARKS:]),
    ]
    for i, one in enumerate(all_marks):
        if one["time"] is None and one["event"] is not None:
            all_marks[i] = one | {"time": _interpolated(one["event"], columns, "events", "time")}
    return sorted(all_marks, key=lambda one: -1 if one["event"] is None else one["event"])


def _drift(alarm: Mapping[str, Any]) -> Mark:
    distances = [(_distance(one), one) for one in alarm["moved"]]
    most = max((distance for distance, _ in distances), default=0.0)
    moved = [_movement(one) for distance, one in distances if distance >= most / 2]
    text = f"drift ({alarm['detector']})" + (f": {'; '.join(moved)}" if moved else "")
    return {"kind": "drift", "event": alarm["event"], "time": None, "text": text}


def _distance(one: Mapping[str, Any]) -> float:
    return float(max(abs(one["shift"]), abs(one["spread"]), one["correlation"]))


def _movement(one: Mapping[str, Any]) -> str:
    if one["correlation"] == _distance(one):
        return f"correlation of {one['field']} with {one['with']} changed"
    of = "shift" if abs(one["shift"]) == _distance(one) else "spread"
    what = {"shift": "mean", "spread": "deviation"}[of]
    return f"{what} of {one['field']} {one[of]:+.1f} standard deviations"


def _promotion(one: Mapping[str, Any], columns: Mapping[str, Any]) -> Mark:
    event = _interpolated(one["learned"], columns, "learned", "events")
    champion, former = one["champion"] or "a dropped model", one["former"] or "a dropped model"
    return {
        "kind": "promotion",
        "event": one["learned"] if event is None else round(event),
        "time": dt.datetime.fromisoformat(one["time"]).timestamp(),
        "text": f"{one['action']}: {champion} in place of {former}",
    }


def _interpolated(value: float, columns: Mapping[str, Any], of: str, to: str) -> float | None:
    """Return the value of a column where another column has this value, ``None`` outside of both."""
    pairs = list(_pairs(columns.get(of, ()), columns.get(to, ())))
    if not pairs or not pairs[0][0] <= value <= pairs[-1][0]:
        return None
    xs, ys = zip(*pairs, strict=True)
    return float(np.interp(value, xs, ys))


def _pairs(xs: Iterable[float], ys: Iterable[float]) -> Iterator[tuple[float, float]]:
    return ((x, y) for x, y in zip(xs, ys, strict=False) if math.isfinite(x) and math.isfinite(y))


class History:
    """Points of named numbers, evenly spaced over all events so far.

    The position of an event decides whether it has a point, so a killed run has the same points after its restart.
    Marks are from this process.

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
