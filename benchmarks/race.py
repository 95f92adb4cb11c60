"""Methods that learn the same rows, with the clock stopped while their errors are measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import seconds


class Method(Protocol):
    """A participant."""

    @property
    def size(self) -> str:
        """The unit of the model's size (features, terms), and its number."""

    def learn(self, part: slice) -> None:
        """Learn these rows of the training data."""


class Mark(NamedTuple):
    """One measurement of a method: seconds of learning, rows learned, test error, size."""

    seconds: float
    rows: int
    error: float
    size: str


def run(
    method: Method, parts: Sequence[slice], marks: Sequence[int], error: Callable[[Any], float], budget: float = 0.0
) -> tuple[list[Mark], int]:
    """Learn all `parts` in one thread, and repeat until `budget` seconds are used.

    The error is measured after the numbers of parts in `marks`, at the end of the first pass, and when the budget is
    used (at the end of a part). Return the measurements, and the index of the one at the end of the budget, or of the
    last one without a budget.
    """
    found: list[Mark] = []
    took, rows, done, at_budget = 0.0, 0, 0, None
    with threadpool_limits(1):
        while done < len(parts) or took < budget:
            part = parts[done % len(parts)]
            took += seconds(lambda part=part: method.learn(part))
            done, rows = done + 1, rows + part.stop - part.start
            over = at_budget is None and 0.0 < budget <= took
            if done in marks or done == len(parts) or over:
                found.append(Mark(took, rows, error(method), method.size))
            if over:
                at_budget = len(found) - 1
    return found, len(found) - 1 if at_budget is None else at_budget


def geometric(first: int, last: int, count: int) -> list[int]:
    """Return about `count` integers from `first` to `last`, with equal ratios."""
    return sorted({int(i) for i in np.geomspace(first, last, count).round()})


def median(marks: Sequence[Mark]) -> tuple[float, float]:
    """Return the median seconds and error at one index of several runs."""
    return statistics.median(m.seconds for m in marks), statistics.median(m.error for m in marks)


def draw(axis: Any, runs: dict[str, list[list[Mark]]], colors: dict[str, str]) -> None:
    """Draw the median error against the median time of each method."""
    for name, found in runs.items():
        points = [median(marks) for marks in zip(*found, strict=False)]
        axis.plot(*zip(*points, strict=True), label=name, color=colors[name], marker=".", markersize=4)


def save(figure: Any, path: Path) -> None:
    """Write a figure in the format of its suffix, and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    print(f"drawn: {path}")
