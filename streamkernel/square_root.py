"""Compiled: least squares kept as a triangular factor, RᵀR = A, to which rows are added by reflections.

The factor is never squared and nothing is ever subtracted from it, so that rounding cannot make A lose its sign, and
builds up slowly: ten million rows in float32 are within a hundredth of their sum (Golub and Van Loan, "Matrix
Computations", sections 5.1, 5.2 and 6.5).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import vectors
from streamkernel.vectors import fma

EIGHT = 8
"""Columns are taken by so many; rows come in whole numbers of it."""

FAINT = 1e-31
"""What is less than this part of a diagonal entry squared is lost in rounding, of float64 too, and not reflected:
float32 could not hold the inverse of its size."""

TILE = 512
"""Columns that reflections are applied to at once: what is at hand fits the processor's nearest cache."""


@njit
def rotate(factor, rows):  # type: ignore[no-untyped-def]
    """Set the upper triangle R to that of RᵀR + XᵀX, destroying the rows X.

    A reflection I - τvvᵀ with v = (1, u) leaves of a column (R_jj, X_1j, X_2j, ...) only R_jj > 0. Those of eight
    columns are gathered as I - VTᵀVᵀ, which is applied to all columns after them at once:

        W = Tᵀ(R + UX),   R ← R - W,   X ← X - UᵀW
    """
    n = len(factor)
    u, t = np.zeros((EIGHT, len(rows)), rows.dtype), np.zeros((EIGHT, EIGHT), rows.dtype)
    room, w = np.empty((EIGHT, TILE), rows.dtype), np.empty((EIGHT, TILE), rows.dtype)
    for j in range(0, n, EIGHT):
        after = min(j + EIGHT, n)
        if not _reflections(factor[j:after, j:after], rows[:, j:after], u, t):
            continue
        for first in range(after, n, TILE):
            _apply(factor[j : j + EIGHT], rows, first, min(first + TILE, n), u, t, room, w)


@njit
def fade(factor, kept, back, rows):  # type: ignore[no-untyped-def]
    """Set R to that of ``kept RᵀR + back I``; the rows are room, and 0 afterwards."""
    n = len(factor)
    factor *= math.sqrt(kept)
    for first in range(0, n, len(rows)):
        rows[:] = 0.0
        for i in range(first, min(first + len(rows), n)):
            rows[i - first, i] = math.sqrt(back)
        rotate(factor, rows)
    rows[:] = 0.0


@njit
def _apply(factor, rows, first, last, u, t, room, w):  # type: ignore[no-untyped-def]
    """Apply I - VTᵀVᵀ to the columns from `first` to `last` of eight rows of R and all rows of X."""
    n = last - first
    scales = np.empty(EIGHT, rows.dtype)
    for p in range(EIGHT):
        room[p, :n] = factor[p, first:last]
        for i in range(0, len(rows), EIGHT):
            _add_eight(room[p, :n], rows[i : i + EIGHT], first, last, u[p, i : i + EIGHT])
    for p in range(EIGHT):
        for q in range(EIGHT):
            scales[q] = t[q, p]
        w[p, :n] = 0.0
        _add_eight(w[p, :n], room, 0, n, scales)
        vectors.add(factor[p, first:last], w[p, :n], np.float32(-1.0))
    for i in range(len(rows)):
        for p in range(EIGHT):
            scales[p] = -u[p, i]
        _add_eight(rows[i, first:last], w, 0, n, scales)


@njit(inline="always")
def _add_eight(to, rows, first, last, scales):  # type: ignore[no-untyped-def]
    """Add eight rows, scaled, to a ninth."""
    a, b, c, d = rows[0, first:last], rows[1, first:last], rows[2, first:last], rows[3, first:last]
    e, f, g, h = rows[4, first:last], rows[5, first:last], rows[6, first:last], rows[7, first:last]
    _add(to, a, b, c, d, e, f, g, h, scales)


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
    width, moved, dots = len(factor), False, np.empty(EIGHT)
    u[:] = 0.0
    t[:] = 0.0
    for p in range(width):
        for i in range(len(columns)):
            u[p, i] = columns[i, p]
    for p in range(width):
        head, below = float(factor[p, p]), float(vectors.dot(u[p], u[p]))
        if below <= FAINT * head * head:
            continue
        moved = True
        diagonal = math.sqrt(head * head + below)
        first = -below / (head + diagonal)  # head - diagonal, without cancellation
        factor[p, p] = diagonal
        vectors.multiply(u[p], u.dtype.type(1.0 / first))
        t[p, p] = 2.0 * first * first / (below + first * first)
        for q in range(p + 1, width):
            along = t[p, p] * (factor[p, q] + u.dtype.type(vectors.dot(u[p], u[q])))
            factor[p, q] -= along
            vectors.add(u[q], u[p], -along)
        for q in range(p):
            dots[q] = vectors.dot(u[q], u[p])
        for q in range(p):  # column p of T is -τ T Uu
            for k in range(q, p):
                t[q, p] -= t[p, p] * (t[q, k] * dots[k])  # in float64: products of entries of T underflow
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
