"""Functions of several bandwidths that learn beside each other, and their mixture; compiled.

One bandwidth suits some streams, and which one, no rule knows before it has seen their targets. With M bandwidths the
blocks b ≡ m (mod M) have the bandwidth m. They make a function f_m, which takes steps of automatic size on its own
loss (:mod:`streamkernel.first_order.step_choices`), beside the average f̂_m of its iterates. f_m learns what the
averages of the wider functions before it leave to learn:

    F_m = f_m + τ Σ_{j<m} f̂_j,   F̂_m = f̂_m + τ Σ_{j<m} f̂_j,   τ = Σ_m v̂_m / Σ_m (v_m + v̂_m)

An average is behind on a stream that changes; its weight is then small, and so is τ. The prediction is

    f = Σ_m v_m F_m + v̂_m F̂_m

and weights follow from losses, as in Raker (Shen, Chen and Giannakis, "Random Feature-based Online Multi-kernel
Learning in Environments with Unknown Dynamics", 2019), but by Newton steps: with F the vector of all F_m and F̂_m,

    A ← A + w Σ_c ℓ''_c F_c F_cᵀ,   u ← u - w A⁻¹ Σ_c ℓ'_c F_c,   v = argmin_{v ≥ 0} (v - u)ᵀA(v - u)

at an example of weight w, with ℓ at uᵀF; A forgets by ρ per example, and its past becomes λs²I, where s² is the mean
square of the targets. Each v_m is limited to v_m ≥ 0: functions that are alike have large weights of both signs in u.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel import losses, tensor_file, vectors
from streamkernel.features.compiled_kernel import BLOCK, Span
from streamkernel.features.directions import Directions
from streamkernel.features.example_tensors import features_at
from streamkernel.features.feature_maps import features
from streamkernel.features.rows import F64, I64
from streamkernel.first_order import step_choices
from streamkernel.first_order.sgd_step import features_of, step_of_members
from streamkernel.jit import inlined
from streamkernel.jit.calls import Arena
from streamkernel.learners import scoring
from streamkernel.learners.mixing import FLATTEST, PULL, add_diagonal, fade, rotate_small, solve_small, sweep
from streamkernel.learners.scoring import (
    DISTANCE2,
    GRADIENTS2,
    MIXTURE,
    SCALE,
    SCALE_SUM,
    Members,
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

_STATE = {"member_steps": "steps", "mixer": "mixer", "member_weights": "weights", "sizes": "sizes"}
"""Names in files of the arrays of `Members` that are the state: not the scores and work arrays."""

_weight, _total_weight = inlined(scoring.weight), inlined(scoring.total_weight)
_members_in = inlined(allocates=False)(scoring.members_in)
_SIGNED, _PREDICTING = range(2)
LARGEST_WEIGHT = 1e6
"""Bound on the weights of functions, far beyond those of functions that have learned anything."""


def reliance_on_averages(weights: F64) -> float:
    """Return τ from the weights v.

    Examples
    --------
    >>> float(reliance_on_averages(np.array([0.125, 0.0, 0.125, 0.25])))
    0.75
    """
    half, averages, total = len(weights) // 2, 0.0, 0.0
    for k in range(half):
        averages += weights[half + k]
        total += weights[k] + weights[half + k]
    return averages / total if total > 0.0 else 0.0


_reliance = inlined(allocates=False)(reliance_on_averages)


@score_members.member(0, allocates=False, error_model="numpy")
def _score_members(state, kernel, work, out):  # type: ignore[no-untyped-def]
    numbers, coef, phi = state.numbers[0], state.coef, state.phi
    members = _members_in(state.members, numbers.bandwidths, numbers.columns)
    width, size, columns, bandwidths = coef.shape[3], numbers.block_size, numbers.columns, numbers.bandwidths
    total, sums = numbers.blocks * size, work.sums[0]
    members.scores[:] = 0.0
    for p in range((total + width - 1) // width):
        last = min(width, total - p * width)
        if not numbers.doubles:
            features(kernel, work.row, Span(size, p, 0, last), phi[p], work.room)
        for first in range(0, last, size):
            m, end = (p * width + first) // size % bandwidths, first + size
            cos, sin = phi[p, 0, first:end], phi[p, 1, first:end]
            if numbers.doubles and m == 0:
                features(kernel, work.row, Span(size, p, first, end), phi[p], work.room)
            elif numbers.doubles:
                before = phi[p] if first else phi[p - 1]
                at = (first or width) - size
                _double(before[0, at : at + size], before[1, at : at + size], cos, sin)
            for c in range(columns):
                _products(cos, sin, coef[p, c, 0, first:end], coef[p, c, 1, first:end], sums)
                members.scores[m, c] += vectors.tree_sum(sums[:size])
                c2 = columns + c
                _products(cos, sin, coef[p, c2, 0, first:end], coef[p, c2, 1, first:end], sums)
                members.scores[bandwidths + m, c] += vectors.tree_sum(sums[:size])
    normaliser, weight = 1.0 / math.sqrt(size), _total_weight(MIXTURE, max(1.0, float(numbers.steps)))
    for m in range(bandwidths):
        history = members.steps[m]
        for c in range(columns):
            now, past = members.scores[m, c] * normaliser, members.scores[bandwidths + m, c] * normaliser
            members.scores[m, c] = history[SCALE] * now
            members.scores[bandwidths + m, c] = (history[SCALE_SUM] * now - past) / weight if numbers.steps else 0.0
    v = members.weights[_PREDICTING]
    reliance = _reliance(v)
    for c in range(columns):
        out[0, c] = earlier = 0.0
        for m in range(bandwidths):
            average = members.scores[bandwidths + m, c]
            members.scores[m, c] += earlier
            members.scores[bandwidths + m, c] += earlier
            earlier += reliance * average
        for m in range(2 * bandwidths):
            out[0, c] += v[m] * members.scores[m, c]
        out[2, c], out[1, c] = out[0, c], out[0, c] + numbers.predicted_offset


@inlined(allocates=False)
def _double(cos, sin, cos2, sin2):  # type: ignore[no-untyped-def]
    """Set `cos2` and `sin2` to the cosines and sines of twice the angles."""
    for f in range(len(cos)):
        c, s = cos[f], sin[f]
        cos2[f], sin2[f] = np.float32(1.0) - np.float32(2.0) * s * s, np.float32(2.0) * c * s


@inlined(allocates=False)
def _products(cos, sin, a, b, out):  # type: ignore[no-untyped-def]
    """Set `out` to the products of features and coefficients, in a separate function, which the compiler vectorises."""
    for f in range(len(cos)):
        out[f] = cos[f] * a[f] + sin[f] * b[f]


@step_of_members.member(0, allocates=False)
def _step_of_members(state, kernel, rows, first, y, scores, gamma, step_work):  # type: ignore[no-untyped-def]
    """Take a step of each function on the row number `first`, and of their weights, as `sgd_step.step` does."""
    numbers, work = state.numbers[0], step_work.evaluation
    members = _members_in(state.members, numbers.bandwidths, numbers.columns)
    columns, bandwidths, is_scored = numbers.columns, numbers.bandwidths, numbers.last_example != 0
    numbers.last_example = 0
    if not is_scored and not score(state, kernel, rows, first, work, scores):
        return BAD_VALUE, first
    code, parameter, scratch = numbers.loss, numbers.loss_parameter, members.scratch
    f, g = work.gradients[0, 0], work.gradients[1, 0]
    etas, gradients2, distances2 = scratch[bandwidths], scratch[bandwidths + 6], scratch[bandwidths + 7]
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
        most = bound = clip(g, numbers.gradient_bound, LARGEST_GRADIENT)
    k, is_forced = step_choices.place(numbers, step_choices.grows(numbers))
    is_new = k == numbers.blocks
    if is_new and not features_of(state, kernel, rows, first, k, work):
        return BAD_VALUE, first
    blocks = numbers.blocks + is_new
    earlier, reliance = scratch[bandwidths + 1, :columns], _reliance(members.weights[_PREDICTING])
    earlier[:] = 0.0
    for m in range(min(bandwidths, blocks)):
        history, gradient = members.steps[m], scratch[m, :columns]
        losses.derivative(code, parameter, members.scores[m], target, gradient)
        clip(gradient, most, LARGEST_GRADIENT)  # an outlier moves no function twice as far as earlier examples did
        unweighted, square, along = 0.0, 0.0, 0.0
        for c in range(columns):
            unweighted += gradient[c] * gradient[c]
            gradient[c] *= w
            square += gradient[c] * gradient[c]
            along += (members.scores[m, c] - earlier[c]) * gradient[c]
            earlier[c] += reliance * (members.scores[bandwidths + m, c] - earlier[c])
        error, sums = math.sqrt(unweighted) / numbers.curvature, (history[DISTANCE2], history[GRADIENTS2])
        eta, added2 = step_choices.step_size(numbers, sums, square, along, error, numbers.k_xx)
        shrink = 1.0 - eta * numbers.l2
        etas[m], gradients2[m] = eta, history[GRADIENTS2] + added2
        distances2[m] = max(0.0, shrink * shrink * history[DISTANCE2] + eta * (eta * square - 2.0 * shrink * along))
        if not (square <= LARGEST_GRADIENT**2 and abs(along) <= LARGEST_GRADIENT**2):
            return DIVERGED, first
    if not abs(added) <= LARGEST_GRADIENT:
        return DIVERGED, first
    # 2. the weights, and the functions
    _weigh(state, target, w, seen, most)
    t, largest = numbers.steps + 1.0, 0.0
    for m in range(min(bandwidths, blocks)):
        history = members.steps[m]
        history[GRADIENTS2], history[DISTANCE2] = gradients2[m], distances2[m]
        history[SCALE] *= 1.0 - etas[m] * numbers.l2
        if not 1e-12 <= abs(history[SCALE]) <= 1e12:
            _fold(state, m, history)
        _move(state, blocks, m, -etas[m] / history[SCALE], history[SCALE_SUM], scratch[m, :columns])
        history[SCALE_SUM] += _weight(MIXTURE, t) * history[SCALE]
        largest = max(largest, etas[m])
    # 3. the counters
    step_choices.count(state, y, first, added, work.gradients[2, :1], w * loss, w)
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
def _fold(state, m, history):  # type: ignore[no-untyped-def]
    """Multiply the lazy scale of f_m into its coefficients, and set it to 1."""
    numbers, coef = state.numbers[0], state.coef
    size, columns, per_panel = numbers.block_size, numbers.columns, coef.shape[3] // numbers.block_size
    for b in range(m, numbers.blocks, numbers.bandwidths):
        p, first = b // per_panel, b % per_panel * size
        for c in range(columns):
            for part in range(numbers.components):
                a, past = coef[p, c, part, first : first + size], coef[p, columns + c, part, first : first + size]
                vectors.add(past, a, -history[SCALE_SUM])
                vectors.multiply(a, history[SCALE])
    history[SCALE], history[SCALE_SUM] = 1.0, 0.0


@inlined(allocates=False)
def _weigh(state, target, w, seen, most):  # type: ignore[no-untyped-def]
    """Take a Newton step of u, with a derivative of the norm `most` at most, and bring v nearer to its minimum."""
    numbers = state.numbers[0]
    scores, _, mixer, weights, sizes, scratch = _members_in(state.members, numbers.bandwidths, numbers.columns)
    n, columns, signed, bandwidths = len(mixer), numbers.columns, weights[_SIGNED], numbers.bandwidths
    f, g, h = scratch[bandwidths + 1, :columns], scratch[bandwidths + 2, :columns], scratch[bandwidths + 3, :columns]
    row, gradient = scratch[bandwidths + 4, :n], scratch[bandwidths + 5, :n]
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
        fade(mixer, size, row)
    solve_small(mixer, gradient)
    if vectors.within(gradient, 1.0, LARGEST_GRADIENT):
        for k in range(n):
            signed[k] = min(max(signed[k] - gradient[k], -LARGEST_WEIGHT), LARGEST_WEIGHT)
    sweep(mixer, signed, weights[_PREDICTING], row)
    for k in range(n):
        weights[_PREDICTING, k] = min(weights[_PREDICTING, k], LARGEST_WEIGHT)


def load() -> None:
    """Load the compiled code of several functions."""
    score_members.require(0)
    step_of_members.require(0)


def doubles(directions: Directions) -> bool:
    """Return whether blocks have the directions of the block before them, at half its bandwidth."""
    sharing, kept = directions.plan.blocks_per_direction, directions.kept
    drawn = features_at(kept[-1:], directions.block_size, np.arange(len(kept) - 1), sharing)
    return sharing > 1 and not kept[-1, BLOCK] % sharing and np.array_equal(drawn, kept[:-1])


def members_in(arena: Arena) -> Members:
    """Return the arrays of several functions in an arena."""
    numbers = arena["numbers"][0]
    return scoring.members_in(arena["members"], int(numbers["bandwidths"]), int(numbers["columns"]))


def member_of(blocks: int, weights: F64) -> I64:
    """Return the number of the function that each block belongs to, where `weights` are v of all and their averages.

    Examples
    --------
    >>> member_of(5, np.ones(6)).tolist()
    [0, 1, 2, 0, 1]
    """
    return np.arange(blocks) % (len(weights) // 2)


def factors(weights: F64) -> F64:
    """Return the factors of all f_m and f̂_m in the prediction, from the weights v.

    Examples
    --------
    >>> factors(np.array([0.25, 0.0, 0.25, 0.5]))
    array([0.25 , 0.   , 0.625, 0.5  ])
    """
    now, average = weights.reshape(2, -1)
    later = np.append((now + average)[:0:-1].cumsum()[::-1], 0.0)
    return np.concatenate([now, average + reliance_on_averages(weights) * later])


def start(arena: Arena) -> None:
    """Set the state of several functions in an arena to the state before the first step, with equal weights."""
    members = members_in(arena)
    members.steps[:, SCALE] = 1.0
    members.weights[:] = 1.0 / max(1, len(members.mixer))


def state_of(arena: Arena) -> dict[str, F64]:
    """Return the state of several functions in an arena, for files; empty for a single function."""
    members = members_in(arena)
    return {name: getattr(members, field).copy() for name, field in _STATE.items() if len(members.steps)}


def set_state(arena: Arena, state: Mapping[str, F64]) -> None:
    """Set the state of several functions in an arena."""
    members = members_in(arena)
    for name, array in state.items():
        getattr(members, _STATE[name])[:] = array


def require_state(tensors: Mapping[str, Any], bandwidths: int, columns: int) -> dict[str, F64]:
    """Return the state of several functions in the tensors of a file, empty for a single function.

    Raise a ValueError if it does not fit.
    """
    arrays = scoring.members_in(np.zeros(scoring.member_size(bandwidths, columns)), bandwidths, columns)
    names = _STATE if bandwidths > 1 and "member_steps" in tensors else {}
    required = {
        name: tensor_file.require_tensor(tensors, name, np.float64, getattr(arrays, field).shape)
        for name, field in names.items()
    }
    if required:
        steps, mixer, sizes = required["member_steps"], required["mixer"], required["sizes"]
        squares, weights = steps[:, [GRADIENTS2, DISTANCE2]], required["member_weights"]
        if not (np.abs(weights) <= LARGEST_WEIGHT).all():
            raise ValueError(f"expected weights of several functions up to {LARGEST_WEIGHT:g}, got others")
        if not all(np.isfinite(array).all() for array in required.values()):
            raise ValueError("expected finite numbers as the state of several functions, got others")
        if (squares < 0.0).any() or (sizes < 0.0).any() or (weights[1] < 0.0).any():
            raise ValueError("expected squares, sizes and weights of several functions, got numbers below 0")
        if not ((steps[:, SCALE] >= 1e-13) & (steps[:, SCALE] <= 1e13)).all():
            raise ValueError("expected scales of several functions from 1e-13 to 1e13, got others")
        if np.tril(mixer, -1).any() or ((mixer.any() or sizes[1] > 0.0) and not (np.diag(mixer) > 0.0).all()):
            raise ValueError("expected a triangular factor with a positive diagonal for several functions, got another")
    return required
