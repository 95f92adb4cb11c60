"""A figure of a run or of a served model: its name, kind, unit and help text, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Literal, NamedTuple

Names = str | Mapping[str, str]
"""A name with labels in braces, or the name for each value of the label."""

Read = str | Callable[[Any], Any]
"""How a value is read: the path of an attribute, or a function."""


class Figure(NamedTuple):
    """A figure of one part of a run.

    Parameters
    ----------
    name
        The name of the metric, without ``streamkernel_``; empty for a figure that only the page shows.
    kind, unit, help
        The type, the unit and the help text of the metric.
    read
        Returns the value in the part: a number or a histogram, with labels a dictionary by their values, or ``None``
        if there is no value now.
    labels
        The names of the labels.
    page, point
        The name on the live page, and in the history; empty where the figure is missing.

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
        found = self.read(part)
        if isinstance(found, Mapping):
            return [(key if isinstance(key, tuple) else (key,), value) for key, value in found.items()]
        return None if found is None else [((), found)]

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
