"""The weights of a few functions in a mixture: Newton steps with a small matrix, and their positive form; compiled."""

from __future__ import annotations

import math

import numpy as np

from streamkernel import vectors
from streamkernel.features.rows import F64
from streamkernel.jit import inlined

MEMORY = 0.9995
"""Forgetting factor ρ of a mixture per example."""

PULL = 10.0
"""λ of a mixture, in units of the size of the targets."""

FLATTEST = 1e-3
"""Lower bound on ℓ'': where the loss is flat, A still has to include the examples."""


@inlined
def rotate_small(factor, x):  # type: ignore[no-untyped-def]
    """Set R, in float64 and small, to the factor of RᵀR + xxᵀ by rotations, destroying x."""
    n = len(factor)
    for k in range(n):
        if x[k] != 0.0:
            r = math.hypot(factor[k, k], x[k])
            c, s = factor[k, k] / r, x[k] / r
            for j in range(k, n):
                a, b = factor[k, j], x[j]
                factor[k, j], x[j] = c * a + s * b, c * b - s * a


@inlined
def solve_small(factor, x):  # type: ignore[no-untyped-def]
    """Set x to (RᵀR)⁻¹x for a small R in float64."""
    n = len(factor)
    for i in range(n):
        for k in range(i):
            x[i] -= factor[k, i] * x[k]
        x[i] /= factor[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            x[i] -= factor[i, k] * x[k]
        x[i] /= factor[i, i]


@inlined(allocates=False)
def add_diagonal(mixer, more, row):  # type: ignore[no-untyped-def]
    """Set R to the factor of A + cI."""
    root = math.sqrt(more)
    for i in range(len(mixer)):
        for k in range(len(mixer)):
            row[k] = root if k == i else 0.0
        rotate_small(mixer, row)


@inlined(allocates=False)
def fade(mixer, size, row):  # type: ignore[no-untyped-def]
    """Set R to the factor of ρⁿA + (1 - ρⁿ)λs²I, with as many functions n as examples since the last time."""
    kept = MEMORY ** len(mixer)
    root = math.sqrt(kept)
    for i in range(len(mixer)):
        vectors.multiply(mixer[i], root)
    add_diagonal(mixer, (1.0 - kept) * PULL * size, row)


@inlined(allocates=False)
def sweep(mixer, signed, positive, rest):  # type: ignore[no-untyped-def]
    """Bring p = argmin_{p ≥ 0} (p - u)ᵀA(p - u) nearer: one weight after the other is set to its best value.

    `rest` is for R(p - u). Between two examples A and u hardly change, so that one sweep is enough.
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


def factor_of(rows: F64) -> F64:
    """Return R, upper triangular and with a diagonal ≥ 0, with RᵀR = XᵀX for rows X.

    Examples
    --------
    >>> factor_of(np.array([[3.0], [-4.0]])).round(6).tolist()
    [[5.0]]
    """
    small = np.asarray(np.linalg.qr(rows, mode="r"))
    return np.ascontiguousarray(np.where(np.diag(small) < 0.0, -1.0, 1.0)[:, None] * small)
