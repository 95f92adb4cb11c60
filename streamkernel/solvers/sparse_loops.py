"""The common compiled functions of AsyDSSKL's loops, and the steps of its paper, all without the GIL.

Several threads may run them on one `w`. All of them take the random draws as arrays, so that the same draws give the
same steps. `w` and gradients have shape (columns, outputs).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamkernel.features.rows import F32, F64, I64
from streamkernel.jit import compiled, inlined
from streamkernel.losses.loss import LOGISTIC, SIGMOID, SMOOTH_HINGE, SOFTMAX, SQUARE, derivative, value

SUMS = {"reassoc", "contract", "nsz"}
"""Sums may be vectorised; the same machine adds in the same order every time."""


class SparseExamples(NamedTuple):
    """The feature matrix A, shape (rows, outputs), the targets, and the code and the parameter of the loss."""

    A: F32
    y: F64
    code: int
    parameter: float


class GroupSteps(NamedTuple):
    """Bounds of the groups of outputs, the penalty of each, and the length of its step."""

    bounds: I64
    weights: F64
    steps: F64


class Snapshot(NamedTuple):
    """The mean gradient at w̃, and ∂ℓ/∂f there, shape (rows, columns)."""

    gradient: F64
    slopes: F64


@inlined(fastmath=SUMS)
def dot(a, w):  # type: ignore[no-untyped-def]
    """Return a·w."""
    total = 0.0
    for j in range(len(a)):
        total += a[j] * w[j]
    return total


@inlined(fastmath=SUMS)
def add(out, a, by):  # type: ignore[no-untyped-def]
    """Add `by` times a to `out`."""
    for j in range(len(a)):
        out[j] += by * a[j]


@compiled(nogil=True)
def gradient(examples, first, last, w, slopes, out):  # type: ignore[no-untyped-def]
    """Return Σ ℓ(f_i, y_i) over rows from `first` to before `last`.

    Set their `slopes`, shape (rows, columns), to ∂ℓ/∂f, and `out` to Σ ∂ℓ(f_i, y_i)/∂w.
    """
    A, y, code, parameter = examples
    f, total = np.empty(len(w)), 0.0
    out[:] = 0.0
    for i in range(first, last):
        for c in range(len(w)):
            f[c] = dot(A[i], w[c])
        total += value(code, parameter, f, y[i])
        derivative(code, parameter, f, y[i], slopes[i])
        for c in range(len(w)):
            add(out[c], A[i], slopes[i, c])
    return total


@compiled(nogil=True)
def columns_of(A, chosen):  # type: ignore[no-untyped-def]
    """Return the `chosen` outputs as adjacent columns."""
    out = np.empty((len(A), len(chosen)), np.float32)
    for i in range(len(A)):
        for j in range(len(chosen)):
            out[i, j] = A[i, chosen[j]]
    return out


@compiled(nogil=True)
def lipschitz(A, bounds):  # type: ignore[no-untyped-def]
    """Return for each group at least the largest eigenvalue of (1/n) A_gᵀA_g: the largest sum of a row's sizes."""
    out = np.zeros(len(bounds) - 1)
    width = 0
    for g in range(len(out)):
        width = max(width, bounds[g + 1] - bounds[g])
    gram = np.zeros((A.shape[1], width))
    for i in range(len(A)):
        for g in range(len(out)):
            for j in range(bounds[g], bounds[g + 1]):
                for k in range(bounds[g], bounds[g + 1]):
                    gram[j, k - bounds[g]] += A[i, j] * A[i, k]
    for g in range(len(out)):
        for j in range(bounds[g], bounds[g + 1]):
            out[g] = max(out[g], np.abs(gram[j]).sum() / len(A))
    return out


@compiled(nogil=True)
def largest(A, bounds):  # type: ignore[no-untyped-def]
    """Return for each group the largest squared norm that any group of outputs has in any row: the paper's L_max."""
    longest = 0.0
    for i in range(len(A)):
        for g in range(len(bounds) - 1):
            total = 0.0
            for j in range(bounds[g], bounds[g + 1]):
                total += A[i, j] * A[i, j]
            longest = max(longest, total)
    return np.full(len(bounds) - 1, longest)


@inlined
def shrink(w, first, last, step, weight, v, move):  # type: ignore[no-untyped-def]
    """Set `move` to prox(w_g - step·v) - w_g, prox(u) = u·max(0, 1 - step·weight/‖u‖); return whether it moves."""
    norm = 0.0
    for c in range(len(w)):
        for j in range(first, last):
            move[c, j - first] = w[c, j] - step * v[c, j - first]
            norm += move[c, j - first] ** 2
    keep = max(0.0, 1.0 - step * weight / math.sqrt(norm)) if norm > 0.0 else 0.0
    moves = False
    for c in range(len(w)):
        for j in range(first, last):
            new = move[c, j - first] * keep if keep > 0.0 else 0.0
            move[c, j - first] = new - w[c, j]
            moves |= new != w[c, j]
            w[c, j] = new
    return moves


@compiled(nogil=True)
def paper_steps(examples, groups, snapshot, samples, drawn, w):  # type: ignore[no-untyped-def]
    """Take a step for each row of `samples`, shape (steps, rows of a batch), along the group that is `drawn` with it.

    Algorithm 2, lines 7 to 10: with B the drawn rows and j the drawn coordinate,

        v_j = (1/|B|) Σ_{i∈B} (∇_j f_i(w) - ∇_j f_i(w̃)) + ∇_j F(w̃)
        w_j ← prox_{(γ/L_max) g_j}(w_j - (γ/L_max) v_j)
    """
    A, y, code, parameter = examples
    bounds = groups.bounds
    width = np.diff(bounds).max()
    v, move = np.empty((len(w), width)), np.empty((len(w), width))
    f, slope = np.empty(len(w)), np.empty(len(w))
    for t in range(len(samples)):
        g = drawn[t]
        first, last = bounds[g], bounds[g + 1]
        v[:, : last - first] = snapshot.gradient[:, first:last]
        for i in samples[t]:
            for c in range(len(w)):
                f[c] = dot(A[i], w[c])
            derivative(code, parameter, f, y[i], slope)
            for c in range(len(w)):
                by = (slope[c] - snapshot.slopes[i, c]) / samples.shape[1]
                for j in range(first, last):
                    v[c, j - first] += A[i, j] * by
        shrink(w, first, last, groups.steps[g], groups.weights[g], v, move)


BATCH = 64
"""Rows of a mini-batch."""


class Batches(NamedTuple):
    """Mini-batches: b has ``rows[64b : 64b + 64]`` and drives the `run` groups from ``runs[b]`` on."""

    rows: I64
    runs: I64
    run: int


class Batch(NamedTuple):
    """One mini-batch, in float32, which suffices because residuals shrink with the distance from the snapshot.

    It has n rows, whose features Z have the shape (outputs from `begin` on, rows): `begin` is the first output that it
    drives. `residuals` are the differences of their slopes from the slopes of the snapshot, and `bend` is ∂²ℓ; shape
    (columns, rows).
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
def _drive(batch, groups, g, full, w, is_softmax, work):  # type: ignore[no-untyped-def]
    """Move group g by its mean gradient over the rows of a batch, and correct their residuals for that."""
    n, Z, begin, r, bend = batch
    v, move, shift = work
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
    work = SparseRoom(v, move, np.empty((columns, BATCH), np.float32))
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
            _drive(batch, groups, g, snapshot.gradient, w, is_softmax, work)
