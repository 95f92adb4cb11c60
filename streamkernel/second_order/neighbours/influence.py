"""How much each input counts in the distances of the nearest neighbours, from the derivatives of f along it; compiled.

An input on which f does not depend brings no neighbour nearer, and many such inputs hide those that do. So in

    d² = Σ_j a_j (x_j - z_j)²,   a_j = max(√m_j, 1/10),   m_j = (n_j s_j/s̄ + 4)/(n_j + 4),

s_j is the mean squared derivative of f along input j over the n_j gradients that have it (`sensitivity_state.py`), and
s̄ is the mean of s. Before the first gradient all a_j are 1. Indicators of values count for nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import from_dtype, types

from streamkernel.features.rows import F32
from streamkernel.features.scale_table import place_of
from streamkernel.jit import compiled, unit
from streamkernel.second_order.linear.state import LINEAR, PLACES, Linear
from streamkernel.second_order.sensitivity_state import SENSITIVITY

PRIOR = 4.0
"""Gradients that count as if each of them had the mean squared derivative along each input."""

LEAST = 0.1
"""Lower bound on a_j, because the derivatives of f may be those of the past."""


@unit(
    types.void(LINEAR, types.Array(from_dtype(SENSITIVITY), 1, "C"), types.float32[::1]),
    allocates=False,
    error_model="numpy",
)
def set_influence(linear, table, out):  # type: ignore[no-untyped-def]
    """Set `out` to a_j of the name at each place, from the table of sensitivities."""
    places, total, known = min(linear.counts[PLACES], len(out)), 0.0, 0
    for place in range(1, places):
        own = table[place_of(table, linear.names[place])]
        if own.present > 0.0:
            total += own.squares / own.present
            known += 1
    for place in range(1, places):
        own = table[place_of(table, linear.names[place])]
        if linear.scales[place, 1] < 0.0:  # a value
            out[place] = np.float32(0.0)
            continue
        share = 1.0
        if own.present > 0.0 and total > 0.0:
            share = (own.squares * known / total + PRIOR) / (own.present + PRIOR)
        out[place] = np.float32(max(math.sqrt(share), LEAST))


@compiled
def _influence(linear, places, table):  # type: ignore[no-untyped-def]
    out = np.ones(places, np.float32)
    set_influence(linear, table, out)
    return out


def influence(linear: Linear, places: int, table: Any) -> F32:
    """Return a_j of the first places, 1 for the constant."""
    return np.asarray(_influence(linear, places, table), np.float32)
