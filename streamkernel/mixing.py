"""The compiled heart of second-order learning: groups of features, each learnt twice, and the mixture of them.

The blocks of a model stand in groups. Group g has the features φ_g(x), n outputs of them, and two functions φ_gᵀw:

* one that takes Newton steps: w ← w - A⁻¹Σ ℓ'φ with A = λI + Σ ℓ''φφᵀ, for what stands still;
* one that takes steps of constant size, w ← w - γℓ'φ, for what moves.

One function more is a constant that takes constant steps: the level of late, whatever x is. What is predicted is
f = Σ_k v_k f_k over all these functions. The v_k are learnt by Newton steps too, on the loss of f itself, and forget
what is long ago. All functions see an example before they learn it.

Groups differ in size, so what they have stands in flat arrays, one group after the other, where `layout` says:

    layout[group]        first output of φ, outputs n; outputs, and squares of them, of the groups before
    factor               R of each group, shape (n, n), upper triangular, RᵀR = A
    newton, steady       w of the two functions of each group, shape (columns, n)
    rows                 √ℓ''φ of the examples that A does not hold yet, shape (room, n) each
    sums                 Σ ℓ'φ over them, shape (columns, n) for each group
    level                the constant, shape (columns, 1)
    weights, mixer       v, and the factor of its own A; functions by Newton steps first, the level last
    bounds               the largest derivatives seen of the functions, and of f
    standing             the running losses of the functions of groups, and of f = 0, since the last look
    priors               λ of each group, in units of k(x, x)
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import losses, newton_steps, vectors
from streamkernel.forms import features, power
from streamkernel.scoring import take, workspace
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

FIRST, COUNT, BEFORE, SQUARES_BEFORE = range(4)
"""What `layout` says of a group."""

FURTHEST = 10.0
"""In units of the targets' size, what a target counts for in their mean and size at most, or √n of n examples if that
is more, of a horizon at most: no value of n is further from their mean."""


@njit
def embed(ints, reals, kernel, rows, i, blocks, phi, z, work):  # type: ignore[no-untyped-def]
    """Set `z` to the features of all blocks for row i, 0 beyond the given blocks; return if the row is usable."""
    row, room = work[0], work[1]
    if not take(kernel, rows, i, row):
        return False
    per_block, width = ints[PER_BLOCK], phi.shape[2]
    per_panel = width // per_block
    outputs = ints[OUTPUTS]
    z[blocks * outputs * per_block :] = np.float32(0.0)
    normaliser = np.float32(1.0 / math.sqrt(per_block))
    for p in range((blocks + per_panel - 1) // per_panel):
        last = min(per_panel, blocks - p * per_panel)
        features(kernel, per_block, row, p, np.int64(0), last * per_block, phi[p], room)
        if reals[SELF] == 0.0 and power(phi[p], np.int64(0), last * per_block)[0] < 0.0:
            return False
        for b in range(last):
            for o in range(outputs):
                first = ((p * per_panel + b) * outputs + o) * per_block
                _scaled(z[first : first + per_block], phi[p, o, b * per_block : (b + 1) * per_block], normaliser)
    return True


@njit(inline="always")
def _features(z, layout, g):  # type: ignore[no-untyped-def]
    return z[layout[g, FIRST] : layout[g, FIRST] + layout[g, COUNT]]


@njit(inline="always")
def _part(values, layout, g, height):  # type: ignore[no-untyped-def]
    """Return what group g has of `values`, shape (height, n)."""
    first, n = height * layout[g, BEFORE], layout[g, COUNT]
    return values[first : first + height * n].reshape(height, n)


@njit(inline="always")
def _factor(factor, layout, g):  # type: ignore[no-untyped-def]
    first, n = layout[g, SQUARES_BEFORE], layout[g, COUNT]
    return factor[first : first + n * n].reshape(n, n)


@njit
def _scaled(to, values, scale):  # type: ignore[no-untyped-def]
    for j in range(len(to)):
        to[j] = scale * values[j]


@njit
def functions(layout, z, newton, steady, level, f):  # type: ignore[no-untyped-def]
    """Set `f`, shape (2 groups + 1, columns), to the scores of all functions."""
    groups, columns = len(layout), f.shape[1]
    for g in range(groups):
        phi = _features(z, layout, g)
        still, moving = _part(newton, layout, g, columns), _part(steady, layout, g, columns)
        for c in range(columns):
            f[g, c] = vectors.dot(phi, still[c])
            f[groups + g, c] = vectors.dot(phi, moving[c])
    f[2 * groups] = level[:, 0]


@njit
def mixed(weights, f, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (columns,), to Σ_k v_k f_k."""
    out[:] = 0.0
    for k in range(len(weights)):
        vectors.add(out, f[k], weights[k])


