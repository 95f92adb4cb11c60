"""The compiled heart: f(x) for rows of examples, and one doubly stochastic step after another.

Everything is told as arrays, which `streamkernel.expansion` owns (a call with few arguments is a fast call).
A model with n blocks of F features and C columns is

    coef[panel, column, output, feature]    α without its scale; after C columns, the running sum for the average
    beta[block, column]                     β without its scale
    ints[...], reals[...]                   the numbers named below
    phi[panel, output, feature]             the features of the row that was evaluated last, √F φ

A feature has one output or more: the real and imaginary parts of `streamkernel.forms`, a cosine and a sine for a
Gaussian.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import losses, rules, vectors
from streamkernel.forms import ROOM, features, power, prepare
from streamkernel.preconditioning import precondition

# Places in `ints`. What is learnt: blocks, steps taken, steps that reused a block, examples.
BLOCKS, STEPS, REUSED, EXAMPLES = LEARNT_INTS = range(4)
# What is given: columns C, features a block F, batch B, cap on the blocks, codes of loss and rule, G and U,
# what is added to f, the key of the rule's draws, the units of γ; parts and terms of the kernel, outputs of a feature.
COLUMNS, PER_BLOCK, BATCH, MOST_BLOCKS, LOSS_CODE, RULE_CODE, GROW, REUSE, INTERCEPT, RULE_KEY, UNITS = range(4, 15)
PARTS, TERMS, OUTPUTS = range(15, 18)
N_INTS = 18

# Places in `reals`. What is learnt: the lazy scale of α and β; the bound M on the derivative; Σ scales for the averaged
# iterate; Σ‖α_b‖² without the scale; the running loss; the last step taken; the offset that is added to f; that of
# predictions, which is averaged if they are; the spread, a running mean of |f(x) - y|; the running means of |z|² and
# |z|⁴ over features and examples.
SCALE, BOUND, SCALE_SUM, NORM2, LOSS, ETA, OFFSET, PREDICTED_OFFSET, SPREAD, SQUARE, FOURTH = LEARNT_REALS = range(11)
# What is given: λ, the loss's parameter and bound, the rule's longest step in units of γ, ε of the preconditioner (0
# for none), and k(x, x) where it is the same for all x, else 0.
L2, LOSS_PARAMETER, LOSS_BOUND, LONGEST, EPSILON, SELF = range(11, 17)
N_REALS = 17

NOTHING, MEAN, LEARNT, MARGIN = range(4)
"""What is added to f: nothing; the running mean of the targets; a constant that is learnt as f is, as if 1 were added
to the kernel; or -τ, a threshold that is learnt with f."""

SELVES, SPREADS = 1, 2
"""Units of γ, added up: 1/k(x, x), so that a step moves f as far with every kernel; the spread."""

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
def _workspace(ints, start, columns, width):  # type: ignore[no-untyped-def]
    """Return room for a row's entries, a part's features, the sums of f, the gradients, and a block's move."""
    longest = 0
    for i in range(len(start) - 1):
        longest = max(longest, start[i + 1] - start[i])
    parts = ints[PARTS]
    entries = np.empty((parts, longest), np.int64), np.empty((parts, longest), np.uint64)
    row = entries[0], entries[1], np.empty((parts, longest), np.float32), np.empty(parts, np.int64)
    room = np.empty((ROOM + 2 * parts, width), np.float32)
    gradients = np.empty((2, ints[BATCH], ints[COLUMNS]))
    move = np.empty((ints[COLUMNS], ints[OUTPUTS], ints[PER_BLOCK]))
    return row, room, np.empty((columns, width)), gradients, move


@njit(inline="always")
def _take(kernel, rows, i, row):  # type: ignore[no-untyped-def]
    start, slots, hashes, readers, values = rows
    a, b = start[i], start[i + 1]
    return prepare(kernel, readers[a:b], slots[a:b], hashes[a:b], values[a:b], row)


