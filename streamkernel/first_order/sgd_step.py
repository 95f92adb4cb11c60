"""Doubly stochastic gradient steps, compiled, on the arrays described in `streamkernel.learners.scoring`.

Nothing in a step allocates memory, so that a step is taken whole or not at all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel import losses, vectors
from streamkernel.features.compiled_kernel import KERNEL, Span
from streamkernel.features.feature_maps import features, power, prepare
from streamkernel.features.rows import F64, ROWS, Rows
from streamkernel.features.scale_table import ScalesState, has_room, observe_row, scale_row, use_moments
from streamkernel.first_order import step_choices
from streamkernel.first_order.step_choices import precondition, pull_of_intercept
from streamkernel.jit import Family, compiled, inlined, unit
from streamkernel.learners import schedule, scoring
from streamkernel.learners.scoring import (
    FIRST_ORDER,
    MIXTURE,
    WORK,
    ScoringRoom,
    score,
    unbounded,
    workspace,
)
from streamkernel.learners.span import LARGEST_GRADIENT, clip
from streamkernel.learners.state import (
    AUTOMATIC,
    BAD_VALUE,
    DIVERGED,
    DONE,
    ERROR_HORIZON,
    LARGEST_DEVIATION,
    LEARNED,
    MARGIN,
    MEAN,
    NO_ROOM,
    PER_ERROR,
    PER_K_XX,
)

_weight, _preferred = inlined(scoring.weight), inlined(scoring.preferred)


class StepWork(NamedTuple):
    """Work arrays of a step: those of an evaluation, the mean gradient, those of the preconditioner, and the move of
    all blocks, for steps that move all blocks and have more than one example.
    """

    evaluation: ScoringRoom
    mean: F64
    block: F64
    gram: F64
    total: F64


STEP_WORK = types.NamedTuple(
    [WORK, types.float64[::1], types.float64[:, ::1], types.float64[:, ::1], types.float64[:, :, :, ::1]], StepWork
)


class Scaling(NamedTuple):
    """The scales of inputs, whether they observe the examples, and whether those in use may change."""

    scales: ScalesState
    is_new: bool
    may_change: bool


@inlined
def step_workspace(state, kernel, rows):  # type: ignore[no-untyped-def]
    """Return work arrays to take steps on rows."""
    numbers, coef = state.numbers[0], state.coef
    batch = numbers.batch_size if numbers.ridge > 0.0 else 0
    panels = len(coef) if numbers.step_units & AUTOMATIC and numbers.batch_size > 1 else 0
    return StepWork(
        workspace(state, kernel, rows),
        np.empty(numbers.columns),
        np.empty((numbers.components * numbers.block_size, batch)),
        np.empty((batch, batch)),
        np.empty((panels, numbers.columns, coef.shape[2], coef.shape[3])),
    )


@inlined
def _fold(state):  # type: ignore[no-untyped-def]
    """Multiply the lazy scale into α and β, and set it to 1."""
    numbers, coef, beta = state.numbers[0], state.coef, state.beta
    columns = numbers.columns
    for p in range(len(coef)):
        for c in range(columns):
            for part in range(numbers.components):
                if coef.shape[1] > columns:
                    vectors.add(coef[p, columns + c, part], coef[p, c, part], -numbers.scale_sum)
                vectors.multiply(coef[p, c, part], numbers.scale)
    for k in range(len(beta)):
        vectors.multiply(beta[k], numbers.scale)
    numbers.squared_norm *= numbers.scale**2
    numbers.scale, numbers.scale_sum = 1.0, 0.0


@unit(types.boolean(FIRST_ORDER, KERNEL, ROWS, types.int64, types.int64, WORK), allocates=False)
def features_of(state, kernel, rows, i, k, work):  # type: ignore[no-untyped-def]
    """Set the features of block k to the features of row i; return whether they are usable."""
    numbers, phi = state.numbers[0], state.phi
    size = numbers.block_size
    per_panel = phi.shape[2] // size
    panel, first = k // per_panel, (k % per_panel) * size
    prepare(kernel, rows, i, work.row)
    features(kernel, work.row, Span(size, panel, first, first + size), phi[panel], work.room)
    return numbers.k_xx > 0.0 or power(phi[panel], first, first + size)[0] >= 0.0


_STEP = types.UniTuple(types.int64, 2)(
    FIRST_ORDER, KERNEL, ROWS, types.int64, types.float64[::1], types.float64[:, ::1], types.float64, STEP_WORK
)
step_of_members = Family("step_of_members", _STEP)
"""``step_of_members(0, *arguments)`` is :func:`step` of several functions, one for each bandwidth."""


@unit(_STEP, allocates=False)
def step(state, kernel, rows, first, y, scores, gamma, step_work):  # type: ignore[no-untyped-def]
    """Take a step of :func:`learn` on the rows from `first` on; `scores` are of the first one, if known.

    It is known where ``numbers.last_example`` is not 0.
    """
    numbers, coef, phi, work = state.numbers[0], state.coef, state.phi, step_work.evaluation
    if numbers.bandwidths > 1:
        return step_of_members(0, *(state, kernel, rows, first, y, scores, gamma, step_work))
    columns, batch, size = numbers.columns, numbers.batch_size, numbers.block_size
    per_panel = coef.shape[3] // size
    normaliser = 1.0 / math.sqrt(size)
    code, parameter, bounded = numbers.loss, numbers.loss_parameter, numbers.loss_bound < LARGEST_GRADIENT
    f, g, predictions, u = work.gradients[0], work.gradients[1], work.gradients[2], work.move
    scored = np.int64(numbers.last_example != 0)
    numbers.last_example = 0
    is_automatic = numbers.step_units & AUTOMATIC != 0
    is_gathered = is_automatic and batch > 1
    if is_gathered:
        step_choices.clear(min(numbers.blocks + 1, numbers.most_blocks), size, step_work.total)
    # 1. the scores and the gradients; an unusable example is refused before anything changes
    bound = numbers.loss_bound if bounded else numbers.gradient_bound
    loss, largest, squares, total, most_weight, log_odds = 0.0, 0.0, 0.0, 0.0, 0.0, numbers.log_odds
    added, error_scale, square, fourth = numbers.offset, numbers.error_scale, numbers.mean_square, numbers.mean_fourth
    for i in range(batch):
        if i >= scored and not score(state, kernel, rows, first + i, work, scores):
            return BAD_VALUE, first + i
        for c in range(columns):
            f[i, c], predictions[i, c] = scores[0, c], unbounded(numbers, scores[0, c], scores[2, c])
        target, w = y[first + i], rows.weights[first + i]
        seen = numbers.examples + i + 1
        total += w
        most_weight = max(most_weight, w)
        if numbers.k_xx == 0.0:
            z2, z4 = power(phi[0], 0, size)
            square += (z2 - square) / seen
            fourth += (z4 - fourth) / seen
            largest = max(largest, z2)
        if numbers.intercept == MEAN or (numbers.intercept == LEARNED and seen == 1):
            added += w * (target - added) / (numbers.weight + total)
        target -= added  # with a margin the targets are 0, and f is compared with τ
        losses.derivative(code, parameter, f[i], target, g[i])
        if not (vectors.within(f[i], 1.0, LARGEST_GRADIENT) and vectors.within(g[i], 1.0, LARGEST_GRADIENT)):
            return DIVERGED, first + i
        own_loss = losses.value(code, parameter, f[i], target)
        loss += w * own_loss
        if numbers.averaging == MIXTURE and numbers.running_loss > 0.0:
            gain = own_loss - losses.value(code, parameter, scores[2], target)
            log_odds = _preferred(log_odds, w * gain / numbers.running_loss)
        if numbers.step_units & PER_ERROR:
            deviation = abs(f[i, 0] - target)
            most = LARGEST_DEVIATION * error_scale or deviation
            error_scale += (min(deviation, most) - error_scale) / min(float(seen), ERROR_HORIZON)
        if not bounded:
            bound = clip(g[i], bound, LARGEST_GRADIENT)
        for c in range(columns):
            squares += g[i, c] * g[i, c] / batch
            g[i, c] *= w
        if is_gathered and numbers.ridge == 0.0:
            step_choices.gather(state, numbers.blocks, g[i], normaliser / batch, step_work.total)
    gradient = step_work.mean
    for c in range(columns):
        gradient[c] = 0.0
    for i in range(batch):
        vectors.add(gradient, g[i], 1.0)
    for c in range(columns):
        gradient[c] /= batch
    # 2. the coordinate and the step
    if numbers.k_xx > 0.0:
        square, fourth, largest = numbers.k_xx, numbers.k_xx**2, numbers.k_xx
    offset_gamma = gamma if is_automatic else 0.0  # γ is in units of the loss, and an intercept has no λ
    if numbers.step_units & PER_K_XX and largest > 0.0:
        if numbers.intercept == MARGIN:  # f and τ are in units of k(x, x)
            offset_gamma = gamma * max(square, largest)
        else:
            gamma /= max(square, largest)
    if numbers.step_units & PER_ERROR:
        gamma *= error_scale
        offset_gamma *= error_scale
        if gamma * numbers.l2 > 1.0:
            gamma = 1.0 / numbers.l2
    blocks = numbers.blocks
    if is_automatic:
        k, is_forced = step_choices.place(numbers, step_choices.grows(numbers))
    else:  # σ² = E Var(Re z(x) conj z(x')) is at most E|z|⁴, and half of it for complex z; it is in units of k(x, x)²,
        # as ḡ and β are of a kernel of size 1
        variance = fourth / (size * (2.0 if numbers.components > numbers.terms else 1.0)) / (square * square or 1.0)
        noise = variance * (most_weight * bound / batch) ** 2
        k, eta, is_forced = step_choices.choose(state.numbers, state.beta, gradient, gamma, noise)
    # 3. (1/B) Σ φ_k(x_i) g_iᵀ
    panel, offset = k // per_panel, (k % per_panel) * size
    pull = gradient[0]
    if numbers.ridge > 0.0:
        for i in range(batch):
            if not features_of(state, kernel, rows, first + i, k, work):
                return BAD_VALUE, first + i
            for part in range(numbers.components):
                for j in range(size):
                    step_work.block[part * size + j, i] = phi[panel, part, offset + j] * normaliser
        ridge = numbers.ridge
        if is_automatic and numbers.intercept == LEARNED:
            ridge = max(ridge, square / batch)
            pull = pull_of_intercept(step_work.block, ridge, square, g)
        precondition(0, step_work.block, ridge, g, step_work.gram)
        if is_gathered:  # the other blocks have the features of the last row
            for i in range(batch):
                if not score(state, kernel, rows, first + i, work, scores):
                    return BAD_VALUE, first + i
                step_choices.gather(state, blocks, g[i], normaliser / batch, step_work.total)
    u[:] = 0.0
    for i in range(batch):
        if is_automatic and k < blocks:
            break
        if (batch > 1 or k == blocks) and not features_of(state, kernel, rows, first + i, k, work):
            return BAD_VALUE, first + i
        for c in range(columns):
            gain = g[i, c] * normaliser / batch
            for part in range(numbers.components):
                vectors.add(u[c, part], phi[panel, part, offset : offset + size], gain)
    now, along, gradient2, added2 = max(blocks, k + 1), 0.0, 0.0, 0.0
    if is_automatic:
        if is_gathered and k == blocks:
            for c in range(columns):
                for part in range(numbers.components):
                    vectors.add(step_work.total[panel, c, part, offset : offset + size], u[c, part], 1.0)
        for i in range(batch):
            for c in range(columns):
                along += f[i, c] * g[i, c] / batch
        gradient2 = step_choices.squared_gradient(state, now, g, step_work.total, work.sums)
        error = error_scale if numbers.step_units & PER_ERROR else math.sqrt(squares) / numbers.curvature
        sums = numbers.distance2, numbers.gradient_sum
        eta, added2 = step_choices.step_size(numbers, sums, gradient2, along, error, max(square, largest))
        if not eta * math.sqrt(gradient2) <= LARGEST_GRADIENT:
            return DIVERGED, first + batch - 1
    # 4. shrink all, move one, or all; τ ← τ + γ(ν + mean derivative) with ν = λ
    shrink = 1.0 - eta * numbers.l2
    if numbers.intercept == LEARNED:
        added -= (offset_gamma or gamma) * pull
    if numbers.intercept == MARGIN:
        added -= (offset_gamma or gamma) * (numbers.l2 + gradient[0])
    inside = vectors.within(u.reshape(-1), eta, LARGEST_GRADIENT) and abs(added) <= LARGEST_GRADIENT
    inside &= vectors.within(gradient, eta, LARGEST_GRADIENT)
    if not (inside and abs(numbers.scale * shrink) <= LARGEST_GRADIENT):
        return DIVERGED, first + batch - 1
    numbers.scale *= shrink
    if not 1e-12 <= abs(numbers.scale) <= 1e12:
        _fold(state)
    if is_automatic:
        gain = -eta / (now * numbers.scale)
        step_choices.move(state, now, gain, g, step_work.total)
        numbers.squared_norm += gain * (2.0 * shrink * along / numbers.scale + gain * now * gradient2)
        numbers.gradient_sum += added2
        distance2 = shrink * shrink * numbers.distance2 + eta * (eta * gradient2 - 2.0 * shrink * along)
        numbers.distance2 = max(distance2, 0.0)
    else:
        gain = -eta / numbers.scale
        vectors.add(state.beta[k], gradient, gain)
        for c in range(columns):
            for part in range(numbers.components):
                change = u[c, part]
                vectors.multiply(change, gain)
                if coef.shape[1] > columns:
                    vectors.add(coef[panel, columns + c, part, offset : offset + size], change, numbers.scale_sum)
                vectors.move(coef[panel, c, part, offset : offset + size], change)
        numbers.squared_norm += vectors.tree_sum(u.reshape(-1))
    numbers.scale_sum += _weight(numbers.averaging, numbers.steps + 1.0) * numbers.scale
    # 5. the counters, and the values that the dashboard shows
    step_choices.count(state, y, first, added, predictions, loss, total)
    numbers.gradient_bound, numbers.last_step, numbers.log_odds = bound, eta, log_odds
    numbers.error_scale, numbers.mean_square, numbers.mean_fourth = error_scale, square, fourth
    if k == blocks:
        numbers.blocks += 1
    else:
        numbers.reused_steps += 1
        numbers.forced_steps += is_forced
    return DONE, 0


@inlined(allocates=False)
def observe_inputs(scaling, rows, first, last):  # type: ignore[no-untyped-def]
    """Add the rows ``first <= i < last`` to the moments of the scales, and use the moments where that is due."""
    scales = scaling.scales
    if scaling.is_new and len(scales.table) > 0:
        for i in range(first, last):
            observe_row(scales, rows, i)
            if scaling.may_change and schedule.compiled_is_due(scales.counts[0].n):
                use_moments(scales)


def _learn(state, scaling, kernel, rows, scaled, y, gammas, first):  # type: ignore[no-untyped-def]
    """Take one step for each of `gammas` from the number `first` on, on the next B rows each; return (status, row).

    One step on the batch x_1..x_B, with ḡ = (1/B) Σ g_i (Dai et al. 2014, Algorithm 1; Li and Póczos 2016):

        g_i  = w_i ∂ℓ(f(x_i), y_i)/∂f   of an example of the weight w_i
        k, η = the rule's choice
        α_j  ← (1 - ηλ) α_j   for all j
        α_k  ← α_k - η (1/B) Σ φ_k(x_i) g_iᵀ

    With a preconditioner the g_i of the last line are solved against the block's covariance.

    `scaled` is set to the values as the function reads them.
    """
    step_work, scales = step_workspace(state, kernel, rows), scaling.scales
    read = Rows(rows.start, rows.slots, rows.hashes, rows.readers, scaled, rows.weights)
    scores, batch = np.empty((3, state.numbers[0].columns)), state.numbers[0].batch_size
    state.numbers[0].last_example = 0
    for i in range(first, len(gammas)):
        new = 0
        for row in range(i * batch, (i + 1) * batch):
            new += scale_row(scales, rows, row, scaled)
        if not has_room(scales, new):
            return NO_ROOM, i * batch
        status, row = step(state, kernel, read, i * batch, y, scores, gammas[i], step_work)
        if status != DONE:
            return status, row
        observe_inputs(scaling, rows, i * batch, (i + 1) * batch)
    return DONE, 0


learn = compiled(_learn)
"""For a function that other threads may read: it holds the interpreter's lock."""


