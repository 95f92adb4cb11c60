"""Texts of fields in bounded memory: the frequent ones, and whether the first ones were numbers or times."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from streamkernel.field_types.number_texts import LONGEST
from streamkernel.field_types.times import moment_or_number

SLOTS = 4
"""Texts of a field that are counted; a further one replaces the rarest and continues its count (Space-Saving)."""

LARGEST_COUNT = 2048
"""Counts of a field are halved when one exceeds this, so that newer texts weigh more."""

LOOKED_AT = 64
"""Number of first texts of a field that are looked at."""

_MOST_PLACEHOLDERS, _NEARLY_ALL, _FREQUENT, _LIKE = 2, 0.9, 0.1, 0.9


class SeenTexts:
    """The texts of fields that are no numbers there.

    Examples
    --------
    >>> texts = SeenTexts()
    >>> for i in range(100):
    ...     texts.add("price", "NA", is_number=False)
    ...     texts.add("day", f"2026-11-{1 + i % 28:02}", is_number=False)
    >>> texts.placeholders("price"), texts.placeholders("day"), texts.like("day")
    (['NA'], [], 'time')
    """

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        self._looks: dict[str, list[int]] = {}  # texts that were looked at, numbers and times among them

    def add(self, name: str, text: str, *, is_number: bool) -> None:
        """Count a text of a field; `is_number` says whether it is a number that may be a code."""
        looks = self._looks.setdefault(name, [0, 0, 0])
        if looks[0] < LOOKED_AT:
            is_time = 4 < len(text) <= LONGEST and isinstance(moment_or_number(text), dt.datetime)
            looks[:] = looks[0] + 1, looks[1] + (is_number and not is_time), looks[2] + is_time
        counts, text = self._counts.setdefault(name, {}), text[: LONGEST + 1]
        if text not in counts:
            counts[text] = counts.pop(min(counts, key=counts.__getitem__)) if len(counts) == SLOTS else 0
        counts[text] += 1
        if counts[text] > LARGEST_COUNT:
            self._counts[name] = {text: max(1, count // 2) for text, count in counts.items()}

    def is_looked_at(self, name: str) -> bool:
        """Return whether enough texts of a field were looked at."""
        return name in self._looks and self._looks[name][0] >= LOOKED_AT

    def placeholders(self, name: str, text: str | None = None) -> list[str]:
        """Return the one or two texts that are nearly all texts of a field, or none.

        Parameters
        ----------
        name
            The field.
        text
            A text of it, which may not be counted yet.
        """
        counts = self._counts.get(name, {})
        if text is not None:
            counts = {text[: LONGEST + 1]: 1} | counts
        first = sorted(counts, key=lambda text: (-counts[text], text))[:_MOST_PLACEHOLDERS]
        if len(counts) > _MOST_PLACEHOLDERS:
            total = sum(counts.values())
            first = [text for text in first if counts[text] > _FREQUENT * total]
            if sum(counts[text] for text in first) < _NEARLY_ALL * total:
                return []
        return first if all(len(text) <= LONGEST for text in first) else []

    def like(self, name: str) -> str:
        """Return ``"number"`` or ``"time"`` if nearly all texts that were looked at are such, else an empty string."""
        n, numbers, times = self._looks.get(name, (0, 0, 0))
        return "number" if numbers > _LIKE * n else "time" if times > _LIKE * n else ""

    def forget(self, name: str) -> None:
        """Begin again with a field."""
        self._counts.pop(name, None)
        self._looks.pop(name, None)

    def state(self) -> dict[str, Any]:
        """Return the counts as plain values for a checkpoint."""
        return {name: [dict(counts), list(self._looks[name])] for name, counts in sorted(self._counts.items())}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Replace all counts."""
        self._counts = {name: dict(counts) for name, (counts, _) in saved.items()}
        self._looks = {name: list(looks) for name, (_, looks) in saved.items()}

    def join(self, saved: Mapping[str, Any]) -> None:
        """Take the larger one of each count, so that what several have seen is counted once."""
        for name, (counts, looks) in saved.items():
            own = self._counts.get(name, {})
            joined = {text: max(own.get(text, 0), counts.get(text, 0)) for text in own | counts}
            first = sorted((-count, text) for text, count in joined.items())[:SLOTS]
            self._counts[name] = {text: -count for count, text in first}
            self._looks[name] = max(self._looks.get(name, [0, 0, 0]), list(looks))
