"""The prediction of a mixture, compiled: the scores of all functions, and their weighted sum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.compiled_kernel import KERNEL, CompiledKernel
from streamkernel.features.evaluate import prepare
from streamkernel.features.rows import F64, ROWS, Rows
from streamkernel.features.scale_table import SCALES, ScalesState, scale_row
from streamkernel.jit import compiled, inlined, unit
from streamkernel.learners.embedding import EMBEDDING_ROOM, EmbeddingRoom, embedding_room
from streamkernel.learners.scoring import longest_row
from streamkernel.second_order import linear, neighbours
from streamkernel.second_order.gradients import embed_groups
from streamkernel.second_order.influence import set_influence
from streamkernel.second_order.last_row import forget_row, is_last, note_row
from streamkernel.second_order.linear_state import ENTRIES, LinearRoom, room_for
from streamkernel.second_order.linear_state import ROOM as LINEAR_ROOM
from streamkernel.second_order.metric import METRIC_ROOM, MetricRoom, metric_room
from streamkernel.second_order.mixture_state import BEFORE, COUNT, FIRST, MIXTURE, MixtureState, with_own_row
from streamkernel.second_order.span import bound

_VECTOR = types.float64[::1]


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


class RowRoom(NamedTuple):
    """Work arrays of the parts for a row."""

    linear: LinearRoom
    embedding: EmbeddingRoom
    metric: MetricRoom


ROW_ROOM = types.NamedTuple([LINEAR_ROOM, EMBEDDING_ROOM, METRIC_ROOM], RowRoom)


@inlined(allocates=None)
def row_room(memory, state, kernel, rows):  # type: ignore[no-untyped-def]
    """Return work arrays for rows."""
    longest = longest_row(rows)
    return RowRoom(
        room_for(memory, state.linear, longest),
        embedding_room(memory, state.numbers, kernel, rows),
        metric_room(memory, longest),
    )


@unit(
    types.int64(MIXTURE, SCALES, KERNEL, ROWS, ROWS, types.int64, types.int64, ROW_ROOM),
    allocates=False,
    error_model="numpy",
)
def read_row(state, scales, kernel, rows, read, i, blocks, room):  # type: ignore[no-untyped-def]
    """Compute row i, which is read as `read` by the features, of a number of blocks, unless it is the last row.

    The work arrays have the influence of the inputs. Return the number of places of the linear functions with the row,
    or -1 if it is unusable.
    """
    own, last, seen, used = state.linear, state.last, state.numbers[0].examples, 0
    if len(last.f) > 2 * len(state.layout) + 1:
        used = linear.read_row(own, scales, rows, i, room.linear)
        neighbours.set_point(own, read, i, room.linear)
    if is_last(last, read, i, seen, blocks):
        prepare(kernel, read, i, room.embedding.row)
        return used
    forget_row(last)
    if not embed_groups(state, kernel, read, i, blocks, last.z, room.embedding, room.metric):
        return -1
    functions(state.layout, state.newton, state.steady, state.level, last.z, last.f)
    neighbours.search(own, room.linear, last)
    note_row(last, read, i, seen, blocks)
    return used


@inlined
def _offsets(numbers):  # type: ignore[no-untyped-def]
    """Return the offset of each target in predictions."""
    added = np.empty(len(numbers))
    for t in range(len(added)):
        added[t] = numbers[t].predicted_offset
    return added


@inlined(allocates=False)
def _set_others(state, rows, i, added, room, raw, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (functions, columns), to the scores of the linear functions, and of the nearest neighbours, at
    row i, which was read.
    """
    near = len(raw)
    if len(out) > 0:
        linear.scores(state.linear, ENTRIES * (rows.start[i + 1] - rows.start[i]), room, raw)
        linear.within_reach(state.linear, state.numbers, raw, out[:near])
        neighbours.score(state.linear, state.numbers, added, state.last, out[near:])


def scores_of_others(state: MixtureState, scales: ScalesState, rows: Rows) -> F64:
    """Return the scores of the linear functions, and of the nearest neighbours, shape (rows, functions, columns)."""
    functions = len(state.weights) // len(state.numbers) - 2 * len(state.layout) - 1
    out = np.empty((len(rows.start) - 1, functions, len(state.level)))
    _set_all_others(with_own_row(state), scales, rows, out)
    return out