learn_apart = compiled(nogil=True)(_learn)
"""For a function that nothing else uses."""


@compiled
def bet_and_learn(state, kernel, rows, gammas, most, wealth):  # type: ignore[no-untyped-def]
    """Score rows 2n and 2n + 1, set ``wealth[n + 1]``, and learn the rows with the targets 0 and 1, for n = 0, 1, ...

        M_{n+1} = (M_n + 1) · 2 / (1 + exp(f(x_2n) - f(x_2n+1)))

    It ends after the first pair that brings M to `most`, and before one that cannot be learned; return the number of
    learned pairs.
    """
    step_work, numbers = step_workspace(state, kernel, rows), state.numbers[0]
    scores, pair, targets = np.empty((3, numbers.columns)), np.empty(2), np.empty(len(gammas))
    for n in range(len(wealth) - 1):
        numbers.last_example = 0
        for i in range(2):
            targets[2 * n + i] = i
            if not score(state, kernel, rows, 2 * n + i, step_work.evaluation, scores):
                return n
            pair[i] = scores[1, 0]
        wealth[n + 1] = (wealth[n] + 1.0) * (1.0 + math.tanh(0.5 * (pair[1] - pair[0])))
        for i in range(2 * n, 2 * n + 2):
            if step(state, kernel, rows, i, targets, scores, gammas[i], step_work)[0] != DONE:
                return n
        if wealth[n + 1] >= most:
            return n + 1
    return len(wealth) - 1
