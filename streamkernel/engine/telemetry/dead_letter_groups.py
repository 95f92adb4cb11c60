"""Dead letters by reason, with a few samples of each, in bounded memory."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

MOST, SAMPLES = 8, 3
"""Maximum number of reasons, the most recent ones, and of samples of each."""

LONGEST = 300
"""Maximum number of characters of a text."""


_FIELD = ' - at field "'


class DeadLetterGroups:
    """The last reasons of dead letters; another value in the same field makes no other reason.

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
        expected, _, rest = reason.partition(", got ")
        key = (expected + "".join(rest.rpartition(_FIELD)[1:]) * (_FIELD in rest))[:LONGEST]
        when = time.time() if seconds is None else seconds
        group = self._groups.pop(key, None) or {"reason": key, "count": 0, "samples": deque(maxlen=SAMPLES)}
        group["count"] += 1
        group["time"] = when
        group["samples"].append({"stream": stream[:LONGEST], "reason": reason[:LONGEST], "raw": raw[:LONGEST]})
        self._groups[key] = group
        while len(self._groups) > MOST:
            self._groups.pop(next(iter(self._groups)))

    def rows(self) -> list[dict[str, Any]]:
        """Return the groups, the most frequent first, for any thread."""
        groups = [group | {"samples": list(group["samples"])} for group in list(self._groups.values())]
        return sorted(groups, key=lambda group: -group["count"])
