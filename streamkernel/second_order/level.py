"""The level of a mixture: a constant that takes steps of constant size, and follows targets that move; compiled."""

from __future__ import annotations

from streamkernel.jit import inlined
from streamkernel.second_order import slots
from streamkernel.second_order.clipped import clip_derivatives
from streamkernel.second_order.steady import steps_of


@inlined(allocates=False)
def read(state, f):  # type: ignore[no-untyped-def]
    """Set the slot of the level in `f`, shape (functions, columns)."""
    for c in range(f.shape[1]):
        f[state.slots[slots.LEVEL], c] = state.level[c, 0]


@inlined(allocates=False)
def learn(state, example, follow, room):  # type: ignore[no-untyped-def]
    """Take a step, c ← c - γℓ' with γ = `follow`."""
    k, columns = state.slots[slots.LEVEL], room.g.shape[1]
    clip_derivatives(state, k, room.g)
    for c in range(columns):
        state.level[c, 0] -= follow * steps_of(example.weight, follow * room.h[k, c]) * room.g[k, c]
