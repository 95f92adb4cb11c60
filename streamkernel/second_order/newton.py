"""Functions of groups that take Newton steps, w ← w - A⁻¹Σ ℓ'φ, for streams that do not drift; compiled.

An example adds its part of A = λI + Σ ℓ''φφᵀ and of Σ ℓ'φ to what the next step will take
(:mod:`streamkernel.second_order.steps`).
"""

from __future__ import annotations

import math

import numpy as np

from streamkernel import vectors
from streamkernel.jit import inlined
from streamkernel.learners.embedding import set_scaled
from streamkernel.second_order import slots
from streamkernel.second_order.clipped import clip_derivatives
from streamkernel.second_order.mixture_state import BEFORE, COUNT, FIRST, read_groups, rows_per_group
from streamkernel.second_order.targets import FLATTEST


@inlined(allocates=False)
def read(state, z, f):  # type: ignore[no-untyped-def]
    """Set the slots of the functions in `f`, shape (functions, columns), to φᵀw, with the features `z`."""
    read_groups(state.layout, state.newton, state.slots[slots.NEWTON], z, f)


@inlined(allocates=False)
def learn(state, example, room):  # type: ignore[no-untyped-def]
    """Buffer √ℓ''φ of each group, and add ℓ'φ to its gradient; w examples count for one of weight w."""
    numbers, layout, z, columns = state.numbers[0], state.layout, state.last.z, room.g.shape[1]
    height, w = rows_per_group(numbers, state.rows, state.sums), example.weight
    for g in range(len(layout)):
        k, n, curvature = state.slots[slots.NEWTON] + g, layout[g, COUNT], FLATTEST
        clip_derivatives(state, k, room.g)
        if n == 0:
            continue
        phi = z[layout[g, FIRST] : layout[g, FIRST] + n]
        for c in range(columns):
            curvature = max(curvature, room.h[k, c])
        at = height * layout[g, BEFORE] + numbers.buffered * n
        set_scaled(state.rows[at : at + n], phi, np.float32(math.sqrt(w * curvature)))
        for c in range(columns):
            at = columns * layout[g, BEFORE] + c * n
            vectors.add(state.sums[at : at + n], phi, w * room.g[k, c])
