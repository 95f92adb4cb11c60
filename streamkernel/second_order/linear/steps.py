"""The function linear in the standardised inputs, f(x) = wᵀ(1, s(x)), by a Newton step at each example; compiled.

A step on an example with the derivatives ℓ' and ℓ'' of f is

    k = A⁻¹s/(1 + αℓ''sᵀA⁻¹s),   w ← w - αℓ'k,   A ← A + αℓ''ssᵀ,   from A = λI,

with α = 1 recursive least squares where the loss is the square one. A is kept as its factor R, RᵀR = A, for the
constant and the first names that come; of the names after those only the diagonal of A is kept, in the same formulas.
Nothing is subtracted from either, so that A stays positive definite in spite of rounding.

Unlike inputs of the features, these are not compressed far from the mean: a linear relation stays linear there. So α is
less than 1, in proportion to 1/s², for an input s further out than any of n examples can be: one corrupt value does not
outweigh everything learned. And f is bounded by `reach`; the score of a class is b tanh(2wᵀs/b) with a bound b, because
labels that are partly noise leave the odds of a class bounded at any distance, which the mixture would otherwise need
features for. The steps move wᵀs.

A name gets a place with its first value that is not 0, and keeps the scale in use at that time, because w and A are in
its units. Names that come together get their places in the order of their hashes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.rows import ROWS
from streamkernel.features.scale_table import SCALES, centre_and_unit
from streamkernel.jit import inlined, unit
from streamkernel.learners.mixing import FLATTEST
from streamkernel.learners.span import LARGEST_GRADIENT, clip
from streamkernel.learners.state import HORIZON, MEAN
from streamkernel.second_order import slots
from streamkernel.second_order.linear.state import (
    BOUND,
    CONSTANT,
    LARGEST_INPUT,
    LINEAR,
    MOST,
    PLACES,
    ROOM,
    Linear,
)
from streamkernel.second_order.name_table import row_of, value_key

_VECTOR = types.float64[::1]

TURN = 8
"""Number of examples between applications of forgetting."""

FURTHEST = 10.0
"""Bound on an input's contribution to A; √n after n examples if that is more. Inputs beyond it get less weight."""

FURTHEST_SQUARED = 3.0
"""Deviations from where on a square stays the same: only linear relations continue."""

REACH = 2.0
"""Bound on f, in standard deviations of the targets divided by the share of variance that f does not explain."""

LARGEST_SCORE = 20.0
"""Bound on f where the size of the targets is 0: until they differ, and for classes without saturated scores."""

SMALLEST_SHARE = 1e-9


@inlined(allocates=False)
def _standardise(value, centre, divisor):  # type: ignore[no-untyped-def]
    """Return the standardised value."""
    return min(max((value - centre) / divisor, -LARGEST_INPUT), LARGEST_INPUT)


@inlined(allocates=False)
def _read_value(linear, key, at, work):  # type: ignore[no-untyped-def]
    """Set the entry at an index to the indicator of a value with this hash, if it has a place."""
    row = row_of(linear.keys, key)
    work.values[at], work.places[at] = 0.0, -1
    if linear.keys[row] == key:
        place = linear.at[row]
        work.values[at], work.places[at] = -1.0 / linear.scales[place, 1], place
        if place < len(work.inputs):
            work.inputs[place] = work.values[at]


@inlined(allocates=False)
def square(value):  # type: ignore[no-untyped-def]
    """Return the input for the square of a standardised value."""
    return (min(value * value, FURTHEST_SQUARED**2) - 1.0) / math.sqrt(2.0)


