"""Second-order learning, compiled: groups of features, each learned twice, and the mixture of them.

The blocks of a model form groups. Group g has the features φ_g(x), n outputs of them, and two functions φ_gᵀw:

* one that takes Newton steps: w ← w - A⁻¹Σ ℓ'φ with A = λI + Σ ℓ''φφᵀ, for what is stationary;
* one that takes steps of constant size, w ← w - γℓ'φ, for what moves.

One function more is a constant that takes constant steps: the recent level, whatever x is. Where inputs are scaled,
two more are linear in them (`streamkernel.second_order.linear`). The prediction is f = Σ_k v_k f_k over all of these.
The v_k are learned by Newton steps too, on the loss of f itself, and forget what is long ago. All functions see an
example before they learn it. Beside those is one of the nearest neighbours among recent examples
(`streamkernel.second_order.neighbours`).

What is learned from one example changes in one call that holds the interpreter's lock, and nothing in it allocates
memory after the first change. The Newton steps of the groups take much longer (`streamkernel.second_order.steps`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamkernel import losses, vectors
from streamkernel.features.rows import F64, Rows
from streamkernel.features.scale_table import has_room, observe_row, scale_row, use_moments
from streamkernel.jit import compiled
from streamkernel.learners import schedule
from streamkernel.learners.clipping import LARGEST_GRADIENT, clip
from streamkernel.learners.embedding import embedding_room, set_scaled
from streamkernel.learners.scoring import longest_row
from streamkernel.learners.state import (
    BAD_VALUE,
    DIVERGED,
    DONE,
    DUE,
    ERROR_HORIZON,
    HORIZON,
    LARGEST_DEVIATION,
    MEAN,
    NO_PLACE,
    NO_ROOM,
)
from streamkernel.second_order import linear, neighbours, newton_step
from streamkernel.second_order.evaluation import bound, functions, mix_scores
from streamkernel.second_order.gradients import EVERY, add_gradient, embed_groups, gradient_room
from streamkernel.second_order.linear_state import room_for
from streamkernel.second_order.metric import metric_room
from streamkernel.second_order.mixture_state import (
    BEFORE,
    COUNT,
    Mixer,
    features_of,
    outputs_of,
    rows_per_group,
)

FURTHEST = 10.0
"""In units of the targets' size, what a target counts for in their mean and size at most, or √n of n examples if that
is more, of a horizon at most: no value of n is further from their mean."""


class Examples(NamedTuple):
    """Rows, their targets, the step size at each, and room for the values as they are scaled."""

    rows: Rows
    y: F64
    gammas: F64
    scaled: F64


class Options(NamedTuple):
    """How a mixture learns.

    Attributes
    ----------
    restructured
        How many examples there had been at the last look.
    growing
        How many blocks begin at once.
    follow
        The step of the level.
    prior
        λ of linear functions.
    is_new
        Whether the scales and the weights v, too, learn from the examples.
    may_use_moments
        Whether the scales may change then.
    has_metric
        Whether gradients are gathered for the metric of larger groups.
    """

    restructured: int
    growing: int
    follow: float
    prior: float
    is_new: bool
    may_use_moments: bool
    has_metric: bool


def _learn(state, scales, kernel, examples, first, last, options):  # type: ignore[no-untyped-def]
    """Learn the examples ``first <= i < last`` in order, until a Newton step is due; return (status, the next row).

    The status says whether a step is due, or a look at what has been learned.

    Where nothing is scaled, `scales` are those of no names.
    """
    numbers, layout, rows = state.numbers[0], state.layout, examples.rows
    longest = longest_row(rows)
    room, changed = embedding_room(state.numbers, kernel, rows), metric_room(longest)
    slopes = gradient_room(longest, numbers.block_size)
    groups, columns, per_block = len(layout), numbers.columns, numbers.components * numbers.block_size
    base, count, own_linear = 2 * groups + 1, len(state.weights), state.linear
    z = np.empty(outputs_of(numbers, layout, max(numbers.blocks, options.growing)), np.float32)
    f, g, h = np.empty((count, columns)), np.empty((count, columns)), np.empty((count, columns))
    out, said, nothing = np.empty(columns), np.empty(columns), np.zeros(columns)
    mixing_room = np.empty((4, max(columns, count)))
    scaled_rows = Rows(rows.start, rows.slots, rows.hashes, rows.readers, examples.scaled)
    code, bounded = numbers.loss, numbers.loss_bound < LARGEST_GRADIENT
    mixer = Mixer(state.weights, state.mixer, state.bounds)
    height, linear_room = rows_per_group(state), room_for(own_linear, longest)
    near = base + len(own_linear.w)
    raw = np.empty((near - base, columns))
    for i in range(first, last):
        blocks = max(numbers.blocks, min(numbers.blocks + 1, options.growing))
        if not has_room(scales, scale_row(scales, rows, i, examples.scaled)):
            return NO_ROOM, i
        if not embed_groups(state, kernel, scaled_rows, i, blocks, z, room, changed):
            return BAD_VALUE, i
        names, used = rows.start[i + 1] - rows.start[i], 0
        if count > base:
            used = linear.read_row(own_linear, scales, rows, i, linear_room)
            if used > own_linear.w.shape[2]:
                return NO_PLACE, i
            neighbours.set_point(own_linear, scaled_rows, i, linear_room)
        if numbers.loss_per_error > 0.0:
            numbers.loss_parameter = numbers.gradient_bound or LARGEST_GRADIENT
        parameter = numbers.loss_parameter
        # 1. all scores and derivatives; what cannot be learned is refused before anything changes
        functions(state, z, f)
        if count > base:
            linear.scores(own_linear, names, linear_room, raw)
        target, added, furthest = examples.y[i], numbers.offset, math.inf
        if numbers.error_scale > 0.0:
            furthest = max(FURTHEST, math.sqrt(min(float(numbers.examples), HORIZON))) * math.sqrt(numbers.error_scale)
        if numbers.intercept == MEAN:
            added += min(max(target - added, -furthest), furthest) / (numbers.examples + 1)
        target -= added
        moved = added - numbers.offset if numbers.examples > 0 else 0.0
        if count > base:
            for k in range(near - base):
                for c in range(columns):
                    raw[k, c] -= moved
            linear.within_reach(own_linear, numbers.error_scale, raw, f[base:near])
        if count > near:
            neighbours.score(own_linear, state.numbers, added, linear_room, f[near])
        mix_scores(state.weights, f, out)
        usable = vectors.within(out, 1.0, LARGEST_GRADIENT)
        for k in range(count):
            f_k = raw[k - base] if base <= k < near else f[k]
            losses.derivative(code, parameter, f_k, target, g[k])
            losses.curvature(code, parameter, f_k, target, h[k])
            usable &= vectors.within(f_k, 1.0, LARGEST_GRADIENT) and vectors.within(g[k], 1.0, LARGEST_GRADIENT)
        if not usable:
            return DIVERGED, i
        for c in range(columns):
            said[c] = out[c]
        bound(state, f, base, added, said)
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
                newton_step.begin(state, j, state.priors[j] * own * (layout[j, COUNT] // per_block))
        # 3. the mixture, then its functions
        loss = losses.value(code, parameter, said, target)
        if options.has_metric and seen % EVERY == 0:
            add_gradient(state, scales, kernel, z, seen, room, changed, slopes)
        if options.is_new or state.bounds[-1] == newton_step.NEVER_EXCEEDED:
            newton_step.weigh(state.numbers, layout, mixer, f, out, target, size, mixing_room)
        if not bounded:
            for k in range(base):
                state.bounds[k] = clip(g[k], state.bounds[k], LARGEST_GRADIENT)
        for c in range(columns):
            state.level[c, 0] -= options.follow * g[2 * groups, c]
        place, memory = numbers.buffered, min(max(1.0, 0.5 * (seen - options.restructured)), HORIZON)
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
                if k < groups:
                    state.recent[k] += own_loss
            phi_j = features_of(z, layout, j)
            gamma = examples.gammas[i] / (own * (n // per_block))
            at = height * layout[j, BEFORE] + place * n
            set_scaled(state.rows[at : at + n], phi_j, np.float32(math.sqrt(most)))
            for c in range(columns):
                at = columns * layout[j, BEFORE] + c * n
                vectors.add(state.sums[at : at + n], phi_j, g[j, c])
                vectors.add(state.steady[at : at + n], phi_j, -gamma * g[groups + j, c])
        if count > base:
            linear.admit(own_linear, scales, rows, i, used, options.prior, linear_room)
            linear.move(own_linear, -moved)
        if count > near:
            state.losses[near] += (losses.value(code, parameter, f[near], target) - state.losses[near]) / memory
        for k in range(base, near):
            own_loss = losses.value(code, parameter, f[k], target)
            state.losses[k] += (own_loss - state.losses[k]) / memory
            if size > 0.0 and numbers.intercept == MEAN:
                off = min(abs(raw[k - base, 0] - target), furthest)
                own_linear.errors[k - base] += (off**2 - own_linear.errors[k - base]) / min(float(seen), HORIZON)
            most, share = newton_step.FLATTEST, linear.trust(names, linear_room, seen)
            for c in range(columns):
                most = max(most, h[k, c])
            if not bounded:
                before = math.sqrt(vectors.dot(g[k], g[k]))
                state.bounds[k] = clip(g[k], state.bounds[k], LARGEST_GRADIENT)
                after = math.sqrt(vectors.dot(g[k], g[k]))
                if after < before:
                    vectors.multiply(g[k], before / after)
                    share = min(share, after / before)
            vectors.multiply(g[k], share)
            linear.step(own_linear, k - base, names, linear_room, g[k], share * most)
            kept = linear.FORGETTING[k - base] * numbers.forgetting
            linear.fade(own_linear, k - base, seen, kept, numbers.l2, options.prior, linear_room)
        numbers.reused_steps += blocks == numbers.blocks
        numbers.blocks = blocks
        if numbers.loss_per_error > 0.0:
            known, off = numbers.gradient_bound / numbers.loss_per_error, abs(said[0] - target)
            if known > 0.0:
                off = known + (min(off, LARGEST_DEVIATION * known) - known) / min(float(seen), ERROR_HORIZON)
            numbers.gradient_bound = numbers.loss_per_error * off
        if numbers.intercept == MEAN:
            y = examples.y[i]
            state.span[0] = min(state.span[0], y) if seen > 1 else y
            state.span[1] = max(state.span[1], y) if seen > 1 else y
        numbers.examples = seen
        numbers.steps += 1
        numbers.buffered += 1
        numbers.running_loss += (loss - numbers.running_loss) / min(float(seen), HORIZON)
        numbers.offset = numbers.predicted_offset = added
        if count > near:
            neighbours.remember(own_linear, numbers, examples.y[i], linear_room)
        if options.is_new and len(scales.table) > 0:
            observe_row(scales, rows, i)
            if options.may_use_moments and schedule.compiled_is_due(scales.counts[0].n):
                use_moments(scales)
        if numbers.buffered >= newton_step.compiled_due(seen, numbers.batch_size, numbers.forgetting):
            return DUE, i + 1
    return DUE if schedule.compiled_is_due(numbers.examples - numbers.restarted) else DONE, last


learn = compiled(_learn)
"""For a function that other threads may read: it holds the interpreter's lock."""

learn_apart = compiled(nogil=True)(_learn)
"""For a function that nothing else uses."""
