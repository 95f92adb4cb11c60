"""The compiled heart: f(x) for rows of examples, and one doubly stochastic step after another.

Everything is told as arrays; `streamkernel.expansion` owns them. A model with n blocks of F features and C columns is

    coef[panel, column, cos or sin, feature]    α without its scale; after C columns, the running sum for the average
    beta[block, column]                         β without its scale
    counts[...], state[...]                     the numbers named below
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import losses, rules
from streamkernel.features import LARGEST_VALUE, cos_sin_turns, project

# Places in `counts`: blocks, steps taken, steps that reused a block, examples learnt.
BLOCKS, STEPS, REUSED, EXAMPLES = range(4)
# Places in `state`: the lazy scale of α and β; the bound M on the derivative; Σ scales for the averaged iterate;
# ‖f‖² in the kernel's space; the running loss; the last step taken; the intercept, a running mean of the targets.
SCALE, BOUND, SCALE_SUM, NORM2, LOSS, ETA, MEAN = range(7)

HORIZON = 1000.0
"""Examples over which the running loss is averaged."""

LARGEST_GRADIENT = 1e100
"""A derivative beyond this means that the steps have diverged; it is refused before it touches a coefficient."""

DONE, BAD_VALUE, DIVERGED = range(3)


@njit(inline="always")
def _row(rows, i):  # type: ignore[no-untyped-def]
    a, b = rows.start[i], rows.start[i + 1]
    return rows.slots[a:b], rows.hashes[a:b], rows.values[a:b]


@njit(cache=True)
def _features(draw, row, panel, first, last, phi, scratch):  # type: ignore[no-untyped-def]
    """Set `phi`, shape (2, ≥ last), to the cosines and sines of the features ``first <= i < last`` of a panel."""
    key, cache, per_block, scale = draw
    turns, spare = scratch
    project(key, cache, per_block, row, scale, panel, first, last, turns, spare)
    for f in range(last - first):
        phi[0, first + f], phi[1, first + f] = cos_sin_turns(turns[f])


@njit(cache=True)
def _dots(draw, row, features, coef, phi, scratch, sums, out):  # type: ignore[no-untyped-def]
    """Set ``out[c]`` to Σ_b φ_b(x)·coef_b for every column; `phi`, shape (panels, 2, width), keeps the φ_b."""
    width = coef.shape[3]
    columns = coef.shape[1]
    sums[:columns] = 0.0
    for p in range((features + width - 1) // width):
        last = min(width, features - p * width)
        _features(draw, row, p, 0, last, phi[p], scratch)
        cos, sin = phi[p, 0], phi[p, 1]
        for c in range(columns):
            a, b, s = coef[p, c, 0], coef[p, c, 1], sums[c]
            for f in range(last):
                s[f] += cos[f] * a[f] + sin[f] * b[f]
    normaliser = 1.0 / math.sqrt(draw[2])
    for c in range(columns):
        out[c] = _tree_sum(sums[c]) * normaliser


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


@njit(inline="always")
def _buffers(coef):  # type: ignore[no-untyped-def]
    width = coef.shape[3]
    return (np.empty(width, np.float32), np.empty(width, np.float32)), np.empty((coef.shape[1], width))


@njit(cache=True)
def evaluate(draw, rows, features, coef, phi, out):  # type: ignore[no-untyped-def]
    """Set ``out[i, c]`` to the dot products of row i; return the first row with an unusable value, or -1."""
    scratch, sums = _buffers(coef)
    for i in range(len(rows.start) - 1):
        row = _row(rows, i)
        if not _usable(row[2], draw[3]):
            return i
        _dots(draw, row, features, coef, phi, scratch, sums, out[i])
    return -1


@njit(cache=True)
def transform(draw, rows, scale, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to scale·(cos, sin, cos, sin, ...) of the features of row i, all of one block."""
    features = draw[2]
    phi = np.empty((2, features), np.float32)
    scratch = np.empty(features, np.float32), np.empty(features, np.float32)
    for i in range(len(rows.start) - 1):
        _features(draw, _row(rows, i), 0, 0, features, phi, scratch)
        for f in range(features):
            out[i, 2 * f], out[i, 2 * f + 1] = scale * phi[0, f], scale * phi[1, f]


@njit(inline="always")
def _usable(values, scale):  # type: ignore[no-untyped-def]
    ok = True
    for j in range(len(values)):
        ok = ok and abs(values[j]) * scale <= LARGEST_VALUE  # NaN fails too
    return ok


@njit(cache=True)
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


@njit(cache=True)
def _fold(blocks, columns, coef, beta, state):  # type: ignore[no-untyped-def]
    """Multiply the lazy scale into α and β, and make it 1."""
    scale, total = state[SCALE], state[SCALE_SUM]
    alpha = coef[:, :columns]
    if coef.shape[1] > columns:
        coef[:, columns:] -= total * alpha
    coef[:, :columns] *= scale
    beta[:blocks] *= scale
    state[SCALE], state[SCALE_SUM] = 1.0, 0.0


