"""The parts of a step: its block, its automatic size, and its preconditioner; compiled.

A preconditioned step uses the covariance of the features of a block over the batch.
With Φ of shape (B, P), the features of block k at the batch, and g the gradients, the step goes along

    (ΦᵀΦ/B + εI)⁻¹ Φᵀg/B  =  Φᵀw/B   with   w = (ΦΦᵀ/B + εI)⁻¹ g,

so that only a B×B system is solved, and the step is taken with w in the place of g (Dai et al. 2014, section 4).

A step of automatic size moves all blocks.
A step on one of n blocks that is drawn uniformly moves f, on average over the draws, as a step on all of them that is
n times shorter. The features of all blocks at x are available once f(x) is computed, so this mean costs little more
than one draw, and has none of its variance: a step on one block contracts only below 2/n, one on all blocks below 2.

In the space of the kernel k̂(x, x') = (1/n) Σ_b φ_b(x)·φ_b(x') of the n blocks, the mean gradient of a batch is
∇ = (1/B) Σ g_i k̂(x_i, ·). The step is

    α_b ← α_b - (η/n) (1/B) Σ φ_b(x_i) g_iᵀ   for all b,   η = ‖f‖ √(2/Σ‖∇‖²)

with the sum over all steps so far: √2 times the distance over gradients of Ivgi, Hinder and Carmon (2023), or once the
distance for losses with a kink. It follows the units of the loss, the size of the kernel and of the batch. No step
moves f by more than the error e of the batch anywhere, that is η ≤ η_most = e/(‖∇‖√k(x, x)), and none is shorter than
η_most/√t or η_most/32: f has to leave 0 at first, and to follow changes later. ‖f‖² is updated at each step,
‖f‖² ← ‖f‖² - 2η⟨∇, f⟩ + η²‖∇‖²; n Σ‖α_b‖² would overstate the first steps, which moved few blocks.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.counter_rng import counter_bits
from streamkernel.jit import Family, inlined, unit
from streamkernel.learners.scoring import AVERAGE, FIRST_ORDER, has_range
from streamkernel.learners.span import LARGEST, LEAST, limits, observe, within
from streamkernel.learners.state import HORIZON, LEARNED, NUMBERS_TYPE, PER_ERROR
from streamkernel.rules import CDSG, UDSG

precondition = Family(
    "precondition", types.void(types.float64[:, ::1], types.float64, types.float64[:, ::1], types.float64[:, ::1])
)
"""``precondition(0, phi, epsilon, g, a)`` sets `g`, shape (B, columns), to (ΦΦᵀ/B + εI)⁻¹ g; `phi` is Φᵀ, shape (P,
B), and `a` is room, shape (B, B)."""
_UDSG, _CDSG = UDSG.code, CDSG.code
UNLIMITED = 1 << 32
"""A cap on blocks from here on is no cap; also the seeds of a replica without a cap."""
FEATURES_PER_ROOT = 128
"""Features over the root of the number of steps, of CDSG without a cap and with steps of automatic size. The exact
kernel's rate needs features that grow as √t (Rudi and Rosasco 2017)."""
SHORTEST = 1.0 / 32.0
"""The shortest step over the longest one, so that a function still follows changes after a thousand steps."""
STRETCH = 2.0
"""The factor in η² of losses whose gradients vanish at the minimum; of others, f would run away from the intercept."""
_TOTAL = types.float64[:, :, :, ::1]


@precondition.member(0)
def _precondition(phi, epsilon, g, a):  # type: ignore[no-untyped-def]
    batch = phi.shape[1]
    a[:] = 0.0  # the upper triangle is used
    for p in range(len(phi)):
        for i in range(batch):
            vectors.add(a[i, i:], phi[p, i:], phi[p, i] / batch)
    for i in range(batch):
        a[i, i] += max(epsilon, 1e-12 * a[i, i])  # a smaller ε is lost in rounding where examples are alike
    for j in range(batch):  # Cholesky: a becomes R with RᵀR = a
        vectors.multiply(a[j, j:], 1.0 / math.sqrt(a[j, j]))
        for i in range(j + 1, batch):
            vectors.add(a[i, i:], a[j, i:], -a[j, i])
    for j in range(batch):  # Rᵀz = g
        vectors.multiply(g[j], 1.0 / a[j, j])
        for i in range(j + 1, batch):
            vectors.add(g[i], g[j], -a[j, i])
    for j in range(batch - 1, -1, -1):  # Rw = z
        vectors.multiply(g[j], 1.0 / a[j, j])
        for i in range(j):
            vectors.add(g[i], g[j], -a[i, j])


