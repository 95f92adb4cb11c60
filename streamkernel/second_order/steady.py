"""Functions of groups that take steps of constant size, w ← w - γℓ'φ, for streams that drift; compiled."""

from __future__ import annotations

import math

from streamkernel import vectors
from streamkernel.jit import inlined
from streamkernel.second_order import slots
from streamkernel.second_order.mixture_state import BEFORE, COUNT, FIRST, read_groups
from streamkernel.second_order.targets import clip_derivatives

LEAST_PART, LARGEST_PART = 1e-9, 0.99
"""Bounds on the fraction of an error that a constant step removes, for examples whose weight is not 1."""


@inlined(allocates=False)
def steps_of(w, a):  # type: ignore[no-untyped-def]
    """Return the ratio of a constant step for an example of weight w to that for weight 1.

    One step removes the fraction a = γℓ''‖φ‖² of an error, and w steps remove 1 - (1 - a)^w, which does not exceed the
    target for any w (Karampatziakis and Langford, 2011).
    """
    if w == 1.0:
        return 1.0
    a = min(a, LARGEST_PART)
    return w if a < LEAST_PART else -math.expm1(w * math.log1p(-a)) / a


@inlined(allocates=False)
def read(state, z, f):  # type: ignore[no-untyped-def]
    """Set the slots of the functions in `f`, shape (functions, columns), to φᵀw, with the features `z`."""
    read_groups(state.layout, state.steady, state.slots[slots.STEADY], z, f)


@inlined(allocates=False)
def learn(state, example, work):  # type: ignore[no-untyped-def]
    """Take a step of the function of each group, with γ in units of 1/k(x, x)."""
    numbers, layout, z, columns = state.numbers[0], state.layout, state.last.z, work.g.shape[1]
    per_block = numbers.components * numbers.block_size
    for g in range(len(layout)):
        k, n = state.slots[slots.STEADY] + g, layout[g, COUNT]
        clip_derivatives(state, k, work.g)
        if n == 0:
            continue
        phi = z[layout[g, FIRST] : layout[g, FIRST] + n]
        step = example.gamma / (example.k_xx * (n // per_block))
        power = 0.0 if example.weight == 1.0 else step * vectors.dot(phi, phi)
        for c in range(columns):
            at = columns * layout[g, BEFORE] + c * n
            gain = step * steps_of(example.weight, power * work.h[k, c])
            vectors.add(state.steady[at : at + n], phi, -gain * work.g[k, c])
