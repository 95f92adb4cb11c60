"""Second-order learning, compiled: groups of features, each learned twice, and the mixture of them.

The blocks of a model form groups. Group g has the features φ_g(x), n outputs of them, and two functions φ_gᵀw:

* one that takes Newton steps: w ← w - A⁻¹Σ ℓ'φ with A = λI + Σ ℓ''φφᵀ, for what is stationary;
* one that takes steps of constant size, w ← w - γℓ'φ, for what moves.

One function more is a constant that takes constant steps: the recent level, whatever x is. The prediction is
f = Σ_k v_k f_k over all these functions. The v_k are learned by Newton steps too, on the loss of f itself, and forget
what is long ago. All functions see an example before they learn it.

What is learned from one example changes in one call that holds the interpreter's lock, and nothing in it allocates
memory after the first change. A Newton step of the groups takes much longer. So it is prepared in a call that other
threads can run beside, and that changes nothing of what they read; and then it is applied in one call.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel import losses, vectors
from streamkernel.features.rows import F32, F64, I64, Rows
from streamkernel.features.scaling import has_room, observe_row, scale_row, take
from streamkernel.first_order.sgd_step import LARGEST_GRADIENT, clip
from streamkernel.jit import compiled, inlined, unit
from streamkernel.learners import schedule
from streamkernel.learners.embedding import embed, scaled
from streamkernel.learners.scoring import entries_room, longest_row, part_room
from streamkernel.learners.state import BAD_VALUE, DIVERGED, DONE, HORIZON, MEAN, NO_ROOM, NUMBERS_TYPE
from streamkernel.second_order import newton_step, square_root

FIRST, COUNT, BEFORE, SQUARES_BEFORE = range(4)
"""Columns of `layout`: the first output of a group, its outputs n; outputs, and squares of them, of the groups
before."""

FURTHEST = 10.0
"""In units of the targets' size, what a target counts for in their mean and size at most, or √n of n examples if that
is more, of a horizon at most: no value of n is further from their mean."""


class MixtureState(NamedTuple):
    """The arrays of a mixture. Groups differ in size, so theirs are flat, one group after the other.

    Attributes
    ----------
    numbers
        The record of :mod:`streamkernel.learners.state`.
    layout
        Where each group is, shape (groups, 4).
    newton, steady
        w of the two functions of each group, shape (columns, n).
    level
        The constant, shape (columns, 1).
    weights, mixer
        v, and the factor of its own A; functions by Newton steps first, the level last.
    bounds
        The largest derivatives seen of the functions, and of f.
    losses
        The running losses of the functions of groups, and of f = 0, since the model was last restructured.
    priors
        λ of each group, in units of k(x, x).
    factor
        R of each group, shape (n, n), upper triangular, RᵀR = A.
    rows
        √ℓ''φ of the examples that A does not hold yet, shape (room, n) each.
    sums
        Σ ℓ'φ over them, shape (columns, n) for each group; when a step is prepared, what it subtracts from w.
    """

    numbers: Any
    layout: I64
    newton: F64
    steady: F64
    level: F64
    weights: F64
    mixer: F64
    bounds: F64
    losses: F64
    priors: F64
    factor: F32
    rows: F32
    sums: F64


_VECTOR, _MATRIX = types.float64[::1], types.float64[:, ::1]
MIXTURE = types.NamedTuple(
    [
        NUMBERS_TYPE, types.int64[:, ::1], _VECTOR, _VECTOR, _MATRIX, _VECTOR, _MATRIX, _VECTOR, _VECTOR, _VECTOR,
        types.float32[::1], types.float32[::1], _VECTOR,
    ],
    MixtureState,
)  # fmt: skip


@inlined
def _part(values, layout, g, height):  # type: ignore[no-untyped-def]
    """Return what group g has of `values`, shape (height, n)."""
    first, n = height * layout[g, BEFORE], layout[g, COUNT]
    return values[first : first + height * n].reshape(height, n)


@inlined
def _features(z, layout, g):  # type: ignore[no-untyped-def]
    return z[layout[g, FIRST] : layout[g, FIRST] + layout[g, COUNT]]


@inlined
def outputs_of(numbers, layout, blocks):  # type: ignore[no-untyped-def]
    """Return how many outputs there are up to the last one that a group has, or up to a number of blocks."""
    most = blocks * numbers.components * numbers.block_size
    for g in range(len(layout)):
        most = max(most, layout[g, FIRST] + layout[g, COUNT])
    return most


@unit(types.void(MIXTURE, types.float32[::1], _MATRIX))
def functions(state, z, f):  # type: ignore[no-untyped-def]
    """Set `f`, shape (2 groups + 1, columns), to the scores of all functions."""
    layout, columns = state.layout, f.shape[1]
    groups = len(layout)
    for g in range(groups):
        n, before, phi = layout[g, COUNT], columns * layout[g, BEFORE], _features(z, layout, g)
        for c in range(columns):
            first = before + c * n
            f[g, c] = vectors.dot(phi, state.newton[first : first + n])
            f[groups + g, c] = vectors.dot(phi, state.steady[first : first + n])
    for c in range(columns):
        f[2 * groups, c] = state.level[c, 0]


@inlined
def mixed(weights, f, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (columns,), to Σ_k v_k f_k."""
    for c in range(len(out)):
        out[c] = 0.0
    for k in range(len(weights)):
        vectors.add(out, f[k], weights[k])


