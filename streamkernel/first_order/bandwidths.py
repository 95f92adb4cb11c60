"""Functions of several bandwidths that learn beside each other, and their mixture; compiled.

One bandwidth suits some streams, and which one, no rule knows before it has seen their targets. With M bandwidths the
blocks b ≡ m (mod M) have the bandwidth m. They make a function f_m, which takes steps of automatic size on its own
loss (:mod:`streamkernel.first_order.step_choices`), beside the average f̂_m of its iterates. The prediction is

    f = Σ_m v_m f_m + v̂_m f̂_m

and weights follow from losses, as in Raker (Shen, Chen and Giannakis, "Random Feature-based Online Multi-kernel
Learning in Environments with Unknown Dynamics", 2019), but by Newton steps: with F the vector of all f_m and f̂_m,

    A ← A + w Σ_c ℓ''_c F_c F_cᵀ,   u ← u - w A⁻¹ Σ_c ℓ'_c F_c,   v = argmin_{v ≥ 0} (v - u)ᵀA(v - u)

at an example of weight w, with ℓ at uᵀF; A forgets by ρ per example, and its past becomes λs²I, where s² is the mean
square of the targets. Each v_m is limited to v_m ≥ 0: functions that are alike have large weights of both signs in u.
"""

from __future__ import annotations

import math

from streamkernel import losses, vectors
from streamkernel.features.compiled_kernel import Span
from streamkernel.features.feature_maps import features
from streamkernel.first_order import step_choices
from streamkernel.first_order.sgd_step import count, features_of, step_of_members
from streamkernel.jit import inlined
from streamkernel.learners import scoring
from streamkernel.learners.mixing import FLATTEST, MEMORY, PULL, add_diagonal, rotate_small, solve_small, sweep
from streamkernel.learners.scoring import (
    DISTANCE2,
    GRADIENTS2,
    MIXTURE,
    SCALE,
    SCALE_SUM,
    has_range,
    score,
    score_members,
)
from streamkernel.learners.span import LARGEST_GRADIENT, clip
from streamkernel.learners.state import (
    BAD_VALUE,
    DIVERGED,
    DONE,
    HORIZON,
    MEAN,
)

_weight, _total_weight = inlined(scoring.weight), inlined(scoring.total_weight)
_SIGNED, _PREDICTING = range(2)


