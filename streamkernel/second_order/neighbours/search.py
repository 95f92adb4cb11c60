"""Functions of the nearest neighbours of x among the last examples; compiled.

With the k nearest examples, at the distances d_i and of the weights w_i, and
ω_i = (w_i/d_i⁴)/Σ w_j/d_j⁴,

    f = Σ ω_i (y_i - ȳ),      or of classes      f_y = g_y - Σ_z g_z/C,   g_y = log(k Σ_{y_i = y} ω_i + 1/2)

where ȳ is the offset of the mixture. Two classes in one column have g_1 - g_0. Where each class is learned against
the rest f_y is twice that, so that the scores of two classes keep their order when a third class is added.

Each function uses as many of the last examples as its entry of `WINDOWS`: few follow a stream that moves, and more are
better where data must be dense; fewer if there are many inputs, so that a search reads at most `SEARCHED`. A function
is 0 as long as these are fewer than twice as many as the one before it uses.

Distances are between the inputs as the features read them, over the names that have the first places among those of
the linear function (:mod:`streamkernel.second_order.linear`), and each input counts by its influence on f. An input on
which f does not depend brings no neighbour nearer, and many such inputs hide the others. So in

    d² = Σ_j a_j (x_j - z_j)²,   a_j = max(√m_j, 1/10),   m_j = (n_j s_j/s̄ + 4)/(n_j + 4),

s_j is the mean squared derivative of f along input j over the n_j gradients that have it
(:mod:`streamkernel.second_order.sensitivity`), and s̄ is the mean of s. Before the first gradient all a_j are 1.
Indicators of values count for nothing.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numba import from_dtype, types

from streamkernel.features.rows import F32, I64, ROWS, U64
from streamkernel.features.scale_table import place_of
from streamkernel.jit import compiled, inlined, unit
from streamkernel.learners.state import MEAN, NUMBERS_TYPE
from streamkernel.losses.loss import SOFTMAX
from streamkernel.second_order import slots
from streamkernel.second_order.last_row import LAST_ROW
from streamkernel.second_order.linear.state import LARGEST_INPUT, LINEAR, PLACES, VALUES, Linear, places_of
from streamkernel.second_order.linear.state import ROOM as LINEAR_ROOM
from streamkernel.second_order.neighbours.state import (
    NEIGHBOURS_ROOM,
    NEIGHBOURS_TYPE,
    WINDOWS,
    Neighbours,
    neighbour_functions,
)
from streamkernel.second_order.sensitivity import SENSITIVITY

SEARCHED = 1 << 17
"""Number of inputs that a search for the nearest examples reads at most."""

UNSEEN = 0.5
"""Prior count of each class, in neighbours."""

FURTHEST = 5.0
"""Bound on the distance of a remembered target from the mean, in standard deviations of the targets."""

LEAST_SQUARE = 1e-12
"""Lower bound on d²."""

SIDE_BY_SIDE, FEW, FOUR = 1024, 64, 4
"""Examples whose d² are computed together, which stay in the processor's cache, and that are compared together; and
inputs that are read together."""

_VECTOR, _MATRIX = types.float64[::1], types.float64[:, ::1]

PRIOR = 4.0
"""Gradients that count as if each of them had the mean squared derivative along each input."""

LEAST = 0.1
"""Lower bound on a_j, because the derivatives of f may be past ones."""


@unit(
    types.void(LINEAR, types.Array(from_dtype(SENSITIVITY), 1, "C"), types.float32[::1]),
    allocates=False,
    error_model="numpy",
)
def set_influence(linear, table, out):  # type: ignore[no-untyped-def]
    """Set `out` to a_j of the name at each place, from the table of sensitivities."""
    places, total, count = min(linear.counts[PLACES], len(out)), 0.0, 0
    for place in range(1, places):
        entry = table[place_of(table, linear.names[place])]
        if entry.present > 0.0:
            total += entry.squares / entry.present
            count += 1
    for place in range(1, places):
        entry = table[place_of(table, linear.names[place])]
        if linear.scales[place, 1] < 0.0:  # a value
            out[place] = np.float32(0.0)
            continue
        share = 1.0
        if entry.present > 0.0 and total > 0.0:
            share = (entry.squares * count / total + PRIOR) / (entry.present + PRIOR)
        out[place] = np.float32(max(math.sqrt(share), LEAST))


@compiled
def _influence(linear, places, table):  # type: ignore[no-untyped-def]
    out = np.ones(places, np.float32)
    set_influence(linear, table, out)
    return out


def influence(linear: Linear, places: int, table: Any) -> F32:
    """Return a_j of the first places, 1 for the constant."""
    return np.asarray(_influence(linear, places, table), np.float32)


@unit(types.void(LINEAR_ROOM, ROWS, types.int64, NEIGHBOURS_ROOM), allocates=False)
def set_point(read, rows, i, work):  # type: ignore[no-untyped-def]
    """Set the work arrays to the inputs of row i that distances use; `read` is the row as linear functions read it."""
    point, first = work.point, rows.start[i]
    for j in range(len(point)):
        point[j] = np.float32(0.0)
    for j in range(rows.start[i + 1] - first):
        place = read.places[j]
        if 0 < place < len(point):
            point[place] = np.float32(min(max(rows.values[first + j], -LARGEST_INPUT), LARGEST_INPUT))


@inlined(allocates=False)
def _add_squares(to, values, point, influence):  # type: ignore[no-untyped-def]
    """Add a(v - p)² of each value, in a separate function, which the compiler vectorises."""
    for i in range(len(to)):
        to[i] += influence * (values[i] - point) * (values[i] - point)


@inlined(allocates=False)
def _add_four(to, a, b, c, d, point, influence):  # type: ignore[no-untyped-def]
    """Add a(v - p)² of each value of four inputs, in the order of the inputs."""
    p, q, r, s = point[0], point[1], point[2], point[3]
    t, u, v, w = influence[0], influence[1], influence[2], influence[3]
    for i in range(len(to)):
        near = (to[i] + t * (a[i] - p) * (a[i] - p)) + u * (b[i] - q) * (b[i] - q)
        to[i] = (near + v * (c[i] - r) * (c[i] - r)) + w * (d[i] - s) * (d[i] - s)


@inlined(allocates=False)
def _count_below(values, most):  # type: ignore[no-untyped-def]
    """Return how many values are below a number."""
    count = np.int32(0)
    for i in range(len(values)):
        count += np.int32(values[i] < most)
    return count


@inlined(allocates=False)
def _find_nearest(near, places, first, last, count, work):  # type: ignore[no-untyped-def]
    """Compare the point with the examples at the positions ``first <= i < last`` of the ring, in addition to the
    neighbours that were found elsewhere, the nearest first; return their number.
    """
    for start in range(first, last, SIDE_BY_SIDE):
        n = min(SIDE_BY_SIDE, last - start)
        squares, last_four = work.squares[:n], places - (places - 1) % FOUR
        squares[:] = np.float32(0.0)
        for place in range(1, last_four, FOUR):
            a, b = near.points[place, start : start + n], near.points[place + 1, start : start + n]
            c, d = near.points[place + 2, start : start + n], near.points[place + 3, start : start + n]
            four = slice(place, place + FOUR)
            if _count_below(work.influence[four], np.float32(LEAST_SQUARE)) == FOUR:  # values
                continue
            _add_four(squares, a, b, c, d, work.point[four], work.influence[four])
        for place in range(last_four, places):
            values = near.points[place, start : start + n]
            _add_squares(squares, values, work.point[place], work.influence[place])
        for begin in range(0, n, FEW):
            count = _insert(squares[begin : min(begin + FEW, n)], start + begin, count, work)
    return count


@inlined(allocates=False)
def _insert(squares, first, count, work):  # type: ignore[no-untyped-def]
    """Insert the examples among a few that are nearer than neighbours found before; return the number of neighbours."""
    nearest, which = work.nearest, work.which
    if count == len(nearest) and _count_below(squares, nearest[count - 1]) == 0:
        return count
    for i in range(len(squares)):
        if count == len(nearest) and squares[i] >= nearest[count - 1]:
            continue
        count = min(count + 1, len(nearest))
        k = count - 1
        while k > 0 and squares[i] < nearest[k - 1]:
            nearest[k], which[k] = nearest[k - 1], which[k - 1]
            k -= 1
        nearest[k], which[k] = squares[i], first + i
    return count


def searched(near: Neighbours, linear: Linear, k: int) -> int:
    """Return the number of the last examples that function k uses; 0 if it is 0."""
    stored: int = min(near.remembered[0], len(near.weights))
    inputs = min(linear.counts[PLACES], len(near.points)) - linear.counts[VALUES]
    last: int = min(stored, WINDOWS[k], SEARCHED // inputs)
    return last if k == 0 or last >= 2 * WINDOWS[k - 1] else 0


_compiled_searched: Any = inlined(searched, allocates=False)


def in_order(near: Neighbours, linear: Linear) -> tuple[I64, list[int]]:
    """Return the positions in the ring in the order of the search, and how many of the first ones each function uses,
    without functions that are 0.
    """
    window, remembered = len(near.weights), int(near.remembered[0])
    ends = sorted({searched(near, linear, k) for k in range(neighbour_functions(window))} - {0})
    parts = [np.sort(np.arange(remembered - last, remembered - first) % window) for first, last in pairwise([0, *ends])]
    return np.concatenate([np.zeros(0, np.int64), *parts]), ends


def freeze(near: Neighbours, linear: Linear, hashes: U64, sensitivities: Any) -> dict[str, Any]:
    """Return the arrays of an export with the inputs of these hashes; nothing if all functions are 0."""
    order, ends = in_order(near, linear)
    if not ends:
        return {}
    places = places_of(linear, hashes)
    columns = np.flatnonzero((places > 0) & (places < len(near.points)))
    columns = columns[np.argsort(places[columns], kind="stable")]
    at = places[columns]
    return {
        "near.counts": np.array(ends),
        "near.columns": columns,
        "near.influence": influence(linear, len(near.points), sensitivities)[at],
        "near.points": near.points[at][:, order],
        "near.answers": near.answers.reshape(-1, len(near.weights))[:, order],
        "near.weights": near.weights[order],
    }


@inlined(allocates=False)
def _find_by_age(near, places, youngest, oldest, count, work):  # type: ignore[no-untyped-def]
    """Compare the point with the examples of ages ``youngest <= age < oldest``, as :func:`_find_nearest` does."""
    window = len(near.weights)
    at = near.remembered[0] % window
    first, last = at - oldest, at - youngest
    if first < 0 < last:
        count = _find_nearest(near, places, 0, last, count, work)
        return _find_nearest(near, places, first + window, window, count, work)
    if first < 0:
        first, last = first + window, last + window
    return _find_nearest(near, places, first, last, count, work)


@unit(types.void(NEIGHBOURS_TYPE, LINEAR, NEIGHBOURS_ROOM, LAST_ROW), allocates=False)
def search(near, linear, work, last):  # type: ignore[no-untyped-def]
    """Find the neighbours of the point for each function."""
    before, count, places = 0, 0, min(linear.counts[PLACES], len(near.points))
    for k in range(len(last.found)):
        end = _compiled_searched(near, linear, k)
        if end > before:
            count = _find_by_age(near, places, before, end, count, work)
        last.found[k] = count if end > before else 0
        for i in range(count):
            last.nearest[k, i], last.which[k, i] = work.nearest[i], work.which[i]
        before = end


@inlined(allocates=False)
def score(state, added, f):  # type: ignore[no-untyped-def]
    """Set the slots of the functions in `f`, shape (functions, columns), to their scores at the last row."""
    first = state.slots[slots.NEIGHBOURS]
    if len(f) > first:
        scores(state.neighbours, state.numbers, added, state.last, f[first:])


@unit(types.void(NEIGHBOURS_TYPE, NUMBERS_TYPE, _VECTOR, LAST_ROW, _MATRIX), allocates=False, error_model="numpy")
def scores(near, numbers, added, last, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (functions, columns), to the functions of the neighbours found, without the offsets of the
    targets.
    """
    for k in range(len(out)):
        n = last.found[k]
        for c in range(out.shape[1]):
            out[k, c] = 0.0
        if n > 0:
            _score(near, numbers, added, last.nearest[k, :n], last.which[k, :n], out[k])


