"""A figure of a run or of a served model: its name, kind, unit and help text, and how its value is read.

Durations are histograms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import numpy as np

EVENT_BOUNDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 1.0)
CHECKPOINT_BOUNDS = (5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

Names = str | Mapping[str, str]
"""A name with labels in braces, or the name for each value of the label."""

Read = str | Callable[[Any], Any]
"""How a value is read: the path of an attribute, or a function."""


class Histogram(NamedTuple):
    """Cumulative counts for each bound, as in Prometheus, and the sum."""

    buckets: tuple[tuple[str, float], ...]
    total: float

    @classmethod
    def of(cls, bounds: tuple[float, ...], counts: Any, total: float) -> Histogram:
        """Return the histogram of the counts between bounds, and of one above all."""
        names = (*map(str, bounds), "+Inf")
        return cls(tuple(zip(names, np.cumsum(counts).astype(float).tolist(), strict=True)), total)


class Durations:
    """Durations in seconds, counted by bounds.

    `bounds` are upper bounds of the buckets except the last one, which has none. `new` are durations not counted yet;
    the code that measures appends to it.

    Examples
    --------
    >>> durations = Durations((0.1, 1.0))
    >>> durations.new += [0.05, 0.1, 3.0]
    >>> durations.histogram()
    Histogram(buckets=(('0.1', 2.0), ('1.0', 2.0), ('+Inf', 3.0)), total=3.15)
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.new: list[float] = []
        self._bounds = bounds
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
        return Histogram.of(self._bounds, self._counts, self._total)


class Figure(NamedTuple):
    """A figure of one part of a run.

    `name` is the name of the metric, without ``streamkernel_``; empty for a figure that only the page shows. `kind`,
    `unit` and `help` are the type, the unit and the help text of the metric. `read` returns the value in the part: a
    number or a histogram, with labels a dictionary by their values, or ``None`` if there is no value now. `page` and
    `point` are the name on the live page, and in the history; empty where the figure is missing.

    Examples
    --------
    >>> events = counter("events", "events", "Events by outcome.", dict, ("outcome",), page="events {outcome}")
    >>> dict(events.named({"learned": 7, "dead": 2}, events.page))
    {'events learned': 7, 'events dead': 2}
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    unit: str
    help: str
    read: Callable[[Any], Any]
    labels: tuple[str, ...] = ()
    page: Names = ""
    point: Names = ""

    def samples(self, part: Any) -> list[tuple[tuple[str, ...], Any]] | None:
        """Return values with the values of their labels, or ``None`` if there is no value now."""
        values = self.read(part)
        if isinstance(values, Mapping):
            return [(key if isinstance(key, tuple) else (key,), value) for key, value in values.items()]
        return None if values is None else [((), values)]

    def named(self, part: Any, names: Names) -> Iterator[tuple[str, Any]]:
        """Yield values with their names on the page or in the history."""
        for labels, value in (self.samples(part) or ()) if names else ():
            if isinstance(names, str):
                yield names.format(**dict(zip(self.labels, labels, strict=True))), value
            elif labels[0] in names:
                yield names[labels[0]], value


def gauge(name: str, unit: str, text: str, read: Read, labels: tuple[str, ...] = (), **names: Names) -> Figure:
    """Return a figure that goes up and down; `names` are its `page` and `point`."""
    return Figure(name, "gauge", unit, text, attrgetter(read) if isinstance(read, str) else read, labels, **names)


def counter(name: str, unit: str, text: str, read: Read, labels: tuple[str, ...] = (), **names: Names) -> Figure:
    """Return a figure that only grows."""
    return gauge(name, unit, text, read, labels, **names)._replace(kind="counter")


def histogram(name: str, text: str, read: Read) -> Figure:
    """Return a histogram of durations."""
    return gauge(name, "seconds", text, read)._replace(kind="histogram")
