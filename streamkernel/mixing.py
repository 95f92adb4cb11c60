"""The compiled heart of second-order learning: groups of features, each learnt twice, and the mixture of them.

The blocks of a model stand in groups. Group g has the features φ_g(x), n outputs of them, and two functions φ_gᵀw:

* one that takes Newton steps: w ← w - A⁻¹Σ ℓ'φ with A = λI + Σ ℓ''φφᵀ, for what stands still;
* one that takes steps of constant size, w ← w - γℓ'φ, for what moves.

What is predicted is f = Σ_k v_k f_k over both functions of all groups. The v_k are learnt by Newton steps too, on the
loss of f itself, and forget what is long ago. All functions see an example before they learn it.

    factor[group]                  R, upper triangular, RᵀR = A
    newton, steady[group, column]  w of the two functions
    rows[group, i], sums[group]    √ℓ''φ of the examples that A does not hold yet, and Σ ℓ'φ over them
    weights, mixer                 v, and the factor of its own A
    bounds                         the largest derivatives seen of the functions, and of f
    priors[group]                  λ in units of k(x, x)
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import losses, square_root, vectors
from streamkernel.forms import features, power
from streamkernel.scoring import take, workspace
from streamkernel.square_root import EIGHT
from streamkernel.state import (
    BAD_VALUE,
    BATCH,
    BLOCKS,
    COLUMNS,
    DIVERGED,
    DONE,
    EXAMPLES,
    FORGETTING,
    HORIZON,
    INTERCEPT,
    L2,
    LOSS,
    LOSS_BOUND,
    LOSS_CODE,
    LOSS_PARAMETER,
    MEAN,
    MOST_BLOCKS,
    OFFSET,
    OUTPUTS,
    PER_BLOCK,
    PREDICTED_OFFSET,
    REUSED,
    SELF,
    SPREAD,
    SQUARE,
    STEPS,
    WAITING,
)
from streamkernel.stepping import LARGEST_GRADIENT, clip

FLATTEST = 1e-3
"""What ℓ'' counts for at least: where the loss is flat, A still has to hold what was seen."""

MEMORY = 0.9995
"""What the mixture forgets an example by."""

LONGEST_BATCH = 64
GROWING = 256
"""Examples after which a Newton step takes eight more."""

FURTHEST = 10.0
"""In units of the targets' size, what a target counts for in their mean and size at most, or √n of n examples if that
is more, of a horizon at most: no value of n is further from their mean."""

PULL = 10.0
"""λ of the mixture, in units of the size of the targets."""


@njit
def embed(ints, reals, kernel, rows, i, blocks, phi, z, work):  # type: ignore[no-untyped-def]
    """Set `z`, shape (groups, outputs), to the features of row i, 0 beyond the given blocks; return if it is usable."""
    row, room = work[0], work[1]
    if not take(kernel, rows, i, row):
        return False
    per_block, width = ints[PER_BLOCK], phi.shape[2]
    per_panel = width // per_block
    flat, outputs = z.reshape(-1), ints[OUTPUTS]
    flat[blocks * outputs * per_block :] = np.float32(0.0)
    normaliser = np.float32(1.0 / math.sqrt(per_block))
    for p in range((blocks + per_panel - 1) // per_panel):
        last = min(per_panel, blocks - p * per_panel)
        features(kernel, per_block, row, p, np.int64(0), last * per_block, phi[p], room)
        if reals[SELF] == 0.0 and power(phi[p], np.int64(0), last * per_block)[0] < 0.0:
            return False
        for b in range(last):
            for o in range(outputs):
                first = ((p * per_panel + b) * outputs + o) * per_block
                _scaled(flat[first : first + per_block], phi[p, o, b * per_block : (b + 1) * per_block], normaliser)
    return True


@njit
def _scaled(to, values, scale):  # type: ignore[no-untyped-def]
    for j in range(len(to)):
        to[j] = scale * values[j]


@njit
def functions(z, newton, steady, f):  # type: ignore[no-untyped-def]
    """Set `f`, shape (2 groups, columns), to the scores of all functions."""
    groups = len(z)
    for g in range(groups):
        for c in range(f.shape[1]):
            f[g, c] = vectors.dot(z[g], newton[g, c])
            f[groups + g, c] = vectors.dot(z[g], steady[g, c])


@njit
def mixed(weights, f, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (columns,), to Σ_k v_k f_k."""
    out[:] = 0.0
    for k in range(len(weights)):
        vectors.add(out, f[k], weights[k])