@score_members.member(0, allocates=False, error_model="numpy")
def _score_members(state, kernel, work):  # type: ignore[no-untyped-def]
    numbers, coef, phi, members = state.numbers[0], state.coef, state.phi, state.members
    width, size, columns, bandwidths = coef.shape[3], numbers.block_size, numbers.columns, numbers.bandwidths
    total, sums = numbers.blocks * size, work.sums[0]
    members.scores[:] = 0.0
    for p in range((total + width - 1) // width):
        last = min(width, total - p * width)
        features(kernel, work.row, Span(size, p, 0, last), phi[p], work.room)
        for first in range(0, last, size):
            m, end = (p * width + first) // size % bandwidths, first + size
            cos, sin = phi[p, 0, first:end], phi[p, 1, first:end]
            for c in range(columns):
                _products(cos, sin, coef[p, c, 0, first:end], coef[p, c, 1, first:end], sums)
                members.scores[m, c] += vectors.tree_sum(sums[:size])
                c2 = columns + c
                _products(cos, sin, coef[p, c2, 0, first:end], coef[p, c2, 1, first:end], sums)
                members.scores[bandwidths + m, c] += vectors.tree_sum(sums[:size])
    normaliser, weight = 1.0 / math.sqrt(size), _total_weight(MIXTURE, max(1.0, float(numbers.steps)))
    for m in range(bandwidths):
        own = members.steps[m]
        for c in range(columns):
            now, past = members.scores[m, c] * normaliser, members.scores[bandwidths + m, c] * normaliser
            members.scores[m, c] = own[SCALE] * now
            members.scores[bandwidths + m, c] = (own[SCALE_SUM] * now - past) / weight if numbers.steps else 0.0
    return True


@inlined(allocates=False)
def _products(cos, sin, a, b, out):  # type: ignore[no-untyped-def]
    """Set `out` to the products of features and coefficients, in a separate function, which the compiler vectorises."""
    for f in range(len(cos)):
        out[f] = cos[f] * a[f] + sin[f] * b[f]


@step_of_members.member(0, allocates=False)
def _step_of_members(state, kernel, rows, first, y, scores, gamma, step_work):  # type: ignore[no-untyped-def]
    """Take a step of each function on the row number `first`, and of their weights, as `sgd_step.step` does."""
    numbers, members, work = state.numbers[0], state.members, step_work.evaluation
    columns, bandwidths, is_scored = numbers.columns, numbers.bandwidths, numbers.last_example != 0
    numbers.last_example = 0
    if not is_scored and not score(state, kernel, rows, first, work, scores):
        return BAD_VALUE, first
    code, parameter, room = numbers.loss, numbers.loss_parameter, members.room
    f, g, etas = work.gradients[0, 0], work.gradients[1, 0], room[bandwidths]
    for c in range(columns):
        f[c] = scores[0, c]
        work.gradients[2, 0, c] = f[c] + numbers.predicted_offset
    # 1. the gradients and the sizes of all steps; an unusable example is refused before anything changes
    target, w, seen, added = y[first], rows.weights[first], numbers.examples + 1, numbers.offset
    if numbers.intercept == MEAN:
        added += w * (target - added) / (numbers.weight + w)
    target -= added
    losses.derivative(code, parameter, f, target, g)
    if not (vectors.within(f, 1.0, LARGEST_GRADIENT) and vectors.within(g, 1.0, LARGEST_GRADIENT)):
        return DIVERGED, first
    loss, most, bound = losses.value(code, parameter, f, target), 0.0, numbers.loss_bound
    if bound >= LARGEST_GRADIENT:
        most = numbers.gradient_bound  # an outlier moves no function further than the examples before it did
        bound = clip(g, most, LARGEST_GRADIENT)
    of_rule = step_work.mean
    for c in range(columns):
        of_rule[c] = w * g[c]
    noise = (w * bound) ** 2 / (2.0 * numbers.block_size)
    k, checked, is_forced = step_choices.choose(state.numbers, state.beta, of_rule, gamma, noise)
    is_new = k == numbers.blocks
    if is_new and not features_of(state, kernel, rows, first, k, work):
        return BAD_VALUE, first
    blocks = numbers.blocks + is_new
    for m in range(min(bandwidths, blocks)):
        own, gradient = members.steps[m], room[m, :columns]
        losses.derivative(code, parameter, members.scores[m], target, gradient)
        clip(gradient, most, LARGEST_GRADIENT)
        square, along = 0.0, 0.0
        for c in range(columns):
            square += gradient[c] * gradient[c]
            along += w * members.scores[m, c] * gradient[c]
        error = math.sqrt(square) / numbers.curvature
        square *= w * w
        etas[m], _ = step_choices.step_size(
            numbers, own[DISTANCE2], own[GRADIENTS2], square, along, error, numbers.k_xx
        )
        if not (square <= LARGEST_GRADIENT**2 and abs(along) <= LARGEST_GRADIENT**2):
            return DIVERGED, first
    if not (abs(added) <= LARGEST_GRADIENT and vectors.within(of_rule, checked, LARGEST_GRADIENT)):
        return DIVERGED, first
    # 2. the weights, and the functions
    _weigh(state, target, w, seen, most)
    t, largest = numbers.steps + 1.0, 0.0
    for m in range(min(bandwidths, blocks)):
        own, gradient, square, along = members.steps[m], room[m, :columns], 0.0, 0.0
        for c in range(columns):
            gradient[c] *= w
            square += gradient[c] * gradient[c]
            along += members.scores[m, c] * gradient[c]
        eta, l2, norm2 = etas[m], numbers.l2, own[DISTANCE2]
        shrink = 1.0 - eta * l2
        own[GRADIENTS2] += max(0.0, square + 2.0 * l2 * along + l2 * l2 * norm2)
        own[DISTANCE2] = max(0.0, shrink * shrink * norm2 + eta * (eta * square - 2.0 * shrink * along))
        own[SCALE] *= shrink
        if not 1e-12 <= abs(own[SCALE]) <= 1e12:
            _fold(state, m)
        _move(state, blocks, m, -eta / own[SCALE], own[SCALE_SUM], gradient)
        own[SCALE_SUM] += _weight(MIXTURE, t) * own[SCALE]
        largest = max(largest, eta)
    for c in range(columns):
        state.beta[k, c] -= checked * of_rule[c]
    # 3. the counters
    count(state, y, first, added, work.gradients[2, :1], w * loss, w)
    numbers.gradient_bound, numbers.last_step, numbers.blocks = bound, largest, blocks
    if not is_new:
        numbers.reused_steps += 1
        numbers.forced_steps += is_forced
    return DONE, 0


@inlined(allocates=False)
def _move(state, blocks, m, gain, scale_sum, g):  # type: ignore[no-untyped-def]
    """Add ``gain * g`` times the features over their number of blocks to the coefficients of f_m, and to their sums."""
    numbers, coef, phi = state.numbers[0], state.coef, state.phi
    size, columns, bandwidths, per_panel = (
        numbers.block_size,
        numbers.columns,
        numbers.bandwidths,
        coef.shape[3] // numbers.block_size,
    )
    gain /= math.sqrt(size) * ((blocks - m + bandwidths - 1) // bandwidths)
    for b in range(m, blocks, bandwidths):
        p, first = b // per_panel, b % per_panel * size
        for part in range(numbers.components):
            z = phi[p, part, first : first + size]
            for c in range(columns):
                factor = gain * g[c]
                vectors.add(coef[p, c, part, first : first + size], z, factor)
                vectors.add(coef[p, columns + c, part, first : first + size], z, factor * scale_sum)


@inlined(allocates=False)
def _fold(state, m):  # type: ignore[no-untyped-def]
    """Multiply the lazy scale of f_m into its coefficients, and set it to 1."""
    numbers, coef, own = state.numbers[0], state.coef, state.members.steps[m]
    size, columns, per_panel = numbers.block_size, numbers.columns, coef.shape[3] // numbers.block_size
    for b in range(m, numbers.blocks, numbers.bandwidths):
        p, first = b // per_panel, b % per_panel * size
        for c in range(columns):
            for part in range(numbers.components):
                a, past = coef[p, c, part, first : first + size], coef[p, columns + c, part, first : first + size]
                vectors.add(past, a, -own[SCALE_SUM])
                vectors.multiply(a, own[SCALE])
    own[SCALE], own[SCALE_SUM] = 1.0, 0.0


@inlined(allocates=False)
def _weigh(state, target, w, seen, most):  # type: ignore[no-untyped-def]
    """Take a Newton step of u, with a derivative of the norm `most` at most, and bring v nearer to its minimum."""
    numbers, (scores, _, mixer, weights, sizes, room) = state.numbers[0], state.members
    n, columns, signed, bandwidths = len(mixer), numbers.columns, weights[_SIGNED], numbers.bandwidths
    f, g, h = room[bandwidths + 1, :columns], room[bandwidths + 2, :columns], room[bandwidths + 3, :columns]
    row, gradient = room[bandwidths + 4, :n], room[bandwidths + 5, :n]
    for c in range(columns):
        f[c] = 0.0
        for k in range(n):
            f[c] += signed[k] * scores[k, c]
    losses.derivative(numbers.loss, numbers.loss_parameter, f, target, g)
    if not vectors.within(g, 1.0, LARGEST_GRADIENT):
        return
    clip(g, most, LARGEST_GRADIENT)
    losses.curvature(numbers.loss, numbers.loss_parameter, f, target, h)
    size = 1.0
    if has_range(numbers):
        sizes[0] += (target * target - sizes[0]) / min(float(seen), HORIZON)
        size = sizes[0]
    if size > sizes[1]:
        add_diagonal(mixer, PULL * (size - sizes[1]), row)
        sizes[1] = size
    if sizes[1] == 0.0:
        return
    for k in range(n):
        gradient[k] = 0.0
    for c in range(columns):
        root = math.sqrt(w * max(h[c], FLATTEST))
        for k in range(n):
            gradient[k] += w * g[c] * scores[k, c]
            row[k] = root * scores[k, c]
        rotate_small(mixer, row)
    if numbers.steps % n == 0:
        kept = MEMORY**n
        root = math.sqrt(kept)
        for k in range(n):
            vectors.multiply(mixer[k], root)
        add_diagonal(mixer, (1.0 - kept) * PULL * size, row)
    solve_small(mixer, gradient)
    if vectors.within(gradient, 1.0, LARGEST_GRADIENT):
        for k in range(n):
            signed[k] -= gradient[k]
    sweep(mixer, signed, weights[_PREDICTING], row)


def load() -> None:
    """Load the compiled code of several functions."""
    score_members.require(0)
    step_of_members.require(0)
