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

from streamkernel import losses, rules
from streamkernel.features import cos_sin_turns, prepare, project

# Places in `ints`. What is learnt: blocks, steps taken, steps that reused a block, examples.
BLOCKS, STEPS, REUSED, EXAMPLES = LEARNT_INTS = range(4)
# What is given: columns C, features a block F, batch B, cap on the blocks, codes of loss and rule, G and U,
# whether there is an intercept, keys of the directions and of the rule's draws.
COLUMNS, PER_BLOCK, BATCH, MOST_BLOCKS, LOSS_CODE, RULE_CODE, GROW, REUSE, INTERCEPT, KEY, RULE_KEY = range(4, 15)
N_INTS = 15

# Places in `reals`. What is learnt: the lazy scale of α and β; the bound M on the derivative; Σ scales for the averaged
# iterate; ‖f‖² in the kernel's space; the running loss; the last step taken; the intercept, a running mean of y.
SCALE, BOUND, SCALE_SUM, NORM2, LOSS, ETA, MEAN = LEARNT_REALS = range(7)
# What is given: the scale of x, λ, the loss's parameter and bound, the variance σ² of the features of a block, and the
# rule's longest step in units of γ.
INPUT_SCALE, L2, LOSS_PARAMETER, LOSS_BOUND, VARIANCE, LONGEST = range(7, 13)
N_REALS = 13

HORIZON = 1000.0
"""Examples over which the running loss is averaged."""

LARGEST_GRADIENT = 1e100
"""A derivative beyond this means that the steps have diverged; it is refused before it touches a coefficient."""

DONE, BAD_VALUE, DIVERGED = range(3)


@njit(inline="always")
def _draw(ints, cache):  # type: ignore[no-untyped-def]
    return np.uint64(ints[KEY]), cache, ints[PER_BLOCK]


@njit(inline="always")
def _buffers(start, width):  # type: ignore[no-untyped-def]
    """Return room for one row's entries, and for the projections on one panel."""
    longest = 0
    for i in range(len(start) - 1):
        longest = max(longest, start[i + 1] - start[i])
    row = np.empty(longest, np.int64), np.empty(longest, np.uint64), np.empty(longest, np.float32)
    return row, (np.empty(width, np.float32), np.empty(width, np.float32))


@njit(inline="always")
def _take(start, slots, hashes, values, i, scale, row):  # type: ignore[no-untyped-def]
    a, b = start[i], start[i + 1]
    return prepare(slots[a:b], hashes[a:b], values[a:b], scale, row)


@njit
def _features(draw, row, n, panel, first, last, phi, turns):  # type: ignore[no-untyped-def]
    """Set `phi`, shape (2, ≥ last), to the cosines and sines of the features ``first <= i < last`` of a panel."""
    project(*draw, row, n, panel, first, last, *turns)
    cos, sin, angle = phi[0, first:last], phi[1, first:last], turns[0]
    for f in range(last - first):
        cos[f], sin[f] = cos_sin_turns(angle[f])


