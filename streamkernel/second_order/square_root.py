"""Least squares with a triangular factor, RᵀR = A, of a Gram matrix, or to which compiled reflections add rows.

The factor is never squared and nothing is ever subtracted from it, so that rounding cannot make A lose its sign, and
builds up slowly: ten million rows in float32 are within a hundredth of their sum (Golub and Van Loan, "Matrix
Computations", sections 5.1, 5.2 and 6.5).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.errors import MergeError
from streamkernel.features.rows import F32, F64
from streamkernel.jit import inlined, unit
from streamkernel.second_order.tiles import (
    EIGHT,
    WIDE,
    compiled_panels_of,
    dot_eight,
    eliminate,
    reflect,
    take_eight,
    whole_eights,
)

FAINT = 1e-31
"""A column whose square is below this fraction of the squared diagonal entry is not reflected: it is lost in rounding,
even in float64, and float32 could not represent the inverse of its size."""


class ReflectionRoom(NamedTuple):
    """Work arrays for reflections: Uᵀ and T of eight columns, a tile, eight dot products, and eight factors."""

    u: F32
    t: F32
    tile: F32
    dots: F64
    along: F32


_MATRIX = types.float32[:, ::1]
ROOM = types.NamedTuple([_MATRIX, _MATRIX, _MATRIX, types.float64[::1], types.float32[::1]], ReflectionRoom)
_PANELS = types.float32[:, :, ::1]


def factor_of(gram: F64, least: float = 0.0) -> F64:
    """Return the upper triangle R for which RᵀR is a Gram matrix, up to rounding.

    Raise a MergeError if the matrix is not finite, not square, or not positive by more than rounding.
    """
    from scipy.linalg.lapack import dpotrf

    if gram.shape != (len(gram), len(gram)) or not np.isfinite(gram).all():
        raise MergeError("Expected finite Gram matrices, got NaN or infinity, or another shape")
    more, most = 0.0, max(float(np.trace(gram)), least)
    while more <= most:
        lower, failed = dpotrf(gram.T, lower=1, clean=1)
        if not failed:
            factor: F64 = np.ascontiguousarray(lower.T)
            return factor
        more = max(2.0 * more, least, 1e-12 * float(np.trace(gram)) / len(gram))
        if not more > 0.0:
            break
        gram = gram + more * np.eye(len(gram))
    raise MergeError("Expected positive Gram matrices, got another one")


def solution(factor: F64, moments: F64) -> F64:
    """Return (RᵀR)⁻¹ times moments."""
    from scipy.linalg import cho_solve

    return np.asarray(cho_solve((factor, False), moments))


@inlined
def room_for(rows):  # type: ignore[no-untyped-def]
    """Return work arrays to reflect at most a given number of rows."""
    return ReflectionRoom(
        np.empty((rows, EIGHT), np.float32),
        np.empty((EIGHT, EIGHT), np.float32),
        np.empty((EIGHT, WIDE), np.float32),
        np.empty(EIGHT),
        np.empty(EIGHT, np.float32),
    )


@inlined
def gather(rows, count, panels):  # type: ignore[no-untyped-def]
    """Copy the first rows, a multiple of eight, into panels of as many columns as a tile has."""
    for k in range(len(panels)):
        part = rows[:, k * WIDE : (k + 1) * WIDE]
        for i in range(count):
            for j in range(part.shape[1]):
                panels[k, i, j] = part[i, j]


@unit(types.void(_MATRIX, _PANELS, types.int64, types.int64, types.int64, ROOM))
def reflect_columns(factor, panels, count, first, last, work):  # type: ignore[no-untyped-def]
    """Add rows of X to R, RᵀR ← RᵀR + XᵀX, in the columns from `first`, a multiple of eight, to `last`.

    The rest of X, in the columns after them, is added by later calls. X is gathered in panels. A
    reflection I - τvvᵀ with v = (1, u) leaves of a column (R_jj, X_1j, X_2j, ...) only R_jj > 0. Those of eight
    columns are gathered as I - VTᵀVᵀ, which is applied to all columns after them at once:

        W = Tᵀ(R + UX),   R ← R - W,   X ← X - UᵀW
    """
    n = len(factor)
    for j in range(first, last, EIGHT):
        after = min(j + EIGHT, n)
        if _reflections(factor, panels[j // WIDE, :count, j % WIDE :], j, after, work) and after < n:
            _apply(factor, panels, count, j, after, work)


@unit(types.void(_MATRIX, _MATRIX))
def rotate(factor, rows):  # type: ignore[no-untyped-def]
    """Set the upper triangle R to the factor of RᵀR + XᵀX, with X of a multiple of eight rows."""
    n = len(factor)
    panels = np.zeros((compiled_panels_of(n), len(rows), WIDE), np.float32)
    gather(rows, len(rows), panels)
    reflect_columns(factor, panels, len(rows), 0, n, room_for(len(rows)))


@inlined
def fade(factor, kept):  # type: ignore[no-untyped-def]
    """Set R to the factor of ``kept RᵀR``."""
    root = np.float32(math.sqrt(kept))
    for i in range(len(factor)):
        vectors.multiply(factor[i, i:], root)


@unit(types.void(_MATRIX, types.float64, types.int64, types.int64))
def add_diagonal(factor, more, first, last):  # type: ignore[no-untyped-def]
    """Set R to the factor of ``RᵀR + more I``, with I in the columns from `first`, a multiple of eight, to `last`."""
    n = len(factor)
    count = whole_eights(last - first)
    panels = np.zeros((compiled_panels_of(n), count, WIDE), np.float32)
    for i in range(first, last):
        panels[i // WIDE, i - first, i % WIDE] = math.sqrt(more)
    reflect_columns(factor, panels, count, first, n, room_for(count))


@unit(types.void(_MATRIX, _PANELS, types.int64, types.int64, types.int64, ROOM))
def _apply(factor, panels, count, j, after, work):  # type: ignore[no-untyped-def]
    """Apply I - VTᵀVᵀ to the columns from `after` on of eight rows of R and the rows of X."""
    n, tile, u, t = len(factor), work.tile, work.u[:count], work.t
    for k in range(after // WIDE, compiled_panels_of(n)):
        begin = k * WIDE
        if after <= begin and begin + WIDE <= n:
            reflect(factor[j : j + EIGHT, begin : begin + WIDE], panels[k, :count], u, t)  # type: ignore[call-arg]
            continue
        first, last = max(after, begin), min(begin + WIDE, n)
        tile[:] = np.float32(0.0)
        for p in range(EIGHT):
            for i in range(first, last):
                tile[p, i - begin] = factor[j + p, i]
        reflect(tile, panels[k, :count], u, t)  # type: ignore[call-arg]
        for p in range(EIGHT):
            for i in range(first, last):
                factor[j + p, i] = tile[p, i - begin]


@unit(types.boolean(_MATRIX, types.float32[:, :], types.int64, types.int64, ROOM))
def _reflections(factor, columns, j, after, work):  # type: ignore[no-untyped-def]
    """Reflect the columns from `j` to `after` themselves; set Uᵀ and T, and return whether they change anything."""
    u, t, dots, along, width, moved = work.u[: len(columns)], work.t, work.dots, work.along, after - j, False
    for i in range(len(u)):
        for p in range(EIGHT):
            u[i, p] = columns[i, p] if p < width else np.float32(0.0)
    t[:] = np.float32(0.0)
    for p in range(width):
        dot_eight(u, p, dots)  # type: ignore[call-arg]
        head, below = float(factor[j + p, j + p]), dots[p]
        if below <= FAINT * head * head:
            continue
        moved = True
        diagonal = math.sqrt(head * head + below)
        first = -below / (head + diagonal)  # head - diagonal, without cancellation
        factor[j + p, j + p] = diagonal
        t[p, p] = 2.0 * first * first / (below + first * first)
        along[:] = np.float32(0.0)
        for q in range(p + 1, width):
            along[q] = t[p, p] * (factor[j + p, j + q] + np.float32(dots[q] / first))
            factor[j + p, j + q] -= along[q]
        eliminate(u, p, np.float32(1.0 / first), along)
        for q in range(p):  # column p of T is -τ T Uu
            for k in range(q, p):
                t[q, p] -= t[p, p] * (t[q, k] * (dots[k] / first))  # in float64: products of entries of T underflow
    return moved


@unit(types.void(_MATRIX, types.float64[::1]))
def solve(factor, x):  # type: ignore[no-untyped-def]
    """Set x to (RᵀR)⁻¹x."""
    columns = x.reshape((1, len(x)))
    solve_forward(factor, columns, 0, len(factor))
    solve_backward(factor, columns, 0, len(factor))


@inlined
def solve_forward(factor, x, first, last):  # type: ignore[no-untyped-def]
    """Continue the computation of R⁻ᵀx for each row x of an array, by the rows of R from `first`, a multiple of eight,
    to `last`, ascending.
    """
    n = len(factor)
    for j in range(first, last, EIGHT):
        after = min(j + EIGHT, n)
        for c in range(len(x)):  # while eight rows of R are in the cache
            row = x[c]
            for i in range(j, after):
                left = row[i]
                for k in range(j, i):
                    left -= factor[k, i] * row[k]
                row[i] = left / factor[i, i]
            if after < n:
                take_eight(row[after:], factor[j:after, after:], row[j:after])  # type: ignore[call-arg]
                for i in range(n - (n - after) % EIGHT, n):
                    for k in range(j, after):
                        row[i] -= factor[k, i] * row[k]


@inlined
def solve_backward(factor, x, first, last):  # type: ignore[no-untyped-def]
    """Continue the computation of R⁻¹x for each row x of an array, by the rows of R from `first` to `last`,
    descending.
    """
    for i in range(last - 1, first - 1, -1):
        for c in range(len(x)):  # independent of each other: one does not wait for the division of another
            x[c, i] = (x[c, i] - vectors.dot(factor[i, i + 1 :], x[c, i + 1 :])) / factor[i, i]
