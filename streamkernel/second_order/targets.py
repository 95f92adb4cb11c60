"""The targets of a mixture, compiled: their offsets in f, sizes, joint loss, range, and which of them are outliers.

A mixture has one target or several; one record of :mod:`streamkernel.learners.state` belongs to each. The first record
counts examples and features for all of them. The columns of f are divided among the targets in order: all columns
belong to a single one, such as the number of a class, and one column to each of several. The columns of a target learn
independently of other targets, except for the features, the Gram matrices and the groups, which they share.

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
from numba import types

from streamkernel import losses
from streamkernel.features.rows import F64
from streamkernel.jit import inlined, work_array
from streamkernel.learners.span import (
    ABOVE,
    AS_RECENTLY,
    BELOW,
    BOUNDED,
    EARNED,
    ENTRIES,
    LARGEST,
    LARGEST_GRADIENT,
    LEARNED_AS,
    LEAST,
    RESISTED,
    USUAL,
    clip,
    counts_in_full,
    is_outlying,
    widen,
)
from streamkernel.learners.state import ERROR_HORIZON, HORIZON, LARGEST_DEVIATION, MEAN
from streamkernel.losses.loss import SQUARE

FURTHEST = 10.0
"""Bound on a target in the updates of mean and size, in units of the size. After n examples, n at most the horizon, it
is √n if that is more: no value of n is further from their mean."""

BEYOND = 0.05
"""Fraction of the range of targets by which a prediction may exceed it, whatever the linear function predicts."""

LARGEST_GAIN = 100.0
"""Bound on what an example shows for or against predictions beyond the limit, in units of the targets' mean square."""

UNLIMITED = 1e90
"""The limit of a linear function that has none."""


class TargetsRoom(NamedTuple):
    """Work arrays for the targets of an example, shape (targets,) each.

    Attributes
    ----------
    y
        Targets without their offsets in f.
    added, moved
        Offsets in f after the example, and their changes.
    furthest, sizes
        Bounds on the targets, and the mean square s² of all so far.
    learned
        The values that are learned, near their predictions where targets do not count in full.
    outlying
        1 for outlying targets, else 0.
    earned
        By how much the squared error is smaller if the linear function extends the range without a limit.
    """

    y: F64
    added: F64
    moved: F64
    furthest: F64
    sizes: F64
    learned: F64
    outlying: F64
    earned: F64


TARGETS_ROOM = types.NamedUniTuple(types.float64[::1], 8, TargetsRoom)


class ExampleScores(NamedTuple):
    """The scores of an example: of all functions, of the linear one before any bound, and the predictions before and
    after the bound.
    """

    f: F64
    raw: F64
    mixed: F64
    predictions: F64


@inlined(allocates=False)
def targets_room(memory, targets):  # type: ignore[no-untyped-def]
    """Return work arrays for a number of targets."""
    return TargetsRoom(
        work_array(memory, targets, np.float64),
        work_array(memory, targets, np.float64),
        work_array(memory, targets, np.float64),
        work_array(memory, targets, np.float64),
        work_array(memory, targets, np.float64),
        work_array(memory, targets, np.float64),
        work_array(memory, targets, np.float64),
        work_array(memory, targets, np.float64),
    )


@inlined(allocates=False)
def center(numbers, y, w, work):  # type: ignore[no-untyped-def]
    """Set the work arrays for the targets of an example of weight w, without their offsets in f, which are updated."""
    first = numbers[0]
    for t in range(len(numbers)):
        target, added, furthest, size = y[t], numbers[t].offset, math.inf, numbers[t].error_scale
        if size > 0.0:
            furthest = max(FURTHEST, math.sqrt(min(float(first.examples), HORIZON))) * math.sqrt(size)
        if first.intercept == MEAN:
            added += w * min(max(target - added, -furthest), furthest) / (first.weight + w)
        work.y[t], work.added[t], work.furthest[t] = target - added, added, furthest
        work.moved[t] = added - numbers[t].offset if first.examples > 0 else 0.0


@inlined(allocates=False)
def measure(numbers, seen, work):  # type: ignore[no-untyped-def]
    """Update the mean squares of the targets with the example number `seen`."""
    if numbers[0].intercept != MEAN:
        return
    for t in range(len(numbers)):
        deviation, size = min(abs(work.y[t]), work.furthest[t]), numbers[t].error_scale
        size += (deviation**2 - size) / min(float(seen), HORIZON)
        work.sizes[t] = numbers[t].error_scale = size


@inlined(allocates=False)
def loss_of(numbers, work, t, f):  # type: ignore[no-untyped-def]
    """Return ℓ(f, y) of target t."""
    width = len(f) // len(numbers)
    return losses.value(numbers[t].loss, numbers[t].loss_parameter, f[t * width : (t + 1) * width], work.y[t])


@inlined(allocates=False)
def loss_at(numbers, work, f):  # type: ignore[no-untyped-def]
    """Return ℓ(f, y); of several targets the mean of ℓ/s², so that all have equal influence."""
    targets = len(numbers)
    if targets == 1:
        return loss_of(numbers, work, 0, f)
    total = 0.0
    for t in range(targets):
        total += loss_of(numbers, work, t, f) / work.sizes[t] if work.sizes[t] > 0.0 else 0.0
    return total / targets


@inlined(allocates=False)
def set_derivatives(numbers, work, f, g, h):  # type: ignore[no-untyped-def]
    """Set `g` and `h`, shape (columns,), to the derivatives of each target's loss by its columns."""
    width = len(f) // len(numbers)
    if len(numbers) == 1:
        losses.derivative(numbers[0].loss, numbers[0].loss_parameter, f, work.y[0], g)
        losses.curvature(numbers[0].loss, numbers[0].loss_parameter, f, work.y[0], h)
        return
    for t in range(len(numbers)):
        code, parameter, first, last = numbers[t].loss, numbers[t].loss_parameter, t * width, (t + 1) * width
        losses.derivative(code, parameter, f[first:last], work.y[t], g[first:last])
        losses.curvature(code, parameter, f[first:last], work.y[t], h[first:last])


@inlined(allocates=False)
def clip_derivatives(state, k, g):  # type: ignore[no-untyped-def]
    """Limit ℓ' at function k, for each target, where the loss itself does not."""
    if state.numbers[0].loss_bound < LARGEST_GRADIENT:
        return
    targets, (count, columns) = len(state.numbers), g.shape
    width = columns // targets
    for t in range(targets):
        at = t * (count + 2) + k
        state.bounds[at] = clip(g[k, t * width : (t + 1) * width], state.bounds[at], LARGEST_GRADIENT)


@inlined(allocates=False)
def follow(numbers, predictions, seen, work):  # type: ignore[no-untyped-def]
    """Update the offsets in f and the unit of the loss with the example number `seen`."""
    first = numbers[0]
    for t in range(len(numbers)):
        target = numbers[t]
        if first.loss_per_error > 0.0:
            usual, off = target.gradient_bound / first.loss_per_error, abs(predictions[t] - work.y[t])
            if usual > 0.0:
                off = usual + (min(off, LARGEST_DEVIATION * usual) - usual) / min(float(seen), ERROR_HORIZON)
            target.gradient_bound = first.loss_per_error * off
        target.offset = target.predicted_offset = work.added[t]


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
