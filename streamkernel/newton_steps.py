"""Compiled Newton steps of second-order learning: of the weights of the mixture, and of one group's function."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import losses, square_root, vectors
from streamkernel.square_root import EIGHT
from streamkernel.state import EXAMPLES, FORGETTING, L2, WAITING
from streamkernel.stepping import LARGEST_GRADIENT, clip

FLATTEST = 1e-3
"""What ℓ'' counts for at least: where the loss is flat, A still has to hold what was seen."""

MEMORY = 0.9995
"""What the mixture forgets an example by."""

LONGEST_BATCH = 64
GROWING = 256
"""Examples after which a Newton step takes eight more."""

PULL = 10.0
"""λ of the mixture, in units of the size of the targets."""


@njit
def begin(factor, prior):  # type: ignore[no-untyped-def]
    """Set R to what it is without examples, of A = λI."""
    for d in range(len(factor)):
        factor[d, d] = math.sqrt(prior)


@njit
def weigh(code, parameter, f, out, target, size, weights, mixer, bounds, bounded, turn):  # type: ignore[no-untyped-def]
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


@njit(cache=True)
def without(mixer, weights, gone, pull):  # type: ignore[no-untyped-def]
    """Return the mixer without what it knows of some functions, and set v to what it would be without them:

    A v of the others stays, so that others that are like those gone take over.
    """
    count = len(mixer)
    rows, factor = np.zeros(((count + EIGHT - 1) // EIGHT * EIGHT, count)), np.zeros_like(mixer)
    for i in range(count):
        rows[i, i:] = mixer[i, i:]
    left, moment = np.zeros(count), np.zeros(count)
    for k in gone:
        left[k], weights[k] = weights[k], 0.0
    for i in range(count):
        vectors.add(moment, rows[i], vectors.dot(rows[i], left))
    for k in gone:
        rows[:, k], moment[k] = 0.0, 0.0
    square_root.rotate(factor, rows)
    for k in gone:
        factor[k, k] = math.sqrt(pull)
    square_root.solve(factor, moment)
    weights += moment
    return factor


@njit(inline="always")
def turn(n, batch, kept):  # type: ignore[no-untyped-def]
    """Return T for a group of n outputs."""
    return max(batch, min(n, int(0.5 / max(1.0 - kept, 1e-9))))


@njit(inline="always")
def fades(seen, batch, every):  # type: ignore[no-untyped-def]
    """Return whether the step of the last `batch` of all examples seen is one that forgets T of them."""
    return seen == batch or seen // every > (seen - batch) // every


@njit
def step(ints, reals, factor, newton, rows, sums, prior):  # type: ignore[no-untyped-def]
    """Take the Newton step of one group on the B examples gathered, which forgets by ρ an example:

        A ← A + Σ ℓ''φφᵀ,   w ← w - A⁻¹(Σ ℓ'φ + Blw)

    and before that, once in T examples, since it costs as much as they do,

        A ← ρᵀA + ((1 - ρᵀ)λ + Tl)I,   with the gradient (1 - ρᵀ)λw
    """
    batch, l2, seen = ints[WAITING], reals[L2], ints[EXAMPLES]
    pull = batch * l2
    if reals[FORGETTING] < 1.0 or l2 > 0.0:
        every = turn(len(factor), batch, reals[FORGETTING])
        if fades(seen, batch, every):
            kept = reals[FORGETTING] ** every
            square_root.fade(factor, kept, (1.0 - kept) * prior + every * l2, np.zeros_like(rows))
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
def due(seen, batch, kept):  # type: ignore[no-untyped-def]
    """Return how many examples a Newton step takes: B, or where that is 1, more as there are more: it costs less."""
    if batch > 1:
        return batch
    memory = 0.1 / max(1.0 - kept, 0.1 / LONGEST_BATCH)
    return max(min(seen // GROWING * EIGHT, LONGEST_BATCH, int(memory)) // EIGHT, 1) * EIGHT
