"""Second-order learning, compiled: groups of features, each learned twice, and the mixture of them.

The blocks of a model form groups. Group g has the features φ_g(x), n outputs of them, and two functions φ_gᵀw:

* one that takes Newton steps: w ← w - A⁻¹Σ ℓ'φ with A = λI + Σ ℓ''φφᵀ, for stationary streams;
* one that takes steps of constant size, w ← w - γℓ'φ, for drifting streams.

A further function is a constant that takes constant steps: the recent level, independent of x (`.small_functions`).
Where inputs are scaled, one more is linear in them (`.linear`). The prediction is f = Σ_k v_k f_k over all of these.
The v_k are also learned by Newton steps, on the loss of f itself, with less weight for old examples. Three further
functions average the nearest neighbours among stored examples (`.neighbours`). All predict before they learn.

The state changes with an example in one call that holds the interpreter's lock and allocates no memory after the first
change. The Newton steps of the groups take much longer (`streamkernel.second_order.newton`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.compiled_kernel import KERNEL
from streamkernel.features.rows import F64, ROWS, Rows
from streamkernel.features.scale_table import SCALES, ScalesState, has_room, observe_row, scale_row, use_moments
from streamkernel.jit import compiled, inlined, unit, work_array, work_memory
from streamkernel.jit.linking import ALIGNED
from streamkernel.learners import schedule
from streamkernel.learners.scoring import longest_row
from streamkernel.learners.span import LARGEST_GRADIENT
from streamkernel.learners.state import (
    BAD_VALUE,
    DIVERGED,
    DONE,
    DUE,
    HORIZON,
    NO_MEMORY,
    NO_PLACE,
    NO_ROOM,
)
from streamkernel.second_order import newton, pairs, recency, slots, small_functions, steady
from streamkernel.second_order.evaluation import ROW_ROOM, RowRoom, read_row, row_room
from streamkernel.second_order.gradients import EVERY, GRADIENT_ROOM, GradientRoom, add_gradient, gradient_room
from streamkernel.second_order.linear import steps as linear
from streamkernel.second_order.linear.state import ENTRIES
from streamkernel.second_order.mixture_state import COUNT, MIXTURE, MixtureState, per_unit
from streamkernel.second_order.neighbours import search as neighbours
from streamkernel.second_order.neighbours.search import set_influence
from streamkernel.second_order.targets import (
    TARGETS_ROOM,
    ExampleScores,
    TargetsRoom,
    bound,
    center,
    follow,
    loss_at,
    measure,
    observe,
    resist,
    set_derivatives,
    targets_room,
)
from streamkernel.second_order.weights import mix_scores, weigh


class LearningOptions(NamedTuple):
    """The options of a mixture's learning.

    Attributes
    ----------
    growing
        Number of blocks from the first example on.
    follow
        γ of the small functions.
    prior, kept
        λ of the linear function, and its forgetting factor per example.
    is_new
        Whether the scales and the weights v also learn from the examples.
    may_use_moments
        Whether the scales may change.
    has_metric
        Whether gradients are gathered for the metric of larger groups, and sums over pairs of inputs.
    is_alone
        Whether an example is learned only if neither a Newton step nor a check is due after it.
    """

    growing: int
    follow: float
    prior: float
    kept: float
    is_new: bool
    may_use_moments: bool
    has_metric: bool
    is_alone: bool


class Example(NamedTuple):
    """An example that its functions learn.

    Attributes
    ----------
    i, weight
        Its row, and its weight.
    gamma, follow
        γ of constant steps, in units of 1/k(x, x), and γ of the small functions.
    seen
        Its number, from 1 on.
    k_xx
        k(x, x).
    entries, places
        Its entries for the linear function, and their places with the names that it brings.
    """

    i: int
    weight: float
    gamma: float
    follow: float
    seen: int
    k_xx: float
    entries: int
    places: int


class LearningRoom(NamedTuple):
    """Work arrays for an example.

    Attributes
    ----------
    g, h
        The first and second derivatives of the loss at the scores of all functions, shape (functions, columns).
    out, said, nothing
        The score of the mixture, the prediction, and zeros, shape (columns,).
    mixing, row, slopes, targets, pairs
        Work arrays of the parts.
    """

    g: F64
    h: F64
    out: F64
    said: F64
    nothing: F64
    mixing: F64
    row: RowRoom
    slopes: GradientRoom
    targets: TargetsRoom
    pairs: pairs.PairsRoom


_VECTOR, _MATRIX = types.float64[::1], types.float64[:, ::1]
OPTIONS = types.NamedTuple([types.int64] + [types.float64] * 3 + [types.boolean] * 4, LearningOptions)
LEARNING_ROOM = types.NamedTuple(
    [_MATRIX, _MATRIX, _VECTOR, _VECTOR, _VECTOR, _MATRIX, ROW_ROOM, GRADIENT_ROOM, TARGETS_ROOM, pairs.PAIRS_ROOM],
    LearningRoom,
)


@inlined(allocates=False)
def learning_room(memory, state, kernel, rows):  # type: ignore[no-untyped-def]
    """Return work arrays to learn from rows."""
    numbers, targets, (count, columns) = state.numbers[0], len(state.numbers), state.last.f.shape
    return LearningRoom(
        g=work_array(memory, (count, columns), np.float64),
        h=work_array(memory, (count, columns), np.float64),
        out=work_array(memory, columns, np.float64),
        said=work_array(memory, columns, np.float64),
        nothing=work_array(memory, columns, np.float64),
        mixing=work_array(memory, (6, max(columns, count)), np.float64),
        row=row_room(memory, state, kernel, rows),
        slopes=gradient_room(memory, longest_row(rows), numbers.block_size),
        targets=targets_room(memory, targets),
        pairs=pairs.pairs_room(memory),
    )


class LearningRows(NamedTuple):
    """Rows, their targets, shape (rows, targets), the step size at each, an array for the scaled values, and one for f
    at each row before it is learned, shape (rows, columns) or empty.
    """

    rows: Rows
    y: F64
    gammas: F64
    scaled: F64
    said: F64


class Arrival(NamedTuple):
    """The row of an example, its targets, shape (targets,), and γ of constant steps at it."""

    i: int
    y: F64
    gamma: float


_ARRIVAL = types.NamedTuple([types.int64, types.float64[::1], types.float64], Arrival)

NOTHING_SAID = np.empty((0, 0))
"""The array where f is not asked for."""


@unit(
    types.int64(MIXTURE, SCALES, KERNEL, ROWS, ROWS, _ARRIVAL, OPTIONS, LEARNING_ROOM),
    allocates=False,
    error_model="numpy",
)
def _learn_row(state, scales, kernel, rows, scaled, arrival, options, work):  # type: ignore[no-untyped-def]
    """Learn an example, and return a status.

    An example of weight w counts as w examples: Newton steps use wℓ' and wℓ''. `scaled` are the rows with an array for
    the scaled values.
    """
    i, numbers, targets, w = arrival.i, state.numbers[0], work.targets, rows.weights[arrival.i]
    blocks = max(numbers.blocks, min(numbers.blocks + 1, options.growing))
    if not has_room(scales, scale_row(scales, rows, i, scaled.values)):
        return NO_ROOM
    if len(state.neighbours.weights) > 0:
        set_influence(state.linear, state.metric.sensitivities, work.row.neighbours.influence)
    places = read_row(state, scales, kernel, rows, scaled, i, blocks, work.row)
    if places < 0:
        return BAD_VALUE
    if places > state.linear.w.shape[1]:
        return NO_PLACE
    entries = ENTRIES * (rows.start[i + 1] - rows.start[i])
    if not _score(state, arrival.y, w, entries, work):  # an unusable example is refused before anything changes
        return DIVERGED
    seen, has_changed = numbers.examples + 1, recency.compiled_has_changed(state.evidence)
    measure(state.numbers, seen, targets)
    _measure_k_xx(state, blocks, seen)
    example = Example(i, w, arrival.gamma, options.follow, seen, numbers.step_k_xx, entries, places)
    loss = loss_at(state.numbers, targets, work.said)
    if options.has_metric and seen % EVERY == 0:
        row = work.row
        add_gradient(state, scales, kernel, row.linear.inputs, row.embedding, row.metric, work.slopes)
    if options.has_metric and seen > pairs.AFTER:
        _observe_pairs(state, scaled, i, w, work)
    if options.is_new:
        weigh(state, state.last.f, targets, w, work.mixing)
    _observe_losses(state, w, loss, work)
    newton.learn(state, example, work)
    steady.learn(state, example, work)
    small_functions.learn(state, scaled, example, work)
    linear.learn(state, scales, rows, example, options, work)
    neighbours.learn(state, example, work)
    numbers.reused_steps += blocks == numbers.blocks
    numbers.blocks = blocks
    observe(state.numbers, state.span, arrival.y, work.out, work.said, seen, targets)
    follow(state.numbers, work.said, seen, targets)
    numbers.examples = seen
    numbers.weight += w
    numbers.steps += 1
    numbers.buffered += 1
    numbers.running_loss += w / max(w, min(numbers.weight, HORIZON)) * (loss - numbers.running_loss)
    if options.is_new and len(scales.table) > 0:
        observe_row(scales, rows, i)
        if options.may_use_moments and schedule.compiled_is_due(scales.counts[0].n):
            use_moments(scales)
    is_due = has_changed or _is_step_due(state, numbers.buffered, seen if options.is_new else newton.AGAIN * seen)
    return DUE if is_due else DONE


@inlined(allocates=False)
def _score(state, y, w, entries, work):  # type: ignore[no-untyped-def]
    """Set the work arrays to the prediction, and to the derivatives at all functions; return if all are usable."""
    numbers, targets, f, first = state.numbers, work.targets, state.last.f, state.slots[slots.LINEAR]
    if numbers[0].loss_per_error > 0.0:
        for t in range(len(numbers)):
            numbers[t].loss_parameter = numbers[t].gradient_bound or LARGEST_GRADIENT
    center(numbers, y, w, targets)
    linear.score(state, entries, targets.moved, work.row.linear, f)
    neighbours.score(state, targets.added, f)
    mix_scores(state.weights, len(numbers), f, work.out)
    for c in range(len(work.out)):
        work.said[c] = work.out[c]
    bound(numbers, state.span, f, first, targets.added, work.said)
    raw = work.row.linear.raw
    resist(numbers, state.span, ExampleScores(f, raw, work.out, work.said), first, y, targets)
    usable = vectors.within(work.out, 1.0, LARGEST_GRADIENT)
    for k in range(len(f)):
        f_k = raw if k == first and len(raw) > 0 else f[k]
        set_derivatives(numbers, targets, f_k, work.g[k], work.h[k])
        usable &= vectors.within(f_k, 1.0, LARGEST_GRADIENT) and vectors.within(work.g[k], 1.0, LARGEST_GRADIENT)
    return usable


@inlined(allocates=False)
def _observe_pairs(state, scaled, i, w, work):  # type: ignore[no-untyped-def]
    """Add ∂ℓ/∂f at an example of weight w to the sums over pairs of inputs: with several columns, in one direction."""
    numbers, g, h, slope, curvature = state.numbers, work.mixing[0], work.mixing[1], 0.0, 0.0
    columns, since = len(work.out), numbers[0].examples - numbers[0].restarted
    set_derivatives(numbers, work.targets, work.out, g[:columns], h[:columns])
    for c in range(columns):
        share = per_unit(state, c) * (pairs.direction(since, c) if columns > 1 else 1.0)
        slope += w * share * g[c]
        curvature += w * share * share * h[c]
    pairs.observe(state.pairs, state.metric, scaled, i, since, slope, curvature, work.pairs)


@inlined(allocates=False)
def _measure_k_xx(state, blocks, seen):  # type: ignore[no-untyped-def]
    """Update k(x, x), if the kernel does not determine it; the first example begins the factors in units of it."""
    numbers, layout, z = state.numbers[0], state.layout, state.last.z
    k_xx, per_block = numbers.k_xx, numbers.components * numbers.block_size
    if k_xx == 0.0:
        k_xx = vectors.dot(z, z) / blocks
        numbers.mean_square += (k_xx - numbers.mean_square) / seen
        k_xx = max(k_xx, numbers.mean_square) or 1.0
    numbers.step_k_xx = k_xx
    if seen == 1:
        for g in range(len(layout)):
            newton.begin(layout, state.factor, g, state.priors[g] * k_xx * (layout[g, COUNT] // per_block))


@inlined(allocates=False)
def _observe_losses(state, w, of_f, work):  # type: ignore[no-untyped-def]
    """Update the running loss of each function, and of f = 0 in the slot of the first small one, with ℓ(f)."""
    numbers, layout, f = state.numbers[0], state.layout, state.last.f
    since = numbers.examples - numbers.restarted
    fresh = since + 1 - schedule.compiled_last_due(since)
    rate = w / max(w, min(max(1.0, 0.5 * fresh), HORIZON))  # at most 1: no running loss is below 0 by rounding
    for k in range(len(f)):
        if k < state.slots[slots.SMALL] and layout[k % len(layout), COUNT] == 0:
            continue
        loss = loss_at(state.numbers, work.targets, work.nothing if k == state.slots[slots.SMALL] else f[k])
        state.losses[k] += rate * (loss - state.losses[k])
        if k < state.slots[slots.STEADY]:
            state.recent[k] += w * loss
        elif k < state.slots[slots.SMALL]:
            recency.add_evidence(state, k - state.slots[slots.STEADY], loss, of_f, w)


@inlined(allocates=False)
def _is_step_due(state, buffered, seen):  # type: ignore[no-untyped-def]
    """Return whether a step begins, or the step in progress is applied, after a number of examples."""
    due, is_working = newton.due_after(state, seen), state.numbers[0].working > 0
    return buffered >= due or (is_working and buffered == newton.compiled_applied_after(due))


@inlined(allocates=False)
def _is_due_after(state):  # type: ignore[no-untyped-def]
    """Return whether a step, a check or a restart is due after the next example."""
    numbers, seen = state.numbers[0], state.numbers[0].examples + 1
    is_due = _is_step_due(state, numbers.buffered + 1, seen) or schedule.compiled_is_due(seen - numbers.restarted)
    return is_due or recency.compiled_has_changed(state.evidence)


@inlined(allocates=False)
def _learn_in(memory, state, scales, kernel, examples, first, last, options):  # type: ignore[no-untyped-def]
    """Learn like :func:`_learn`, with work arrays in `memory`, unless that is too small."""
    rows, y, gammas = examples.rows, examples.y, examples.gammas
    scaled = Rows(rows.start, rows.slots, rows.hashes, rows.readers, examples.scaled, rows.weights)
    numbers, predictions, work = state.numbers[0], examples.said, learning_room(memory, state, kernel, rows)
    if memory[0] > len(memory):
        return NO_MEMORY, first
    work.nothing[:], work.targets.sizes[:] = 0.0, 1.0
    for i in range(first, last):
        if options.is_alone and _is_due_after(state):
            return DUE, i
        status = _learn_row(state, scales, kernel, rows, scaled, Arrival(i, y[i], gammas[i]), options, work)
        if status != DONE:
            return status, i + (status == DUE)
        for c in range(predictions.shape[1]):
            predictions[i, c] = work.said[c] + 0.0  # as in predictions, where 0 is added, and -0 becomes 0
    is_check_due = options.is_new and schedule.compiled_is_due(numbers.examples - numbers.restarted)
    return DUE if is_check_due else DONE, last


def _learn(state, scales, kernel, examples, first, last, options):  # type: ignore[no-untyped-def]
    """Learn the examples ``first <= i < last`` in order, until a Newton step is due; return (status, the next row).

    The status says whether a step, a check or a restart is due. Examples that are learned alone end before one after
    which one would be due. Without scaling, `scales` is an empty table.
    """
    status, done, words = NO_MEMORY, first, ALIGNED
    while status == NO_MEMORY:
        memory = work_memory(words)
        status, done = _learn_in(memory, state, scales, kernel, examples, first, last, options)
        words = memory[0]
    return status, done


learn = compiled(_learn)
"""The version for functions that other threads may read: it holds the interpreter's lock."""

learn_apart = compiled(nogil=True)(_learn)
"""The version for functions that no other thread uses."""

_late: dict[Any, int] = {use_moments: 2, add_gradient: EVERY, linear.fade: linear.TURN, pairs.observe: pairs.AFTER}
"""Units that are not loaded yet, and the example that first needs each: the first event does not wait for them."""


def load_for(state: MixtureState, scales: ScalesState, more: int, options: LearningOptions) -> None:
    """Load the units that learning `more` examples will need."""
    if _late:
        seen = max(int(state.numbers[0]["examples"]), int(scales.counts[0]["n"])) + more
        for late, first in list(_late.items()):
            if seen >= first and (options.has_metric or late not in (add_gradient, pairs.observe)):
                late.load()
                _late.pop(late, None)
