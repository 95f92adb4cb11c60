"""The bound on derivatives in a step; compiled."""

from __future__ import annotations

import math

from streamkernel.jit import inlined

LARGEST_GRADIENT = 1e100
"""A score, derivative or move beyond this means that the steps have diverged; it never reaches a coefficient."""


@inlined(allocates=False)
def clip(g, bound, most):  # type: ignore[no-untyped-def]
    """Scale `g` down to the bound M on its norm, and return the new M.

    Where the loss has no bound, M is the largest norm seen, and at most doubles a step: an outlier moves f no
    further than the examples before it did.
    """
    square = 0.0
    for c in range(len(g)):
        square += g[c] * g[c]
    norm = math.sqrt(square)
    if bound == 0.0:
        return norm
    if norm > bound:
        for c in range(len(g)):
            g[c] *= bound / norm
        return min(2.0 * bound, norm, most)
    return bound
