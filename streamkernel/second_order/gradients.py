"""The features of all groups for a row, each in its metric, and the gradients of f: for the next metric, and their mean
squares along each name.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.compiled_kernel import ENTRIES, KERNEL, MULTI_SCALE, VECTOR, Span
from streamkernel.features.directions import Directions
from streamkernel.features.feature_maps import entries_along, prepare, set_phases
from streamkernel.features.rows import F32, F64, I64, ROWS, Rows
from streamkernel.features.scale_table import SCALES, place_of, unit_and_slope
from streamkernel.jit import compiled, inlined, unit, work_array
from streamkernel.learners import schedule
from streamkernel.learners.embedding import EMBEDDING_ROOM, embed_blocks, embedding_room, set_scaled
from streamkernel.learners.scoring import longest_row
from streamkernel.learners.span import LARGEST_GRADIENT
from streamkernel.second_order import slots
from streamkernel.second_order.linear.steps import FURTHEST_SQUARED, compiled_slope
from streamkernel.second_order.metric import (
    GRADIENTS,
    METRIC_ROOM,
    MOST_NAMES,
    metric_room,
    number_for,
    number_of,
    transform,
)
from streamkernel.second_order.mixture_state import (
    BEFORE,
    COUNT,
    FIRST,
    MIXTURE,
    OWNER,
    MixtureState,
    first_weight,
    per_unit,
)
from streamkernel.second_order.name_table import row_of, square_key
from streamkernel.second_order.pairs import add_slopes, turns
from streamkernel.second_order.sensitivity import MOST_NAMES as MOST_SENSITIVE
from streamkernel.second_order.sensitivity import NAMES, WEIGHT

EVERY = 4
"""Number of examples between gradients."""


class GradientRoom(NamedTuple):
    """Work arrays for the numbers and derivatives of a row's names, the derivatives by the names of a metric, and a
    block's coefficients, derivatives by ωᵀx, and directions along a name.
    """

    numbers: I64
    gradient: F64
    in_metric: F64
    coefficients: F64
    slopes: F32
    scratch: F32


GRADIENT_ROOM = types.NamedTuple(
    [
        types.int64[::1], types.float64[::1], types.float64[::1], types.float64[::1], types.float32[::1],
        types.float32[::1],
    ],
    GradientRoom,
)  # fmt: skip


@inlined(allocates=False)
def gradient_room(memory, longest, block_size):  # type: ignore[no-untyped-def]
    """Return work arrays for gradients at rows of at most `longest` entries."""
    return GradientRoom(
        work_array(memory, longest, np.int64),
        work_array(memory, longest, np.float64),
        work_array(memory, MOST_NAMES, np.float64),
        work_array(memory, 2 * block_size, np.float64),
        work_array(memory, block_size, np.float32),
        work_array(memory, block_size, np.float32),
    )


@inlined(allocates=False)
def _embed_pairs(state, kernel, row, first, z, embedding, changed):  # type: ignore[no-untyped-def]
    """Set `z` to the features of the block in pairs, which is the first of its group."""
    size, part = state.numbers[0].block_size, kernel.parts[0]
    s, at = embedding.parts[0, :size], 2 * size * first
    turns(state.pairs, state.metric, row, changed.values, s)
    if part.form == MULTI_SCALE:
        vectors.multiply(s, np.float32(part.table[first % part.order]))
    set_phases(s, z[at : at + size], z[at + size : at + 2 * size])
    set_scaled(z[at : at + 2 * size], z[at : at + 2 * size], np.float32(1.0 / math.sqrt(size)))


@unit(
    types.boolean(MIXTURE, KERNEL, ROWS, types.int64, types.int64, VECTOR, EMBEDDING_ROOM, METRIC_ROOM),
    allocates=False,
    error_model="numpy",
)
def embed_groups(state, kernel, rows, i, blocks, z, embedding, changed):  # type: ignore[no-untyped-def]
    """Set `z` to the features of the given blocks for row i, each group's in its metric or in pairs, and to 0 beyond;
    return if the row is usable.

    They are in the order of blocks, components and features. If k(x, x) is known, blocks of no group are 0.
    """
    numbers, layout, metric = state.numbers, state.layout, state.metric
    if not prepare(kernel, rows, i, embedding.row):
        return False
    per_block, begin, done = numbers[0].components * numbers[0].block_size, 0, 0
    for g in range(len(layout)):
        first, count = layout[g, FIRST] // per_block, layout[g, COUNT] // per_block
        last = min(first + count, blocks)
        if layout[g, OWNER] != g or count == 0 or first >= last:
            continue
        in_pairs = g == state.pairs.group[0]
        if metric.known[g] > 0 or in_pairs or (first > done and numbers[0].k_xx > 0.0):
            if begin < done and not embed_blocks(numbers, kernel, embedding.row, begin, done, z, embedding):
                return False
            for j in range(done * per_block, first * per_block):
                z[j] = np.float32(0.0)
            begin = first
        if in_pairs:
            _embed_pairs(state, kernel, embedding.row, first, z, embedding, changed)
            begin = last
        elif metric.known[g] > 0:
            transform(embedding.row, metric, g, changed)
            if not embed_blocks(numbers, kernel, changed.row, first, last, z, embedding):
                return False
            begin = last
        done = last
    for j in range(done * per_block, len(z)):
        z[j] = np.float32(0.0)
    return begin >= done or embed_blocks(numbers, kernel, embedding.row, begin, done, z, embedding)


@inlined(allocates=False)
def _set_slopes(state, kernel, z, g, block, c, work):  # type: ignore[no-untyped-def]
    """Set `slopes` to the derivatives of f_c by ωᵀx of the features of a block of group g.

    f has a_j cos ω_jᵀx + b_j sin ω_jᵀx of feature j, and so the derivative is b_j cos ω_jᵀx - a_j sin ω_jᵀx.
    """
    numbers, layout, part = state.numbers[0], state.layout, kernel.parts[0]
    size, n = numbers.block_size, layout[g, COUNT]
    here = block * 2 * size
    first = numbers.columns * layout[g, BEFORE] + c * n + here - layout[g, FIRST]
    factor = part.table[block % part.order] if part.form == MULTI_SCALE else 1.0
    first_of_target, coefficients = first_weight(state, c), work.coefficients
    v = state.weights[first_of_target + state.slots[slots.NEWTON] + g]
    u = state.weights[first_of_target + state.slots[slots.STEADY] + g]
    for k in range(2 * size):
        coefficients[k] = v * state.newton[first + k] + u * state.steady[first + k]
    for k in range(size):
        slope = coefficients[size + k] * z[here + k] - coefficients[k] * z[here + size + k]
        work.slopes[k] = np.float32(factor * slope)


@unit(types.void(MIXTURE, KERNEL, VECTOR, types.int64, EMBEDDING_ROOM, METRIC_ROOM, GRADIENT_ROOM), error_model="numpy")
def set_gradient(state, kernel, z, c, embedding, changed, work):  # type: ignore[no-untyped-def]
    """Set `work.gradient` to ∇f_c at the row that was embedded last, by what is read of its names."""
    numbers, layout, metric, row = state.numbers[0], state.layout, state.metric, embedding.row
    size, count = numbers.block_size, row.counts[0]
    per_panel, gradient = kernel.cache.shape[3] // size, work.gradient
    gradient[:count] = 0.0
    for g in range(len(layout)):
        n_names, begin = metric.known[g], layout[g, FIRST] // (2 * size)
        if layout[g, COUNT] == 0:
            continue
        if n_names > 0:
            transform(row, metric, g, changed)
        work.in_metric[:] = 0.0
        for block in range(begin, begin + layout[g, COUNT] // (2 * size)):
            _set_slopes(state, kernel, z, g, block, c, work)
            at = block % per_panel * size
            span = Span(size, block // per_panel, at, at + size)
            if g == state.pairs.group[0]:
                add_slopes(state.pairs, work.slopes, work.in_metric)
                for j in range(count):
                    number = number_of(metric, row.hashes[0, j])
                    gradient[j] += work.in_metric[number] if number >= 0 else 0.0
                break
            for a in range(n_names):
                along = entries_along(kernel, np.int64(0), changed.row, a, span, work.scratch)
                work.in_metric[a] += vectors.dot(work.slopes, along)
            for j in range(count):
                if n_names == 0 or not 0 <= number_of(metric, row.hashes[0, j]) < n_names:
                    along = entries_along(kernel, np.int64(0), row, j, span, work.scratch)
                    gradient[j] += vectors.dot(work.slopes, along)
        for j in range(count if n_names > 0 else 0):
            number = number_of(metric, row.hashes[0, j])
            if 0 <= number < n_names:
                gradient[j] += vectors.dot(metric.roots[g, number, :n_names], work.in_metric[:n_names])


@inlined(allocates=False)
def _linear_slope(state, key, c, divisor, inputs):  # type: ignore[no-untyped-def]
    """Return how much the linear function's part of f_c changes per deviation of a name at the last row, which gave it
    these `inputs`.
    """
    linear, k = state.linear, state.slots[slots.LINEAR] + first_weight(state, c)
    row = row_of(linear.keys, key)
    if len(linear.w) == 0 or linear.keys[row] != key:
        return 0.0
    place = linear.at[row]
    if linear.scales[place, 1] <= 0.0:
        return 0.0
    slope = linear.w[c, place]
    if len(linear.squares) > 0 and place < len(inputs) and abs(inputs[place]) < FURTHEST_SQUARED:
        row = row_of(linear.keys, square_key(key))
        if linear.keys[row] != np.uint64(0):
            slope += math.sqrt(2.0) * inputs[place] * linear.w[c, linear.at[row]]
    slope *= state.weights[k] * compiled_slope(linear, state.last.f[state.slots[slots.LINEAR], c])
    return per_unit(state, c) * slope * divisor / linear.scales[place, 1]


@unit(
    types.void(MIXTURE, KERNEL, SCALES, ENTRIES, types.float64[::1], types.float64[::1], types.int64, types.int64),
    allocates=False,
    error_model="numpy",
)
def _observe(state, kernel, scales, row, gradient, inputs, c, since):  # type: ignore[no-untyped-def]
    """Add ∇f_c at a row for each name that is read; halve the earlier sums if a check is due after `since` examples.

    `gradient` belongs to the groups' functions, and `inputs` to the linear one.
    """
    table, totals, part = state.metric.sensitivities, state.metric.totals, kernel.parts[0]
    if schedule.compiled_is_due(since):
        for i in range(len(table)):
            table[i].squares *= 0.5
            table[i].present *= 0.5
        totals[WEIGHT] *= 0.5
    totals[WEIGHT] += 1.0
    for j in range(row.counts[0]):
        key = max(row.hashes[0, j], np.uint64(1))
        entry = table[place_of(table, key)]
        if entry.key != key:
            if totals[NAMES] >= MOST_SENSITIVE:
                continue
            totals[NAMES] += 1.0
            entry.key = key
        unit_in_use, bent = unit_and_slope(scales, key, np.float64(row.values[0, j]) / part.scale)
        slope = 2.0 * math.pi * part.scale * bent * gradient[j]
        slope += _linear_slope(state, key, c, unit_in_use, inputs)
        if abs(slope) < 1e100:
            entry.squares += slope * slope
            entry.present += 1.0


@unit(
    types.void(MIXTURE, SCALES, KERNEL, types.float64[::1], EMBEDDING_ROOM, METRIC_ROOM, GRADIENT_ROOM),
    is_late=True,
    allocates=False,
    error_model="numpy",
)
def add_gradient(state, scales, kernel, inputs, embedding, changed, work):  # type: ignore[no-untyped-def]
    """Add ∇f ∇fᵀ at the row that was embedded last, which is not counted yet, to the sums of the metric.

    `inputs` belong to the linear function.
    """
    metric, row, seen = state.metric, embedding.row, state.numbers[0].examples + 1
    since = seen - EVERY - state.numbers[0].restarted
    if schedule.compiled_last_due(since) > schedule.compiled_last_due(since - EVERY):  # the first one after a check
        metric.sums[:] = 0.0
        metric.counts[GRADIENTS] = 0
    c, count = seen // EVERY % state.numbers[0].columns, row.counts[0]
    set_gradient(state, kernel, state.last.z, c, embedding, changed, work)
    vectors.multiply(work.gradient[:count], per_unit(state, c))
    if not vectors.within(work.gradient[:count], 1.0, LARGEST_GRADIENT):  # slopes beyond single precision
        return
    _observe(state, kernel, scales, row, work.gradient, inputs, c, since)
    names = 0
    for j in range(count):
        number = number_for(metric, row.hashes[0, j], row.slots[0, j])
        if number >= 0:
            work.numbers[names], work.gradient[names] = number, work.gradient[j]
            names += 1
    for j in range(names):
        for k in range(names):
            metric.sums[work.numbers[j], work.numbers[k]] += work.gradient[j] * work.gradient[k]
    metric.counts[GRADIENTS] += 1


@compiled(nogil=True)
def _embed_each(state, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to the features of the first blocks, as many as fit, for row i; 0 if it is unusable."""
    numbers, longest = state.numbers[0], longest_row(rows)
    embedding, changed = embedding_room(None, state.numbers, kernel, rows), metric_room(None, longest)
    blocks = out.shape[1] // (numbers.components * numbers.block_size)
    for i in range(len(rows.start) - 1):
        if not embed_groups(state, kernel, rows, i, blocks, out[i], embedding, changed):
            out[i] = np.float32(0.0)


def embed_rows(function: MixtureState, directions: Directions, rows: Rows, blocks: int) -> F32:
    """Return the features of the first blocks of a mixture for each of `rows`, shape (rows, components × features).

    They are in the order of blocks, components and features; 0 for a row that is unusable.
    """
    out = np.empty((len(rows.start) - 1, blocks * directions.block_size * directions.plan.outputs), np.float32)
    _embed_each(function, directions.kernel, rows, out)
    return out
