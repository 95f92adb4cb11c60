"""The targets seen, compiled: the range that predictions stay in, and targets that are outliers.

A prediction is within the range of targets seen, extended by a fraction of it. A linear function may extend it further:
by the deviation of the targets, or, as a trend that continues requires, by twice as much as targets have widened the
range on that side. The widening is forgotten over as many examples as there are, at most `HORIZON`. There is no such
limit while predictions beyond it have reduced the squared error, by more than the mean square of the targets.

With the square loss, a target that is far from its prediction, in units of the mean error, and outside of the range is
*outlying*, unless a linear function has predicted most of it, or the model an unusual value and a tenth of its distance
from the mean of the targets, as it does where targets have a long tail. The model learns it as if it were two mean
errors away, as with Huber's loss. If the target before was outlying too, with another value, or several were recently,
the targets have changed, and the model learns it in full.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamkernel.features.rows import F64
from streamkernel.jit import inlined
from streamkernel.learners.span import (
    ABOVE,
    AS_RECENTLY,
    BELOW,
    BOUNDED,
    EARNED,
    ENTRIES,
    LARGEST,
    LEARNED_AS,
    LEAST,
    RESISTED,
    USUAL,
    counts_in_full,
    is_outlying,
    widen,
)
from streamkernel.learners.state import HORIZON, MEAN
from streamkernel.losses.loss import SQUARE


class ExampleScores(NamedTuple):
    """The scores of an example: of all functions, of the linear one before any bound, and the predictions before and
    after the bound.
    """

    f: F64
    raw: F64
    mixed: F64
    predictions: F64


BEYOND = 0.05
"""Fraction of the range of targets by which a prediction may exceed it, whatever the linear function predicts."""

LARGEST_GAIN = 100.0
"""Bound on what an example shows for or against predictions beyond the limit, in units of the targets' mean square."""

UNLIMITED = 1e90
"""The limit of a linear function that has none."""


@inlined(allocates=False)
def _within(entries, size, f, base, t, added, value, is_limited):  # type: ignore[no-untyped-def]
    """Return a prediction of target t without its offset, a value, limited to the range of the target, which the linear
    function extends, within its limit or without one.
    """
    more = BEYOND * (entries[LARGEST] - entries[LEAST])
    below = above = UNLIMITED
    if is_limited:
        below, above = (
            max(AS_RECENTLY * entries[BELOW], math.sqrt(size)),
            max(AS_RECENTLY * entries[ABOVE], math.sqrt(size)),
        )
    low, lowest = entries[LEAST] - more - added, entries[LEAST] - max(more, below) - added
    high, highest = entries[LARGEST] + more - added, entries[LARGEST] + max(more, above) - added
    for k in range(base, len(f)):
        low, high = min(low, max(f[k, t], lowest)), max(high, min(f[k, t], highest))
    return min(max(value, low), high)


@inlined(allocates=False)
def bound(numbers, span, f, base, added, out):  # type: ignore[no-untyped-def]
    """Limit a prediction, `out` plus the offset, to the range of the targets, extended as far as the score of the
    linear function requires and recent targets justify. It is the function `base`; those after it, of neighbours, are
    within the range.
    """
    if numbers[0].intercept != MEAN or numbers[0].examples == 0:
        return
    for t in range(len(numbers)):
        entries, size = span[ENTRIES * t : ENTRIES * (t + 1)], numbers[t].error_scale
        out[t] = _within(entries, size, f, base, t, added[t], out[t], entries[EARNED] <= size)


@inlined(allocates=False)
def resist(numbers, span, scores, base, y, work):  # type: ignore[no-untyped-def]
    """Set the values that are learned, in the work arrays; of outlying targets, values near their predictions."""
    f, raw, mixed, predictions = scores.f, scores.raw, scores.mixed, scores.predictions
    for t in range(len(numbers)):
        work.learned[t], work.outlying[t], work.earned[t] = y[t], 0.0, 0.0
        if numbers[0].intercept != MEAN or numbers[0].examples == 0:
            continue
        entries, off = span[ENTRIES * t : ENTRIES * (t + 1)], work.y[t] - predictions[t]
        size, nearest = numbers[t].error_scale, math.inf
        limited = _within(entries, size, f, base, t, work.added[t], mixed[t], True)
        free = _within(entries, size, f, base, t, work.added[t], mixed[t], False)
        most = LARGEST_GAIN * size
        work.earned[t] = min(max((work.y[t] - limited) ** 2 - (work.y[t] - free) ** 2, -most), most)
        if len(raw) > 0:
            nearest = abs(work.y[t] - raw[t])
        if numbers[t].loss != SQUARE or nearest < 0.5 * abs(off):
            continue
        if not is_outlying(entries, y[t], work.y[t], predictions[t], numbers[0].examples):
            continue
        work.outlying[t] = 1.0
        if not counts_in_full(entries, y[t]):
            work.y[t] = predictions[t] + math.copysign(LEARNED_AS * entries[USUAL], off)
            work.learned[t] = work.y[t] + work.added[t]


@inlined(allocates=False)
def observe(numbers, span, y, mixed, predictions, seen, work):  # type: ignore[no-untyped-def]
    """Update what is known of the targets with example number `seen`; `mixed` are its predictions before any bound."""
    if numbers[0].intercept != MEAN:
        return
    for t in range(len(numbers)):
        entries, value = span[ENTRIES * t : ENTRIES * (t + 1)], work.learned[t]
        if seen == 1:
            entries[LEAST] = entries[LARGEST] = value
        error = abs(value - work.added[t] - predictions[t])
        widen(entries, y[t], value, work.added[t], error, work.outlying[t], seen)
        entries[EARNED] = max((1.0 - 1.0 / min(float(seen), HORIZON)) * entries[EARNED] + work.earned[t], 0.0)
        entries[BOUNDED] += 1.0 if mixed[t] != predictions[t] else 0.0
        entries[RESISTED] += 1.0 if value != y[t] else 0.0


def limits(span: F64, sizes: F64) -> tuple[F64, F64, F64, F64]:
    """Return the range of predictions of each target, and how far the linear function may extend it, as :func:`bound`
    does with these mean squares of the targets.
    """
    entries = span.reshape(-1, ENTRIES).T
    low, high = entries[LEAST], entries[LARGEST]
    more = BEYOND * (high - low)
    is_limited = entries[EARNED] <= sizes
    below, above = (np.maximum(np.sqrt(sizes), AS_RECENTLY * entries[side]) for side in (BELOW, ABOVE))
    below, above = (np.where(is_limited, most, UNLIMITED) for most in (below, above))
    return low - more, high + more, low - np.maximum(more, below), high + np.maximum(more, above)
