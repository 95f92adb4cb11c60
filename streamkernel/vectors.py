"""Loops over vectors, in an order that vectorises and never changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import intrinsic

from streamkernel.jit import inlined


@intrinsic
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a·b + c of three numbers of one type, rounded once on every machine."""

    def multiply_and_add(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return c(a, b, c), multiply_and_add


@inlined(allocates=False)
def add(to, change, scale):  # type: ignore[no-untyped-def]
    """Add ``scale * change`` to `to`."""
    for j in range(len(to)):
        to[j] += scale * change[j]


@inlined(allocates=False)
def multiply(values, scale):  # type: ignore[no-untyped-def]
    """Multiply `values` by `scale`."""
    for j in range(len(values)):
        values[j] *= scale


@inlined(allocates=False)
def move(to, change):  # type: ignore[no-untyped-def]
    """Add `change` to `to`, and leave in `change` what that adds to the squares of `to`."""
    for j in range(len(to)):
        before = to[j]
        to[j] = before + change[j]
        change[j] *= 2.0 * before + change[j]


@inlined(allocates=False)
def tree_sum(s):  # type: ignore[no-untyped-def]
    """Return Σ s, adding halves; destroys `s`."""
    n = len(s)
    while n > 1:
        half = (n + 1) // 2
        for f in range(n - half):
            s[f] += s[f + half]
        n = half
    return s[0]


@inlined(allocates=False)
def within(values, scale, bound):  # type: ignore[no-untyped-def]
    """Return whether all of ``scale * values`` are within ±bound; NaN is not."""
    inside = True
    for j in range(len(values)):
        inside &= abs(scale * values[j]) <= bound
    return inside


@inlined(allocates=False, fastmath={"reassoc", "nsz"})
def dot(a, b):  # type: ignore[no-untyped-def]
    """Return Σ ab, in the order that suits the vectors of the machine: machines of another kind may round otherwise."""
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@inlined(allocates=False, fastmath={"reassoc", "nsz", "contract"})
def rough_dot(a, b):  # type: ignore[no-untyped-def]
    """Return Σ ab of two float32 vectors, summed in float32."""
    total = np.float32(0.0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total
