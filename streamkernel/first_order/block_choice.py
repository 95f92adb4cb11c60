"""The choice of a new or an old block at each step, and the length of the step; compiled."""

from __future__ import annotations

import math

import numpy as np
from numba import types

from streamkernel.features.counter_rng import counter_bits
from streamkernel.jit import inlined, unit
from streamkernel.learners.state import AUTOMATIC, NUMBERS_TYPE
from streamkernel.rules import CDSG, DSG

_DSG, _CDSG = DSG.code, CDSG.code

FEATURES_PER_STEP = 4096
"""With steps of automatic size, N features have a check every N/4,096 steps. On single events a check asks for a new
block at two steps of three, however many there are. The exact kernel's rate needs features that grow as √t (Rudi and
Rosasco 2017); with checks that become rarer as features become more, they grow so."""


@inlined
def longest_checked_step(beta, scale, g, gamma, noise):  # type: ignore[no-untyped-def]
    """Return the old block with the longest checked step η, and η (Li and Póczos 2016, eq. 9, signs resolved).

    The step of block k is the largest η for which

        2‖β_k - ηḡ‖² + 2η²(Mσ/B)² ≤ ‖β_k‖² + γ²‖ḡ‖²,

    the larger root of aη² + bη + c = 0 with a = 2‖ḡ‖² + 2(Mσ/B)², b = -4⟨β_k, ḡ⟩, c = ‖β_k‖² - γ²‖ḡ‖².
    With several columns (classes) ‖·‖² is the squared norm over them. η is 0 where no block has such a step.

    Parameters
    ----------
    beta
        The β_k without their common scale, shape (blocks, columns).
    scale
        The scale.
    g
        The mean gradient ḡ, shape (columns,).
    gamma
        The step γ of a new block.
    noise
        (Mσ/B)².
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
def _uniform(key, t, n):  # type: ignore[no-untyped-def]
    """Return a number below `n`, drawn for step `t`."""
    return int((counter_bits(key, t) >> 11) * 2.0**-53 * n)


@unit(
    types.Tuple((types.int64, types.float64, types.boolean))(
        NUMBERS_TYPE, types.float64[:, ::1], types.float64[::1], types.float64, types.float64
    )
)
def choose(state, beta, g, gamma, noise):  # type: ignore[no-untyped-def]
    """Return the block to update (the number of blocks for a new one), the step, and whether the cap refused a new one.

    Parameters
    ----------
    state
        The record of :mod:`streamkernel.learners.state`.
    beta
        The β_k without their common scale, with or without spare capacity.
    g
        The mean gradient ḡ.
    gamma
        The step γ of a new block.
    noise
        (Mσ/B)².
    """
    numbers = state[0]
    blocks, t = numbers.blocks, numbers.steps
    room = blocks < numbers.most_blocks  # at the cap there is an old block
    if numbers.rule == _CDSG:
        if numbers.step_units & AUTOMATIC and t % max(1, blocks * numbers.block_size // FEATURES_PER_STEP) != 0:
            return _uniform(np.uint64(numbers.rule_key), t, blocks), 0.0, False  # β is unchanged
        k, eta = longest_checked_step(beta[:blocks], numbers.scale, g, gamma, noise)
        if eta > gamma:
            return k, min(eta, numbers.max_step_ratio * gamma), False
        grows = True
        if k >= 0 and not room:
            return k, eta, True
    else:
        grows = blocks == 0 or numbers.rule == _DSG or t % (numbers.n_new + numbers.n_reused) < numbers.n_new
    if grows and room:
        return blocks, gamma, False
    return _uniform(np.uint64(numbers.rule_key), t, blocks), gamma, grows