@njit
def _scores(ints, reals, draw, row, n, coef, phi, turns, sums, out):  # type: ignore[no-untyped-def]
    """Set ``out[0]`` to Σ_b φ_b(x)ᵀ α_b, and ``out[1]`` to the prediction: averaged if asked, with the intercept."""
    width = coef.shape[3]
    features = ints[BLOCKS] * ints[PER_BLOCK]
    sums[:] = 0.0
    for p in range((features + width - 1) // width):
        last = min(width, features - p * width)
        _features(draw, row, n, p, 0, last, phi[p], turns)
        cos, sin = phi[p, 0], phi[p, 1]
        for c in range(coef.shape[1]):
            a, b, s = coef[p, c, 0], coef[p, c, 1], sums[c]
            for f in range(last):
                s[f] += cos[f] * a[f] + sin[f] * b[f]
    normaliser = 1.0 / math.sqrt(ints[PER_BLOCK])
    columns = ints[COLUMNS]
    for c in range(columns):
        dot = _tree_sum(sums[c]) * normaliser
        out[0, c] = reals[SCALE] * dot
        out[1, c] = out[0, c]
        if coef.shape[1] > columns and ints[STEPS] > 0:
            out[1, c] = (reals[SCALE_SUM] * dot - _tree_sum(sums[columns + c]) * normaliser) / ints[STEPS]
        out[1, c] += reals[MEAN]


@njit(inline="always")
def _tree_sum(s):  # type: ignore[no-untyped-def]
    """Return Σ s, adding halves (in an order that vectorises and never changes); destroys `s`."""
    n = len(s)
    while n > 1:
        half = (n + 1) // 2
        for f in range(n - half):
            s[f] += s[f + half]
        n = half
    return s[0]


@njit(cache=True)
def evaluate(ints, reals, cache, start, slots, hashes, values, coef, phi, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (2, columns), to the scores of row i; return the first unusable row, or -1."""
    row, turns = _buffers(start, coef.shape[3])
    sums = np.empty((coef.shape[1], coef.shape[3]))
    for i in range(len(start) - 1):
        n = _take(start, slots, hashes, values, i, reals[INPUT_SCALE], row)
        if n < 0:
            return i
        _scores(ints, reals, _draw(ints, cache), row, n, coef, phi, turns, sums, out[i])
    return -1


@njit(cache=True)
def transform(ints, reals, cache, start, slots, hashes, values, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to F^-½ (cos, sin, cos, sin, ...) of the features of row i, all of the first block.

    Return the first unusable row, or -1.
    """
    features = ints[PER_BLOCK]
    phi = np.empty((2, features), np.float32)
    row, turns = _buffers(start, features)
    scale = 1.0 / math.sqrt(features)
    for i in range(len(start) - 1):
        n = _take(start, slots, hashes, values, i, reals[INPUT_SCALE], row)
        if n < 0:
            return i
        _features(_draw(ints, cache), row, n, 0, 0, features, phi, turns)
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
    if coef.shape[1] > columns:
        coef[:, columns:] -= reals[SCALE_SUM] * coef[:, :columns]
    coef[:, :columns] *= reals[SCALE]
    beta *= reals[SCALE]
    reals[SCALE], reals[SCALE_SUM] = 1.0, 0.0


@njit(cache=True)
def learn(ints, reals, cache, start, slots, hashes, values, y, known, scores, gammas, coef, beta, phi):  # type: ignore[no-untyped-def]
    """Take one step for each of `gammas`, on the next B rows each; return (status, row).

    One step on the batch x_1..x_B, with ḡ = (1/B) Σ g_i (Dai et al. 2014, Algorithm 1; Li and Póczos 2016):

        g_i  = ∂ℓ(f(x_i), y_i)/∂f
        k, η = the rule's choice
        α_j  ← (1 - ηλ) α_j   for all j
        α_k  ← α_k - η (1/B) Σ φ_k(x_i) g_iᵀ

    Where `known`, the first row is the one evaluated last: ``scores[0]`` and `phi` are its scores and features.
    """
    columns, batch, per_block = ints[COLUMNS], ints[BATCH], ints[PER_BLOCK]
    per_panel = coef.shape[3] // per_block
    normaliser = 1.0 / math.sqrt(per_block)
    code, parameter, bounded = ints[LOSS_CODE], reals[LOSS_PARAMETER], reals[LOSS_BOUND] < LARGEST_GRADIENT
    draw = _draw(ints, cache)
    row, turns = _buffers(start, coef.shape[3])
    sums = np.empty((coef.shape[1], coef.shape[3]))
    f, g = np.empty((batch, columns)), np.empty((batch, columns))
    u = np.empty((columns, 2, per_block))
    for step in range(len(gammas)):
        first = step * batch
        # 1. the scores and the gradients; what cannot be learnt is refused before anything changes
        bound = reals[LOSS_BOUND] if bounded else reals[BOUND]
        loss, inner = 0.0, 0.0
        mean, seen = reals[MEAN], ints[EXAMPLES]
        for i in range(batch):
            if not (known and first + i == 0):
                n = _take(start, slots, hashes, values, first + i, reals[INPUT_SCALE], row)
                if n < 0:
                    return BAD_VALUE, first + i
                _scores(ints, reals, draw, row, n, coef, phi, turns, sums, scores[0])
            f[i] = scores[0, 0]
            target = y[first + i]
            if ints[INTERCEPT]:
                seen += 1
                mean += (target - mean) / seen
                target -= mean
            losses.derivative(code, parameter, f[i], target, g[i])
            if not np.abs(g[i]).max() <= LARGEST_GRADIENT:
                return DIVERGED, first + i
            loss += losses.value(code, parameter, f[i], target) / batch
            if not bounded:
                bound = clip(g[i], bound, LARGEST_GRADIENT)
            inner += (g[i] * f[i]).sum() / batch
        gradient = g.sum(axis=0) / batch
        # 2. the coordinate and the step
        blocks = ints[BLOCKS]
        k, eta = rules.choose(
            (ints[RULE_CODE], ints[GROW], ints[REUSE], reals[LONGEST]),
            np.uint64(ints[RULE_KEY]),
            ints[STEPS],
            blocks < ints[MOST_BLOCKS],
            beta[:blocks],
            reals[SCALE],
            gradient,
            gammas[step],
            reals[VARIANCE] * (bound / batch) ** 2,
        )
        # 3. (1/B) Σ φ_k(x_i) g_iᵀ
        panel, offset = k // per_panel, (k % per_panel) * per_block
        u[:] = 0.0
        for i in range(batch):
            if batch > 1 or k == blocks:
                n = _take(start, slots, hashes, values, first + i, reals[INPUT_SCALE], row)
                _features(draw, row, n, panel, offset, offset + per_block, phi[panel], turns)
            for c in range(columns):
                gain = g[i, c] * normaliser / batch
                for part in range(2):
                    for j in range(per_block):
                        u[c, part, j] += gain * phi[panel, part, offset + j]
        # 4. shrink all, move one
        shrink = 1.0 - eta * reals[L2]
        reals[SCALE] *= shrink
        if abs(reals[SCALE]) < 1e-12:
            _fold(ints, reals, coef, beta)
        move = -eta / reals[SCALE]
        for c in range(columns):
            for part in range(2):
                for j in range(per_block):
                    change = move * u[c, part, j]
                    coef[panel, c, part, offset + j] += change
                    if coef.shape[1] > columns:
                        coef[panel, columns + c, part, offset + j] += reals[SCALE_SUM] * change
            beta[k, c] += move * gradient[c]
        reals[SCALE_SUM] += reals[SCALE]
        # 5. the counters, and what the dashboard shows
        norm2 = shrink * shrink * reals[NORM2] - 2.0 * eta * shrink * inner + eta * eta * (u * u).sum()
        reals[NORM2] = max(norm2, 0.0)
        ints[EXAMPLES] += batch
        reals[LOSS] += min(1.0, batch / min(float(ints[EXAMPLES]), HORIZON)) * (loss - reals[LOSS])
        reals[BOUND], reals[ETA], reals[MEAN] = bound, eta, mean
        ints[STEPS] += 1
        ints[BLOCKS if k == blocks else REUSED] += 1
    return DONE, 0