@inlined
def pull_of_intercept(phi, epsilon, mean_k_xx, g):  # type: ignore[no-untyped-def]
    """Return the mean derivative by which a learned intercept moves beside blocks whose steps are preconditioned.

    A step moves the blocks by about g_i/(k(x_i, x_i)/B + ε) for each example. With other weights the intercept and the
    blocks would minimise different sums, and each would undo the steps of the other, with growing amplitude. With ε at
    least the mean of k(x, x)/B, which is the error of a covariance over B examples, the weights are at most 2.
    """
    batch = phi.shape[1]
    total = 0.0
    for i in range(batch):
        k_xx = 0.0
        for p in range(len(phi)):
            k_xx += phi[p, i] * phi[p, i]
        total += g[i, 0] * (mean_k_xx + batch * epsilon) / (k_xx + batch * epsilon)
    return total / batch


@inlined
def longest_checked_step(beta, scale, g, gamma, noise):  # type: ignore[no-untyped-def]
    """Return the old block with the longest checked step η, and η (Li and Póczos 2016, eq. 9, signs resolved).

    The step of block k is the largest η for which

        2‖β_k - ηḡ‖² + 2η²(Mσ/B)² ≤ ‖β_k‖² + γ²‖ḡ‖²,

    the larger root of aη² + bη + c = 0 with a = 2‖ḡ‖² + 2(Mσ/B)², b = -4⟨β_k, ḡ⟩, c = ‖β_k‖² - γ²‖ḡ‖². With several
    columns (classes) ‖·‖² is the squared norm over them. η is 0 where no block has such a step. `beta` are the β_k
    without their common `scale`, shape (blocks, columns); `g` is the mean gradient ḡ, shape (columns,); `gamma` is the
    step γ of a new block, and `noise` (Mσ/B)².
    """
    g2 = 0.0
    for c in range(len(g)):
        g2 += g[c] * g[c]
    a = 2.0 * (g2 + noise)
    best, longest = -1, 0.0
    for k in range(len(beta)):
        dot = 0.0
        norm2 = 0.0
        for c in range(len(g)):
            dot += beta[k, c] * g[c]
            norm2 += beta[k, c] * beta[k, c]
        b = -4.0 * dot * scale
        c0 = norm2 * scale * scale - gamma * gamma * g2
        square = b * b - 4.0 * a * c0
        if square >= 0.0 and a > 0.0:
            eta = (-b + math.sqrt(square)) / (2.0 * a)
            if eta > longest:
                best, longest = k, eta
    return best, longest


@inlined
def grows(numbers):  # type: ignore[no-untyped-def]
    """Return whether the rule asks for a new block, without a check."""
    if numbers.rule == _UDSG:
        return numbers.blocks == 0 or numbers.steps % (numbers.n_new + numbers.n_reused) < numbers.n_new
    if numbers.rule == _CDSG and numbers.most_blocks >= UNLIMITED:
        features = numbers.blocks * numbers.block_size
        return features * features < FEATURES_PER_ROOT**2 * (numbers.steps + 1)
    return True


@inlined
def place(numbers, is_wanted):  # type: ignore[no-untyped-def]
    """Return a block, a new one if that `is_wanted` (then the number of blocks), and whether the cap refused it.

    An old block is drawn uniformly.
    """
    if is_wanted and numbers.blocks < numbers.most_blocks:
        return numbers.blocks, False
    bits = counter_bits(np.uint64(numbers.rule_key), numbers.steps) >> 11
    return int(bits * 2.0**-53 * numbers.blocks), is_wanted


@unit(
    types.Tuple((types.int64, types.float64, types.boolean))(
        NUMBERS_TYPE, types.float64[:, ::1], types.float64[::1], types.float64, types.float64
    )
)
def choose(state, beta, g, gamma, noise):  # type: ignore[no-untyped-def]
    """Return the block to update (the number of blocks for a new one), the step, and whether the cap refused a new one.

    `beta` may have spare capacity. The arguments are those of :func:`longest_checked_step`.
    """
    numbers = state[0]
    if numbers.rule == _CDSG:
        k, eta = longest_checked_step(beta[: numbers.blocks], numbers.scale, g, gamma, noise)
        if eta > gamma:
            return k, min(eta, numbers.max_step_ratio * gamma), False
        if k >= 0 and numbers.blocks == numbers.most_blocks:
            return k, eta, True
    k, is_forced = place(numbers, numbers.rule == _CDSG or grows(numbers))
    return k, gamma, is_forced


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


