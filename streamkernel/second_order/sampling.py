"""Sampling of the rows that a Newton step adds to A: all of them at first, fewer once A holds many examples; compiled.

Once A holds many more examples than a group has outputs, most rows change it little. A row x = √ℓ''φ is added with a
probability that depends on its ridge leverage (Cohen, Musco and Pachocki, "Online row sampling", 2016),

    p = min(1, max(1/8, 2 xᵀA⁻¹x))

and divided by √p, so that the expected sum is Σ ℓ''φφᵀ of all rows. A row in a direction without weight in A is
always added, so that the step does not exceed its target. An added row contributes at most half of what A holds in its
direction, or eight times its own square. The gradient always includes all examples.

The leverage is estimated by |Sx|². The sketch is Sᵀ = R⁻¹Π, where Π has eight columns of random signs over √8. It is
computed again when A holds a quarter more examples.

Whether a row is added depends on the number of its example, on the row, and on the last sketch. It does not depend on
which examples share its step, so copies of one model agree on the rows that were buffered when they were copied.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.counter_rng import counter_bits
from streamkernel.jit import compiled, inlined, unit
from streamkernel.second_order.mixture_state import (
    BORN,
    COUNT,
    GROUP,
    MIXTURE,
    RESTED,
    RESTS_FROM,
    SKETCHED_AT,
    SKETCHES,
    TAKEN,
    group_of,
)
from streamkernel.second_order.tiles import WIDE

CAUTION = 2.0
"""Ratio of the probability that a row is added to its leverage."""

MOST = 8.0
"""The inverse of the smallest probability."""

FROM = 1024
"""Minimum number of examples of a group before its first sketch, which also needs as many as the group has outputs."""

GROWTH = 0.25
"""Number of examples between sketches, as a share of those in A."""

_GOLDEN, _TOGETHER = np.uint64(0x9E3779B97F4A7C15), 6


@inlined(allocates=False)
def _draw(g, example):  # type: ignore[no-untyped-def]
    """Return a pseudorandom number from 0 to 1 for an example and a group, evenly spread over 64 examples."""
    shift = counter_bits(np.uint64(g), np.uint64(example >> _TOGETHER))
    return float((shift + np.uint64(example) * _GOLDEN) >> np.uint64(11)) * 2.0**-53


@unit(types.void(MIXTURE, GROUP, types.int64, types.int64, types.int64, types.float64[::1]), error_model="numpy")
def _set_shares(state, group, g, count, last, shares):  # type: ignore[no-untyped-def]
    """Set 1/p for rows that are added to A, and 0 for others; the rows belong to the examples up to `last`."""
    for i in range(count):
        leverage, shares[i] = 0.0, 1.0
        if state.sampled[g, SKETCHED_AT] == 0.0:
            continue
        for k in range(SKETCHES):
            leverage += float(vectors.rough_dot(group.sketch[k], group.rows[i])) ** 2
        p = max(CAUTION * leverage, 1.0 / MOST)
        if p < 1.0:
            shares[i] = 1.0 / p if _draw(g, last - count + i + 1) < p else 0.0


@unit(types.void(MIXTURE, GROUP, types.int64))
def gather(state, group, g):  # type: ignore[no-untyped-def]
    """Copy the rows that the step adds to A, divided by √p, into the panels of a group."""
    numbers, taken = state.numbers[0], 0
    shares = np.empty(numbers.working)
    _set_shares(state, group, g, numbers.working, numbers.worked_at, shares)
    for i in range(numbers.working):
        if shares[i] == 0.0:
            continue
        root = np.float32(math.sqrt(shares[i]))
        for k in range(len(group.panels)):
            part = group.rows[i, k * WIDE : (k + 1) * WIDE]
            for m in range(len(part)):
                group.panels[k, taken, m] = root * part[m]
        taken += 1
    state.sampled[g, TAKEN] = taken


@unit(types.void(MIXTURE, GROUP, types.int64))
def begin_sketch(state, group, g):  # type: ignore[no-untyped-def]
    """Set the sketch of a group to random signs if the step computes it again."""
    seen = state.numbers[0].worked_at
    age, memory = float(seen - state.layout[g, BORN]), 1.0 / max(1.0 - state.kept[g], 1e-18)
    held = min(age - state.sampled[g, RESTED], memory)
    is_due = seen - state.sampled[g, SKETCHED_AT] >= GROWTH * min(age, memory)  # at rest the age grows as A does
    if not is_due or held < max(FROM, state.layout[g, COUNT]):
        return
    state.sampled[g, SKETCHED_AT] = seen
    size = np.float32(1.0 / math.sqrt(SKETCHES))
    for i in range(state.layout[g, COUNT]):
        bits = counter_bits(np.uint64(seen), np.uint64(i))
        for k in range(SKETCHES):
            group.sketch[k, i] = size if bits >> np.uint64(k) & np.uint64(1) else -size


@compiled
def waiting_shares(state, g):  # type: ignore[no-untyped-def]
    """Return 1/p for buffered rows that the next step adds to A, and 0 for others."""
    numbers = state.numbers[0]
    shares = np.zeros(numbers.buffered)
    if state.sampled[g, RESTS_FROM] == 0.0:
        _set_shares(state, group_of(state, g), g, numbers.buffered, numbers.examples, shares)
    return shares
