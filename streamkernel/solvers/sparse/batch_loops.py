"""The steps of AsyDSSKL on mini-batches, compiled, without the GIL: each batch drives several groups of outputs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamkernel.features.rows import F32, F64, I64
from streamkernel.jit import compiled, inlined
from streamkernel.losses.compiled import LOGISTIC, SIGMOID, SMOOTH_HINGE, SOFTMAX, SQUARE, derivative
from streamkernel.solvers.sparse.sparse_loops import SUMS, add, dot, shrink

BATCH = 64
"""Rows of a mini-batch."""


class Batches(NamedTuple):
    """Mini-batches: b has ``rows[64b : 64b + 64]`` and drives the `run` groups from ``runs[b]`` on."""

    rows: I64
    runs: I64
    run: int


class Batch(NamedTuple):
    """One mini-batch, in float32, which suffices because residuals shrink with the distance from the snapshot.

    Attributes
    ----------
    n
        Number of rows.
    Z
        Their features, shape (outputs from `begin` on, rows).
    begin
        The first output that it drives.
    residuals, bend
        The differences of their slopes from those of the snapshot, and ∂²ℓ; shape (columns, rows).
    """

    n: int
    Z: F32
    begin: int
    residuals: F32
    bend: F32


class SparseRoom(NamedTuple):
    """Work arrays: gradient and move of a group, and the resulting change of f, shape (columns, rows of a batch)."""

    v: F64
    move: F64
    shift: F32


@compiled
def second(code, parameter, f, y, slope):  # type: ignore[no-untyped-def]
    """Return ∂²ℓ(f, y)/∂f² where ∂ℓ(f, y)/∂f is `slope`, for a loss of one column."""
    if code == LOGISTIC:
        return abs(slope) * (1.0 - abs(slope))
    if code == SQUARE:
        return 1.0
    if code == SMOOTH_HINGE:
        return 1.0 if 0.0 < abs(slope) < 1.0 else 0.0
    if code == SIGMOID:  # with a = 1/(1 + exp(m)) the slope is -a(1-a), and m is positive where a < ½
        margin = f if slope < 0.0 else -f
        return abs(slope) * math.copysign(math.sqrt(max(0.0, 1.0 - 4.0 * abs(slope))), margin)
    q = ((f - y) / parameter) ** 2
    return (1.0 - 2.0 * q) * math.exp(-q)


@inlined(fastmath=SUMS)
def _dot32(a, b):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for i in range(BATCH):
        total += a[i] * b[i]
    return total


@inlined(fastmath=SUMS)
def _correct(r, bend, shift):  # type: ignore[no-untyped-def]
    for i in range(BATCH):
        r[i] += bend[i] * shift[i]


@inlined
def _drive(batch, groups, g, full, w, is_softmax, room):  # type: ignore[no-untyped-def]
    """Move group g by its mean gradient over the rows of a batch, and correct their residuals for that."""
    n, Z, begin, r, bend = batch
    v, move, shift = room
    first, last = groups.bounds[g], groups.bounds[g + 1]
    for c in range(len(w)):
        for j in range(first, last):
            v[c, j - first] = full[c, j] + _dot32(Z[j - begin], r[c]) / n
    if not shrink(w, first, last, groups.steps[g], groups.weights[g], v, move):
        return
    for c in range(len(w)):
        shift[c] = np.float32(0.0)
        for j in range(first, last):
            add(shift[c], Z[j - begin], np.float32(move[c, j - first]))
    if is_softmax:  # ∂²ℓ = diag(p) - ppᵀ
        for i in range(n):
            mean = np.float32(0.0)
            for c in range(len(w)):
                mean += bend[c, i] * shift[c, i]
            for c in range(len(w)):
                shift[c, i] -= mean
    for c in range(len(w)):
        _correct(r[c], bend[c], shift[c])


@compiled(nogil=True)
def batch_steps(examples, groups, snapshot, batches, first, last, w):  # type: ignore[no-untyped-def]
    """Let each batch from `first` to before `last` drive its groups, one after the other.

    For the rows of a batch, f is computed once. After a group has moved by δ, the slopes of these rows are corrected by
    ∂²ℓ·zδ for the next group.
    """
    A, y, code, parameter = examples
    rows, runs, run = batches
    bounds, slopes = groups.bounds, snapshot.slopes
    columns, width = len(w), np.diff(bounds).max()
    is_softmax = code == SOFTMAX
    f, slope = np.empty(columns), np.empty(columns)
    r, bend = np.zeros((columns, BATCH), np.float32), np.zeros((columns, BATCH), np.float32)
    v, move = np.empty((columns, width)), np.empty((columns, width))
    room = SparseRoom(v, move, np.empty((columns, BATCH), np.float32))
    Z = np.zeros((run * width, BATCH), np.float32)
    for b in range(first, last):
        chosen = rows[b * BATCH : (b + 1) * BATCH]
        n, last_group = len(chosen), min(runs[b] + run, len(bounds) - 1)
        begin, end = bounds[runs[b]], bounds[last_group]
        r[:, n:] = np.float32(0.0)
        for k in range(n):
            i = chosen[k]
            for c in range(columns):
                f[c] = dot(A[i], w[c])
            derivative(code, parameter, f, y[i], slope)
            for c in range(columns):
                r[c, k] = slope[c] - slopes[i, c]
                if is_softmax:
                    bend[c, k] = slope[c] + (1.0 if c == int(y[i]) else 0.0)
                else:
                    bend[c, k] = second(code, parameter, f[c], y[i], slope[c])
            row = A[i, begin:end]
            for j in range(len(row)):
                Z[j, k] = row[j]
        bend[:, n:] = np.float32(0.0)  # so that the rest of a short batch stays 0
        batch = Batch(n, Z, begin, r, bend)
        for g in range(runs[b], last_group):
            _drive(batch, groups, g, snapshot.gradient, w, is_softmax, room)
