"""The targets seen, compiled: their range, which predictions stay in, and which targets are outliers.

A prediction is within the range of targets seen, extended by a fraction of it, or, as a trend that continues requires,
by twice as much as targets have widened the range on that side. The widening is forgotten over as many examples as
there are, at most `HORIZON`. Only targets extend the range, however well a function fits them.

A target is *outlying* if it is far from its prediction, in units of the mean error, and outside of the range, unless
the prediction is unusual too and has a tenth of its distance from the usual targets, as where targets have a long tail.
It extends the range, and enters the mean error, as if it were two mean errors away from its prediction. If the target
before was outlying too, or several were recently, the targets have changed, and it counts in full. A value that repeats
exactly, as while a sensor fails, is no change until it does so for long.

The mixture of second-order learners has bounds of its own (`streamkernel.second_order.targets`), with the same entries.

The bound on derivatives in a step is here, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.rows import F64
from streamkernel.jit import compiled, inlined
from streamkernel.learners.state import ERROR_HORIZON, HORIZON, LARGEST_DEVIATION, NOTHING

LEAST, LARGEST, OUTLIER, BELOW, ABOVE, SPREAD, USUAL, OUTSIDERS, LAST, EARNED, BOUNDED, RESISTED = range(12)
"""Entries of a target: the smallest and the largest value; the last outlying value; by how much recent values lay below
and above all before, in total; the mean distance from the usual target; the mean absolute error; the number of recent
outlying values, and whether the last one was outlying; by how much predictions beyond the limit of the linear function
reduced the squared error recently; and, of the examples learned, how many predictions were bounded and how many values
did not count in full."""
ENTRIES = 12
NO_SPAN = 1e300
"""The range of targets in files that do not have it: predictions are then not bounded."""
FURTHER = 0.2
"""Fraction of the range of targets by which the prediction of a single function may exceed it without a trend."""
AS_RECENTLY = 2.0
"""By how much a function may widen the range, in units of how much targets widened it recently."""
FIRST = 64
"""Examples before the first one that can be outlying."""
FAR, LEARNED_AS = 12.0, 2.0
"""Distances from the prediction in mean errors: of an outlying target at least, and that it counts as."""
OUTSIDE = 0.05
"""Distance of an outlying target from the range of earlier ones at least, as a fraction of that range."""
EXPECTED, UNUSUAL = 0.1, 3.0
"""Share of a target's distance from the usual ones which, if the model predicts it, makes the target no outlier; and
how many mean distances of targets from the usual ones the prediction must be away from them."""
PATIENCE, RECENT, REPEATED = 8.0, 512.0, 1.0 / 6.0
"""Number of recent outlying targets from which all count in full; over how many examples they are recent; and what one
adds to this number that repeats the outlying one before it."""
LARGEST_GRADIENT = 1e100
"""A score, derivative or move beyond this means that the steps have diverged; it never reaches a coefficient."""
LARGEST_COEFFICIENT = 1e140
"""Large coefficients may cancel out in a score, but no function has a larger one; the square of this is a number."""


@inlined(allocates=False)
def is_outlying(entries, y, distance, expected, examples):  # type: ignore[no-untyped-def]
    """Return whether target y is an outlier after a number of examples.

    `distance` and `expected` are the target and its prediction, less the usual target.
    """
    is_unusual = abs(expected) > UNUSUAL * entries[SPREAD]
    if examples < FIRST or (is_unusual and expected * distance > EXPECTED * distance**2):
        return False
    more = OUTSIDE * (entries[LARGEST] - entries[LEAST])
    is_outside = y < entries[LEAST] - more or y > entries[LARGEST] + more
    return is_outside and abs(distance - expected) > FAR * entries[USUAL]


@inlined(allocates=False)
def counts_in_full(entries, y):  # type: ignore[no-untyped-def]
    """Return whether a target y that is outlying counts in full, because the targets have changed."""
    return (entries[LAST] != 0.0 and y != entries[OUTLIER]) or entries[OUTSIDERS] >= PATIENCE


@inlined(allocates=False)
def widen(entries, y, value, usual, error, outlying, seen):  # type: ignore[no-untyped-def]
    """Update the range and the means with example number `seen`, whose target y counts as `value`."""
    kept = 1.0 - 1.0 / min(float(seen), HORIZON)
    entries[BELOW] = kept * entries[BELOW] + max(entries[LEAST] - value, 0.0)
    entries[ABOVE] = kept * entries[ABOVE] + max(value - entries[LARGEST], 0.0)
    entries[LEAST], entries[LARGEST] = min(entries[LEAST], value), max(entries[LARGEST], value)
    if entries[USUAL] > 0.0:
        error = min(error, LARGEST_DEVIATION * entries[USUAL])
    entries[USUAL] += (error - entries[USUAL]) / min(float(seen), ERROR_HORIZON)
    entries[SPREAD] += (abs(value - usual) - entries[SPREAD]) / min(float(seen), HORIZON)
    repeated = outlying != 0.0 and entries[LAST] != 0.0 and y == entries[OUTLIER]
    entries[OUTSIDERS] = (1.0 - 1.0 / RECENT) * entries[OUTSIDERS] + (REPEATED if repeated else outlying)
    entries[LAST] = outlying
    if outlying != 0.0:
        entries[OUTLIER] = y


@inlined(allocates=False)
def limits(entries):  # type: ignore[no-untyped-def]
    """Return the least and the largest prediction of a single function."""
    more = FURTHER * (entries[LARGEST] - entries[LEAST])
    below, above = max(more, AS_RECENTLY * entries[BELOW]), max(more, AS_RECENTLY * entries[ABOVE])
    return entries[LEAST] - below, entries[LARGEST] + above


@inlined(allocates=False)
def within(value, low, high):  # type: ignore[no-untyped-def]
    """Return the value between two limits that is closest to `value`; NaN stays NaN."""
    if value < low:
        return low
    return high if value > high else value


@inlined(allocates=False)
def observe(entries, y, usual, raw, prediction, seen):  # type: ignore[no-untyped-def]
    """Update the entries of a single function with example number `seen`.

    `usual` is the usual target; `raw` and `prediction` are the prediction before the example was learned, without
    limits and within them.
    """
    value, outlying = y, is_outlying(entries, y, y - usual, prediction - usual, seen - 1.0)
    if outlying and not counts_in_full(entries, y):
        value = prediction + math.copysign(LEARNED_AS * entries[USUAL], y - prediction)
    widen(entries, y, value, usual, abs(value - prediction), 1.0 if outlying else 0.0, seen)
    entries[BOUNDED] += 1.0 if raw != prediction else 0.0
    entries[RESISTED] += 1.0 if value != y else 0.0


@compiled
def observe_all(entries, targets, usual, predictions, examples):  # type: ignore[no-untyped-def]
    """Update entries like :func:`observe` with targets after a number of examples, all predicted before they were
    learned.
    """
    low, high = limits(entries)
    for i in range(len(targets)):
        raw = predictions[i]
        observe(entries, targets[i], usual, raw, within(raw, low, high), examples + i + 1.0)


@compiled
def bound_all(entries, predictions):  # type: ignore[no-untyped-def]
    """Limit predictions of a single function in place."""
    low, high = limits(entries)
    for i in range(len(predictions)):
        predictions[i] = within(predictions[i], low, high)


def extended(entries: F64, y: F64) -> F64:
    """Return the entries of a single function with a range that has further targets, in no order.

    Examples
    --------
    >>> extended(np.zeros(ENTRIES), np.array([1.0, -2.0]))[:2]
    array([-2.,  1.])
    """
    after = entries.copy()
    after[LEAST], after[LARGEST] = min(after[LEAST], y.min()), max(after[LARGEST], y.max())
    return after


def counts(span: F64) -> tuple[int, int]:
    """Return how many predictions were bounded, and how many targets did not count in full, over all targets.

    Examples
    --------
    >>> counts(np.arange(24.0))
    (32, 34)
    """
    bounded, resisted = span.reshape(-1, ENTRIES).sum(axis=0)[[BOUNDED, RESISTED]].tolist()
    return int(bounded), int(resisted)


def restored(tensors: Mapping[str, Any]) -> F64:
    """Return the entries of the target in a file; raises a ValueError if no function can learn them."""
    entries: F64 = tensor_file.require_tensor(tensors, "span", np.float64, (ENTRIES,))
    check(entries)
    return entries


def check(span: F64) -> None:
    """Raise ``ValueError`` if a file has entries that no function can learn."""
    entries = span.reshape(-1, ENTRIES).T
    if (entries[LEAST] > entries[LARGEST]).any() or not np.abs(span).max() <= NO_SPAN or entries[BELOW:].min() < 0.0:
        raise ValueError(f"expected the least and the largest target, and widths as span, got {span.tolist()}")


def check_offsets(intercept: int, offsets: Any) -> None:
    """Raise a ValueError if a file has offsets that no function can have.

    A function of classes has none: minus an offset, the number of a class would be none.
    """
    most, furthest = LARGEST_COEFFICIENT if intercept != NOTHING else 0.0, np.abs(offsets).max()
    if furthest > most:
        raise ValueError(f"expected offsets up to {most:g}, got {furthest:g}")


@inlined(allocates=False)
def clip(g, bound, most):  # type: ignore[no-untyped-def]
    """Scale `g` down to the bound M on its norm, and return the new M.

    Where the loss has no bound, M is the largest norm seen, and at most doubles a step: an outlier moves f no
    further than the examples before it did.
    """
    square = 0.0
    for c in range(len(g)):
        square += g[c] * g[c]
    norm = math.sqrt(square)
    if bound == 0.0:
        return norm
    if norm > bound:
        for c in range(len(g)):
            g[c] *= bound / norm
        return min(2.0 * bound, norm, most)
    return bound