@njit(cache=True)
def evaluate(numbers, kernel, rows, model, phi, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (columns,), to the prediction for row i; return the first unusable row, or -1."""
    (ints, reals), start = numbers, rows[0]
    newton, steady, weights = model
    work = workspace(ints, start, np.int64(1), phi.shape[2])
    z = np.empty((newton.shape[0], newton.shape[2]), np.float32)
    f = np.empty((len(weights), ints[COLUMNS]))
    for i in range(len(start) - 1):
        if not embed(ints, reals, kernel, rows, i, max(1, ints[BLOCKS]), phi, z, work):
            return i
        functions(z, newton, steady, f)
        mixed(weights, f, out[i])
        out[i] += reals[PREDICTED_OFFSET]
    return -1


@njit(cache=True)
def embed_many(numbers, kernel, rows, phi, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (groups, outputs), to the features of all blocks for row i, 0 where it is unusable."""
    (ints, reals), start = numbers, rows[0]
    work = workspace(ints, start, np.int64(1), phi.shape[2])
    for i in range(len(start) - 1):
        if not embed(ints, reals, kernel, rows, i, ints[MOST_BLOCKS], phi, out[i], work):
            out[i] = 0.0


@njit
def _weigh(code, parameter, f, out, target, size, weights, mixer, bounds, bounded, turn):  # type: ignore[no-untyped-def]
    """Take a Newton step of v on ℓ(Σ_k v_k f_k, y), with the size s² of the targets:

        A ← A + Σ_c ℓ''_c f_c f_cᵀ,   v ← v - A⁻¹ Σ_c ℓ'_c f_c

    and, once in as many examples as there are v, A ← ρA + (1 - ρ)λs²I for all of them.
    """
    count, columns = f.shape
    if size == 0.0:
        return
    if mixer[0, 0] == 0.0:
        for k in range(count):
            mixer[k, k] = math.sqrt(PULL * size)
    g, h = np.empty(columns), np.empty(columns)
    losses.derivative(code, parameter, out, target, g)
    losses.curvature(code, parameter, out, target, h)
    if not bounded:
        bounds[count] = clip(g, bounds[count], LARGEST_GRADIENT)
    rows = np.zeros(((columns + EIGHT - 1) // EIGHT * EIGHT, count))
    gradient = np.zeros(count)
    for c in range(columns):
        root = math.sqrt(max(h[c], FLATTEST))
        for k in range(count):
            rows[c, k] = root * f[k, c]
            gradient[k] += g[c] * f[k, c]
    square_root.rotate(mixer, rows)
    if turn % count == 0:
        kept = MEMORY**count
        square_root.fade(mixer, kept, (1.0 - kept) * PULL * size, rows)
    square_root.solve(mixer, gradient)
    if vectors.within(gradient, 1.0, LARGEST_GRADIENT):
        weights -= gradient


@njit
def _newton(ints, reals, factor, newton, rows, sums, prior):  # type: ignore[no-untyped-def]
    """Take the Newton step of one group on the B examples gathered, which forgets by ρ an example:

        A ← A + Σ ℓ''φφᵀ,   w ← w - A⁻¹(Σ ℓ'φ + Blw)

    and before that, once in T examples, since it costs as much as they do,

        A ← ρᵀA + ((1 - ρᵀ)λ + Tl)I,   with the gradient (1 - ρᵀ)λw
    """
    batch, l2, seen = ints[WAITING], reals[L2], ints[EXAMPLES]
    pull = batch * l2
    if reals[FORGETTING] < 1.0 or l2 > 0.0:
        turn = max(batch, min(len(factor), int(0.5 / max(1.0 - reals[FORGETTING], 1e-9))))
        if seen == batch or seen // turn > (seen - batch) // turn:
            kept = reals[FORGETTING] ** turn
            square_root.fade(factor, kept, (1.0 - kept) * prior + turn * l2, np.zeros_like(rows))
            pull += (1.0 - kept) * prior
    square_root.rotate(factor, rows[: (batch + EIGHT - 1) // EIGHT * EIGHT])
    rows[:] = np.float32(0.0)
    for c in range(len(newton)):
        if pull > 0.0:
            vectors.add(sums[c], newton[c], pull)
        square_root.solve(factor, sums[c])
        if vectors.within(sums[c], 1.0, LARGEST_GRADIENT):
            newton[c] -= sums[c]
    sums[:] = 0.0


@njit(inline="always")
def _due(seen, batch, kept):  # type: ignore[no-untyped-def]
    """Return how many examples a Newton step takes: B, or where that is 1, more as there are more: it costs less."""
    if batch > 1:
        return batch
    memory = 0.1 / max(1.0 - kept, 0.1 / LONGEST_BATCH)
    return max(min(seen // GROWING * EIGHT, LONGEST_BATCH, int(memory)) // EIGHT, 1) * EIGHT


@njit(cache=True)
def learn(numbers, kernel, rows, y, gammas, model, phi):  # type: ignore[no-untyped-def]
    """Learn the rows in order; return (status, row)."""
    (ints, reals), start = numbers, rows[0]
    factor, newton, steady, gathered, sums, weights, mixer, bounds, priors = model
    work = workspace(ints, start, np.int64(1), phi.shape[2])
    groups, columns, n = newton.shape
    z = np.empty((groups, n), np.float32)
    f, out = np.empty((2 * groups, columns)), np.empty(columns)
    g, h = np.empty((2 * groups, columns)), np.empty((2 * groups, columns))
    code, parameter, bounded = ints[LOSS_CODE], reals[LOSS_PARAMETER], reals[LOSS_BOUND] < LARGEST_GRADIENT
    per_group = ints[MOST_BLOCKS] // groups
    for i in range(len(y)):
        blocks = min(ints[BLOCKS] + 1, ints[MOST_BLOCKS])
        if not embed(ints, reals, kernel, rows, i, blocks, phi, z, work):
            return BAD_VALUE, i
        # 1. all scores and derivatives; what cannot be learnt is refused before anything changes
        functions(z, newton, steady, f)
        mixed(weights, f, out)
        target, added, furthest = y[i], reals[OFFSET], math.inf
        if reals[SPREAD] > 0.0:
            furthest = max(FURTHEST, math.sqrt(min(float(ints[EXAMPLES]), HORIZON))) * math.sqrt(reals[SPREAD])
        if ints[INTERCEPT] == MEAN:
            added += min(max(target - added, -furthest), furthest) / (ints[EXAMPLES] + 1)
        target -= added
        usable = vectors.within(out, 1.0, LARGEST_GRADIENT)
        for k in range(2 * groups):
            losses.derivative(code, parameter, f[k], target, g[k])
            losses.curvature(code, parameter, f[k], target, h[k])
            usable &= vectors.within(f[k], 1.0, LARGEST_GRADIENT) and vectors.within(g[k], 1.0, LARGEST_GRADIENT)
        if not usable:
            return DIVERGED, i
        # 2. the sizes: of the targets, and of k(x, x)
        seen = ints[EXAMPLES] + 1
        size = 1.0
        if ints[INTERCEPT] == MEAN:
            size = reals[SPREAD] + (min(abs(target), furthest) ** 2 - reals[SPREAD]) / min(float(seen), HORIZON)
            reals[SPREAD] = size
        own = reals[SELF]
        if own == 0.0:
            own = 0.0
            for j in range(groups):
                own += vectors.dot(z[j], z[j]) / blocks
            reals[SQUARE] += (own - reals[SQUARE]) / seen
            own = max(own, reals[SQUARE]) or 1.0
        if seen == 1:
            for j in range(groups):
                for d in range(n):
                    factor[j, d, d] = math.sqrt(priors[j] * own * per_group)
        # 3. the mixture, then its functions
        loss = losses.value(code, parameter, out, target)
        _weigh(code, parameter, f, out, target, size, weights, mixer, bounds, bounded, ints[STEPS])
        place = ints[WAITING]
        for j in range(groups):
            most = FLATTEST
            for c in range(columns):
                most = max(most, h[j, c])
            if not bounded:
                bounds[j] = clip(g[j], bounds[j], LARGEST_GRADIENT)
                bounds[groups + j] = clip(g[groups + j], bounds[groups + j], LARGEST_GRADIENT)
            _scaled(gathered[j, place], z[j], np.float32(math.sqrt(most)))
            for c in range(columns):
                vectors.add(sums[j, c], z[j], g[j, c])
                vectors.add(steady[j, c], z[j], -gammas[i] / (own * per_group) * g[groups + j, c])
        ints[REUSED] += blocks == ints[BLOCKS]
        ints[BLOCKS] = blocks
        ints[EXAMPLES] = seen
        ints[STEPS] += 1
        ints[WAITING] += 1
        if ints[WAITING] >= _due(seen, ints[BATCH], reals[FORGETTING]):
            for j in range(groups):
                _newton(ints, reals, factor[j], newton[j], gathered[j], sums[j], priors[j] * own * per_group)
            ints[WAITING] = 0
        reals[LOSS] += (loss - reals[LOSS]) / min(float(seen), HORIZON)
        reals[OFFSET] = reals[PREDICTED_OFFSET] = added
    return DONE, 0