@unit(types.int64(LINEAR, SCALES, ROWS, types.int64, ROOM), allocates=False, error_model="numpy")
def read_row(linear, scales, rows, i, work):  # type: ignore[no-untyped-def]
    """Set the work arrays to the inputs of row i and their places; return the number of places, including those that
    its new names would get.

    Each name has two entries: the first ones are the inputs, the last ones the indicators of their values. Squares have
    places among the first ones, and no entries.

    Without scaling, inputs are the values.
    """
    used, inputs, first = linear.counts[PLACES], work.inputs, rows.start[i]
    before, is_scaled, n = used, len(scales.table) > 0, rows.start[i + 1] - first
    for k in range(min(used, len(inputs))):
        inputs[k] = 0.0
    inputs[0] = 1.0
    for j in range(n):
        value, key = rows.values[first + j], max(rows.hashes[first + j], np.uint64(1))
        _read_value(linear, value_key(key, value), n + j, work)
        row, place = row_of(linear.keys, key), -1
        if linear.keys[row] == key:
            place = linear.at[row]
            if is_scaled:
                value = _standardise(value, linear.scales[place, 0], linear.scales[place, 1])
        else:
            centre, divisor = 0.0, 1.0
            if is_scaled:
                centre, divisor = centre_and_unit(scales, key)
                value = 0.0 if divisor == 0.0 else _standardise(value, centre, divisor)
            if value != 0.0 and used < MOST:
                place = used
                used += 1
        work.values[j], work.places[j] = value, place
        if 0 <= place < before and place < len(inputs):
            inputs[place] = value
    for k in range(len(linear.squares)):
        inputs[linear.squares[k, 1]] = square(inputs[linear.squares[k, 0]])
    return used


@inlined(allocates=False)
def reach(linear, at, size):  # type: ignore[no-untyped-def]
    """Return the bound of the function for target `at`, from the mean square of the target, 0 for classes.

    A function that explains most of the targets may predict far beyond them, others may not.
    """
    if size == 0.0:
        return LARGEST_SCORE
    return REACH * math.sqrt(size) / max(linear.errors[at] / size, SMALLEST_SHARE)


@unit(types.void(LINEAR, types.int64, ROOM), allocates=False)
def scores(linear, n, work):  # type: ignore[no-untyped-def]
    """Set `raw` to wᵀs of the row of n entries that was read."""
    used = linear.counts[PLACES]
    dense = min(used, len(work.inputs))
    for c in range(len(linear.w)):
        w = linear.w[c]
        total = vectors.dot(work.inputs[:dense], w[:dense])
        if used > dense:
            for j in range(n):
                if dense <= work.places[j] < used:
                    total += work.values[j] * w[work.places[j]]
        work.raw[c] = total


