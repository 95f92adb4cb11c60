"""The targets of a mixture, compiled: their offsets in f, their sizes, and their joint loss.

A mixture has one target or several; one record of :mod:`streamkernel.learners.state` belongs to each. The first record
counts examples and features for all of them. The columns of f are divided among the targets in order: all columns
belong to a single one, such as the number of a class, and one column to each of several. The columns of a target learn
independently of other targets, except for the features, the Gram matrices and the groups, which they share.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel import losses
from streamkernel.features.rows import F64
from streamkernel.jit import inlined, work_array
from streamkernel.learners.span import LARGEST_GRADIENT, clip
from streamkernel.learners.state import ERROR_HORIZON, HORIZON, LARGEST_DEVIATION, MEAN

FURTHEST = 10.0
"""Bound on a target in the updates of mean and size, in units of the size. After n examples, n at most the horizon, it
is √n if that is more: no value of n is further from their mean."""


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
