"""The prediction of a mixture, compiled: scores of all functions, their weighted sum, and the derivatives by inputs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel.features.compiled_kernel import KERNEL, CompiledKernel
from streamkernel.features.directions import Directions
from streamkernel.features.feature_maps import prepare
from streamkernel.features.rows import F64, ROWS, Rows
from streamkernel.features.scale_table import SCALES, ScalesState, moments_of, scale_row, scale_rows, slopes_of
from streamkernel.jit import compiled, inlined, unit
from streamkernel.learners.embedding import (
    EMBEDDING_ROOM,
    EmbeddingRoom,
    check_derivatives,
    directions_along,
    embedding_room,
)
from streamkernel.learners.embedding import slopes as slopes_along
from streamkernel.learners.scoring import longest_row
from streamkernel.second_order import newton, slots, small_functions, steady
from streamkernel.second_order.gradients import embed_groups, embed_rows
from streamkernel.second_order.last_row import forget_row, is_last, note_row
from streamkernel.second_order.linear import steps as linear
from streamkernel.second_order.linear.state import ENTRIES, LinearRoom, copied_to_predict, room_for
from streamkernel.second_order.linear.state import ROOM as LINEAR_ROOM
from streamkernel.second_order.metric import METRIC_ROOM, MetricRoom, metric_room
from streamkernel.second_order.mixture_state import (
    BEFORE,
    COUNT,
    FIRST,
    MIXTURE,
    OWNER,
    MixtureState,
    with_own_row,
)
from streamkernel.second_order.neighbours import search as neighbours
from streamkernel.second_order.neighbours.search import set_influence
from streamkernel.second_order.neighbours.state import NEIGHBOURS_ROOM, NeighboursRoom, compiled_copied, neighbours_room
from streamkernel.second_order.pairs import along_inputs
from streamkernel.second_order.targets import bound
from streamkernel.second_order.weights import mix_scores


class RowRoom(NamedTuple):
    """Work arrays of the parts for a row."""

    linear: LinearRoom
    neighbours: NeighboursRoom
    embedding: EmbeddingRoom
    metric: MetricRoom


ROW_ROOM = types.NamedTuple([LINEAR_ROOM, NEIGHBOURS_ROOM, EMBEDDING_ROOM, METRIC_ROOM], RowRoom)


@inlined(allocates=None)
def row_room(memory, state, kernel, rows):  # type: ignore[no-untyped-def]
    """Return work arrays for rows."""
    longest = longest_row(rows)
    return RowRoom(
        room_for(memory, state.linear, longest),
        neighbours_room(memory, state.neighbours),
        embedding_room(memory, state.numbers, kernel, rows),
        metric_room(memory, longest),
    )


@unit(
    types.int64(MIXTURE, SCALES, KERNEL, ROWS, ROWS, types.int64, types.int64, ROW_ROOM),
    allocates=False,
    error_model="numpy",
)
def read_row(state, scales, kernel, rows, read, i, blocks, work):  # type: ignore[no-untyped-def]
    """Compute row i, which is read as `read` by the features, of a number of blocks, unless it is the last row.

    The work arrays have the influence of the inputs. Return the number of places of the linear function with the row,
    or -1 if it is unusable.
    """
    lines, last, seen, used = state.linear, state.last, state.numbers[0].examples, 0
    if state.slots[slots.ALL] > state.slots[slots.LINEAR]:
        used = linear.read_row(lines, scales, rows, i, work.linear)
        neighbours.set_point(work.linear, read, i, work.neighbours)
    if is_last(last, read, i, seen, blocks):
        prepare(kernel, read, i, work.embedding.row)
        return used
    forget_row(last)
    if not embed_groups(state, kernel, read, i, blocks, last.z, work.embedding, work.metric):
        return -1
    newton.read(state, last.z, last.f)
    steady.read(state, last.z, last.f)
    small_functions.read(state, read, i, last.f)
    neighbours.search(state.neighbours, lines, work.neighbours, last)
    note_row(last, read, i, seen, blocks)
    return used


@inlined
def _offsets(numbers):  # type: ignore[no-untyped-def]
    """Return the offset of each target in predictions."""
    added = np.empty(len(numbers))
    for t in range(len(added)):
        added[t] = numbers[t].predicted_offset
    return added


def scores_of_others(state: MixtureState, scales: ScalesState, rows: Rows) -> F64:
    """Return the scores of the functions other than the groups', shape (rows, functions, columns)."""
    functions = state.slots[slots.ALL] - state.slots[slots.SMALL]
    out = np.empty((len(rows.start) - 1, functions, len(state.small)))
    _set_others(with_own_row(state), scales, rows, out)
    return out


