"""DSPDC with matrices as primal blocks: the problem, and a step.

    min_{X_j ⪰ 0} max_y  Σ_j λ_j/2 ‖X_j - M_j‖² + (1/n) Σ_i y_i Σ_j ⟨D_i^j, X_j⟩ - (1/n) Σ_i φ*(y_i)

A step changes m of the n dual numbers and q of the p matrices, which is q eigendecompositions: most of its time.
Equations are in Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point
MatrixProblem".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from streamkernel.jit import compiled
from streamkernel.losses import Loss
from streamkernel.solvers.saddle_problem import StepSizes, dual_step, mean_conjugate, mean_loss


@compiled(nogil=True)
def nearest_psd(M):  # type: ignore[no-untyped-def]
    """Return the positive semi-definite matrices nearest to the symmetric ones of `M`, shape (blocks, d, d)."""
    X = np.empty_like(M)
    for j in range(len(M)):
        values, vectors = np.linalg.eigh(M[j])
        first = np.searchsorted(values, 0.0)
        # The part of fewer eigenvectors is the cheaper one to put together.
        part = slice(first, None) if 2 * first >= len(values) else slice(0, first)
        V = np.ascontiguousarray(vectors[:, part])
        P = (V * values[part]) @ np.ascontiguousarray(V.T)
        P = P if 2 * first >= len(values) else M[j] - P
        X[j] = 0.5 * (P + P.T)
    return X


@compiled(nogil=True)
def dual_steps(code, y, b, c, s):  # type: ignore[no-untyped-def]
    """Return the dual steps of several examples; see `conjugates.dual_step`."""
    new = np.empty_like(y)
    for i in range(len(y)):
        new[i] = dual_step(code, y[i], b[i], c[i], s)
    return new


@compiled(nogil=True)
def pack(X):  # type: ignore[no-untyped-def]
    """Return the symmetric parts of matrices as vectors with the same inner products, shape (blocks, d(d+1)/2)."""
    blocks, d = X.shape[0], X.shape[1]
    out = np.empty((blocks, d * (d + 1) // 2))
    for j in range(blocks):
        k = 0
        for a in range(d):
            for c in range(a):
                out[j, k] = math.sqrt(0.5) * (X[j, a, c] + X[j, c, a])
                k += 1
            out[j, k] = X[j, a, a]
            k += 1
    return out


@compiled(nogil=True)
def unpack(v, d):  # type: ignore[no-untyped-def]
    """Return the symmetric matrices of `packed`, shape (blocks, d, d)."""
    out = np.empty((len(v), d, d))
    for j in range(len(v)):
        k = 0
        for a in range(d):
            for c in range(a):
                out[j, a, c] = out[j, c, a] = math.sqrt(0.5) * v[j, k]
                k += 1
            out[j, a, a] = v[j, k]
            k += 1
    return out


F64 = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

_HUGE = 1e100


class Data(Protocol):
    """The linear map A from p symmetric matrices to n numbers: number i is Σ_j ⟨D_i^j, X_j⟩.

    Rows and blocks are given in ascending order.
    """

    n: int
    p: int
    d: int

    def forward(self, X: F64, blocks: Ints, rows: Ints) -> F64:
        """Return Σ_j ⟨D_i^j, X_j⟩ over `blocks`, whose matrices are `X`, for each of `rows`."""

    def backward(self, y: F64, rows: Ints, blocks: Ints) -> F64:
        """Return Σ_i y_i D_i^j over `rows`, whose numbers are `y`, for each of `blocks`."""


class Bounds(NamedTuple):
    """The primal objective P of some matrices, and the dual objective D of some numbers, which is never above it."""

    primal: float
    dual: float


@dataclass(frozen=True)
class MatrixProblem:
    """The problem: the data, the loss and its labels b, and λ_j and M_j of the blocks."""

    data: Data
    loss: Loss
    b: F64
    l2: F64
    centers: F64

    @cached_property
    def rows(self) -> Ints:
        """All rows."""
        return np.arange(self.data.n)

    @cached_property
    def blocks(self) -> Ints:
        """All blocks."""
        return np.arange(self.data.p)

    def proximal(self, X: F64, gradient: F64, blocks: Ints, tau: float) -> F64:
        """Return argmin over Q ⪰ 0 of ⟨gradient, Q⟩ + λ_j/2 ‖Q - M_j‖² + ‖Q - X‖²/2τ for each of `blocks`, (29)."""
        l2 = self.l2[blocks, None, None]
        return np.asarray(nearest_psd((X / tau + l2 * self.centers[blocks] - gradient) / (l2 + 1.0 / tau)))

    def minimizer(self, G: F64) -> F64:
        """Return argmin over X ⪰ 0 of Σ_j λ_j/2 ‖X_j - M_j‖² + ⟨G_j, X_j⟩/n."""
        return np.asarray(nearest_psd(self._minimiser(G)))

    def primal(self, X: F64, z: F64) -> float:
        """Return P of matrices that the data maps to z."""
        squares = np.square(X - self.centers).sum(axis=(1, 2))
        return float(0.5 * self.l2 @ squares + mean_loss(self.loss.code, z, self.b))

    def dual(self, y: F64, G: F64) -> float:
        """Return D of y, where G = Aᵀy."""
        values = np.linalg.eigvalsh(self._minimiser(G))
        squares = np.square(self.centers).sum(axis=(1, 2)) - np.square(np.maximum(values, 0.0)).sum(axis=1)
        return float(0.5 * self.l2 @ squares - mean_conjugate(self.loss.code, y, self.b))

    def _minimiser(self, G: F64) -> F64:
        return self.centers - G / (self.data.n * self.l2[:, None, None])


class Iterate:
    """X, y, and the products that are maintained for the next step: the numbers A x and A x̄, or the matrices Aᵀy and
    X̄.

    To maintain the n numbers, a step uses q blocks of all rows; to maintain the p matrices, m rows of all blocks
    (section 4.1).
    """

    def __init__(self, problem: MatrixProblem, X: F64, y: F64, m: int, q: int) -> None:
        self.problem, self.m, self.q = problem, m, q
        self.X, self.y = X.copy(), y.copy()
        self.keeps_numbers = q * problem.data.n <= m * problem.data.p
        if self.keeps_numbers:
            self._z = problem.data.forward(X, problem.blocks, problem.rows)
            self._z_bar = self._z
        else:
            self._G = problem.data.backward(y, problem.rows, problem.blocks)
            self._X_bar, self._moved = X.copy(), problem.blocks[:0]

    def bounds(self) -> Bounds:
        """Return P(X) and D(y)."""
        problem, data = self.problem, self.problem.data
        z = self._z if self.keeps_numbers else data.forward(self.X, problem.blocks, problem.rows)
        G = data.backward(self.y, problem.rows, problem.blocks) if self.keeps_numbers else self._G
        return Bounds(problem.primal(self.X, z), problem.dual(self.y, G))

    def step(self, rows: Ints, blocks: Ints, sizes: StepSizes) -> bool:
        """Change the dual numbers of `rows`, then the matrices of `blocks`: (28), (11), (29) and (13).

        Return whether the numbers are of a usable size; if they are not, nothing is changed.
        """
        problem, data = self.problem, self.problem.data
        n, extra = data.n, data.n / self.m
        c = self._z_bar[rows] if self.keeps_numbers else data.forward(self._X_bar, problem.blocks, rows)
        y = dual_steps(problem.loss.code, self.y[rows], problem.b[rows], c, sizes.sigma / n)
        if not np.abs(y).max() < _HUGE:
            return False
        change = y - self.y[rows]
        if self.keeps_numbers:
            y_bar = self.y.copy()
            y_bar[rows] += extra * change
            gradient = data.backward(y_bar, problem.rows, blocks)
        else:
            G = data.backward(change, rows, problem.blocks)
            gradient = self._G[blocks] + extra * G[blocks]
            self._G += G
        X = problem.proximal(self.X[blocks], gradient / n, blocks, sizes.tau)
        change = X - self.X[blocks]
        self.y[rows] = y
        self.X[blocks] = X
        if self.keeps_numbers:
            moved = data.forward(change, blocks, problem.rows)
            self._z = self._z + moved
            self._z_bar = self._z + sizes.theta * moved
        else:
            self._X_bar[self._moved] = self.X[self._moved]
            self._X_bar[blocks] = X + sizes.theta * change
            self._moved = blocks
        return True