@unit(types.float64(FIRST_ORDER, types.int64, types.float64[:, ::1], _TOTAL, types.float64[:, ::1]), allocates=False)
def squared_gradient(state, blocks, g, total, sums):  # type: ignore[no-untyped-def]
    """Return ‖∇‖² of a step; of one example it is ‖g‖² k̂(x, x)."""
    numbers, phi = state.numbers[0], state.phi
    size, width, batch = numbers.block_size, phi.shape[2], numbers.batch_size
    size_of_g = 0.0
    for c in range(numbers.columns):
        size_of_g += g[0, c] * g[0, c]
    if batch == 1 and numbers.k_xx > 0.0:
        return size_of_g * numbers.k_xx
    squares = sums[0]
    squares[:] = 0.0
    for p in range((blocks * size + width - 1) // width):
        last = min(width, blocks * size - p * width)
        for part in range(numbers.components):
            if batch == 1:
                _add_squares(squares[:last], phi[p, part, :last])
            else:
                for c in range(numbers.columns):
                    _add_squares(squares[:last], total[p, c, part, :last])
    mean_square = vectors.tree_sum(squares) / blocks
    return mean_square * size_of_g / size if batch == 1 else mean_square


@inlined(allocates=False)
def count(state, y, first, added, predictions, loss, total):  # type: ignore[no-untyped-def]
    """Update the range of targets, the counters, and the values that the dashboard shows, after a step.

    `added` is the new offset, `predictions` are of the examples before the step, and `loss` is the sum of their losses,
    of the weight `total`.
    """
    numbers, batch = state.numbers[0], len(predictions)
    if has_range(numbers):
        if numbers.examples == 0:
            state.span[LEAST] = state.span[LARGEST] = predictions[:] = y[first]
        low, high = limits(state.span)
        for i in range(batch):
            before, seen = predictions[i, 0], numbers.examples + i + 1
            observe(state.span, y[first + i], added, before, within(before, low, high), seen)
    numbers.examples += batch
    numbers.weight += total
    numbers.steps += 1
    numbers.running_loss += min(1.0, total / min(numbers.weight, HORIZON)) * (loss / total - numbers.running_loss)
    if numbers.intercept >= LEARNED and numbers.averaging == AVERAGE:
        numbers.predicted_offset += (added - numbers.predicted_offset) / numbers.steps
    else:
        numbers.predicted_offset = added
    numbers.offset = added


@inlined
def step_size(numbers, sums, square, along, error, k_xx):  # type: ignore[no-untyped-def]
    """Return η, and the increase of Σ‖∇‖².

    `sums` are ‖f‖² and Σ‖∇‖² so far. `square` and `along` are ‖∇‖² of the loss and ⟨∇, f⟩; `error`
    is e, the error of the batch in units of f, and `k_xx` k(x, x).
    """
    norm2, gradient_sum = sums
    added = max(0.0, square + 2.0 * numbers.l2 * along + numbers.l2**2 * norm2)
    most = error / math.sqrt(square * k_xx) if square * k_xx > 0.0 else 0.0
    eta = most * max(SHORTEST, 1.0 / math.sqrt(numbers.steps + 1.0))
    if gradient_sum + added > 0.0:
        stretch = 1.0 if numbers.step_units & PER_ERROR else STRETCH
        eta = max(eta, math.sqrt(stretch * norm2 / (gradient_sum + added)))
    eta = min(eta, most)
    if eta * numbers.l2 > 1.0:
        eta = 1.0 / numbers.l2
    return eta, added


@unit(types.void(FIRST_ORDER, types.int64, types.float64, types.float64[:, ::1], _TOTAL), allocates=False)
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
                    factor = gain * g[0, c] * normaliser
                    vectors.add(coef[p, c, part, :last], phi[p, part, :last], factor)
                    if averages:
                        vectors.add(coef[p, columns + c, part, :last], phi[p, part, :last], factor * numbers.scale_sum)
                else:
                    vectors.add(coef[p, c, part, :last], total[p, c, part, :last], gain)
                    if averages:
                        change = gain * numbers.scale_sum
                        vectors.add(coef[p, columns + c, part, :last], total[p, c, part, :last], change)
