"""The usual range of each numeric input, to detect values far outside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Self

import numpy as np

LARGEST = 1e100
"""The largest accepted number, whose square is finite, so that no variance becomes infinite."""

WIDEST = (-LARGEST, LARGEST)
"""The range of an input with little data."""

MOST, LONGEST = 10_000, 1000
"""Largest number of inputs with a range, and of characters in their names."""

FIRST, EVERY = 256, 64
"""Ranges are learned from this many examples first, and then from one in this many."""

DEVIATIONS, WIDTHS = 20.0, 10.0
"""Distance beyond the mean, and beyond the usual extremes, at which a value is far outside."""

MEMORY = 1000.0
"""Examples over which mean and deviation are averaged."""


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
            if len(self._inputs) >= MOST or len(name) > LONGEST:
                self.n_refused += 1
                return
            entry = self._inputs[name] = _Input()
        low, high = self.limits.get(name, WIDEST)
        if low <= value <= high:
            entry.least, entry.largest = min(entry.least, value), max(entry.largest, value)
        entry.n += 1
        weight, change = max(1.0 / entry.n, 1.0 / MEMORY), min(max(value, low), high) - entry.mean
        entry.mean += weight * change
        entry.variance = (1.0 - weight) * (entry.variance + weight * change * change)
        width = entry.largest - entry.least
        if entry.n >= FIRST and width > 0.0:
            reach = DEVIATIONS * sqrt(entry.variance)
            low = min(entry.mean - reach, entry.least - WIDTHS * width)
            high = max(entry.mean + reach, entry.largest + WIDTHS * width)
            self.limits[name] = max(low, -LARGEST), min(high, LARGEST)
