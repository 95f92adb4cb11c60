"""Inputs that a run has seen, in bounded memory: frequent texts of fields, and the usual ranges of numbers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Self

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

LARGEST = 1e100
"""The largest accepted number, whose square is finite, so that no variance becomes infinite."""

WIDEST = (-LARGEST, LARGEST)
"""The range of an input with little data."""

MOST_INPUTS, LONGEST_NAME = 10_000, 1000
"""Largest number of inputs with a range, and of characters in their names."""

FIRST, EVERY = 256, 64
"""Ranges are learned from this many examples first, and then from one in this many."""

DEVIATIONS, WIDTHS = 20.0, 10.0
"""Distance beyond the mean, and beyond the usual extremes, at which a value is far outside."""

AVERAGED = 1000.0
"""Examples over which mean and deviation are averaged."""


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


@dataclass(slots=True)
class _Input:
    n: int = 0
    mean: float = 0.0
    variance: float = 0.0
    least: float = inf
    largest: float = -inf


class InputRanges:
    """Learned ranges of inputs: 20 standard deviations around the mean, widened by ten times the width of the usual
    values.

    A value outside the range counts as its limit in mean and deviation, so that a few of them change little and many
    become usual. A constant input has no limits. `limits` is the range of each input that has one. `n_refused` is the
    number of values that were ignored, because too many inputs have a range or the name is too long. `n_outside` is the
    number of values outside. `last` is the name, the value and the limits of the last one.

    Examples
    --------
    >>> ranges = InputRanges()
    >>> for i in range(256):
    ...     ranges.learn({"age": 20 + i % 50, "town": "Graz", "rare": 0})
    >>> ranges.limits
    {'age': (-470.0, 559.0)}
    """

    def __init__(self) -> None:
        self.limits: dict[str, tuple[float, float]] = {}
        self.n_outside = self.n_refused = 0
        self.last: tuple[str, float, float, float] | None = None
        self._inputs: dict[str, _Input] = {}
        self._examples = 0

    def __len__(self) -> int:
        """Return the number of inputs with a range."""
        return len(self._inputs)

    def learn(self, x: Mapping[str, Any]) -> None:
        """Learn from the inputs of an example."""
        self._examples += 1
        if self._examples > FIRST and self._examples % EVERY:
            return
        for name, value in x.items():
            if not isinstance(value, str):
                self._learn_value(name, value)

    def learn_many(self, xs: Sequence[Mapping[str, Any]], values: Any) -> None:
        """Count values that are outside, and learn; equivalent to one example after the other.

        `xs` and `values` are examples of the same inputs, and their values, an array of shape (examples, inputs).
        """
        names, done = list(xs[0]), 0
        extremes = values.min(axis=0).tolist(), values.max(axis=0).tolist()
        while done < len(xs):
            more = 1 if self._examples < FIRST else min(EVERY - self._examples % EVERY, len(xs) - done)
            last = done + more
            limits = [self.limits.get(name, WIDEST) for name in names]
            checked = zip(limits, *extremes, strict=True)
            if not all(low <= least and largest <= high for (low, high), least, largest in checked):
                low, high = np.array(limits).T
                for i, j in np.argwhere((values[done:last] < low) | (values[done:last] > high)).tolist():
                    self.outside(names[j], xs[done + i][names[j]])
            self._examples += more - 1
            self.learn(xs[last - 1])
            done = last

    def outside(self, name: str, value: float) -> None:
        """Count a value outside the limits."""
        self.n_outside += 1
        self.last = (name, value, *self.limits[name])

    def __deepcopy__(self, memo: object) -> Self:
        """Return ranges without limits, because a copied model serves predictions, which are not counted."""
        return type(self)()

    def _learn_value(self, name: str, value: float) -> None:
        entry = self._inputs.get(name)
        if entry is None:
            if len(self._inputs) >= MOST_INPUTS or len(name) > LONGEST_NAME:
                self.n_refused += 1
                return
            entry = self._inputs[name] = _Input()
        low, high = self.limits.get(name, WIDEST)
        if low <= value <= high:
            entry.least, entry.largest = min(entry.least, value), max(entry.largest, value)
        entry.n += 1
        weight, change = max(1.0 / entry.n, 1.0 / AVERAGED), min(max(value, low), high) - entry.mean
        entry.mean += weight * change
        entry.variance = (1.0 - weight) * (entry.variance + weight * change * change)
        width = entry.largest - entry.least
        if entry.n >= FIRST and width > 0.0:
            reach = DEVIATIONS * sqrt(entry.variance)
            low = min(entry.mean - reach, entry.least - WIDTHS * width)
            high = max(entry.mean + reach, entry.largest + WIDTHS * width)
            self.limits[name] = max(low, -LARGEST), min(high, LARGEST)