@njit(cache=True)
def learn(draw, rows, y, dots, known, gammas, loss, rule, limits, coef, beta, counts, state, phi):  # type: ignore[no-untyped-def]
    """Take one step for each of `gammas`, on the next examples of `rows`; return (status, row).

    One step on the batch x_1..x_B, with ḡ = (1/B) Σ g_i (Dai et al. 2014, Algorithm 1; Li and Póczos 2016):

        g_i  = ∂ℓ(f(x_i), y_i)/∂f
        k, η = the rule's choice
        α_j  ← (1 - ηλ) α_j   for all j
        α_k  ← α_k - η (1/B) Σ φ_k(x_i) g_iᵀ

    Parameters
    ----------
    draw
        (key, cache, features a block, scale of x) of the features.
    dots, known
        Dot products, shape (examples, columns of coef), and which of them are right for the present coefficients.
        With one example a step, `phi` holds the features of a known one.
    loss, rule
        (code, parameter) and (code, G, U).
    limits
        (key of the rule's generator, columns, λ, B, most blocks, bound of the loss, σ², whether there is an intercept).
    """
    rule_key, columns, l2, batch, most_blocks, loss_bound, variance, intercept = limits
    per_block, width = draw[2], coef.shape[3]
    per_panel = width // per_block
    normaliser = 1.0 / math.sqrt(per_block)
    scratch, sums = _buffers(coef)
    f = np.empty((batch, columns))
    g = np.empty((batch, columns))
    u = np.empty((columns, 2, per_block))
    for step in range(len(gammas)):
        first = step * batch
        # 1. the scores, and the gradients, refused before anything changes
        bound = loss_bound if loss_bound < LARGEST_GRADIENT else state[BOUND]
        total, inner = 0.0, 0.0
        offset_y, seen = state[MEAN], counts[EXAMPLES]
        for i in range(batch):
            row = _row(rows, first + i)
            if not known[first + i]:
                if not _usable(row[2], draw[3]):
                    return BAD_VALUE, first + i
                n = counts[BLOCKS] * per_block
                _dots(draw, row, n, coef, phi, scratch, sums, dots[first + i])
            f[i] = state[SCALE] * dots[first + i, :columns]
            target = y[first + i]
            if intercept:
                seen += 1
                offset_y += (target - offset_y) / seen
                target -= offset_y
            losses.derivative(loss[0], loss[1], f[i], target, g[i])
            if not np.abs(g[i]).max() <= LARGEST_GRADIENT:
                return DIVERGED, first + i
            total += losses.value(loss[0], loss[1], f[i], target)
            if loss_bound > LARGEST_GRADIENT:
                bound = clip(g[i], bound, LARGEST_GRADIENT)
            inner += (g[i] * f[i]).sum() / batch
        mean = g.sum(axis=0) / batch
        # 2. the coordinate and the step
        blocks = counts[BLOCKS]
        noise = variance * (bound / batch) ** 2
        room = blocks < most_blocks
        t = counts[STEPS]
        k, eta = rules.choose(rule, rule_key, t, room, beta[:blocks], state[SCALE], mean, gammas[step], noise)
        # 3. (1/B) Σ φ_k(x_i) g_iᵀ
        panel, offset = k // per_panel, (k % per_panel) * per_block
        u[:] = 0.0
        for i in range(batch):
            if batch > 1 or k == blocks:
                _features(draw, _row(rows, first + i), panel, offset, offset + per_block, phi[panel], scratch)
            for c in range(columns):
                gain = g[i, c] * normaliser / batch
                for part in range(2):
                    for j in range(per_block):
                        u[c, part, j] += gain * phi[panel, part, offset + j]
        # 4. shrink all, move one
        shrink = 1.0 - eta * l2
        if abs(state[SCALE] * shrink) < 1e-12:
            state[SCALE] *= shrink
            _fold(blocks, columns, coef, beta, state)
        else:
            state[SCALE] *= shrink
        move = -eta / state[SCALE]
        for c in range(columns):
            for part in range(2):
                for j in range(per_block):
                    coef[panel, c, part, offset + j] += move * u[c, part, j]
                    if coef.shape[1] > columns:
                        coef[panel, columns + c, part, offset + j] += state[SCALE_SUM] * move * u[c, part, j]
            beta[k, c] += move * mean[c]
        state[SCALE_SUM] += state[SCALE]
        # 5. what the dashboard shows
        norm2 = shrink * shrink * state[NORM2] - 2.0 * eta * shrink * inner + eta * eta * (u * u).sum()
        state[NORM2] = max(norm2, 0.0)
        counts[EXAMPLES] += batch
        weight = min(1.0, batch / min(float(counts[EXAMPLES]), HORIZON))
        state[LOSS] += weight * (total / batch - state[LOSS])
        state[BOUND], state[ETA], state[MEAN] = bound, eta, offset_y
        counts[STEPS] += 1
        if k == blocks:
            counts[BLOCKS] += 1
        else:
            counts[REUSED] += 1
    return DONE, 0