@compiled
def _set_all_others(state, scales, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (functions, columns), to the scores at row i."""
    own, added = state.linear, _offsets(state.numbers)
    room, raw = room_for(None, own, longest_row(rows)), np.empty(own.w.shape[:2])
    set_influence(own, state.metric.sensitivities, room.influence)
    read = Rows(rows.start, rows.slots, rows.hashes, rows.readers, np.empty_like(rows.values), rows.weights)
    for i in range(len(out)):
        scale_row(scales, rows, i, read.values)
        linear.read_row(own, scales, rows, i, room)
        neighbours.set_point(own, read, i, room)
        neighbours.search(own, room, state.last)
        _set_others(state, rows, i, added, room, raw, out[i])


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


def _evaluate(state, scales, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (columns,), to the prediction for row i; return the first unusable row, or -1."""
    numbers, weights, span, f = state.numbers[0], state.weights, state.span, state.last.f
    targets, base, added = len(state.numbers), 2 * len(state.layout) + 1, _offsets(state.numbers)
    room, raw, width = row_room(None, state, kernel, rows), np.empty(state.linear.w.shape[:2]), len(out[0]) // targets
    set_influence(state.linear, state.metric.sensitivities, room.linear.influence)
    read = Rows(rows.start, rows.slots, rows.hashes, rows.readers, np.empty_like(rows.values), rows.weights)
    for i in range(len(rows.start) - 1):
        scale_row(scales, rows, i, read.values)
        if read_row(state, scales, kernel, rows, read, i, max(1, numbers.blocks), room) < 0:
            return i
        _set_others(state, rows, i, added, room.linear, raw, f[base:])
        mix_scores(weights, targets, f, out[i])
        bound(state.numbers, span, f, base, added, out[i])
        for c in range(len(out[i])):
            out[i, c] += added[c // width]
    return -1


evaluate = compiled(_evaluate)
"""The version for functions that other threads may change: it holds the interpreter's lock."""

_evaluate_copy = compiled(nogil=True)(_evaluate)


def evaluate_copy(state: MixtureState, scales: ScalesState, kernel: CompiledKernel, rows: Rows, out: F64) -> int:
    """Evaluate like :func:`evaluate` a function that no other thread changes, without the interpreter's lock."""
    return int(_evaluate_copy(with_own_row(state), scales, kernel, rows, out))


@compiled
def _copy(state, scales):  # type: ignore[no-untyped-def]
    """Return a consistent copy of the arrays that a prediction reads: numbers, w of the functions, the level, v, the
    range of targets, the sensitivities with their totals, the linear functions with their names, and scales.
    """
    functions = state.newton.copy(), state.steady.copy(), state.level.copy(), state.weights.copy(), state.span.copy()
    sensitivities = state.metric.sensitivities.copy(), state.metric.totals.copy()
    own = state.linear
    names = own.counts.copy(), own.keys.copy(), own.at.copy(), own.scales.copy(), own.w.copy(), own.errors.copy()
    recent = own.points.copy(), own.answers.copy(), own.weights.copy()
    return state.numbers.copy(), *functions, *sensitivities, *names, *recent, scales.counts.copy(), scales.table.copy()


def copy_for_prediction(state: MixtureState, scales: ScalesState) -> tuple[MixtureState, ScalesState]:
    """Return a consistent mixture and scales: the arrays that a prediction reads are copied, the others are shared."""
    numbers, newton, steady, level, weights, span, sensitivities, totals, *names, counts, table = _copy(state, scales)
    parts = "counts", "keys", "at", "scales", "w", "errors", "points", "answers", "weights"
    own = state.linear._replace(**dict(zip(parts, names, strict=True)))
    copied = state._replace(numbers=numbers, newton=newton, steady=steady, level=level, weights=weights, linear=own)
    copied = copied._replace(span=span, metric=state.metric._replace(sensitivities=sensitivities, totals=totals))
    return copied, ScalesState(counts, table)
