"""Steps of automatic size, which move all blocks of a function; compiled.

A step on one of n blocks that is drawn uniformly moves f, on average over the draws, as a step on all of them that is
n times shorter. The features of all blocks at x are available once f(x) is computed, so this mean costs little more
than one draw, and has none of its variance: a step on one block contracts only below 2/n, one on all blocks below 2.

In the space of the kernel k̂(x, x') = (1/n) Σ_b φ_b(x)·φ_b(x') of the n blocks, the mean gradient of a batch is
∇ = (1/B) Σ g_i k̂(x_i, ·). The step is

    α_b ← α_b - (η/n) (1/B) Σ φ_b(x_i) g_iᵀ   for all b,   η = ‖f‖ / √Σ‖∇‖²

with the sum over all steps so far: the distance over gradients of Ivgi, Hinder and Carmon (2023), which follows the
units of the loss, the size of the kernel and of the batch. No step moves f by more than the error e of the batch
anywhere, that is η ≤ η_most = e/(‖∇‖√k(x, x)), and none is shorter than η_most/√t or η_most/32: f has to leave 0 at
first, and to follow changes later. ‖f‖² is updated at each step, ‖f‖² ← ‖f‖² - 2η⟨∇, f⟩ + η²‖∇‖²; n Σ‖α_b‖² would
overstate the first steps, which moved few blocks.
"""

from __future__ import annotations

import math

from numba import types

from streamkernel import vectors
from streamkernel.jit import inlined, unit
from streamkernel.learners.scoring import FIRST_ORDER

LEAST = 1.0 / 32.0
"""The shortest step over the longest one, so that a function still follows changes after a thousand steps."""

_TOTAL = types.float64[:, :, :, ::1]


@unit(types.void(FIRST_ORDER, types.int64, types.float64[::1], types.float64, _TOTAL), allocates=False)
def gather(state, blocks, g, gain, total):  # type: ignore[no-untyped-def]
    """Add ``gain * g`` times the features of the row that was evaluated last to `total`, laid out as α is."""
    phi, size = state.phi, state.numbers[0].block_size
    width = phi.shape[2]
    for p in range((blocks * size + width - 1) // width):
        last = min(width, blocks * size - p * width)
        for c in range(len(g)):
            for part in range(phi.shape[1]):
                vectors.add(total[p, c, part, :last], phi[p, part, :last], gain * g[c])


@unit(types.void(types.int64, types.int64, _TOTAL), allocates=False)
def clear(blocks, size, total):  # type: ignore[no-untyped-def]
    """Set the accumulated moves of a number of blocks to 0."""
    for p in range((blocks * size + total.shape[3] - 1) // total.shape[3]):
        total[p] = 0.0


@inlined
def _add_squares(to, values):  # type: ignore[no-untyped-def]
    """Add the squares of `values` to `to`."""
    for j in range(len(values)):
        to[j] += float(values[j]) * float(values[j])


@unit(
    types.float64(FIRST_ORDER, types.int64, types.float64[:, ::1], _TOTAL, types.float64[:, ::1]),
    allocates=False,
)
def squared_gradient(state, blocks, g, total, sums):  # type: ignore[no-untyped-def]
    """Return ‖∇‖² of a step; of one example it is ‖g‖² k̂(x, x)."""
    numbers, phi = state.numbers[0], state.phi
    size, width, batch = numbers.block_size, phi.shape[2], numbers.batch_size
    size_of_g = 0.0
    for c in range(numbers.columns):
        size_of_g += g[0, c] * g[0, c]
    if batch == 1 and numbers.k_xx > 0.0:
        return size_of_g * numbers.k_xx
    room = sums[0]
    room[:] = 0.0
    for p in range((blocks * size + width - 1) // width):
        last = min(width, blocks * size - p * width)
        for part in range(numbers.components):
            if batch == 1:
                _add_squares(room[:last], phi[p, part, :last])
            else:
                for c in range(numbers.columns):
                    _add_squares(room[:last], total[p, c, part, :last])
    found = vectors.tree_sum(room) / blocks
    return found * size_of_g / size if batch == 1 else found


@inlined
def step_size(numbers, square, along, error, k_xx):  # type: ignore[no-untyped-def]
    """Return η, and the increase of Σ‖∇‖².

    Parameters
    ----------
    numbers
        The record of the function.
    square, along
        ‖∇‖² of the loss, and ⟨∇, f⟩.
    error
        e, the error of the batch in units of f.
    k_xx
        k(x, x).
    """
    norm2 = numbers.distance2
    added = max(0.0, square + 2.0 * numbers.l2 * along + numbers.l2**2 * norm2)
    most = error / math.sqrt(square * k_xx) if square * k_xx > 0.0 else 0.0
    eta = most * max(LEAST, 1.0 / math.sqrt(numbers.steps + 1.0))
    if numbers.gradient_sum + added > 0.0:
        eta = max(eta, math.sqrt(norm2 / (numbers.gradient_sum + added)))
    eta = min(eta, most)
    if eta * numbers.l2 > 1.0:
        eta = 1.0 / numbers.l2
    return eta, added


@unit(
    types.void(FIRST_ORDER, types.int64, types.float64, types.float64[:, ::1], _TOTAL),
    allocates=False,
)
def move(state, blocks, gain, g, total):  # type: ignore[no-untyped-def]
    """Add `gain` times the direction of a step to the coefficients without their scale, and to their running sums."""
    numbers, coef, phi = state.numbers[0], state.coef, state.phi
    columns, size, width = numbers.columns, numbers.block_size, coef.shape[3]
    normaliser = 1.0 / math.sqrt(size)
    averages = coef.shape[1] > columns
    for p in range((blocks * size + width - 1) // width):
        last = min(width, blocks * size - p * width)
        for c in range(columns):
            for part in range(numbers.components):
                if numbers.batch_size == 1:
                    own = gain * g[0, c] * normaliser
                    vectors.add(coef[p, c, part, :last], phi[p, part, :last], own)
                    if averages:
                        vectors.add(coef[p, columns + c, part, :last], phi[p, part, :last], own * numbers.scale_sum)
                else:
                    vectors.add(coef[p, c, part, :last], total[p, c, part, :last], gain)
                    if averages:
                        change = gain * numbers.scale_sum
                        vectors.add(coef[p, columns + c, part, :last], total[p, c, part, :last], change)
