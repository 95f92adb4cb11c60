"""The level: a number per column that follows the targets, whatever x is; compiled."""

from __future__ import annotations

from typing import Any

from streamkernel.features.rows import F64, U64
from streamkernel.jit import inlined
from streamkernel.second_order.steady import steps_of

NAME, NUMBERS = "level", 1


@inlined(allocates=False)
def read(numbers, rows, i):  # type: ignore[no-untyped-def]
    """Return the level."""
    return numbers[0]


@inlined(allocates=False)
def learn(numbers, rows, example, g, h):  # type: ignore[no-untyped-def]
    """Subtract γℓ' for an example of weight 1, with γ = 0.075 over the loss's curvature."""
    numbers[0] -= example.follow * steps_of(example.weight, example.follow * h) * g


def freeze(numbers: F64, hashes: U64) -> tuple[F64, list[Any]]:
    """Return the level of each column, and no features."""
    return numbers[:, 0], []
