"""Marks of a run: at which event the stream, a checkpoint, the group or the champion changed."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

MOST = 32
"""Maximum number of marks of each kind, the most recent ones."""

Mark = dict[str, Any]
"""A kind, an event and a time, each ``None`` if it is unknown, and a text."""


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
        found = {"kind": kind, "event": event, "time": time.time(), "text": text}
        self._kinds.setdefault(kind, deque(maxlen=MOST)).append(found)

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

    Parameters
    ----------
    marks
        Marks of the process.
    alarms, promotions
        As checkpoints have them.
    columns
        The history, which relates events, learned events and time.

    Examples
    --------
    >>> columns = {"events": [0, 200], "learned": [0, 100], "time": [1000.0, 1010.0]}
    >>> moved = [{"field": "a", "shift": 2.0, "spread": 0.1, "correlation": 0.0, "with": None}]
    >>> (mark,) = marks_of([], [{"event": 100, "detector": "kernel", "moved": moved}], [], columns)
    >>> mark["event"], mark["time"], mark["text"]
    (100, 1005.0, 'drift (kernel): mean of a +2.0 standard deviations')
    """
    found = [*marks, *map(_drift, alarms[-MOST:]), *(_promotion(one, columns) for one in promotions[-MOST:])]
    for i, one in enumerate(found):
        if one["time"] is None and one["event"] is not None:
            found[i] = one | {"time": _interpolated(one["event"], columns, "events", "time")}
    return sorted(found, key=lambda one: -1 if one["event"] is None else one["event"])


def _drift(alarm: Mapping[str, Any]) -> Mark:
    found = [(_distance(one), one) for one in alarm["moved"]]
    most = max((distance for distance, _ in found), default=0.0)
    moved = [_movement(one) for distance, one in found if distance >= most / 2]
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
