"""The prediction of a mixture, compiled: the scores of all functions, and their weighted sum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.rows import F64, Rows
from streamkernel.features.scale_table import ScalesState, scale_row
from streamkernel.jit import compiled, inlined, unit
from streamkernel.learners.embedding import embedding_room
from streamkernel.learners.scoring import longest_row
from streamkernel.learners.state import MEAN
from streamkernel.second_order import linear, neighbours
from streamkernel.second_order.gradients import embed_groups
from streamkernel.second_order.influence import set_influence
from streamkernel.second_order.linear_state import LinearRoom, room_for
from streamkernel.second_order.metric import metric_room
from streamkernel.second_order.mixture_state import BEFORE, COUNT, FIRST, MixtureState, outputs_of

_VECTOR = types.float64[::1]

BEYOND = 0.05
"""Fraction of the range of observed targets by which a prediction may exceed it, unless a linear function does."""


@unit(
    types.void(types.int64[:, ::1], _VECTOR, _VECTOR, types.float64[:, ::1], types.float32[::1], types.float64[:, ::1]),
    allocates=False,
)
def functions(layout, newton, steady, level, z, f):  # type: ignore[no-untyped-def]
    """Set `f`, shape (functions, columns), to the scores of the groups' functions, and to the level."""
    groups, columns = len(layout), f.shape[1]
    for g in range(groups):
        n, before = layout[g, COUNT], columns * layout[g, BEFORE]
        phi = z[layout[g, FIRST] : layout[g, FIRST] + n]
        for c in range(columns):
            first = before + c * n
            f[g, c] = vectors.dot(phi, newton[first : first + n])
            f[groups + g, c] = vectors.dot(phi, steady[first : first + n])
    for c in range(columns):
        f[2 * groups, c] = level[c, 0]


class OthersRoom(NamedTuple):
    """Work arrays of the functions that belong to no group: their own, the scores of the linear functions, shape
    (functions, columns), and the offset of each target in predictions.
    """

    linear: LinearRoom
    raw: F64
    added: F64


@inlined
def _others_room(state, longest):  # type: ignore[no-untyped-def]
    """Return work arrays for rows of at most `longest` names, with what is the same for all of them."""
    added = np.empty(len(state.numbers))
    for t in range(len(added)):
        added[t] = state.numbers[t].predicted_offset
    room = room_for(None, state.linear, longest)
    set_influence(state.linear, state.metric.sensitivities, room.influence)
    return OthersRoom(room, np.empty(state.linear.w.shape[:2]), added)


