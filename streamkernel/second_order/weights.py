"""The weights v of the mixture f = Σ v_k f_k; compiled.

    v = θu + (1 - θ)p,   p = argmin_{p ≥ 0} (p - u)ᵀA(p - u),   θ = 1/(1 + e^D)

u takes Newton steps on its own loss, and A is their matrix. Functions that resemble each other get large weights of
both signs in u, of which a part is noise; p has less of it, because many of its weights are 0. But where functions are
wrong in the same direction, a negative weight corrects that. D is the loss of u less the loss of p on about as many
examples as v remembers, in units of the targets, so θ follows the better one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.rows import F64, I64
from streamkernel.jit import compiled, inlined, unit
from streamkernel.learners.mixing import (
    FLATTEST,
    MEMORY,
    PULL,
    add_diagonal,
    factor_of,
    fade,
    rotate_small,
    solve_small,
    sweep,
)
from streamkernel.learners.span import LARGEST_GRADIENT, clip
from streamkernel.second_order import slots
from streamkernel.second_order.mixture_state import BORN, MIXTURE
from streamkernel.second_order.targets import TARGETS_ROOM, loss_of, set_derivatives

FEW = 100.0
"""Number of examples that the mixture remembers after a new class, and after a restart."""

SETTLING = 256
"""Number of examples that a new group learns before it is mixed: with fewer examples than outputs, it overfits."""

LARGEST_LEAD = 10.0
"""Bound on the absolute value of D: outliers do not decide for long."""

SWEEPS = 100
"""Sweeps that find p without an earlier one."""


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


@inlined(allocates=False)
def _has_settled(state, k):  # type: ignore[no-untyped-def]
    """Return whether function k is old enough to be mixed: its group did not start recently, unless the model did."""
    numbers, layout = state.numbers[0], state.layout
    born = layout[k % len(layout), BORN]
    return k >= state.slots[slots.SMALL] or born == numbers.restarted or numbers.examples - born >= SETTLING


@unit(
    types.void(MIXTURE, types.float64[:, ::1], TARGETS_ROOM, types.float64, types.float64[:, ::1]),
    allocates=False,
)
def weigh(state, f, targets, w, work):  # type: ignore[no-untyped-def]
    """Take a Newton step of each target's u on wℓ(Σ_k u_k f_k, y) of an example of weight w, with the size s² of y.

        A ← A + w Σ_c ℓ''_c f_c f_cᵀ,   u ← u - w A⁻¹ Σ_c ℓ'_c f_c

    and, once per as many examples as there are v, A ← ρA + (1 - ρ)λs²I for all of them. Where s² exceeds its
    maximum so far, λI in A grows as much: the first targets are a poor estimate of it. f_k counts as 0 while a group is
    new. p takes a sweep, and v follows from both. `work` has six rows of as many numbers as columns and functions.
    """
    numbers, columns = state.numbers, f.shape[1]
    of_signed, of_positive = work[4, :columns], work[5, :columns]
    mix_scores(state.signed, len(numbers), f, of_signed)
    mix_scores(state.positive, len(numbers), f, of_positive)
    set_derivatives(numbers, targets, of_signed, work[0, :columns], work[1, :columns])
    for t in range(len(numbers)):
        if targets.sizes[t] > 0.0:
            ahead = loss_of(numbers, targets, t, of_signed) - loss_of(numbers, targets, t, of_positive)
            _weigh_target(state, f, targets, t, w, ahead, work)


@inlined(allocates=False)
def _weigh_target(state, f, targets, t, w, ahead, work):  # type: ignore[no-untyped-def]
    """Take the step of target t, with the derivatives in the first two rows of the work arrays, and with the loss of u
    less that of p.
    """
    numbers, (count, columns) = state.numbers[0], f.shape
    first, last = t * count, (t + 1) * count
    bounds, mixer = state.bounds[first + 2 * t : last + 2 * t + 2], state.mixer[first:last]
    signed, positive = state.signed[first:last], state.positive[first:last]
    size, width = targets.sizes[t], columns // len(targets.sizes)
    g, h, row, gradient = work[0, :columns], work[1, :columns], work[2, :count], work[3, :count]
    before = bounds[count + 1] if mixer[0, 0] > 0.0 else 0.0
    if size > before:
        add_diagonal(mixer, PULL * (size - before), row)
        bounds[count + 1] = max(bounds[count + 1], size)
    if numbers.loss_bound >= LARGEST_GRADIENT:
        bounds[count] = clip(g[t * width : (t + 1) * width], bounds[count], LARGEST_GRADIENT)
    for k in range(count):
        gradient[k] = 0.0
    for c in range(t * width, (t + 1) * width):
        root = math.sqrt(w * max(h[c], FLATTEST))
        for k in range(count):
            score = f[k, c] if _has_settled(state, k) else 0.0
            gradient[k] += w * g[c] * score
            row[k] = root * score
        rotate_small(mixer, row)
    if numbers.steps % count == 0:
        fade(mixer, size, row)
    solve_small(mixer, gradient)
    if vectors.within(gradient, 1.0, LARGEST_GRADIENT):
        for k in range(count):
            signed[k] -= gradient[k]
    sweep(mixer, signed, positive, row)
    if abs(ahead) < LARGEST_GRADIENT:
        state.lead[t] = min(max(MEMORY * state.lead[t] + w * ahead / size, -LARGEST_LEAD), LARGEST_LEAD)
    mix(signed, positive, state.lead[t], state.weights[first:last])


@inlined(allocates=False)
def mix(signed, positive, lead, out):  # type: ignore[no-untyped-def]
    """Set `out` to v of a target."""
    share = 1.0 / (1.0 + math.exp(lead))
    for k in range(len(out)):
        out[k] = share * signed[k] + (1.0 - share) * positive[k]


@compiled
def _settle(mixer, signed, positive):  # type: ignore[no-untyped-def]
    rest = np.empty(len(signed))
    for _ in range(SWEEPS):
        sweep(mixer, signed, positive, rest)


def positive_weights(mixer: F64, signed: F64) -> F64:
    """Return p of a target, from R with RᵀR = A, which may be 0 before there are examples, and u.

    Examples
    --------
    >>> import numpy as np
    >>> positive_weights(np.eye(2), np.array([0.5, -0.5])).tolist()
    [0.5, 0.0]
    >>> alike = np.linalg.cholesky(np.array([[1.0, 0.9], [0.9, 1.0]])).T  # the first one makes up for the second
    >>> positive_weights(alike, np.array([1.0, -0.5])).round(3).tolist()
    [0.55, 0.0]
    """
    weights: Any = np.maximum(signed, 0.0)
    if mixer.any():
        _settle(np.ascontiguousarray(mixer), np.ascontiguousarray(signed), weights)
    return np.asarray(weights, np.float64)


def mixed_weights(signed: F64, positive: F64, lead: F64) -> F64:
    """Return v of all targets, shape (targets, functions), from their u and p of the same shape and D of each.

    Examples
    --------
    >>> import numpy as np
    >>> mixed_weights(np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]]), np.array([0.0])).tolist()
    [[1.0, -0.5]]
    """
    share = 1.0 / (1.0 + np.exp(lead))[:, None]
    return np.asarray(share * signed + (1.0 - share) * positive)


def without(mixer: F64, weights: F64, gone: I64, pull: float) -> tuple[F64, F64]:
    """Return the factor without some functions, R with RᵀR = A, and their weights u, shape (functions,) or, of several
    sums of the functions, (sums, functions).

    The other functions keep their u, so that functions similar to the removed ones take over. `pull` are the entries of
    A of the functions that are gone, from then on.
    """
    stays = np.setdiff1d(np.arange(len(mixer)), gone)
    left, signed = (
        np.where(np.isin(np.arange(len(mixer)), gone), weights, 0.0),
        np.where(np.isin(np.arange(len(mixer)), gone), 0.0, weights),
    )
    moment = mixer.T @ (mixer @ left.T)
    small = factor_of(mixer[:, stays])
    factor = np.zeros_like(mixer)
    factor[np.ix_(stays, stays)] = small
    factor[gone, gone] = math.sqrt(pull)
    signed.T[stays] += np.linalg.solve(small, np.linalg.solve(small.T, moment[stays]))
    return factor, signed


def loss_without(mixer: F64, weights: F64, gone: Sequence[int]) -> float:
    """Return the amount by which ½Σ(Σ_k u_k f_k - y)² would grow without the functions K.

    Once the others have taken over as :func:`without` lets them, it has grown by ½u_Kᵀ((A⁻¹)_KK)⁻¹u_K.

    Examples
    --------
    >>> round(loss_without(np.eye(2) * 10.0, np.array([0.5, 0.2]), [1]), 6)  # 0.2²A/2 with A = 100
    2.0
    """
    columns = np.linalg.solve(mixer.T, np.eye(len(mixer))[:, gone])
    return float(0.5 * weights[gone] @ np.linalg.solve(columns.T @ columns, weights[gone]))


def remembered(seen: int) -> float:
    """Return the number of examples that A represents after `seen` examples, of which it forgets the earlier ones.

    Examples
    --------
    >>> round(remembered(100)), round(remembered(100_000))
    (98, 2000)
    """
    return float((1.0 - MEMORY**seen) / (1.0 - MEMORY))


def less_certain(mixer: F64, seen: int, pull: float) -> F64:
    """Return the mixer as if it had learned `FEW` examples of `seen`, or unchanged if there were no more.

    `pull` is λ. The factor of the sum of both parts is computed from theirs, which cannot fail.

    Examples
    --------
    >>> less_certain(np.eye(2), 100, 10.0).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> np.square(less_certain(20.0 * np.eye(1), 100_000, 10.0)).round(6).tolist()  # A/20 = 20, and 0.95 λ
    [[29.5]]
    """
    examples = remembered(seen)
    if examples <= FEW or not mixer.any():
        return mixer.copy()
    kept = FEW / examples
    parts = np.sqrt(kept) * mixer, np.sqrt((1.0 - kept) * pull) * np.eye(len(mixer))
    factor = np.linalg.qr(np.vstack(parts)).R
    return np.ascontiguousarray(np.sign(factor.diagonal())[:, None] * factor)
