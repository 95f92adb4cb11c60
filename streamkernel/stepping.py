"""The compiled heart: one doubly stochastic step after another, on the arrays that `streamkernel.scoring` explains."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import losses, rules, vectors
from streamkernel.forms import features, power
from streamkernel.preconditioning import precondition
from streamkernel.scoring import score, take, workspace
from streamkernel.state import (
    BAD_VALUE,
    BATCH,
    BLOCKS,
    BOUND,
    COLUMNS,
    DIVERGED,
    DONE,
    EPSILON,
    ETA,
    EXAMPLES,
    FOURTH,
    GROW,
    HORIZON,
    INTERCEPT,
    L2,
    LEARNT,
    LONGEST,
    LOSS,
    LOSS_BOUND,
    LOSS_CODE,
    LOSS_PARAMETER,
    MARGIN,
    MEAN,
    MOST_BLOCKS,
    NORM2,
    OFFSET,
    OUTPUTS,
    PER_BLOCK,
    PREDICTED_OFFSET,
    REUSE,
    REUSED,
    RULE_CODE,
    RULE_KEY,
    SCALE,
    SCALE_SUM,
    SELF,
    SELVES,
    SPREAD,
    SPREADS,
    SQUARE,
    STEPS,
    TERMS,
    UNITS,
)

SPREAD_HORIZON = 100.0
"""Examples over which the spread is averaged: few, so that steps are as long as targets that change ask for."""

LARGEST_DEVIATION = 10.0
"""In units of the spread so far, what an example counts for in the spread at most: one outlier does not ruin it."""

LARGEST_GRADIENT = 1e100
"""A score, derivative or move beyond this means that the steps have diverged; it never reaches a coefficient."""


@njit
def clip(g, bound, most):  # type: ignore[no-untyped-def]
    """Scale `g` down to the bound M on its norm, and return the new M.

    Where the loss has no bound, M is the largest norm seen, and at most doubles a step: an outlier moves f no
    further than the examples before it did.
    """
    norm = math.sqrt((g * g).sum())
    if bound == 0.0:
        return norm
    if norm > bound:
        g *= bound / norm
        return min(2.0 * bound, norm, most)
    return bound


@njit
def _fold(ints, reals, coef, beta):  # type: ignore[no-untyped-def]
    """Multiply the lazy scale into α and β, and make it 1."""
    columns = ints[COLUMNS]
    for p in range(len(coef)):
        for c in range(columns):
            for part in range(ints[OUTPUTS]):
                if coef.shape[1] > columns:
                    vectors.add(coef[p, columns + c, part], coef[p, c, part], -reals[SCALE_SUM])
                vectors.multiply(coef[p, c, part], reals[SCALE])
    for k in range(len(beta)):
        vectors.multiply(beta[k], reals[SCALE])
    reals[NORM2] *= reals[SCALE] ** 2
    reals[SCALE], reals[SCALE_SUM] = 1.0, 0.0


@njit
def _features_of(ints, reals, kernel, rows, i, k, phi, work):  # type: ignore[no-untyped-def]
    """Set the features of block k to those of row i; return whether they are usable."""
    per_panel = phi.shape[2] // ints[PER_BLOCK]
    panel, first = k // per_panel, (k % per_panel) * ints[PER_BLOCK]
    take(kernel, rows, i, work[0])
    features(kernel, ints[PER_BLOCK], work[0], panel, first, first + ints[PER_BLOCK], phi[panel], work[1])
    return reals[SELF] > 0.0 or power(phi[panel], first, first + ints[PER_BLOCK])[0] >= 0.0


@njit
def step(ints, reals, kernel, rows, first, y, known, scores, gamma, coef, beta, phi, work):  # type: ignore[no-untyped-def]
    """Take a step of :func:`learn` on the rows from `first` on, the first `known` of them scored already."""
    columns, batch, per_block = ints[COLUMNS], ints[BATCH], ints[PER_BLOCK]
    per_panel = coef.shape[3] // per_block
    normaliser = 1.0 / math.sqrt(per_block)
    code, parameter, bounded = ints[LOSS_CODE], reals[LOSS_PARAMETER], reals[LOSS_BOUND] < LARGEST_GRADIENT
    f, g = work[3]
    u = work[4]
    # 1. the scores and the gradients; what cannot be learnt is refused before anything changes
    bound = reals[LOSS_BOUND] if bounded else reals[BOUND]
    loss = 0.0
    added, spread, square, fourth, largest = reals[OFFSET], reals[SPREAD], reals[SQUARE], reals[FOURTH], 0.0
    for i in range(batch):
        if i >= known and not score(ints, reals, kernel, rows, first + i, coef, phi, work, scores):
            return BAD_VALUE, first + i
        f[i] = scores[0]
        target = y[first + i]
        seen = ints[EXAMPLES] + i + 1
        if reals[SELF] == 0.0:
            z2, z4 = power(phi[0], np.int64(0), per_block)
            square += (z2 - square) / seen
            fourth += (z4 - fourth) / seen
            largest = max(largest, z2)
        if ints[INTERCEPT] == MEAN or (ints[INTERCEPT] == LEARNT and seen == 1):
            added += (target - added) / seen
        target -= added  # with a margin the targets are 0, and f is compared with τ
        losses.derivative(code, parameter, f[i], target, g[i])
        if not (vectors.within(f[i], 1.0, LARGEST_GRADIENT) and vectors.within(g[i], 1.0, LARGEST_GRADIENT)):
            return DIVERGED, first + i
        loss += losses.value(code, parameter, f[i], target) / batch
        if ints[UNITS] & SPREADS:
            deviation = abs(f[i, 0] - target)
            spread += (min(deviation, LARGEST_DEVIATION * spread or deviation) - spread) / min(seen, SPREAD_HORIZON)
        if not bounded:
            bound = clip(g[i], bound, LARGEST_GRADIENT)
    gradient = np.zeros(columns)
    for i in range(batch):
        vectors.add(gradient, g[i], 1.0)
    for c in range(columns):
        gradient[c] /= batch
    # 2. the coordinate and the step; σ² = E Var(Re z(x) conj z(x')) is at most E|z|⁴, and half of it for complex z;
    # it is in units of k(x, x)², as ḡ and β are of a kernel of size 1
    if reals[SELF] > 0.0:
        square, fourth, largest = reals[SELF], reals[SELF] ** 2, reals[SELF]
    offset_gamma = 0.0
    if ints[UNITS] & SELVES and largest > 0.0:
        if ints[INTERCEPT] == MARGIN:  # f and τ are of the size of k(x, x), whatever it is
            offset_gamma = gamma * max(square, largest)
        else:
            gamma /= max(square, largest)
    if ints[UNITS] & SPREADS:
        gamma *= spread
        if gamma * reals[L2] > 1.0:
            gamma = 1.0 / reals[L2]
    variance = fourth / (per_block * (2.0 if ints[OUTPUTS] > ints[TERMS] else 1.0)) / (square * square or 1.0)
    blocks = ints[BLOCKS]
    k, eta = rules.choose(
        (ints[RULE_CODE], ints[GROW], ints[REUSE], reals[LONGEST]),
        np.uint64(ints[RULE_KEY]),
        ints[STEPS],
        blocks < ints[MOST_BLOCKS],
        beta[:blocks],
        reals[SCALE],
        gradient,
        gamma,
        variance * (bound / batch) ** 2,
    )
    # 3. (1/B) Σ φ_k(x_i) g_iᵀ
    panel, offset = k // per_panel, (k % per_panel) * per_block
    if reals[EPSILON] > 0.0:
        outputs = np.empty((ints[OUTPUTS], per_block, batch))
        for i in range(batch):
            if not _features_of(ints, reals, kernel, rows, first + i, k, phi, work):
                return BAD_VALUE, first + i
            outputs[:, :, i] = phi[panel, :, offset : offset + per_block]
        precondition(outputs.reshape(-1, batch) * normaliser, reals[EPSILON], g)
    u[:] = 0.0
    for i in range(batch):
        if (batch > 1 or k == blocks) and not _features_of(ints, reals, kernel, rows, first + i, k, phi, work):
            return BAD_VALUE, first + i
        for c in range(columns):
            gain = g[i, c] * normaliser / batch
            for part in range(ints[OUTPUTS]):
                vectors.add(u[c, part], phi[panel, part, offset : offset + per_block], gain)
    # 4. shrink all, move one; τ ← τ + γ(ν + mean derivative) with ν = λ
    shrink = 1.0 - eta * reals[L2]
    if ints[INTERCEPT] == LEARNT:
        added -= gamma * gradient[0]
    if ints[INTERCEPT] == MARGIN:
        added -= (offset_gamma or gamma) * (reals[L2] + gradient[0])
    inside = vectors.within(u.reshape(-1), eta, LARGEST_GRADIENT) and abs(added) <= LARGEST_GRADIENT
    if not (inside and abs(reals[SCALE] * shrink) <= LARGEST_GRADIENT):
        return DIVERGED, first + batch - 1
    reals[SCALE] *= shrink
    if not 1e-12 <= abs(reals[SCALE]) <= 1e12:
        _fold(ints, reals, coef, beta)
    move = -eta / reals[SCALE]
    for c in range(columns):
        for part in range(ints[OUTPUTS]):
            change = u[c, part]
            vectors.multiply(change, move)
            if coef.shape[1] > columns:
                vectors.add(coef[panel, columns + c, part, offset : offset + per_block], change, reals[SCALE_SUM])
            vectors.move(coef[panel, c, part, offset : offset + per_block], change)
        beta[k, c] += move * gradient[c]
    reals[SCALE_SUM] += reals[SCALE]
    # 5. the counters, and what the dashboard shows
    reals[NORM2] += vectors.tree_sum(u.reshape(-1))
    ints[EXAMPLES] += batch
    ints[STEPS] += 1
    reals[LOSS] += min(1.0, batch / min(float(ints[EXAMPLES]), HORIZON)) * (loss - reals[LOSS])
    if ints[INTERCEPT] >= LEARNT and coef.shape[1] > columns:
        reals[PREDICTED_OFFSET] += (added - reals[PREDICTED_OFFSET]) / ints[STEPS]
    else:
        reals[PREDICTED_OFFSET] = added
    reals[BOUND], reals[ETA], reals[OFFSET], reals[SPREAD] = bound, eta, added, spread
    reals[SQUARE], reals[FOURTH] = square, fourth
    ints[BLOCKS if k == blocks else REUSED] += 1
    return DONE, 0


@njit(cache=True, nogil=True)
def learn(  # type: ignore[no-untyped-def]
    ints, reals, program, constants, cache, kept, start, slots, hashes, readers, values, y, gammas, coef, beta, phi
):
    """Take one step for each of `gammas`, on the next B rows each; return (status, row).

    One step on the batch x_1..x_B, with ḡ = (1/B) Σ g_i (Dai et al. 2014, Algorithm 1; Li and Póczos 2016):

        g_i  = ∂ℓ(f(x_i), y_i)/∂f
        k, η = the rule's choice
        α_j  ← (1 - ηλ) α_j   for all j
        α_k  ← α_k - η (1/B) Σ φ_k(x_i) g_iᵀ

    With a preconditioner the g_i of the last line are solved against the block's covariance.
    """
    kernel, rows = (program, constants, cache, kept), (start, slots, hashes, readers, values)
    work = workspace(ints, start, coef.shape[1], coef.shape[3])
    scores = np.empty((2, ints[COLUMNS]))
    for i in range(len(gammas)):
        status, row = step(
            ints, reals, kernel, rows, i * ints[BATCH], y, np.int64(0), scores, gammas[i], coef, beta, phi, work
        )
        if status != DONE:
            return status, row
    return DONE, 0
