"""Dead letters: kinds of refused records, the last reasons with a few samples of each, and reports in the log."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from streamkernel.connectors import Event, Refusal
from streamkernel.errors import DivergedError, InputError, JoinError, LabelError, TooManyClassesError

REASONS = {
    "classes": TooManyClassesError,
    "label": LabelError,
    "join": JoinError,
    "diverged": DivergedError,
    "value": InputError,
    "error": Exception,
}
"""Kinds of refused records by their error; unreadable ones are ``unreadable``."""

KINDS = ("unreadable", *REASONS, "output")
"""Kinds of dead letters."""

MOST_GROUPS, SAMPLES = 8, 3
"""Maximum number of reasons, the most recent ones, and of samples of each."""

LONGEST = 300
"""Maximum number of characters of a text."""

_FIELD, _ADVICE = ' - at field "', '"; '

_PLACE = re.compile(r" - at (?:line|row) [0-9,]+$")

SECONDS, MOST_REASONS = 60.0, 3
"""Seconds between two reports, and reasons in one at most."""

log = structlog.get_logger("streamkernel")


def refusal_of(event: Event, error: Exception) -> Refusal:
    """Return the dead letter's reason for an error that a record raised."""
    kind = next(kind for kind, of in REASONS.items() if isinstance(error, of))
    name = type(error).__name__
    text = str(error) if isinstance(error, InputError) else f"{name}: {error}"
    return Refusal(text, "unreadable" if event.record is None else kind, f"{type(error).__module__}.{name}")


class DeadLetterGroups:
    """The last reasons of dead letters; another value in the same field makes no other reason.

    A reason ends with the last advice for its field.

    Examples
    --------
    >>> groups = DeadLetterGroups()
    >>> for raw in ("a", "b", "c", "d"):
    ...     groups.add("Expected a number, got " + raw, "numbers", raw)
    >>> [(one["reason"], one["count"], [sample["raw"] for sample in one["samples"]]) for one in groups.rows()]
    [('Expected a number', 4, ['b', 'c', 'd'])]
    >>> groups.add('Expected a number as before, got the string "x" - at field "a"; to take it, ...', "numbers", "x")
    >>> groups.rows()[1]["reason"]
    'Expected a number as before - at field "a"; to take it, ...'
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Any]] = {}

    def add(self, reason: str, stream: str, raw: str, seconds: float | None = None) -> None:
        """Count a dead letter, and keep it as a sample; `seconds` is when it was, now if it is ``None``."""
        expected, _, rest = _PLACE.sub("", reason).partition(", got ")
        _, at, field = rest.rpartition(_FIELD)
        name, end, advice = field.partition(_ADVICE) if at else ("", "", "")
        key = (expected + at + name + end[:1])[:LONGEST]
        when = time.time() if seconds is None else seconds
        group = self._groups.pop(key, None) or {"reason": key, "count": 0, "samples": deque(maxlen=SAMPLES)}
        if advice:
            group["reason"] = (key + end[1:] + advice)[:LONGEST]
        group["count"] += 1
        group["time"] = when
        group["samples"].append({"stream": stream[:LONGEST], "reason": reason[:LONGEST], "raw": raw[:LONGEST]})
        self._groups[key] = group
        while len(self._groups) > MOST_GROUPS:
            self._groups.pop(next(iter(self._groups)))

    def rows(self) -> list[dict[str, Any]]:
        """Return the groups, the most frequent first, for any thread."""
        groups = [group | {"samples": list(group["samples"])} for group in list(self._groups.values())]
        return sorted(groups, key=lambda group: -group["count"])


def n_and_reason(group: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many dead letters a group has, and the whole reason of the last one."""
    return group["count"], group["samples"][-1]["reason"]


class DeadLetterReports:
    """Logs the first dead letter at once and later ones together, at most once a minute and at the end.

    `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next = clock, 0.0
        self._n, self._groups = 0, DeadLetterGroups()

    def add(self, reason: str, stream: str) -> None:
        """Count a dead letter."""
        self._n += 1
        self._groups.add(reason, stream, "")
        self.report_if_due()

    def report_if_due(self) -> None:
        """Log what came since the last report, unless that was a short time ago."""
        if self._n and self._clock() >= self._next:
            self.report()

    def report(self) -> None:
        """Log what came since the last report, if anything did."""
        if not self._n:
            return
        reasons = [f"{count:,} x {reason}" for count, reason in map(n_and_reason, self._groups.rows()[:MOST_REASONS])]
        log.warning("records are refused and become dead letters", count=self._n, reasons=reasons)
        self._n, self._groups, self._next = 0, DeadLetterGroups(), self._clock() + SECONDS
