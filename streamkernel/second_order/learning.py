"""Second-order learning, compiled: groups of features, each learned twice, and the mixture of them.

The blocks of a model form groups. Group g has the features φ_g(x), n outputs of them, and two functions φ_gᵀw:

* one that takes Newton steps: w ← w - A⁻¹Σ ℓ'φ with A = λI + Σ ℓ''φφᵀ, for stationary streams;
* one that takes steps of constant size, w ← w - γℓ'φ, for drifting streams.

A further function is a constant that takes constant steps: the recent level, independent of x. Where inputs are scaled,
two more are linear in them (`streamkernel.second_order.linear`). The prediction is f = Σ_k v_k f_k over all of these.
The v_k are also learned by Newton steps, on the loss of f itself, with less weight for old examples. All functions
predict an example before they learn it. Three further functions average the nearest neighbours among stored examples
(`streamkernel.second_order.neighbours`).

The state changes with an example in one call that holds the interpreter's lock and allocates no memory after the first
change. The Newton steps of the groups take much longer (`streamkernel.second_order.steps`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.compiled_kernel import KERNEL
from streamkernel.features.rows import F64, ROWS, Rows
from streamkernel.features.scale_moments import observe_row, use_moments
from streamkernel.features.scale_table import SCALES, ScalesState, has_room, scale_row
from streamkernel.jit import compiled, inlined, unit, work_memory
from streamkernel.jit.work_arrays import ALIGNED
from streamkernel.learners import schedule
from streamkernel.learners.clipping import LARGEST_GRADIENT, clip
from streamkernel.learners.embedding import set_scaled
from streamkernel.learners.state import (
    BAD_VALUE,
    DIVERGED,
    DONE,
    DUE,
    HORIZON,
    MEAN,
    NO_MEMORY,
    NO_PLACE,
    NO_ROOM,
)
from streamkernel.second_order import linear, neighbours, newton_step
from streamkernel.second_order.evaluation import mix_scores, read_row
from streamkernel.second_order.gradients import EVERY, add_gradient
from streamkernel.second_order.influence import set_influence
from streamkernel.second_order.learning_room import LEARNING_ROOM, OPTIONS, LearningOptions, learning_room
from streamkernel.second_order.linear_state import ENTRIES
from streamkernel.second_order.mixture_state import (
    BEFORE,
    COUNT,
    FIRST,
    MIXTURE,
    Mixer,
    MixtureState,
    rows_per_group,
)
from streamkernel.second_order.span import ExampleScores, bound, observe, resist
from streamkernel.second_order.targets import center, follow, loss_at, measure, set_derivatives

LEAST_PART, LARGEST_PART = 1e-9, 0.99
"""Bounds on the fraction of an error that a constant step removes, for examples whose weight is not 1."""


class Example(NamedTuple):
    """The row of an example, its targets, and the step size at it."""

    i: int
    y: F64
    gamma: float


_EXAMPLE = types.NamedTuple([types.int64, types.float64[::1], types.float64], Example)


class LearningRows(NamedTuple):
    """Rows, their targets, shape (rows, targets), the step size at each, an array for the scaled values, and one for f
    at each row before it is learned, shape (rows, columns) or empty.
    """

    rows: Rows
    y: F64
    gammas: F64
    scaled: F64
    said: F64


NOTHING_SAID = np.empty((0, 0))
"""The array where f is not asked for."""


@inlined(allocates=False)
def steps_of(w, a):  # type: ignore[no-untyped-def]
    """Return the ratio of a constant step for an example of weight w to that for weight 1.

    One step removes the fraction a = γℓ''‖φ‖² of an error, and w steps remove 1 - (1 - a)^w, which does not exceed the
    target for any w (Karampatziakis and Langford, 2011).
    """
    if w == 1.0:
        return 1.0
    a = min(a, LARGEST_PART)
    return w if a < LEAST_PART else -math.expm1(w * math.log1p(-a)) / a


@unit(
    types.int64(MIXTURE, SCALES, KERNEL, ROWS, ROWS, _EXAMPLE, OPTIONS, LEARNING_ROOM),
    allocates=False,
    error_model="numpy",
)
def _learn_row(state, scales, kernel, rows, given, example, options, room):  # type: ignore[no-untyped-def]
    """Learn an example, and return a status.

    An example of weight w counts as w examples: Newton steps use wℓ' and wℓ''. `given` are the rows with an array for
    the scaled values.
    """
    i, y, gamma = example.i, example.y, example.gamma
    numbers, layout, own_linear = state.numbers[0], state.layout, state.linear
    weights, bounds, own_losses, recent, span = state.weights, state.bounds, state.losses, state.recent, state.span
    level, waiting, sums, steady, priors = state.level, state.rows, state.sums, state.steady, state.priors
    z, f, g, h, raw, out, said = state.last.z, state.last.f, room.g, room.h, room.raw, room.out, room.said
    linear_room = room.row.linear
    groups, columns, per_block = len(layout), numbers.columns, numbers.components * numbers.block_size
    several, own_targets, width = len(state.numbers), room.targets, columns // len(state.numbers)
    base, count, height = 2 * groups + 1, len(weights) // several, rows_per_group(numbers, state.rows, state.sums)
    near = base + len(own_linear.w)
    bounded, w = numbers.loss_bound < LARGEST_GRADIENT, rows.weights[i]
    blocks = max(numbers.blocks, min(numbers.blocks + 1, options.growing))
    if not has_room(scales, scale_row(scales, rows, i, given.values)):
        return NO_ROOM
    if count > near:
        set_influence(own_linear, state.metric.sensitivities, linear_room.influence)
    entries = ENTRIES * (rows.start[i + 1] - rows.start[i])
    used = read_row(state, scales, kernel, rows, given, i, blocks, room.row)
    if used < 0:
        return BAD_VALUE
    if used > own_linear.w.shape[2]:
        return NO_PLACE
    if numbers.loss_per_error > 0.0:
        for t in range(several):
            state.numbers[t].loss_parameter = state.numbers[t].gradient_bound or LARGEST_GRADIENT
    # 1. all scores and derivatives; an unusable example is refused before anything changes
    if count > base:
        linear.scores(own_linear, entries, linear_room, raw)
    center(state.numbers, y, w, own_targets)
    if count > base:
        for k in range(near - base):
            for c in range(columns):
                raw[k, c] -= own_targets.moved[c // width]
        linear.within_reach(own_linear, state.numbers, raw, f[base:near])
    if count > near:
        neighbours.score(own_linear, state.numbers, own_targets.added, state.last, f[near:])
    mix_scores(weights, several, f, out)
    for c in range(columns):
        said[c] = out[c]
    bound(state.numbers, span, f, base, own_targets.added, said)
    resist(state.numbers, span, ExampleScores(f=f, raw=raw, mixed=out, predictions=said), base, y, own_targets)
    usable = vectors.within(out, 1.0, LARGEST_GRADIENT)
    for k in range(count):
        f_k = raw[k - base] if base <= k < near else f[k]
        set_derivatives(state.numbers, own_targets, f_k, g[k], h[k])
        usable &= vectors.within(f_k, 1.0, LARGEST_GRADIENT) and vectors.within(g[k], 1.0, LARGEST_GRADIENT)
    if not usable:
        return DIVERGED
    # 2. the sizes: of the targets, and of k(x, x)
    seen = numbers.examples + 1
    measure(state.numbers, seen, own_targets)
    own = numbers.k_xx
    if own == 0.0:
        own = vectors.dot(z, z) / blocks
        numbers.mean_square += (own - numbers.mean_square) / seen
        own = max(own, numbers.mean_square) or 1.0
    numbers.step_k_xx = own
    if seen == 1:
        for j in range(groups):
            newton_step.begin(layout, state.factor, j, priors[j] * own * (layout[j, COUNT] // per_block))
    # 3. the mixture, then its functions
    loss = loss_at(state.numbers, own_targets, said)
    if options.has_metric and seen % EVERY == 0:
        add_gradient(state, scales, kernel, z, f[base:near], room.row.embedding, room.row.metric, room.slopes)
    if options.is_new:
        mixer = Mixer(weights, state.mixer, state.signed, state.positive, state.lead, bounds, room.mixing)
        newton_step.weigh(state.numbers, layout, mixer, f, own_targets, w)
    if not bounded:
        for t in range(several):
            for k in range(base):
                at = t * (count + 2) + k
                bounds[at] = clip(g[k, t * width : (t + 1) * width], bounds[at], LARGEST_GRADIENT)
    for c in range(columns):
        level[c, 0] -= options.follow * steps_of(w, options.follow * h[2 * groups, c]) * g[2 * groups, c]
    since = seen - 1 - numbers.restarted
    place, fresh = numbers.buffered, since + 1 - schedule.compiled_last_due(since)
    rate = w / max(w, min(max(1.0, 0.5 * fresh), HORIZON))  # at most 1: no running loss is below 0 by rounding
    own_loss = loss_at(state.numbers, own_targets, room.nothing)
    own_losses[2 * groups] += rate * (own_loss - own_losses[2 * groups])
    for j in range(groups):
        n = layout[j, COUNT]
        if n == 0:
            continue
        most = newton_step.FLATTEST
        for c in range(columns):
            most = max(most, h[j, c])
        for k in range(j, 2 * groups, groups):
            own_loss = loss_at(state.numbers, own_targets, f[k])
            own_losses[k] += rate * (own_loss - own_losses[k])
            if k < groups:
                recent[k] += w * own_loss
        phi_j = z[layout[j, FIRST] : layout[j, FIRST] + n]
        step = gamma / (own * (n // per_block))
        at = height * layout[j, BEFORE] + place * n
        set_scaled(waiting[at : at + n], phi_j, np.float32(math.sqrt(w * most)))
        power = 0.0 if w == 1.0 else step * vectors.dot(phi_j, phi_j)
        for c in range(columns):
            at = columns * layout[j, BEFORE] + c * n
            vectors.add(sums[at : at + n], phi_j, w * g[j, c])
            gain = step * steps_of(w, power * h[groups + j, c])
            vectors.add(steady[at : at + n], phi_j, -gain * g[groups + j, c])
    if count > base:
        linear.admit(own_linear, scales, rows, i, used, options.prior, linear_room)
        linear.move(own_linear, own_targets.moved)
    for k in range(near, count):
        own_losses[k] += rate * (loss_at(state.numbers, own_targets, f[k]) - own_losses[k])
    for k in range(base, near):
        own_loss = loss_at(state.numbers, own_targets, f[k])
        own_losses[k] += rate * (own_loss - own_losses[k])
        most, trust, share = newton_step.FLATTEST, linear.trust(entries, linear_room, seen), 0.0
        for c in range(columns):
            most = max(most, h[k, c])
        for t in range(several):
            if own_targets.sizes[t] > 0.0 and numbers.intercept == MEAN:
                at = (k - base) * several + t
                off = min(abs(raw[k - base, t] - own_targets.y[t]), own_targets.furthest[t])
                own_linear.errors[at] += (off**2 - own_linear.errors[at]) / min(float(seen), HORIZON)
            part, counts = g[k, t * width : (t + 1) * width], trust
            if not bounded:
                at = t * (count + 2) + k
                before = math.sqrt(vectors.dot(part, part))
                bounds[at] = clip(part, bounds[at], LARGEST_GRADIENT)
                after = math.sqrt(vectors.dot(part, part))
                if after < before:
                    vectors.multiply(part, before / after)
                    counts = min(counts, after / before)
            vectors.multiply(part, counts * w)
            share = max(share, counts * w)
        linear.step(own_linear, k - base, entries, linear_room, g[k], share * most)
        kept = linear.FORGETTING[k - base] * numbers.forgetting
        if seen % linear.TURN == 0 and not (kept == 1.0 and numbers.l2 == 0.0):
            linear.fade(own_linear, k - base, seen, kept, numbers.l2, options.prior, linear_room)
    numbers.reused_steps += blocks == numbers.blocks
    numbers.blocks = blocks
    observe(state.numbers, span, y, out, said, seen, own_targets)
    follow(state.numbers, said, seen, own_targets)
    numbers.examples = seen
    numbers.weight += w
    numbers.steps += 1
    numbers.buffered += 1
    numbers.running_loss += w / max(w, min(numbers.weight, HORIZON)) * (loss - numbers.running_loss)
    if count > near:
        neighbours.remember(own_linear, state.numbers, own_targets.learned, w, linear_room)
    if options.is_new and len(scales.table) > 0:
        observe_row(scales, rows, i)
        if options.may_use_moments and schedule.compiled_is_due(scales.counts[0].n):
            use_moments(scales)
    return DUE if _is_step_due(state, numbers.buffered, seen) else DONE


@inlined(allocates=False)
def _is_step_due(state, buffered, seen):  # type: ignore[no-untyped-def]
    """Return whether a step begins, or the step in progress is applied, after a number of examples."""
    due, is_working = newton_step.due_after(state, seen), state.numbers[0].working > 0
    return buffered >= due or (is_working and buffered == newton_step.compiled_applied_after(due))


@inlined(allocates=False)
def _is_due_after(state):  # type: ignore[no-untyped-def]
    """Return whether a step or a check is due after the next example."""
    numbers = state.numbers[0]
    seen = numbers.examples + 1
    return _is_step_due(state, numbers.buffered + 1, seen) or schedule.compiled_is_due(seen - numbers.restarted)


@inlined(allocates=False)
def _learn_in(memory, state, scales, kernel, examples, first, last, options):  # type: ignore[no-untyped-def]
    """Learn like :func:`_learn`, with work arrays in `memory`, unless that is too small."""
    rows, y, gammas = examples.rows, examples.y, examples.gammas
    given = Rows(rows.start, rows.slots, rows.hashes, rows.readers, examples.scaled, rows.weights)
    numbers, said, room = state.numbers[0], examples.said, learning_room(memory, state, kernel, rows)
    if memory[0] > len(memory):
        return NO_MEMORY, first
    room.nothing[:], room.targets.sizes[:] = 0.0, 1.0
    for i in range(first, last):
        if options.is_alone and _is_due_after(state):
            return DUE, i
        status = _learn_row(state, scales, kernel, rows, given, Example(i, y[i], gammas[i]), options, room)
        if status != DONE:
            return status, i + (status == DUE)
        for c in range(said.shape[1]):
            said[i, c] = room.said[c] + 0.0  # as in predictions, where 0 is added, and -0 becomes 0
    return DUE if schedule.compiled_is_due(numbers.examples - numbers.restarted) else DONE, last


def _learn(state, scales, kernel, examples, first, last, options):  # type: ignore[no-untyped-def]
    """Learn the examples ``first <= i < last`` in order, until a Newton step is due; return (status, the next row).

    The status says whether a step or a check is due. Examples that are learned alone end before one after which one
    would be due. Without scaling, `scales` is an empty table.
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

_late: dict[Any, int] = {use_moments: 2, add_gradient: EVERY, linear.fade: linear.TURN}
"""Units that are not loaded yet, and the example that first needs each: the first event does not wait for them."""


def load_for(state: MixtureState, scales: ScalesState, more: int, options: LearningOptions) -> None:
    """Load the units that learning `more` examples will need."""
    if _late:
        seen = max(int(state.numbers[0]["examples"]), int(scales.counts[0]["n"])) + more
        for own, first in list(_late.items()):
            if seen >= first and (options.has_metric or own is not add_gradient):
                own.load()
                _late.pop(own, None)