@inlined(allocates=False)
def _set_others(state, scales, rows, read, i, room, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (functions, columns), to the scores of the linear functions, and of the nearest neighbours, at
    row i, which is read as `read` by the features.
    """
    own, numbers, near = state.linear, state.numbers, len(room.raw)
    if len(out) == 0:
        return
    linear.read_row(own, scales, rows, i, room.linear)
    linear.scores(own, rows.start[i + 1] - rows.start[i], room.linear, room.raw)
    linear.within_reach(own, numbers, room.raw, out[:near])
    if len(out) > near:
        neighbours.set_point(own, read, i, room.linear)
        neighbours.score(own, numbers, room.added, room.linear, out[near:])


def scores_of_others(state: MixtureState, scales: ScalesState, rows: Rows) -> F64:
    """Return the scores of the linear functions, and of the nearest neighbours, shape (rows, functions, columns)."""
    functions = len(state.weights) // len(state.numbers) - 2 * len(state.layout) - 1
    out = np.empty((len(rows.start) - 1, functions, len(state.level)))
    _set_all_others(state, scales, rows, out)
    return out


@compiled
def _set_all_others(state, scales, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (functions, columns), to the scores at row i."""
    room = _others_room(state, longest_row(rows))
    read = Rows(rows.start, rows.slots, rows.hashes, rows.readers, np.empty_like(rows.values), rows.weights)
    for i in range(len(out)):
        scale_row(scales, rows, i, read.values)
        _set_others(state, scales, rows, read, i, room, out[i])


@inlined(allocates=False)
def mix_scores(weights, targets, f, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (columns,), to Σ_k v_k f_k, with the weights of each target."""
    count, width = len(weights) // targets, len(out) // targets
    for c in range(len(out)):
        out[c] = 0.0
    for t in range(targets):
        first, last = t * width, (t + 1) * width
        for k in range(count):
            vectors.add(out[first:last], f[k, first:last], weights[t * count + k])


@inlined(allocates=False)
def bound(numbers, span, f, base, added, out):  # type: ignore[no-untyped-def]
    """Limit a prediction, `out` plus the offset, to the range of observed targets, extended by a fraction of it and by
    the scores of linear functions. Those are among the functions from `base` on; neighbours are within the targets.
    """
    if numbers[0].intercept != MEAN or numbers[0].examples == 0:
        return
    for t in range(len(numbers)):
        low, high = span[2 * t], span[2 * t + 1]
        more = BEYOND * (high - low)
        low, high = low - more - added[t], high + more - added[t]
        for k in range(base, len(f)):
            low, high = min(low, f[k, t]), max(high, f[k, t])
        out[t] = min(max(out[t], low), high)


def _evaluate(state, scales, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (columns,), to the prediction for row i; return the first unusable row, or -1."""
    numbers, room, longest = state.numbers[0], embedding_room(None, state.numbers, kernel, rows), longest_row(rows)
    layout, weights, span = state.layout, state.weights, state.span
    newton, steady, level = state.newton, state.steady, state.level
    changed, others = metric_room(None, longest), _others_room(state, longest)
    z = np.empty(outputs_of(numbers, layout, max(1, numbers.blocks)), np.float32)
    targets, added, base = len(state.numbers), others.added, 2 * len(layout) + 1
    f, width = np.empty((len(weights) // targets, numbers.columns)), numbers.columns // targets
    read = Rows(rows.start, rows.slots, rows.hashes, rows.readers, np.empty_like(rows.values), rows.weights)
    for i in range(len(rows.start) - 1):
        scale_row(scales, rows, i, read.values)
        if not embed_groups(state, kernel, read, i, max(1, numbers.blocks), z, room, changed):
            return i
        functions(layout, newton, steady, level, z, f)
        _set_others(state, scales, rows, read, i, others, f[base:])
        mix_scores(weights, targets, f, out[i])
        bound(state.numbers, span, f, base, added, out[i])
        for c in range(len(out[i])):
            out[i, c] += added[c // width]
    return -1


evaluate = compiled(_evaluate)
"""The version for functions that other threads may change: it holds the interpreter's lock."""

evaluate_copy = compiled(nogil=True)(_evaluate)
"""The version for functions that no other thread changes."""


@compiled
def _copy(state, scales):  # type: ignore[no-untyped-def]
    """Return a consistent copy of the arrays that a prediction reads: numbers, w of the functions, the level, v, the
    range of targets, the sensitivities, the linear functions with their names, and scales.
    """
    functions = state.newton.copy(), state.steady.copy(), state.level.copy(), state.weights.copy(), state.span.copy()
    sensitivities = state.metric.sensitivities.copy()
    own = state.linear
    names = own.counts.copy(), own.keys.copy(), own.at.copy(), own.scales.copy(), own.w.copy(), own.errors.copy()
    recent = own.points.copy(), own.answers.copy(), own.weights.copy()
    return state.numbers.copy(), *functions, sensitivities, *names, *recent, scales.counts.copy(), scales.table.copy()


def copy_for_prediction(state: MixtureState, scales: ScalesState) -> tuple[MixtureState, ScalesState]:
    """Return a consistent mixture and scales: the arrays that a prediction reads are copied, the others are shared."""
    numbers, newton, steady, level, weights, span, sensitivities, *names, counts, table = _copy(state, scales)
    parts = "counts", "keys", "at", "scales", "w", "errors", "points", "answers", "weights"
    own = state.linear._replace(**dict(zip(parts, names, strict=True)))
    copied = state._replace(numbers=numbers, newton=newton, steady=steady, level=level, weights=weights, linear=own)
    copied = copied._replace(span=span, metric=state.metric._replace(sensitivities=sensitivities))
    return copied, ScalesState(counts, table)
