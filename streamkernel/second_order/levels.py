"""Levels: functions that are independent of x, each a number per column that follows the targets; compiled.

A level is its step. Its state, files, merged models (the mean) and exports follow from its column in the state.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from streamkernel.jit import inlined
from streamkernel.second_order import slots
from streamkernel.second_order.steady import steps_of
from streamkernel.second_order.targets import clip_derivatives


@inlined(allocates=False)
def follow(g, h, weight, gamma):  # type: ignore[no-untyped-def]
    """Return γℓ' for an example of weight 1, with γ = 0.075 over the loss's curvature."""
    return gamma * steps_of(weight, gamma * h) * g


LEVELS = [
    follow,
]
"""The step of each level: what it subtracts, from ℓ', ℓ'' and the weight of an example, and from γ. The running loss of
f = 0 has the place of the first one."""


@inlined(allocates=False)
def read(state, f):  # type: ignore[no-untyped-def]
    """Set the slots of the levels in `f`, shape (functions, columns)."""
    for j in range(state.level.shape[1]):
        for c in range(f.shape[1]):
            f[state.slots[slots.LEVEL] + j, c] = state.level[c, j]


@inlined(allocates=False)
def _no_step(state, example, gamma, work):  # type: ignore[no-untyped-def]
    """Take no step."""


def _and_step_of(others: Any, level: tuple[int, Any]) -> Any:
    """Return the function that takes the steps of other levels, and then of one more."""
    j, step = level

    def learn(state, example, gamma, work):  # type: ignore[no-untyped-def]
        others(state, example, gamma, work)
        k = state.slots[slots.LEVEL] + j
        clip_derivatives(state, k, work.g)
        for c in range(work.g.shape[1]):
            state.level[c, j] -= step(work.g[k, c], work.h[k, c], example.weight, gamma)

    learn.__qualname__ += f"_{j}"
    return inlined(learn, allocates=False)


learn: Any = reduce(_and_step_of, enumerate(LEVELS), _no_step)
"""``learn(state, example, gamma, work)`` takes the step of each level."""