@njit
def score(ints, reals, kernel, rows, i, coef, phi, work, out):  # type: ignore[no-untyped-def]
    """Set ``out[0]`` to Σ_b φ_b(x)ᵀ α_b of row i, and ``out[1]`` to the prediction: averaged if asked, with the offset.

    Return whether the row is usable.
    """
    row, room, sums = work[0], work[1], work[2]
    if not _take(kernel, rows, i, row):
        return False
    width = coef.shape[3]
    total = ints[BLOCKS] * ints[PER_BLOCK]
    sums[:] = 0.0
    if total == 0 and reals[SELF] == 0.0:
        features(kernel, ints[PER_BLOCK], row, np.int64(0), np.int64(0), ints[PER_BLOCK], phi[0], room)
        if power(phi[0], np.int64(0), ints[PER_BLOCK])[0] < 0.0:
            return False
    for p in range((total + width - 1) // width):
        last = min(width, total - p * width)
        features(kernel, ints[PER_BLOCK], row, p, np.int64(0), last, phi[p], room)
        if reals[SELF] == 0.0 and power(phi[p], np.int64(0), last)[0] < 0.0:
            return False
        for c in range(coef.shape[1]):
            s = sums[c]
            if ints[OUTPUTS] == 2:
                cos, sin, a, b = phi[p, 0], phi[p, 1], coef[p, c, 0], coef[p, c, 1]
                for f in range(last):
                    s[f] += cos[f] * a[f] + sin[f] * b[f]
                continue
            for o in range(ints[OUTPUTS]):
                z, a = phi[p, o], coef[p, c, o]
                for f in range(last):
                    s[f] += z[f] * a[f]
    normaliser = 1.0 / math.sqrt(ints[PER_BLOCK])
    columns = ints[COLUMNS]
    for c in range(columns):
        dot = vectors.tree_sum(sums[c]) * normaliser
        out[0, c] = reals[SCALE] * dot
        out[1, c] = out[0, c]
        if coef.shape[1] > columns and ints[STEPS] > 0:
            out[1, c] = (reals[SCALE_SUM] * dot - vectors.tree_sum(sums[columns + c]) * normaliser) / ints[STEPS]
        out[1, c] += reals[PREDICTED_OFFSET]
    return True


@njit(cache=True)
def evaluate(ints, reals, program, constants, cache, start, slots, hashes, readers, values, coef, phi, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (2, columns), to the scores of row i; return the first unusable row, or -1."""
    work = _workspace(ints, start, coef.shape[1], coef.shape[3])
    kernel, rows = (program, constants, cache), (start, slots, hashes, readers, values)
    for i in range(len(start) - 1):
        if not score(ints, reals, kernel, rows, i, coef, phi, work, out[i]):
            return i
    return -1


@njit(cache=True)
def transform(ints, program, constants, cache, start, slots, hashes, readers, values, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to φ of the first block for row i: the outputs of its first feature, of its second, ...

    Return the first unusable row, or -1.
    """
    kernel, per_block, outputs = (program, constants, cache), ints[PER_BLOCK], ints[OUTPUTS]
    width = cache.shape[3]
    phi = np.empty((outputs, width), np.float32)
    row, room, _, _, _ = _workspace(ints, start, 0, width)
    first = np.int64(0)
    scale = 1.0 / math.sqrt(per_block)
    for i in range(len(start) - 1):
        if not _take(kernel, (start, slots, hashes, readers, values), i, row):
            return i
        features(kernel, per_block, row, first, first, per_block, phi, room)
        if power(phi, first, per_block)[0] < 0.0:
            return i
        for f in range(per_block):
            for o in range(outputs):
                out[i, outputs * f + o] = scale * phi[o, f]
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
    _take(kernel, rows, i, work[0])
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
    # 2. the coordinate and the step; σ² = E Var(Re z(x) conj z(x')) is at most E|z|⁴, and half of it for complex z
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
    variance = fourth / (per_block * (2.0 if ints[OUTPUTS] > ints[TERMS] else 1.0))
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
    # 4. shrink all, move one
    shrink = 1.0 - eta * reals[L2]
    if not vectors.within(u.reshape(-1), eta, LARGEST_GRADIENT) or not abs(reals[SCALE] * shrink) <= LARGEST_GRADIENT:
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
    if ints[INTERCEPT] == LEARNT:
        added -= gamma * gradient[0]
    if ints[INTERCEPT] == MARGIN:  # τ ← τ + γ(ν + mean derivative) with ν = λ
        added -= (offset_gamma or gamma) * (reals[L2] + gradient[0])
    if ints[INTERCEPT] >= LEARNT and coef.shape[1] > columns:
        reals[PREDICTED_OFFSET] += (added - reals[PREDICTED_OFFSET]) / ints[STEPS]
    else:
        reals[PREDICTED_OFFSET] = added
    reals[BOUND], reals[ETA], reals[OFFSET], reals[SPREAD] = bound, eta, added, spread
    reals[SQUARE], reals[FOURTH] = square, fourth
    ints[BLOCKS if k == blocks else REUSED] += 1
    return DONE, 0


@njit(cache=True)
def learn(ints, reals, program, constants, cache, start, slots, hashes, readers, values, y, gammas, coef, beta, phi):  # type: ignore[no-untyped-def]
    """Take one step for each of `gammas`, on the next B rows each; return (status, row).

    One step on the batch x_1..x_B, with ḡ = (1/B) Σ g_i (Dai et al. 2014, Algorithm 1; Li and Póczos 2016):

        g_i  = ∂ℓ(f(x_i), y_i)/∂f
        k, η = the rule's choice
        α_j  ← (1 - ηλ) α_j   for all j
        α_k  ← α_k - η (1/B) Σ φ_k(x_i) g_iᵀ

    With a preconditioner the g_i of the last line are solved against the block's covariance.
    """
    kernel, rows = (program, constants, cache), (start, slots, hashes, readers, values)
    work = _workspace(ints, start, coef.shape[1], coef.shape[3])
    scores = np.empty((2, ints[COLUMNS]))
    for i in range(len(gammas)):
        status, row = step(
            ints, reals, kernel, rows, i * ints[BATCH], y, np.int64(0), scores, gammas[i], coef, beta, phi, work
        )
        if status != DONE:
            return status, row
    return DONE, 0