@compiled
def _set_others(state, scales, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (functions, columns), to the scores at row i."""
    lines, added, moved, f = state.linear, _offsets(state.numbers), np.zeros(len(state.numbers)), state.last.f
    work, near = room_for(None, lines, longest_row(rows)), neighbours_room(None, state.neighbours)
    set_influence(lines, state.metric.sensitivities, near.influence)
    read = Rows(rows.start, rows.slots, rows.hashes, rows.readers, np.empty_like(rows.values), rows.weights)
    for i in range(len(out)):
        scale_row(scales, rows, i, read.values)
        small_functions.read(state, read, i, f)
        linear.read_row(lines, scales, rows, i, work)
        neighbours.set_point(work, read, i, near)
        neighbours.search(state.neighbours, lines, near, state.last)
        linear.score(state, ENTRIES * (rows.start[i + 1] - rows.start[i]), moved, work, f)
        neighbours.score(state, added, f)
        out[i] = f[state.slots[slots.SMALL] :]


def _evaluate(state, scales, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (columns,), to the prediction for row i; return the first unusable row, or -1."""
    numbers, f, added, moved = state.numbers[0], state.last.f, _offsets(state.numbers), np.zeros(len(state.numbers))
    targets, work = len(state.numbers), row_room(None, state, kernel, rows)
    set_influence(state.linear, state.metric.sensitivities, work.neighbours.influence)
    read = Rows(rows.start, rows.slots, rows.hashes, rows.readers, np.empty_like(rows.values), rows.weights)
    for i in range(len(rows.start) - 1):
        scale_row(scales, rows, i, read.values)
        if read_row(state, scales, kernel, rows, read, i, max(1, numbers.blocks), work) < 0:
            return i
        linear.score(state, ENTRIES * (rows.start[i + 1] - rows.start[i]), moved, work.linear, f)
        neighbours.score(state, added, f)
        mix_scores(state.weights, targets, f, out[i])
        bound(state.numbers, state.span, f, state.slots[slots.LINEAR], added, out[i])
        for c in range(len(out[i])):
            out[i, c] += added[c // (len(out[i]) // targets)]
    return -1


evaluate = compiled(_evaluate)
"""The version for functions that other threads may change: it holds the interpreter's lock."""

_evaluate_copy = compiled(nogil=True)(_evaluate)


def evaluate_copy(state: MixtureState, scales: ScalesState, kernel: CompiledKernel, rows: Rows, out: F64) -> int:
    """Evaluate like :func:`evaluate` a function that no other thread changes, without the interpreter's lock."""
    return int(_evaluate_copy(with_own_row(state), scales, kernel, rows, out))


@compiled
def _copy(state, scales):  # type: ignore[no-untyped-def]
    """Return a consistent copy of the arrays that a prediction reads: numbers, w and the small functions, v, the
    range of targets, the sensitivities with their totals, the other functions, and scales.
    """
    functions = state.newton.copy(), state.steady.copy(), state.small.copy(), state.weights.copy(), state.span.copy()
    sensitivities = state.metric.sensitivities.copy(), state.metric.totals.copy()
    others = copied_to_predict(state.linear), compiled_copied(state.neighbours)
    return state.numbers.copy(), *functions, *sensitivities, *others, scales.counts.copy(), scales.table.copy()


def copy_for_prediction(state: MixtureState, scales: ScalesState) -> tuple[MixtureState, ScalesState]:
    """Return a consistent mixture and scales: the arrays that a prediction reads are copied, the others are shared."""
    numbers, newton, steady, small, weights, span, sensitivities, totals, lines, near, *scaling = _copy(state, scales)
    copied = state._replace(numbers=numbers, newton=newton, steady=steady, small=small, weights=weights, span=span)
    metric = state.metric._replace(sensitivities=sensitivities, totals=totals)
    return copied._replace(metric=metric, linear=lines, neighbours=near), ScalesState(*scaling)


def derivatives(mixture: MixtureState, directions: Directions, scales: ScalesState, row: Rows) -> F64:
    """Return the derivatives of Σ v_k f_k over the functions of groups by the values of one row, shape (columns,
    entries), zeros among them.

    The values are brought to `scales`, which have no names where values are taken as they are. Raise an InputError if
    the derivatives are not known for the kernel.
    """
    check_derivatives(directions.plan)
    function, scales = copy_for_prediction(mixture, scales)
    scaled = row._replace(values=np.empty_like(row.values))
    scale_rows(scales, row, scaled.values)
    by_value = _derivatives_of_groups(function, directions, scaled)
    if len(scales.table):
        by_value *= slopes_of(scales, moments_of(scales, row.hashes), row.values)
    by_value[:, row.readers == 0] = 0.0
    return by_value


def _derivatives_of_groups(function: MixtureState, directions: Directions, row: Rows) -> F64:
    """Return the derivatives of the groups' predictions by the scaled values."""
    numbers, layout, metric = function.numbers[0], function.layout, function.metric
    size, groups, columns = int(numbers["block_size"]), len(layout), int(numbers["columns"])
    z = np.zeros(int((layout[:, FIRST] + layout[:, COUNT]).max()), np.float32)
    embedded = embed_rows(function, directions, row, int(numbers["blocks"]))[0]
    z[: len(embedded)] = embedded[: len(z)]
    coefficients = np.zeros((columns, len(z)))
    for first, w in zip(layout[:, FIRST].tolist(), coefficients_of_groups(function), strict=True):
        coefficients[:, first : first + w.shape[1]] += w
    kernel = directions.kernel
    own_slopes = slopes_along(kernel, size, z, coefficients)
    along = directions_along(kernel, size, row.hashes, len(z) // 2)
    most = int(metric.known.max(initial=0))
    along_metric = directions_along(kernel, size, metric.names[:most], len(z) // 2)
    number = {name: i for i, name in enumerate(metric.names[:most].tolist())}
    numbers_of = np.array([number.get(max(name, 1), most) for name in row.hashes.tolist()], np.int64)
    sums = np.zeros((columns, len(row.hashes)))
    for g in np.flatnonzero((layout[:, COUNT] > 0) & (layout[:, OWNER] == np.arange(groups))).tolist():
        n_names, first, last = int(metric.known[g]), layout[g, FIRST] // 2, (layout[g, FIRST] + layout[g, COUNT]) // 2
        of_group, is_known = own_slopes[:, first:last], numbers_of < n_names
        if g == function.pairs.group[0]:
            sums += of_group @ along_inputs(function.pairs, metric, row.hashes).T
            continue
        by_metric = of_group @ along_metric[:n_names, first:last].T @ metric.roots[g, :n_names, :n_names]
        sums[:, ~is_known] += of_group @ along[~is_known, first:last].T
        sums[:, is_known] += by_metric[:, numbers_of[is_known]]
    return sums


def weights_by_column(state: MixtureState) -> F64:
    """Return v of all functions for each column of f, shape (functions, columns); the columns of a target have one."""
    targets = len(state.numbers)
    return np.repeat(state.weights.reshape(targets, -1).T, len(state.small) // targets, axis=1)


def coefficients_of_groups(state: MixtureState) -> list[F64]:
    """Return Σ v_k w_k over both functions of each group, shape (columns, n)."""
    columns, weights, coefficients = len(state.small), weights_by_column(state)[:, :, None], []
    for g, (n, before) in enumerate(state.layout[:, [COUNT, BEFORE]].tolist()):
        here = slice(columns * before, columns * (before + n))
        newton, steady = state.newton[here].reshape(columns, n), state.steady[here].reshape(columns, n)
        v, u = weights[state.slots[[slots.NEWTON, slots.STEADY]] + g]
        coefficients.append(v * newton + u * steady)
    return coefficients
