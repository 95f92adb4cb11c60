"""Texts of fields: frequent ones in bounded memory, and declarations that help with values that do not fit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel.engine.config.messages import to_key
from streamkernel.field_types.declared import LONGEST_VECTOR
from streamkernel.field_types.number_texts import (
    LONGEST,
    as_toml,
    if_missing,
    is_marker,
    missing_declaration,
    moment_or_number,
)

SLOTS = 8
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

    def placeholders(self, name: str, text: str | None = None, *, are_rare: bool = False) -> list[str]:
        """Return the one or two texts that are nearly all texts of a field, or none; one with a digit may be a code.

        `text` is a text of it, which may not be counted yet. Where texts `are_rare` among numbers, a few more may be
        placeholders, too.
        """
        counts = self._counts.get(name, {})
        if text is not None:
            counts = {text[: LONGEST + 1]: 1} | counts
        first = sorted(counts, key=lambda text: (-counts[text], text))
        if are_rare and len(first) < SLOTS and all(map(is_marker, first)):
            return first
        first = first[:_MOST_PLACEHOLDERS]
        if len(counts) > _MOST_PLACEHOLDERS:
            total = sum(counts.values())
            first = [text for text in first if counts[text] > _FREQUENT * total]
            if sum(counts[text] for text in first) < _NEARLY_ALL * total:
                return []
        return first if all(map(is_marker, first)) else []

    def like(self, name: str) -> str:
        """Return ``"number"`` or ``"time"`` if nearly all texts that were looked at are such, else an empty string."""
        n, numbers, times = self._looks.get(name, (0, 0, 0))
        return "number" if numbers > _LIKE * n else "time" if times > _LIKE * n else ""

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
            present = self._counts.get(name, {})
            joined = {text: max(present.get(text, 0), counts.get(text, 0)) for text in present | counts}
            first = sorted((-count, text) for text, count in joined.items())[:SLOTS]
            self._counts[name] = {text: -count for count, text in first}
            self._looks[name] = max(self._looks.get(name, [0, 0, 0]), list(looks))


def declaration(name: str, kind: str) -> str:
    """Return the line that declares a field.

    Examples
    --------
    >>> declaration("user.age", "category")
    '[fields] "user.age" = "category"'
    """
    return f'[fields] {to_key(name)} = "{kind}"'


def for_text(name: str, text: str, placeholders: Sequence[str]) -> str:
    """Return the declaration that helps with a text in a field of numbers, whose usual texts may be placeholders.

    Examples
    --------
    >>> for_text("price", "NA", ["NA", "?"]), for_text("price", "x", ["NA", "?"])
    ('; if it means that there is no value, declare missing = ["NA", "?"]', '')
    >>> for_text("price", "V4", [])
    '; to refuse all texts, declare [fields] price = "number"; only if it is a code, "category"'
    """
    if text in placeholders:
        return if_missing(placeholders)
    return "" if placeholders else f"; {_for_few_texts(name)}"


def for_texts(name: str, placeholders: Sequence[str], *, are_rare: bool = False) -> str:
    """Return the declaration that helps with a field that has both numbers and texts, which may be rare.

    Examples
    --------
    >>> for_texts("icd", [])
    'looks like codes; declare it: [fields] icd = "category"'
    >>> for_texts("price", [], are_rare=True)
    'its few texts are taken as categories; to refuse all texts, declare [fields] price = "number"; only if it is a
    code, "category"'
    >>> for_texts("price", ["NA"])
    'if "NA" means that there is no value, declare missing = ["NA"]; if it is a code, declare [fields] price =
    "category"'
    """
    if not placeholders and are_rare:
        return f"its few texts are taken as categories; {_for_few_texts(name)}"
    if not placeholders:
        return f"looks like codes; declare it: {declaration(name, 'category')}"
    mean, are_codes = ("means", "it is a code") if len(placeholders) == 1 else ("mean", "they are codes")
    return (
        f"if {_enumerated(placeholders)} {mean} that there is no value, declare {missing_declaration(placeholders)}; "
        f"if {are_codes}, declare {declaration(name, 'category')}"
    )


def for_alike_texts(name: str, kind: str) -> str:
    """Return the declaration that helps with a field of categories whose texts are numbers or times.

    Examples
    --------
    >>> for_alike_texts("day", "time")
    'texts are times, but taken as categories; if they are no codes, declare [fields] day = "time"'
    """
    return f"texts are {kind}s, but taken as categories; if they are no codes, declare {declaration(name, kind)}"


def for_value(name: str, value: Any) -> str:
    """Return the declaration that helps with a value that is neither a number nor a text; nothing for an empty list.

    Examples
    --------
    >>> for_value("v", [1, 2.5]), for_value("tags", ["a"]), for_value("v", [])
    ('; to take it, declare [fields] v = "vector"', '; to leave it out, declare [fields] tags = "ignore"', '')
    """
    if isinstance(value, np.generic):
        value = value.item()
        if isinstance(value, (str, int, float)):
            return f"; to take it, declare {declaration(name, 'category' if isinstance(value, str) else 'number')}"
    items = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(items, (list, tuple)):
        if not items:
            return ""
        if len(items) <= LONGEST_VECTOR and all(item is None or type(item) in (int, float) for item in items):
            return f"; to take it, declare {declaration(name, 'vector')}"
    return f"; to leave it out, declare {declaration(name, 'ignore')}"


def _for_few_texts(name: str) -> str:
    return f'to refuse all texts, declare {declaration(name, "number")}; only if it is a code, "category"'


def _enumerated(texts: Sequence[str]) -> str:
    *first, last = map(as_toml, texts)
    return f"{', '.join(first)} and {last}" if first else last
