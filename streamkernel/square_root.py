"""Compiled: least squares kept as a triangular factor, RᵀR = A, to which rows are added by reflections.

The factor is never squared and nothing is ever subtracted from it, so that rounding does not build up: float32 is
enough for as many rows as there may be (Golub and Van Loan, "Matrix Computations", sections 5.1, 5.2 and 6.5).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import vectors
from streamkernel.vectors import fma

EIGHT = 8
"""Columns are taken by so many; rows come in whole numbers of it."""


@njit
def rotate(factor, rows):  # type: ignore[no-untyped-def]
    """Set the upper triangle R to that of RᵀR + XᵀX, destroying the rows X.

    A reflection I - τvvᵀ with v = (1, u) leaves of a column (R_jj, X_1j, X_2j, ...) only R_jj > 0. Those of eight
    columns are gathered as I - VTᵀVᵀ, which is applied to all columns after them at once:

        W = Tᵀ(R + UX),   R ← R - W,   X ← X - UᵀW
    """
    n = len(factor)
    u, t = np.zeros((EIGHT, len(rows)), rows.dtype), np.zeros((EIGHT, EIGHT), rows.dtype)
    across, down = np.empty(EIGHT, rows.dtype), np.zeros(EIGHT, rows.dtype)
    room, w = np.empty((EIGHT, n), rows.dtype), np.empty((EIGHT, n), rows.dtype)
    for j in range(0, n, EIGHT):
        width = min(EIGHT, n - j)
        first = j + width
        if not _reflections(factor[j:first, j:first], rows[:, j:first], u, t) or first == n:
            continue
        for p in range(EIGHT):
            room[p, first:] = factor[j + p, first:]
            for i in range(0, len(rows), EIGHT):
                _add_eight(room[p, first:], rows[i : i + EIGHT], first, u[p, i : i + EIGHT])
        for p in range(EIGHT):
            for q in range(EIGHT):
                down[q] = t[q, p]
            w[p, first:] = 0.0
            _add_eight(w[p, first:], room, first, down)
            vectors.add(factor[j + p, first:], w[p, first:], np.float32(-1.0))
        for i in range(len(rows)):
            for p in range(EIGHT):
                across[p] = -u[p, i]
            _add_eight(rows[i, first:], w, first, across)


@njit(inline="always")
def _add_eight(to, rows, first, scales):  # type: ignore[no-untyped-def]
    """Add eight rows, scaled, to a ninth."""
    _add(to, rows[0, first:], rows[1, first:], rows[2, first:], rows[3, first:],
         rows[4, first:], rows[5, first:], rows[6, first:], rows[7, first:], scales)  # fmt: skip


@njit
def _add(to, a, b, c, d, e, f, g, h, scales):  # type: ignore[no-untyped-def]
    """Apart, and with one row written, so that it vectorises."""
    i, j, k, m = scales[0], scales[1], scales[2], scales[3]
    n, o, p, q = scales[4], scales[5], scales[6], scales[7]
    for at in range(len(to)):
        near: float = fma(m, d[at], fma(k, c[at], fma(j, b[at], fma(i, a[at], to[at]))))  # type: ignore[call-arg]
        to[at] = fma(q, h[at], fma(p, g[at], fma(o, f[at], fma(n, e[at], near))))


@njit
def _reflections(factor, columns, u, t):  # type: ignore[no-untyped-def]
    """Reflect a few columns themselves; set `u` and `t` to U and T, and return whether they change anything."""
    width, moved = len(factor), False
    u[:] = 0.0
    t[:] = 0.0
    for p in range(width):
        for i in range(len(columns)):
            u[p, i] = columns[i, p]
    for p in range(width):
        head, below = float(factor[p, p]), 0.0
        for i in range(u.shape[1]):
            below += float(u[p, i]) ** 2
        if below == 0.0:
            continue
        moved = True
        diagonal = math.sqrt(head * head + below)
        first = -below / (head + diagonal)  # head - diagonal, without cancellation
        factor[p, p] = diagonal
        for i in range(u.shape[1]):
            u[p, i] /= first
        t[p, p] = 2.0 * first * first / (below + first * first)
        for q in range(p + 1, width):
            along = factor[p, q]
            for i in range(u.shape[1]):
                along += u[p, i] * u[q, i]
            along *= t[p, p]
            factor[p, q] -= along
            for i in range(u.shape[1]):
                u[q, i] -= along * u[p, i]
        for q in range(p):  # T of the first p + 1, column p: -τ T UUᵀ
            for k in range(q, p):
                along = u[0, 0] * 0
                for i in range(u.shape[1]):
                    along += u[k, i] * u[p, i]
                t[q, p] -= t[q, k] * along
            t[q, p] *= t[p, p]
    return moved


@njit
def solve(factor, x):  # type: ignore[no-untyped-def]
    """Set x to (RᵀR)⁻¹x."""
    n = len(factor)
    for j in range(0, n, EIGHT):
        after = min(j + EIGHT, n)
        for i in range(j, after):
            for k in range(j, i):
                x[i] -= factor[k, i] * x[k]
            x[i] /= factor[i, i]
        if after < n:
            _take_eight(x[after:], factor[j : j + EIGHT], after, x[j:after])
    for i in range(n - 1, -1, -1):
        x[i] = (x[i] - vectors.dot(factor[i, i + 1 :], x[i + 1 :])) / factor[i, i]


@njit(inline="always")
def _take_eight(to, rows, first, scales):  # type: ignore[no-untyped-def]
    """Subtract eight rows, scaled, from a ninth."""
    _take(to, rows[0, first:], rows[1, first:], rows[2, first:], rows[3, first:],
          rows[4, first:], rows[5, first:], rows[6, first:], rows[7, first:], scales)  # fmt: skip


@njit
def _take(to, a, b, c, d, e, f, g, h, scales):  # type: ignore[no-untyped-def]
    i, j, k, m = scales[0], scales[1], scales[2], scales[3]
    n, o, p, q = scales[4], scales[5], scales[6], scales[7]
    for at in range(len(to)):
        near = (i * a[at] + j * b[at]) + (k * c[at] + m * d[at])
        to[at] -= near + ((n * e[at] + o * f[at]) + (p * g[at] + q * h[at]))
