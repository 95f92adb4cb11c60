"""The first-order function f(x) = Σ_b φ_b(x)ᵀα_b, the averages of its iterates, and its evaluation, compiled.

A model with blocks of F features and C columns keeps

    coef[panel, column, component, feature]    α without its scale; after C columns, the running sum for the average
    beta[block, column]                        β without its scale
    phi[panel, component, feature]             the features of the row that was evaluated last, √F φ
    span[entry]                                the range of the targets, `streamkernel.learners.span`
    numbers                                    the record of `streamkernel.learners.state`

A feature has one component or more: the real and imaginary parts of `features.feature_maps`, a cosine and a sine for a
Gaussian.

The plain average of the iterates f_1, f_2, ... weighs all equally, as in the theory. With steps of automatic size,
another one weighs f_t by t(t + 1)(t + 2)/6, so that it forgets the first steps (Shamir and Zhang, "Stochastic Gradient
Descent for Non-smooth Optimization", 2013, with η = 3), and a prediction is f + v (f̂ - f). The share v of the average
follows from the losses ℓ that both have had on the last examples, in units of the running loss:

    v = 1 / (1 + exp(-s)),    s ← (1 - 1/50) s + (ℓ(f) - ℓ(f̂)) / running loss
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.compiled_kernel import ENTRIES, KERNEL, ROOM, Entries, Span
from streamkernel.features.feature_maps import features, power, prepare
from streamkernel.features.rows import F32, F64, ROWS, Rows
from streamkernel.features.scale_table import scale_row
from streamkernel.jit import Family, compiled, inlined, unit, work_array
from streamkernel.learners.span import limits, within
from streamkernel.learners.state import LEARNED, MEAN, NUMBERS_TYPE

LAST, AVERAGE, MIXTURE = range(3)
"""The function that predicts: the last iterate, the plain average, or a mixture of the last iterate and an average."""

SURE = 40.0
"""Bound on s: beyond it a share is 0 or 1 in floating point."""

_RECENT = 50.0


def weight(averaging: int, t: float) -> float:
    """Return the weight of the function after step `t`.

    Examples
    --------
    >>> [weight(MIXTURE, t) for t in (1, 2, 3)], weight(AVERAGE, 3)
    ([1.0, 4.0, 10.0], 1.0)
    """
    return t * (t + 1.0) * (t + 2.0) / 6.0 if averaging == MIXTURE else 1.0


def total_weight(averaging: int, t: float) -> float:
    """Return the sum of the weights of the functions after `t` steps.

    Examples
    --------
    >>> [total_weight(MIXTURE, t) for t in (1, 2, 3)], total_weight(AVERAGE, 3)
    ([1.0, 5.0, 15.0], 3.0)
    """
    return t * (t + 1.0) * (t + 2.0) * (t + 3.0) / 24.0 if averaging == MIXTURE else float(t)


def share(averaging: int, log_odds: float) -> float:
    """Return the share of the average in predictions.

    Examples
    --------
    >>> share(MIXTURE, 0.0), share(MIXTURE, SURE), share(LAST, 0.0), share(AVERAGE, 0.0)
    (0.5, 1.0, 0.0, 1.0)
    """
    if averaging == MIXTURE:
        return 1.0 / (1.0 + math.exp(-log_odds))
    return 1.0 if averaging == AVERAGE else 0.0


def preferred(log_odds: float, gain: float) -> float:
    """Return s after an example for which the average was better by `gain`, in units of the running loss."""
    return max(-SURE, min(SURE, log_odds - log_odds / _RECENT + gain))


_total_weight, _share = inlined(total_weight), inlined(share)


SCALE, SCALE_SUM, GRADIENTS2, DISTANCE2 = range(4)
"""Columns of the state of each of several functions: the numbers of the same names of `streamkernel.learners.state`."""


class Members(NamedTuple):
    """The arrays of several functions f_m, one for each bandwidth, and of their mixture; empty for a single function.

    Attributes
    ----------
    scores
        F_m and F̂_m of `streamkernel.first_order.bandwidths` at the row that was evaluated last, shape (2 × bandwidths,
        columns).
    steps
        The state of the steps of each, shape (bandwidths, 4).
    mixer
        R with RᵀR = A of the mixture, shape (2 × bandwidths, 2 × bandwidths).
    weights
        u, and v that predicts, of the mixture, shape (2, 2 × bandwidths).
    sizes
        The mean square of the targets, and its maximum so far.
    scratch
        Work array.
    """

    scores: F64
    steps: F64
    mixer: F64
    weights: F64
    sizes: F64
    scratch: F64


MEMBER_STATE = DISTANCE2 + 1


def member_size(bandwidths: int, columns: int) -> int:
    """Return the length of the array that holds all arrays of :class:`Members`."""
    n = bandwidths if bandwidths > 1 else 0
    return 2 * n * columns + n * MEMBER_STATE + 4 * n * n + 4 * n + 2 + (n + 8) * max(2 * n, columns)


def members_in(array: F64, bandwidths: int, columns: int) -> Members:
    """Return the parts of an array of the length :func:`member_size`."""
    n = bandwidths if bandwidths > 1 else 0
    steps = 2 * n * columns
    mixer = steps + n * MEMBER_STATE
    weights = mixer + 4 * n * n
    sizes = weights + 4 * n
    scratch = sizes + 2
    end = scratch + (n + 8) * max(2 * n, columns)
    return Members(
        array[:steps].reshape((2 * n, columns)),
        array[steps:mixer].reshape((n, MEMBER_STATE)),
        array[mixer:weights].reshape((2 * n, 2 * n)),
        array[weights:sizes].reshape((2, 2 * n)),
        array[sizes:scratch],
        array[scratch:end].reshape((n + 8, max(2 * n, columns))),
    )


class FirstOrder(NamedTuple):
    """The arrays of a first-order function."""

    numbers: Any
    coef: F64
    beta: F64
    phi: F32
    span: F64
    members: F64


class ScoringRoom(NamedTuple):
    """Work arrays: entries of a row, features of a part, sums of f, gradients with f and predictions, and the move of
    a block.
    """

    row: Entries
    room: F32
    sums: F64
    gradients: F64
    move: F64


_MATRIX = types.float64[:, ::1]
FIRST_ORDER = types.NamedTuple(
    [
        NUMBERS_TYPE,
        types.float64[:, :, :, ::1],
        _MATRIX,
        types.float32[:, :, ::1],
        types.float64[::1],
        types.float64[::1],
    ],
    FirstOrder,
)
WORK = types.NamedTuple(
    [ENTRIES, types.float32[:, ::1], types.float64[:, ::1], types.float64[:, :, ::1], types.float64[:, :, ::1]],
    ScoringRoom,
)


score_members = Family("score_members", types.void(FIRST_ORDER, KERNEL, WORK, _MATRIX))
"""``score_members(0, state, kernel, work, out)`` is :func:`score` of several functions, of a row that is prepared."""


@inlined(allocates=None)
def entries_room(memory, parts, longest):  # type: ignore[no-untyped-def]
    """Return work arrays for the entries of a row that a number of parts read."""
    return Entries(
        work_array(memory, (parts, longest), np.int64),
        work_array(memory, (parts, longest), np.uint64),
        work_array(memory, (parts, longest), np.float32),
        work_array(memory, parts, np.int64),
    )


@inlined(allocates=False)
def longest_row(rows):  # type: ignore[no-untyped-def]
    """Return the number of entries in the longest row."""
    longest = 0
    for i in range(len(rows.start) - 1):
        longest = max(longest, rows.start[i + 1] - rows.start[i])
    return longest


@inlined(allocates=False)
def part_shape(parts, width):  # type: ignore[no-untyped-def]
    """Return the shape of the work array for the features of a number of parts."""
    return ROOM + 2 * parts, width


@inlined
def workspace(state, kernel, rows):  # type: ignore[no-untyped-def]
    """Return work arrays to evaluate rows and to take steps on them."""
    numbers, parts = state.numbers[0], len(kernel.parts)
    return ScoringRoom(
        entries_room(None, parts, longest_row(rows)),
        np.empty(part_shape(parts, state.coef.shape[3]), np.float32),
        np.empty((state.coef.shape[1], state.coef.shape[3])),
        np.empty((3, numbers.batch_size, numbers.columns)),
        np.empty((numbers.columns, numbers.components, numbers.block_size)),
    )


@inlined(allocates=False)
def has_range(numbers):  # type: ignore[no-untyped-def]
    """Return whether predictions stay in the range of the targets: whether these are numbers, not classes."""
    return numbers.intercept == MEAN or numbers.intercept == LEARNED


@inlined(allocates=False)
def unbounded(numbers, f, average):  # type: ignore[no-untyped-def]
    """Return the prediction, with the offset, before it is limited to the range of the targets."""
    value = average
    if numbers.averaging == MIXTURE:
        value = f + _share(MIXTURE, numbers.log_odds) * (average - f)
    return value + numbers.predicted_offset


@inlined(allocates=False)
def _limit(state, out):  # type: ignore[no-untyped-def]
    """Keep the prediction in the range of the targets, if these are numbers."""
    if has_range(state.numbers[0]) and state.numbers[0].examples > 0:
        low, high = limits(state.span)
        out[1, 0] = within(out[1, 0], low, high)


@unit(
    types.boolean(FIRST_ORDER, KERNEL, ROWS, types.int64, WORK, types.float64[:, ::1]),
    allocates=False,
    error_model="numpy",
)
def score(state, kernel, rows, i, work, out):  # type: ignore[no-untyped-def]
    """Set ``out[0]`` to Σ_b φ_b(x)ᵀ α_b of row i, ``out[1]`` to the prediction, and ``out[2]`` to the
    average if there is one.

    Return whether the row is usable.
    """
    numbers, coef, phi, sums = state.numbers[0], state.coef, state.phi, work.sums
    if not prepare(kernel, rows, i, work.row):
        return False
    width, block_size = coef.shape[3], numbers.block_size
    if numbers.bandwidths > 1:
        score_members(0, state, kernel, work, out)
        _limit(state, out)
        return True
    total = numbers.blocks * block_size
    sums[:] = 0.0
    if total == 0 and numbers.k_xx == 0.0:
        features(kernel, work.row, Span(block_size, 0, 0, block_size), phi[0], work.room)
        if power(phi[0], 0, block_size)[0] < 0.0:
            return False
    for p in range((total + width - 1) // width):
        last = min(width, total - p * width)
        features(kernel, work.row, Span(block_size, p, 0, last), phi[p], work.room)
        if numbers.k_xx == 0.0 and power(phi[p], 0, last)[0] < 0.0:
            return False
        for c in range(coef.shape[1]):
            s = sums[c]
            if numbers.components == 2:
                cos, sin, a, b = phi[p, 0], phi[p, 1], coef[p, c, 0], coef[p, c, 1]
                for f in range(last):
                    s[f] += cos[f] * a[f] + sin[f] * b[f]
                continue
            for o in range(numbers.components):
                z, a = phi[p, o], coef[p, c, o]
                for f in range(last):
                    s[f] += z[f] * a[f]
    normaliser = 1.0 / math.sqrt(block_size)
    columns = numbers.columns
    for c in range(columns):
        dot = vectors.tree_sum(sums[c]) * normaliser
        out[0, c] = numbers.scale * dot
        out[2, c] = out[0, c]
        if coef.shape[1] > columns and numbers.steps > 0:
            average = numbers.scale_sum * dot - vectors.tree_sum(sums[columns + c]) * normaliser
            out[2, c] = average / _total_weight(numbers.averaging, numbers.steps)
        out[1, c] = unbounded(numbers, out[0, c], out[2, c])
    _limit(state, out)
    return True


def _evaluate(state, scales, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (3, columns), to the scores of row i; return the first unusable row, or -1."""
    work = workspace(state, kernel, rows)
    scaled = Rows(rows.start, rows.slots, rows.hashes, rows.readers, np.empty(len(rows.values)), rows.weights)
    state.numbers[0].last_example = 0
    for i in range(len(rows.start) - 1):
        scale_row(scales, rows, i, scaled.values)
        if not score(state, kernel, scaled, i, work, out[i]):
            return i
    return -1


evaluate = compiled(_evaluate)
"""For a function that other threads may change: it holds the interpreter's lock."""

evaluate_copy = compiled(nogil=True)(_evaluate)
"""For a function that nothing else uses."""


def _transform(kernel, rows, size, scale, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to `scale` times the first `size` features of row i, the components of one side by side.

    Return the first unusable row, or -1.
    """
    parts, width, components = len(kernel.parts), kernel.cache.shape[3], out.shape[1] // size
    row, work = entries_room(None, parts, longest_row(rows)), np.empty(part_shape(parts, width), np.float32)
    phi = np.empty((components, width), np.float32)
    for i in range(len(rows.start) - 1):
        if not prepare(kernel, rows, i, row):
            return i
        features(kernel, row, Span(size, 0, 0, size), phi, work)
        if power(phi, 0, size)[0] < 0.0:
            return i
        for f in range(size):
            for o in range(components):
                out[i, components * f + o] = scale * phi[o, f]
    return -1


transform = compiled(_transform)
"""For directions that other threads may change: it holds the interpreter's lock."""

transform_apart = compiled(nogil=True)(_transform)
"""For directions that do not change."""