@inlined(allocates=False)
def _closeness(near, square, which):  # type: ignore[no-untyped-def]
    """Return w/d⁴ of a neighbour."""
    square = max(float(square), LEAST_SQUARE)
    return near.weights[which] / (square * square)


@inlined(allocates=False)
def _score(near, numbers, added, nearest, which, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (columns,), which is 0, to f of the neighbours."""
    window, total = len(near.weights), 0.0
    for k in range(len(which)):
        total += _closeness(near, nearest[k], which[k])
    width = len(out) // len(numbers)
    for t in range(len(numbers)):
        answers = near.answers[t * window : (t + 1) * window]
        if numbers[0].intercept == MEAN:
            for k in range(len(which)):
                share = _closeness(near, nearest[k], which[k]) / total
                out[t] += share * (answers[which[k]] - added[t])
        else:
            of_target = out[t * width : (t + 1) * width]
            _score_classes(near, numbers[0].loss, answers, nearest, which, total, of_target)


@inlined(allocates=False)
def _score_classes(near, loss, answers, nearest, which, total, out):  # type: ignore[no-untyped-def]
    """Set `out`, which is 0, to the scores of a target's classes among the neighbours."""
    columns, count, positive = len(out), len(which), 0.0
    for k in range(count):
        share = _closeness(near, nearest[k], which[k]) / total
        y = int(answers[which[k]])
        positive += share * (y > 0)
        if 0 <= y < columns and columns > 1:
            out[y] += share
    if columns == 1:
        out[0] = math.log((count * positive + UNSEEN) / (count * (1.0 - positive) + UNSEEN))
        return
    mean, spread = 0.0, 1.0 if loss == SOFTMAX else 2.0
    for c in range(columns):
        out[c] = spread * math.log(count * out[c] + UNSEEN)
        mean += out[c] / columns
    for c in range(columns):
        out[c] -= mean


@inlined(allocates=False)
def learn(state, example, work):  # type: ignore[no-untyped-def]
    """Store the point with its targets and weight in place of the oldest; remote targets are moved closer."""
    near, numbers, window, read = state.neighbours, state.numbers, len(state.neighbours.weights), work.row.neighbours
    if window == 0:
        return
    at = near.remembered[0] % window
    for t in range(len(numbers)):
        answer, mean, size = work.targets.learned[t], work.targets.added[t], numbers[t].error_scale
        if numbers[0].intercept == MEAN and size > 0.0:
            most = FURTHEST * math.sqrt(size)
            answer = min(max(answer, mean - most), mean + most)
        near.answers[t * window + at] = answer
    for place in range(1, min(state.linear.counts[PLACES], len(near.points))):
        near.points[place, at] = read.point[place]
    near.weights[at] = example.weight
    near.remembered[0] += 1
