"""Mean squared derivatives of f, collected with the gradients of a metric and of the linear functions; compiled.

The derivative along a name is that of f by its value, in units of the scale in use: how much f changes per deviation of
the name. Importances are computed from its mean square.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from streamkernel.features.compiled_kernel import ENTRIES, KERNEL
from streamkernel.features.scale_table import SCALES, place_of, unit_and_slope
from streamkernel.jit import inlined, unit
from streamkernel.learners import schedule
from streamkernel.second_order import slots
from streamkernel.second_order.linear.steps import compiled_slope
from streamkernel.second_order.mixture_state import MIXTURE, first_weight, per_unit
from streamkernel.second_order.name_table import row_of
from streamkernel.second_order.sensitivity_state import MOST_NAMES, NAMES, WEIGHT


@inlined(allocates=False)
def _linear_slope(state, key, c, divisor, said):  # type: ignore[no-untyped-def]
    """Return how much the linear functions' part of f_c changes per deviation of a name where they predict `said`."""
    linear, base, total = state.linear, state.slots[slots.LINEAR], 0.0
    row = row_of(linear.keys, key)
    if linear.keys[row] != key:
        return 0.0
    place = linear.at[row]
    if linear.scales[place, 1] <= 0.0:
        return 0.0
    base += first_weight(state, c)
    for k in range(len(linear.w)):
        total += state.weights[base + k] * compiled_slope(linear, said[k, c]) * linear.w[k, c, place]
    return per_unit(state, c) * total * divisor / linear.scales[place, 1]


@unit(
    types.void(MIXTURE, KERNEL, SCALES, ENTRIES, types.float64[::1], types.float64[:, ::1], types.int64, types.int64),
    allocates=False,
    error_model="numpy",
)
def observe(state, kernel, scales, row, gradient, said, c, since):  # type: ignore[no-untyped-def]
    """Add ∇f_c at a row for each name that is read; halve the earlier sums if a check is due after `since` examples.

    `gradient` is that of the groups' functions, and `said` are the scores of the linear ones.
    """
    table, totals, part = state.metric.sensitivities, state.metric.totals, kernel.parts[0]
    if schedule.compiled_is_due(since):
        for i in range(len(table)):
            table[i].squares *= 0.5
            table[i].present *= 0.5
        totals[WEIGHT] *= 0.5
    totals[WEIGHT] += 1.0
    for j in range(row.counts[0]):
        key = max(row.hashes[0, j], np.uint64(1))
        own = table[place_of(table, key)]
        if own.key != key:
            if totals[NAMES] >= MOST_NAMES:
                continue
            totals[NAMES] += 1.0
            own.key = key
        unit_in_use, bent = unit_and_slope(scales, key, np.float64(row.values[0, j]) / part.scale)
        slope = 2.0 * math.pi * part.scale * bent * gradient[j] + _linear_slope(state, key, c, unit_in_use, said)
        if abs(slope) < 1e100:
            own.squares += slope * slope
            own.present += 1.0