@njit(cache=True, nogil=True)
def evaluate(numbers, kernel, rows, model, phi, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (columns,), to the prediction for row i; return the first unusable row, or -1."""
    (ints, reals), start = numbers, rows[0]
    layout, newton, steady, level, weights = model
    work = workspace(ints, start, np.int64(1), phi.shape[2])
    z = np.empty(ints[MOST_BLOCKS] * ints[OUTPUTS] * ints[PER_BLOCK], np.float32)
    f = np.empty((len(weights), ints[COLUMNS]))
    for i in range(len(start) - 1):
        if not embed(ints, reals, kernel, rows, i, max(1, ints[BLOCKS]), phi, z, work):
            return i
        functions(layout, z, newton, steady, level, f)
        mixed(weights, f, out[i])
        out[i] += reals[PREDICTED_OFFSET]
    return -1


@njit(cache=True, nogil=True)
def embed_many(numbers, kernel, rows, phi, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to the features of the first blocks, as many as fit, for row i; 0 if it is unusable."""
    (ints, reals), start = numbers, rows[0]
    work = workspace(ints, start, np.int64(1), phi.shape[2])
    blocks = out.shape[1] // (ints[OUTPUTS] * ints[PER_BLOCK])
    for i in range(len(start) - 1):
        if not embed(ints, reals, kernel, rows, i, blocks, phi, out[i], work):
            out[i] = 0.0


@njit
def _step(ints, reals, layout, factor, newton, gathered, sums, priors, own):  # type: ignore[no-untyped-def]
    """Take a Newton step of each group on what waits for one."""
    columns, per_block = ints[COLUMNS], ints[OUTPUTS] * ints[PER_BLOCK]
    room = len(gathered) // max(1, len(sums) // columns)
    for j in range(len(layout)):
        if layout[j, COUNT] > 0:
            newton_steps.step(
                ints, reals, _factor(factor, layout, j), _part(newton, layout, j, columns),
                _part(gathered, layout, j, room), _part(sums, layout, j, columns),
                priors[j] * own * (layout[j, COUNT] // per_block),
            )  # fmt: skip
    ints[WAITING] = 0


@njit(cache=True, nogil=True)
def settle(ints, reals, layout, factor, newton, gathered, sums, priors):  # type: ignore[no-untyped-def]
    """Take a step on what waits for one, however few examples there are."""
    if ints[WAITING] > 0:
        own = reals[SELF] or reals[SQUARE] or 1.0
        _step(ints, reals, layout, factor, newton, gathered, sums, priors, own)


@njit(cache=True, nogil=True)
def learn(numbers, kernel, rows, y, gammas, model, phi):  # type: ignore[no-untyped-def]
    """Learn the rows in order; return (status, row)."""
    (ints, reals), start = numbers, rows[0]
    layout, factor, newton, steady, gathered, sums, level, weights, mixer, bounds, standing, priors = model[:12]
    looked, growing, follow = model[12:]
    work = workspace(ints, start, np.int64(1), phi.shape[2])
    groups, columns, per_block = len(layout), ints[COLUMNS], ints[OUTPUTS] * ints[PER_BLOCK]
    z = np.empty(ints[MOST_BLOCKS] * per_block, np.float32)
    count = 2 * groups + 1
    f, out, nothing = np.empty((count, columns)), np.empty(columns), np.zeros(columns)
    g, h = np.empty((count, columns)), np.empty((count, columns))
    code, parameter, bounded = ints[LOSS_CODE], reals[LOSS_PARAMETER], reals[LOSS_BOUND] < LARGEST_GRADIENT
    room = len(gathered) // max(1, len(sums) // columns)
    for i in range(len(y)):
        blocks = max(ints[BLOCKS], min(ints[BLOCKS] + 1, growing))
        if not embed(ints, reals, kernel, rows, i, blocks, phi, z, work):
            return BAD_VALUE, i
        # 1. all scores and derivatives; what cannot be learnt is refused before anything changes
        functions(layout, z, newton, steady, level, f)
        mixed(weights, f, out)
        target, added, furthest = y[i], reals[OFFSET], math.inf
        if reals[SPREAD] > 0.0:
            furthest = max(FURTHEST, math.sqrt(min(float(ints[EXAMPLES]), HORIZON))) * math.sqrt(reals[SPREAD])
        if ints[INTERCEPT] == MEAN:
            added += min(max(target - added, -furthest), furthest) / (ints[EXAMPLES] + 1)
        target -= added
        usable = vectors.within(out, 1.0, LARGEST_GRADIENT)
        for k in range(count):
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
            own = vectors.dot(z, z) / blocks
            reals[SQUARE] += (own - reals[SQUARE]) / seen
            own = max(own, reals[SQUARE]) or 1.0
        if seen == 1:
            for j in range(groups):
                newton_steps.begin(_factor(factor, layout, j), priors[j] * own * (layout[j, COUNT] // per_block))
        # 3. the mixture, then its functions
        loss = losses.value(code, parameter, out, target)
        newton_steps.weigh(code, parameter, f, out, target, size, weights, mixer, bounds, bounded, ints[STEPS])
        if not bounded:
            for k in range(count):
                bounds[k] = clip(g[k], bounds[k], LARGEST_GRADIENT)
        for c in range(columns):
            level[c, 0] -= follow * g[2 * groups, c]
        place, memory = ints[WAITING], min(max(1.0, 0.5 * (seen - looked)), HORIZON)
        standing[2 * groups] += (losses.value(code, parameter, nothing, target) - standing[2 * groups]) / memory
        for j in range(groups):
            if layout[j, COUNT] == 0:
                continue
            most = newton_steps.FLATTEST
            for c in range(columns):
                most = max(most, h[j, c])
            for k in range(j, 2 * groups, groups):
                standing[k] += (losses.value(code, parameter, f[k], target) - standing[k]) / memory
            features_of, change = _features(z, layout, j), _part(sums, layout, j, columns)
            moving = _part(steady, layout, j, columns)
            gamma = gammas[i] / (own * (layout[j, COUNT] // per_block))
            _scaled(_part(gathered, layout, j, room)[place], features_of, np.float32(math.sqrt(most)))
            for c in range(columns):
                vectors.add(change[c], features_of, g[j, c])
                vectors.add(moving[c], features_of, -gamma * g[groups + j, c])
        ints[REUSED] += blocks == ints[BLOCKS]
        ints[BLOCKS] = blocks
        ints[EXAMPLES] = seen
        ints[STEPS] += 1
        ints[WAITING] += 1
        if ints[WAITING] >= newton_steps.due(seen, ints[BATCH], reals[FORGETTING]):
            _step(ints, reals, layout, factor, newton, gathered, sums, priors, own)
        reals[LOSS] += (loss - reals[LOSS]) / min(float(seen), HORIZON)
        reals[OFFSET] = reals[PREDICTED_OFFSET] = added
    return DONE, 0
