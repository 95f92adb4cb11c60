"""The compiled heart: f(x) for rows of examples, and one doubly stochastic step after another.

Everything is told as arrays, which `streamkernel.expansion` owns (a call with few arguments is a fast call).
A model with n blocks of F features and C columns is

    coef[panel, column, cos or sin, feature]    α without its scale; after C columns, the running sum for the average
    beta[block, column]                         β without its scale
    ints[...], reals[...]                       the numbers named below
    phi[panel, cos or sin, feature]             the features of the row that was evaluated last
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import losses, rules, vectors
from streamkernel.features import prepare, project
from streamkernel.generator import cos_sin_turns

# Places in `ints`. What is learnt: blocks, steps taken, steps that reused a block, examples.
BLOCKS, STEPS, REUSED, EXAMPLES = LEARNT_INTS = range(4)
# What is given: columns C, features a block F, batch B, cap on the blocks, codes of loss and rule, G and U,
# the kind of intercept, keys of the directions and of the rule's draws, and whether γ is in units of the spread.
COLUMNS, PER_BLOCK, BATCH, MOST_BLOCKS, LOSS_CODE, RULE_CODE, GROW, REUSE, INTERCEPT, KEY, RULE_KEY = range(4, 15)
RELATIVE = 15
N_INTS = 16

NO_INTERCEPT, MEAN_OF_TARGETS, LEARNT_BY_STEPS = range(3)
"""Kinds of intercept: the running mean of y; or one learnt as f is, as if 1 were added to the kernel."""

# Places in `reals`. What is learnt: the lazy scale of α and β; the bound M on the derivative; Σ scales for the averaged
# iterate; Σ‖α_b‖² without the scale; the running loss; the last step taken; the intercept; the intercept of
# predictions, which is averaged if they are; the spread, a running mean of |f(x) - y|.
SCALE, BOUND, SCALE_SUM, NORM2, LOSS, ETA, MEAN, PREDICTED_MEAN, SPREAD = LEARNT_REALS = range(9)
# What is given: the scale of x, λ, the loss's parameter and bound, the variance σ² of the features of a block, and the
# rule's longest step in units of γ.
INPUT_SCALE, L2, LOSS_PARAMETER, LOSS_BOUND, VARIANCE, LONGEST = range(9, 15)
N_REALS = 15

HORIZON = 1000.0
"""Examples over which the running loss is averaged."""

SPREAD_HORIZON = 100.0
"""Examples over which the spread is averaged: few, so that steps are as long as targets that change ask for."""

LARGEST_DEVIATION = 10.0
"""In units of the spread so far, what an example counts for in the spread at most: one outlier does not ruin it."""

LARGEST_GRADIENT = 1e100
"""A score, derivative or move beyond this means that the steps have diverged; it never reaches a coefficient."""

DONE, BAD_VALUE, DIVERGED = range(3)


@njit(inline="always")
def _workspace(ints, start, parts, width):  # type: ignore[no-untyped-def]
    """Return room for a row's entries, the projections on a panel, the sums of f, the gradients, and a block's move."""
    longest = 0
    for i in range(len(start) - 1):
        longest = max(longest, start[i + 1] - start[i])
    row = np.empty(longest, np.int64), np.empty(longest, np.uint64), np.empty(longest, np.float32)
    gradients = np.empty((2, ints[BATCH], ints[COLUMNS]))
    move = np.empty((ints[COLUMNS], 2, ints[PER_BLOCK]))
    return row, np.empty((2, width), np.float32), np.empty((parts, width)), gradients, move


@njit(inline="always")
def _take(rows, i, scale, row):  # type: ignore[no-untyped-def]
    start, slots, hashes, values = rows
    a, b = start[i], start[i + 1]
    return prepare(slots[a:b], hashes[a:b], values[a:b], scale, row)


@njit
def _features(ints, cache, row, n, panel, first, last, phi, turns):  # type: ignore[no-untyped-def]
    """Set `phi`, shape (2, ≥ last), to the cosines and sines of the features ``first <= i < last`` of a panel."""
    angle = turns[0]
    project(np.uint64(ints[KEY]), cache, ints[PER_BLOCK], row, n, panel, first, last, angle, turns[1])
    cos, sin = phi[0, first:last], phi[1, first:last]
    for f in range(last - first):
        cos[f], sin[f] = cos_sin_turns(angle[f])


@njit
def score(ints, reals, cache, rows, i, coef, phi, work, out):  # type: ignore[no-untyped-def]
    """Set ``out[0]`` to Σ_b φ_b(x)ᵀ α_b of row i, and ``out[1]`` to the prediction: averaged if asked, with intercept.

    Return whether the row is usable.
    """
    row, turns, sums = work[0], work[1], work[2]
    n = _take(rows, i, reals[INPUT_SCALE], row)
    if n < 0:
        return False
    width = coef.shape[3]
    features = ints[BLOCKS] * ints[PER_BLOCK]
    sums[:] = 0.0
    for p in range((features + width - 1) // width):
        last = min(width, features - p * width)
        _features(ints, cache, row, n, p, 0, last, phi[p], turns)
        cos, sin = phi[p, 0], phi[p, 1]
        for c in range(coef.shape[1]):
            a, b, s = coef[p, c, 0], coef[p, c, 1], sums[c]
            for f in range(last):
                s[f] += cos[f] * a[f] + sin[f] * b[f]
    normaliser = 1.0 / math.sqrt(ints[PER_BLOCK])
    columns = ints[COLUMNS]
    for c in range(columns):
        dot = vectors.tree_sum(sums[c]) * normaliser
        out[0, c] = reals[SCALE] * dot
        out[1, c] = out[0, c]
        if coef.shape[1] > columns and ints[STEPS] > 0:
            out[1, c] = (reals[SCALE_SUM] * dot - vectors.tree_sum(sums[columns + c]) * normaliser) / ints[STEPS]
        out[1, c] += reals[PREDICTED_MEAN]
    return True


@njit(cache=True)
def evaluate(ints, reals, cache, start, slots, hashes, values, coef, phi, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (2, columns), to the scores of row i; return the first unusable row, or -1."""
    work = _workspace(ints, start, coef.shape[1], coef.shape[3])
    for i in range(len(start) - 1):
        if not score(ints, reals, cache, (start, slots, hashes, values), i, coef, phi, work, out[i]):
            return i
    return -1


