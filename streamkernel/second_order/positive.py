"""The weights v of the mixture: a mean of those with the smallest loss, and of those among them that are not negative.

    v = θu + (1 - θ)p,   p = argmin_{p ≥ 0} (p - u)ᵀA(p - u),   θ = 1/(1 + e^D)

u takes Newton steps on its own loss, and A is their matrix. Functions that resemble each other get large weights of
both signs in u, of which a part is noise; p has less of it, because many of its weights are 0. But where functions are
wrong in the same direction, a negative weight corrects that. D is the loss of u less that of p on about as many
examples as v remembers, in units of the targets, so θ follows the better one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamkernel.features.rows import F64
from streamkernel.jit import compiled, inlined

LARGEST_LEAD = 10.0
"""Bound on the absolute value of D: outliers do not decide for long."""

SWEEPS = 100
"""Sweeps that find p without an earlier one."""


@inlined(allocates=False)
def sweep(mixer, signed, positive, rest):  # type: ignore[no-untyped-def]
    """Bring p nearer to the minimum: one weight after the other is set to its best value; `rest` is for R(p - u).

    Between two examples A and u hardly change, so that one sweep is enough.
    """
    n = len(signed)
    for i in range(n):
        rest[i] = 0.0
        for k in range(i, n):
            rest[i] += mixer[i, k] * (positive[k] - signed[k])
    for k in range(n):
        slope, curvature = 0.0, 0.0
        for i in range(k + 1):
            slope += mixer[i, k] * rest[i]
            curvature += mixer[i, k] * mixer[i, k]
        change = max(-positive[k], -slope / curvature)
        positive[k] += change
        for i in range(k + 1):
            rest[i] += change * mixer[i, k]


@inlined(allocates=False)
def mix(signed, positive, lead, out):  # type: ignore[no-untyped-def]
    """Set `out` to v of a target."""
    share = 1.0 / (1.0 + math.exp(lead))
    for k in range(len(out)):
        out[k] = share * signed[k] + (1.0 - share) * positive[k]


@compiled
def _settle(mixer, signed, positive):  # type: ignore[no-untyped-def]
    rest = np.empty(len(signed))
    for _ in range(SWEEPS):
        sweep(mixer, signed, positive, rest)


def positive_weights(mixer: F64, signed: F64) -> F64:
    """Return p of a target, from R with RᵀR = A, which may be 0 before there are examples, and u.

    Examples
    --------
    >>> import numpy as np
    >>> positive_weights(np.eye(2), np.array([0.5, -0.5])).tolist()
    [0.5, 0.0]
    >>> alike = np.linalg.cholesky(np.array([[1.0, 0.9], [0.9, 1.0]])).T  # the first one makes up for the second
    >>> positive_weights(alike, np.array([1.0, -0.5])).round(3).tolist()
    [0.55, 0.0]
    """
    found: Any = np.maximum(signed, 0.0)
    if mixer.any():
        _settle(np.ascontiguousarray(mixer), np.ascontiguousarray(signed), found)
    return np.asarray(found, np.float64)


def mixed_weights(signed: F64, positive: F64, lead: F64) -> F64:
    """Return v of all targets, shape (targets, functions), from their u and p of the same shape and D of each.

    Examples
    --------
    >>> import numpy as np
    >>> mixed_weights(np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]]), np.array([0.0])).tolist()
    [[1.0, -0.5]]
    """
    share = 1.0 / (1.0 + np.exp(lead))[:, None]
    return np.asarray(share * signed + (1.0 - share) * positive)