def _evaluate(state, scales, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (columns,), to the prediction for row i; return the first unusable row, or -1."""
    numbers, parts, width = state.numbers[0], len(kernel.parts), kernel.cache.shape[3]
    row, room = entries_room(parts, longest_row(rows)), part_room(parts, width)
    phi = np.empty((numbers.components, width), np.float32)
    z = np.empty(outputs_of(numbers, state.layout, max(1, numbers.blocks)), np.float32)
    f = np.empty((len(state.weights), numbers.columns))
    read = Rows(rows.start, rows.slots, rows.hashes, rows.readers, np.empty_like(rows.values))
    for i in range(len(rows.start) - 1):
        scale_row(scales, rows, i, read.values)
        if not embed(state.numbers, kernel, read, i, max(1, numbers.blocks), phi, z, row, room):
            return i
        functions(state, z, f)
        mixed(state.weights, f, out[i])
        for c in range(len(out[i])):
            out[i, c] += numbers.predicted_offset
    return -1


evaluate = compiled(_evaluate)
"""For a function that other threads may change: it holds the interpreter's lock."""

evaluate_copy = compiled(nogil=True)(_evaluate)
"""For a function that nothing else changes."""


@compiled
def copy_to_predict(state, scales):  # type: ignore[no-untyped-def]
    """Return copies of what a prediction reads: numbers, w of the functions, the level, v and scales of one moment."""
    functions = state.newton.copy(), state.steady.copy()
    return state.numbers.copy(), *functions, state.level.copy(), state.weights.copy(), scales.table.copy()


def _learn(state, scales, kernel, rows, read, y, gammas, first, options):  # type: ignore[no-untyped-def]
    """Learn the rows in order, from the first on, until a Newton step is due; return (status, the next row).

    Parameters
    ----------
    scales
        The scales of inputs; those of no names if nothing is scaled.
    read
        Room for the values as they are scaled.
    options
        How many examples there had been when the model was last restructured, how many blocks begin at once, the
        step of the level, and whether the scales may change.
    """
    numbers, layout, parts, width = state.numbers[0], state.layout, len(kernel.parts), kernel.cache.shape[3]
    row, room = entries_room(parts, longest_row(rows)), part_room(parts, width)
    phi = np.empty((numbers.components, width), np.float32)
    groups, columns, per_block = len(layout), numbers.columns, numbers.components * numbers.block_size
    count = 2 * groups + 1
    restructured, growing, follow, may_take = options
    z = np.empty(outputs_of(numbers, layout, max(numbers.blocks, growing)), np.float32)
    f, g, h = np.empty((count, columns)), np.empty((count, columns)), np.empty((count, columns))
    out, nothing = np.empty(columns), np.zeros(columns)
    mixing_room = np.empty((4, max(columns, count)))
    scaled_rows = Rows(rows.start, rows.slots, rows.hashes, rows.readers, read)
    code, parameter, bounded = numbers.loss, numbers.loss_parameter, numbers.loss_bound < LARGEST_GRADIENT
    height = len(state.rows) // max(1, len(state.sums) // columns)
    for i in range(first, len(y)):
        blocks = max(numbers.blocks, min(numbers.blocks + 1, growing))
        if not has_room(scales, scale_row(scales, rows, i, read)):
            return NO_ROOM, i
        if not embed(state.numbers, kernel, scaled_rows, i, blocks, phi, z, row, room):
            return BAD_VALUE, i
        # 1. all scores and derivatives; what cannot be learned is refused before anything changes
        functions(state, z, f)
        mixed(state.weights, f, out)
        target, added, furthest = y[i], numbers.offset, math.inf
        if numbers.error_scale > 0.0:
            furthest = max(FURTHEST, math.sqrt(min(float(numbers.examples), HORIZON))) * math.sqrt(numbers.error_scale)
        if numbers.intercept == MEAN:
            added += min(max(target - added, -furthest), furthest) / (numbers.examples + 1)
        target -= added
        usable = vectors.within(out, 1.0, LARGEST_GRADIENT)
        for k in range(count):
            losses.derivative(code, parameter, f[k], target, g[k])
            losses.curvature(code, parameter, f[k], target, h[k])
            usable &= vectors.within(f[k], 1.0, LARGEST_GRADIENT) and vectors.within(g[k], 1.0, LARGEST_GRADIENT)
        if not usable:
            return DIVERGED, i
        # 2. the sizes: of the targets, and of k(x, x)
        seen = numbers.examples + 1
        size = 1.0
        if numbers.intercept == MEAN:
            deviation = min(abs(target), furthest)
            size = numbers.error_scale + (deviation**2 - numbers.error_scale) / min(float(seen), HORIZON)
            numbers.error_scale = size
        own = numbers.k_xx
        if own == 0.0:
            own = vectors.dot(z, z) / blocks
            numbers.mean_square += (own - numbers.mean_square) / seen
            own = max(own, numbers.mean_square) or 1.0
        numbers.step_k_xx = own
        if seen == 1:
            for j in range(groups):
                n, before = layout[j, COUNT], layout[j, SQUARES_BEFORE]
                factor = state.factor[before : before + n * n].reshape(n, n)
                newton_step.begin(factor, state.priors[j] * own * (n // per_block))
        # 3. the mixture, then its functions
        loss = losses.value(code, parameter, out, target)
        newton_step.weigh(state.numbers, f, out, target, size, state.weights, state.mixer, state.bounds, mixing_room)
        if not bounded:
            for k in range(count):
                state.bounds[k] = clip(g[k], state.bounds[k], LARGEST_GRADIENT)
        for c in range(columns):
            state.level[c, 0] -= follow * g[2 * groups, c]
        place, memory = numbers.buffered, min(max(1.0, 0.5 * (seen - restructured)), HORIZON)
        own_loss = losses.value(code, parameter, nothing, target)
        state.losses[2 * groups] += (own_loss - state.losses[2 * groups]) / memory
        for j in range(groups):
            n = layout[j, COUNT]
            if n == 0:
                continue
            most = newton_step.FLATTEST
            for c in range(columns):
                most = max(most, h[j, c])
            for k in range(j, 2 * groups, groups):
                own_loss = losses.value(code, parameter, f[k], target)
                state.losses[k] += (own_loss - state.losses[k]) / memory
            phi_j = _features(z, layout, j)
            gamma = gammas[i] / (own * (n // per_block))
            at = height * layout[j, BEFORE] + place * n
            scaled(state.rows[at : at + n], phi_j, np.float32(math.sqrt(most)))
            for c in range(columns):
                at = columns * layout[j, BEFORE] + c * n
                vectors.add(state.sums[at : at + n], phi_j, g[j, c])
                vectors.add(state.steady[at : at + n], phi_j, -gamma * g[groups + j, c])
        numbers.reused_steps += blocks == numbers.blocks
        numbers.blocks = blocks
        numbers.examples = seen
        numbers.steps += 1
        numbers.buffered += 1
        numbers.running_loss += (loss - numbers.running_loss) / min(float(seen), HORIZON)
        numbers.offset = numbers.predicted_offset = added
        if len(scales.table) > 0:
            observe_row(scales, rows, i)
            if may_take and schedule.compiled_is_due(scales.counts[0].n):
                take(scales)
        if numbers.buffered >= newton_step.compiled_due(seen, numbers.batch_size, numbers.forgetting):
            return DONE, i + 1
    return DONE, len(y)


learn = compiled(_learn)
"""For a function that other threads may read: it holds the interpreter's lock."""

learn_apart = compiled(nogil=True)(_learn)
"""For a function that nothing else uses."""


@compiled(nogil=True)
def prepare_step(state):  # type: ignore[no-untyped-def]
    """Prepare a Newton step of each group on the examples that wait for one; nothing changes that a prediction
    reads."""
    numbers, layout = state.numbers[0], state.layout
    columns, per_block = numbers.columns, numbers.components * numbers.block_size
    height = len(state.rows) // max(1, len(state.sums) // columns)
    largest = 0
    for g in range(len(layout)):
        largest = max(largest, layout[g, COUNT])
    room = square_root.room_for(height)
    fades = numbers.forgetting < 1.0 or numbers.l2 > 0.0
    spare = np.empty(height * largest if fades else 0, np.float32)
    for g in range(len(layout)):
        n, squares = layout[g, COUNT], layout[g, SQUARES_BEFORE]
        if n > 0:
            newton_step.step(
                state.numbers,
                state.factor[squares : squares + n * n].reshape(n, n),
                _part(state.newton, layout, g, columns),
                _part(state.rows, layout, g, height),
                spare[: height * n].reshape(height, n) if fades else spare.reshape(0, 0),
                _part(state.sums, layout, g, columns),
                state.priors[g] * numbers.step_k_xx * (n // per_block),
                room,
            )
    numbers.is_prepared = 1


@compiled
def apply_step(state):  # type: ignore[no-untyped-def]
    """Apply the step that is prepared."""
    numbers, layout, columns = state.numbers[0], state.layout, state.numbers[0].columns
    for g in range(len(layout)):
        n = layout[g, COUNT]
        for c in range(columns):
            first = columns * layout[g, BEFORE] + c * n
            change = state.sums[first : first + n]
            if vectors.within(change, 1.0, LARGEST_GRADIENT):
                vectors.add(state.newton[first : first + n], change, -1.0)
            for j in range(n):
                change[j] = 0.0
    numbers.buffered = numbers.is_prepared = 0