@njit(cache=True)
def transform(ints, reals, cache, start, slots, hashes, values, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to F^-½ (cos, sin, cos, sin, ...) of the features of row i, all of the first block.

    Return the first unusable row, or -1.
    """
    features = ints[PER_BLOCK]
    phi = np.empty((2, features), np.float32)
    row, turns, _, _, _ = _workspace(ints, start, 0, features)
    scale = 1.0 / math.sqrt(features)
    for i in range(len(start) - 1):
        n = _take((start, slots, hashes, values), i, reals[INPUT_SCALE], row)
        if n < 0:
            return i
        _features(ints, cache, row, n, 0, 0, features, phi, turns)
        for f in range(features):
            out[i, 2 * f], out[i, 2 * f + 1] = scale * phi[0, f], scale * phi[1, f]
    return -1


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
            for part in range(2):
                if coef.shape[1] > columns:
                    vectors.add(coef[p, columns + c, part], coef[p, c, part], -reals[SCALE_SUM])
                vectors.multiply(coef[p, c, part], reals[SCALE])
    for k in range(len(beta)):
        vectors.multiply(beta[k], reals[SCALE])
    reals[NORM2] *= reals[SCALE] ** 2
    reals[SCALE], reals[SCALE_SUM] = 1.0, 0.0


@njit
def step(ints, reals, cache, rows, first, y, known, scores, gamma, coef, beta, phi, work):  # type: ignore[no-untyped-def]
    """Take a step of :func:`learn` on the rows from `first` on, the first `known` of them scored already."""
    columns, batch, per_block = ints[COLUMNS], ints[BATCH], ints[PER_BLOCK]
    per_panel = coef.shape[3] // per_block
    normaliser = 1.0 / math.sqrt(per_block)
    code, parameter, bounded = ints[LOSS_CODE], reals[LOSS_PARAMETER], reals[LOSS_BOUND] < LARGEST_GRADIENT
    row, turns, _, (f, g), u = work
    # 1. the scores and the gradients; what cannot be learnt is refused before anything changes
    bound = reals[LOSS_BOUND] if bounded else reals[BOUND]
    loss = 0.0
    mean, spread, seen = reals[MEAN], reals[SPREAD], ints[EXAMPLES]
    for i in range(batch):
        if i >= known and not score(ints, reals, cache, rows, first + i, coef, phi, work, scores):
            return BAD_VALUE, first + i
        f[i] = scores[0]
        target = y[first + i]
        seen += 1
        if ints[INTERCEPT] == MEAN_OF_TARGETS or (ints[INTERCEPT] == LEARNT_BY_STEPS and seen == 1):
            mean += (target - mean) / seen
        target -= mean
        losses.derivative(code, parameter, f[i], target, g[i])
        if not (vectors.within(f[i], 1.0, LARGEST_GRADIENT) and vectors.within(g[i], 1.0, LARGEST_GRADIENT)):
            return DIVERGED, first + i
        loss += losses.value(code, parameter, f[i], target) / batch
        if ints[RELATIVE]:
            deviation = abs(f[i, 0] - target)
            spread += (min(deviation, LARGEST_DEVIATION * spread or deviation) - spread) / min(seen, SPREAD_HORIZON)
        if not bounded:
            bound = clip(g[i], bound, LARGEST_GRADIENT)
    gradient = np.zeros(columns)
    for i in range(batch):
        vectors.add(gradient, g[i], 1.0)
    for c in range(columns):
        gradient[c] /= batch
    # 2. the coordinate and the step
    if ints[RELATIVE]:
        gamma *= spread
        if gamma * reals[L2] > 1.0:
            gamma = 1.0 / reals[L2]
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
        reals[VARIANCE] * (bound / batch) ** 2,
    )
    # 3. (1/B) Σ φ_k(x_i) g_iᵀ
    panel, offset = k // per_panel, (k % per_panel) * per_block
    u[:] = 0.0
    for i in range(batch):
        if batch > 1 or k == blocks:
            n = _take(rows, first + i, reals[INPUT_SCALE], row)
            _features(ints, cache, row, n, panel, offset, offset + per_block, phi[panel], turns)
        for c in range(columns):
            gain = g[i, c] * normaliser / batch
            for part in range(2):
                vectors.add(u[c, part], phi[panel, part, offset : offset + per_block], gain)
    # 4. shrink all, move one
    shrink = 1.0 - eta * reals[L2]
    if not vectors.within(u.reshape(-1), eta, LARGEST_GRADIENT) or not abs(reals[SCALE] * shrink) <= LARGEST_GRADIENT:
        return DIVERGED, first + batch - 1
    reals[SCALE] *= shrink
    if not 1e-12 <= abs(reals[SCALE]) <= 1e12:
        _fold(ints, reals, coef, beta)
    move = -eta / reals[SCALE]
    for c in range(columns):
        for part in range(2):
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
    if ints[INTERCEPT] == LEARNT_BY_STEPS:
        mean -= gamma * gradient[0]
    if ints[INTERCEPT] == LEARNT_BY_STEPS and coef.shape[1] > columns:
        reals[PREDICTED_MEAN] += (mean - reals[PREDICTED_MEAN]) / ints[STEPS]
    else:
        reals[PREDICTED_MEAN] = mean
    reals[BOUND], reals[ETA], reals[MEAN], reals[SPREAD] = bound, eta, mean, spread
    ints[BLOCKS if k == blocks else REUSED] += 1
    return DONE, 0


@njit(cache=True)
def learn(ints, reals, cache, start, slots, hashes, values, y, gammas, coef, beta, phi):  # type: ignore[no-untyped-def]
    """Take one step for each of `gammas`, on the next B rows each; return (status, row).

    One step on the batch x_1..x_B, with ḡ = (1/B) Σ g_i (Dai et al. 2014, Algorithm 1; Li and Póczos 2016):

        g_i  = ∂ℓ(f(x_i), y_i)/∂f
        k, η = the rule's choice
        α_j  ← (1 - ηλ) α_j   for all j
        α_k  ← α_k - η (1/B) Σ φ_k(x_i) g_iᵀ
    """
    rows, work = (start, slots, hashes, values), _workspace(ints, start, coef.shape[1], coef.shape[3])
    scores = np.empty((2, ints[COLUMNS]))
    for i in range(len(gammas)):
        status, row = step(
            ints, reals, cache, rows, i * ints[BATCH], y, np.int64(0), scores, gammas[i], coef, beta, phi, work
        )
        if status != DONE:
            return status, row
    return DONE, 0