@inlined(allocates=False)
def score(state, entries, moved, work, f):  # type: ignore[no-untyped-def]
    """Set the function's slot in `f`, shape (functions, columns), to its scores at the row that was read, when the
    offset of each target in f has `moved`.
    """
    linear, raw = state.linear, work.raw
    if len(raw) == 0:
        return
    scores(linear, entries, work)
    width = len(raw) // len(moved)
    for c in range(len(raw)):
        raw[c] -= moved[c // width]
    within_reach(linear, state.numbers, raw, f[state.slots[slots.LINEAR]])


@inlined(allocates=False)
def within_reach(linear, numbers, f, out):  # type: ignore[no-untyped-def]
    """Set `out` to the scores, saturated or limited by their bounds."""
    width, bound = len(f) // len(numbers), np.float64(linear.counts[BOUND])
    if bound > 0.0:
        for c in range(len(f)):
            rest = math.exp(-4.0 / bound * abs(f[c]))
            out[c] = math.copysign(bound * (1.0 - rest) / (1.0 + rest), f[c])
        return
    for t in range(len(numbers)):
        most = reach(linear, t, numbers[t].error_scale)
        for c in range(t * width, (t + 1) * width):
            out[c] = min(max(f[c], -most), most)


def slope(linear: Linear, f: Any) -> Any:
    """Return the derivative of a score by wᵀs, given the score; 1 if it is not saturated."""
    bound = linear.counts[BOUND]
    return 2.0 - 2.0 * f * f / (bound * bound) if bound else 1.0


compiled_slope: Any = inlined(slope, allocates=False)
"""The same for compiled code."""


@inlined(allocates=False)
def add_place(linear, key, place, least):  # type: ignore[no-untyped-def]
    """Add a name or a value at the next place, with λ."""
    row = row_of(linear.keys, key)
    linear.keys[row], linear.at[row], linear.names[place] = key, place, key
    if place < len(linear.factor):
        linear.factor[place, place] = math.sqrt(least)
    else:
        linear.diagonal[place] = least


@unit(
    types.void(LINEAR, SCALES, ROWS, types.int64, types.int64, types.float64, ROOM),
    allocates=False,
    error_model="numpy",
)
def admit(linear, scales, rows, i, used, least, work):  # type: ignore[no-untyped-def]
    """Add the new names of the row that was read with λ, within the capacity."""
    first, before = rows.start[i], linear.counts[PLACES]
    if used == before:
        return
    for j in range(rows.start[i + 1] - first):
        place = work.places[j]
        if place < before:
            continue
        key = max(rows.hashes[first + j], np.uint64(1))
        add_place(linear, key, place, least)
        linear.scales[place, 0], linear.scales[place, 1] = 0.0, 1.0
        if len(scales.table) > 0:
            linear.scales[place, 0], linear.scales[place, 1] = centre_and_unit(scales, key)
        if place < len(work.inputs):
            work.inputs[place] = work.values[j]
    linear.counts[PLACES] = used


@inlined(allocates=False)
def move(linear, moved):  # type: ignore[no-untyped-def]
    """Subtract the change of each target's offset from the function."""
    width = len(linear.w) // len(moved)
    for c in range(len(linear.w)):
        linear.w[c, 0] -= moved[c // width]


@inlined(allocates=False)
def learn(state, scales, rows, example, options, work):  # type: ignore[no-untyped-def]
    """Take the step on the row that was read; outliers, and inputs further out than any, count less.

    The mean squared errors, which :func:`reach` depends on, follow.
    """
    linear, numbers, targets, read = state.linear, state.numbers[0], work.targets, work.row.linear
    if len(linear.w) == 0:
        return
    admit(linear, scales, rows, example.i, example.places, options.prior, read)
    move(linear, targets.moved)
    several, (count, columns), seen, k = len(state.numbers), work.g.shape, example.seen, state.slots[slots.LINEAR]
    width, most, trusted, share = columns // several, FLATTEST, trust(example.entries, read, seen), 0.0
    for c in range(columns):
        most = max(most, work.h[k, c])
    for t in range(several):
        if targets.sizes[t] > 0.0 and numbers.intercept == MEAN:
            off = min(abs(read.raw[t] - targets.y[t]), targets.furthest[t])
            linear.errors[t] += (off**2 - linear.errors[t]) / min(float(seen), HORIZON)
        part, counts = work.g[k, t * width : (t + 1) * width], trusted
        if numbers.loss_bound >= LARGEST_GRADIENT:
            at = t * (count + 2) + k
            before = math.sqrt(vectors.dot(part, part))
            state.bounds[at] = clip(part, state.bounds[at], LARGEST_GRADIENT)
            after = math.sqrt(vectors.dot(part, part))
            if after < before:
                vectors.multiply(part, before / after)
                counts = min(counts, after / before)
        vectors.multiply(part, counts * example.weight)
        share = max(share, counts * example.weight)
    step(linear, example.entries, read, work.g[k], share * most)
    if seen % TURN == 0 and not (options.kept == 1.0 and numbers.l2 == 0.0):
        fade(linear, seen, options.kept, numbers.l2, options.prior, read)


@inlined(allocates=False)
def trust(n, work, seen):  # type: ignore[no-untyped-def]
    """Return α of the row of n entries that was read, for example number `seen`."""
    most, furthest = 0.0, max(FURTHEST, math.sqrt(float(seen)))
    for j in range(n):
        most = max(most, abs(work.values[j]))
    return 1.0 if most <= furthest else (furthest / most) ** 2


@unit(types.void(LINEAR, types.int64, ROOM, _VECTOR, types.float64), allocates=False)
def step(linear, n, work, g, curvature):  # type: ignore[no-untyped-def]
    """Take the Newton step on a row of n entries that was read and admitted, with αℓ' and αℓ'' of f."""
    used = linear.counts[PLACES]
    dense = min(used, len(work.inputs))
    factor, diagonal, gain, row = linear.factor, linear.diagonal, work.gain, work.row
    for j in range(dense):
        gain[j] = row[j] = work.inputs[j]
    power = _solve(factor, gain[:dense])
    if used > dense:
        for j in range(n):
            if work.places[j] >= dense:
                power += work.values[j] ** 2 / diagonal[work.places[j]]
    shrunk, largest = 1.0 / (1.0 + curvature * power), 0.0
    for c in range(len(g)):
        largest = max(largest, abs(shrunk * g[c]))
    if not vectors.within(gain[:dense], largest, LARGEST_GRADIENT):
        return
    for c in range(len(g)):
        w = linear.w[c]
        vectors.add(w[:dense], gain[:dense], -shrunk * g[c])
        if used > dense:
            for j in range(n):
                place = work.places[j]
                if place >= dense:
                    w[place] -= shrunk * g[c] * work.values[j] / diagonal[place]
    root = math.sqrt(curvature)
    vectors.multiply(row[:dense], root)
    _rotate(factor, row[:dense])
    if used > dense:
        for j in range(n):
            if work.places[j] >= dense:
                diagonal[work.places[j]] += curvature * work.values[j] ** 2


@unit(
    types.void(LINEAR, types.int64, types.float64, types.float64, types.float64, ROOM),
    is_late=True,
    allocates=False,
)
def fade(linear, seen, kept, l2, least, work):  # type: ignore[no-untyped-def]
    """Forget by ρ an example and add l, for `TURN` examples; restore at one place after the other its loss of λ.

        A ← ρ^TURN A,   A ← A + ((1 - ρᵀ)λ + Tl)eeᵀ,   with the gradient ((1 - ρᵀ)λ + Tl)eᵀw e,

    where T is the number of examples between two turns of a place.
    """
    used = linear.counts[PLACES]
    dense, turn, place = min(used, len(work.inputs)), TURN * used, seen // TURN % used
    factor, diagonal, gain, row = linear.factor, linear.diagonal, work.gain, work.row
    if kept < 1.0:
        root = math.sqrt(kept**TURN)
        for j in range(dense):
            vectors.multiply(factor[j, j:dense], root)
        vectors.multiply(diagonal[dense:used], kept**TURN)
    pull = (1.0 - kept**turn) * (least if place > 0 else CONSTANT * least) + turn * l2
    if place >= dense:
        for c in range(len(linear.w)):
            linear.w[c, place] *= diagonal[place] / (diagonal[place] + pull)
        diagonal[place] += pull
        return
    for j in range(dense):
        gain[j] = row[j] = 0.0
    gain[place], row[place] = 1.0, math.sqrt(pull)
    power = _solve(factor, gain[:dense])
    for c in range(len(linear.w)):
        w = linear.w[c]
        vectors.add(w[:dense], gain[:dense], -pull * w[place] / (1.0 + pull * power))
    _rotate(factor, row[:dense])


@inlined(allocates=False)
def _solve(factor, x):  # type: ignore[no-untyped-def]
    """Set x to (RᵀR)⁻¹x for the first entries of R, and return xᵀ(RᵀR)⁻¹x of the old x."""
    n = len(x)
    for i in range(n):
        if x[i] != 0.0:
            x[i] /= factor[i, i]
            vectors.add(x[i + 1 :], factor[i, i + 1 : n], -x[i])
    power = vectors.dot(x, x)
    for i in range(n - 1, -1, -1):
        x[i] = (x[i] - vectors.dot(factor[i, i + 1 : n], x[i + 1 :])) / factor[i, i]
    return power


@inlined(allocates=False)
def _rotate(factor, x):  # type: ignore[no-untyped-def]
    """Set the first entries of R to the factor of RᵀR + xxᵀ by rotations, destroying x."""
    n = len(x)
    for k in range(n):
        if x[k] == 0.0:
            continue
        a, b = factor[k, k], x[k]
        size = math.sqrt(a * a + b * b)
        c, s = a / size, b / size
        factor[k, k] = size
        row, rest = factor[k, k + 1 : n], x[k + 1 :]
        for j in range(len(rest)):
            a, b = row[j], rest[j]
            row[j] = c * a + s * b
            rest[j] = c * b - s * a
