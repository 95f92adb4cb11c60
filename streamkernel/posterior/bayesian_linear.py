"""Bayesian linear regression, updated by rotations: exact, and safe over streams of any length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.rows import F64, Rows
from streamkernel.jit import compiled
from streamkernel.learners import span
from streamkernel.learners.span import ENTRIES, bound_all, limits, observe, within
from streamkernel.posterior.posteriors import FeatureMap, join, pieces, read_count

LEAST_RATIO = 1e-300
"""λ between this and its inverse has a square root whose square is a normal number."""

SMALLEST = 1e-290
"""The smallest divisor of a residual, so that it stays a number."""


@compiled
def rotate(R, z, phi, y, weights, totals, entries):  # type: ignore[no-untyped-def]
    """Rotate the rows √w (φᵀ, y) into the triangle (R, z), one after the other; add the residuals to the totals.

    These are Σ ρ² and the number of rows. The entries of the targets' range follow the rows. The interpreter's lock is
    held meanwhile, so others see all rows or none.

    Givens rotations turn each row to zero: Q [R z; φᵀ y] = [R' z'; 0 ρ]. So R'ᵀR' = RᵀR + φφᵀ, and ρ is the error
    of the prediction before, in units of its deviation: ρ = (y - φᵀv)/√(1 + φᵀ(RᵀR)⁻¹φ). The product of the cosines
    of the rotations is the inverse of that deviation. Destroys `phi`.
    """
    n = len(z)
    for i in range(len(y)):
        root, inverse = math.sqrt(weights[i]), 1.0
        x, rho = phi[i], root * y[i]
        for k in range(n):
            x[k] *= root
        for k in range(n):
            if x[k] != 0.0:
                r = math.sqrt(R[k, k] * R[k, k] + x[k] * x[k])
                c, s = R[k, k] / r, x[k] / r
                row = R[k]
                for j in range(k, n):
                    a, b = row[j], x[j]
                    row[j], x[j] = c * a + s * b, c * b - s * a
                z[k], rho = c * z[k] + s * rho, c * rho - s * z[k]
                inverse *= c
        totals[0] += rho * rho
        totals[1] += 1.0
        before, (low, high) = y[i] - rho / max(root * inverse, SMALLEST), limits(entries)
        observe(entries, y[i], 0.0, before, within(before, low, high), totals[1])


@compiled
def solve(R, z, totals, entries):  # type: ignore[no-untyped-def]
    """Return the number of rows, w = R⁻¹z, and the entries of the targets' range."""
    n = len(z)
    w = z.copy()
    for k in range(n - 1, -1, -1):
        total = w[k]
        for j in range(k + 1, n):
            total -= R[k, j] * w[j]
        w[k] = total / R[k, k]
    return totals[1], w, entries.copy()


@compiled
def dots(phi, w):  # type: ignore[no-untyped-def]
    """Return φᵀw for each row, in an order that does not depend on the number of rows."""
    out = np.zeros(len(phi))
    for i in range(len(phi)):
        for j in range(len(w)):
            out[i] += phi[i, j] * w[j]
    return out


@compiled
def spreads(R, phi):  # type: ignore[no-untyped-def]
    """Return φᵀ(RᵀR)⁻¹φ = ‖R⁻ᵀφ‖² for each row; destroys `phi`."""
    n = phi.shape[1]
    out = np.zeros(len(phi))
    for i in range(len(phi)):
        u = phi[i]
        for k in range(n):
            u[k] /= R[k, k]
            row, uk = R[k], u[k]
            for j in range(k + 1, n):
                u[j] -= uk * row[j]
            out[i] += uk * uk
    return out


def is_ratio(value: float) -> bool:
    """Return whether a number may be λ."""
    return LEAST_RATIO <= value <= 1.0 / LEAST_RATIO


class Solved(NamedTuple):
    """The number of rows, the mean w after them, and the entries of their targets' range."""

    n: float
    w: F64
    span: F64


class BayesianLinear:
    """y = φᵀw + e with e ~ N(0, σ²) and w ~ N(0, (σ²/λ) I), in O(D²) memory and time per example for D features.

    It keeps the Cholesky factor R of the precision λI + Σ φφᵀ, and z = R⁻ᵀ Σ φy: the posterior of w has mean R⁻¹z and
    covariance σ²(RᵀR)⁻¹. Neither depends on σ². It also keeps the range of the targets and of the prior mean 0, the
    entries `span` of :mod:`streamkernel.learners.span`, but its own mean is not limited to it. `ratio` is λ > 0, the
    variance of the noise in units of the prior variance of w.

    Examples
    --------
    >>> model = BayesianLinear(1, ratio=1.0)
    >>> model.learn(np.array([[1.0], [1.0], [1.0]]), np.array([4.0, 4.0, 4.0]))
    >>> model.mean(np.array([[1.0]])), model.spread(np.array([[1.0]]))
    (array([3.]), array([0.25]))
    """

    def __init__(self, n_outputs: int, ratio: float) -> None:
        self._ratio = ratio
        self._R: F64 | None = None  # made for the first rows: a file of another size is refused before there is memory
        self.z: F64 = np.zeros(n_outputs)
        self.totals = np.zeros(2)
        """Σ ρ², all squared errors before learning, in units of what was expected of them, σ² n in expectation; and
        n."""
        self.span = np.zeros(ENTRIES)
        self._solved: Solved | None = None

    def _factor(self) -> F64:
        """Return R, a new one before the first rows."""
        return math.sqrt(self._ratio) * np.eye(len(self.z)) if self._R is None else self._R

    @property
    def examples(self) -> int:
        """Learned rows."""
        return int(self.totals[1])

    def learn(self, phi: F64, y: F64, weights: F64 | None = None) -> None:
        """Learn from rows in order, whose noise has the variance σ²/w: `phi` has shape (rows, D); it is destroyed."""
        if self._R is None:
            self._R = self._factor()
        rotate(self._R, self.z, phi, y, np.ones(len(y)) if weights is None else weights, self.totals, self.span)

    def solved(self) -> Solved:
        """Return the posterior mean of w, with the range of the targets after the same rows."""
        R, solved = self._R, self._solved
        if R is None:
            return Solved(0.0, np.zeros(len(self.z)), np.zeros(ENTRIES))
        if solved is None or solved.n != float(self.totals[1]):
            solved = self._solved = Solved(*solve(R, self.z, self.totals, self.span))
        return solved

    def mean(self, phi: F64) -> F64:
        """Return the posterior mean of φᵀw for each row."""
        return np.asarray(dots(phi, self.solved().w))

    def spread(self, phi: F64) -> F64:
        """Return the posterior variance of φᵀw in units of σ² for each row; destroys `phi`."""
        return np.asarray(spreads(self._factor(), phi))

    def tensors(self) -> dict[str, Any]:
        """Return the learned state as arrays that share nothing with this object."""
        triangle = self._factor()[np.triu_indices(len(self.z))]
        return {"triangle": triangle, "z": self.z.copy(), "squares": self.totals[:1].copy(), "span": self.span.copy()}

    def restore(self, tensors: Mapping[str, Any], examples: int) -> None:
        """Restore the result of `tensors` after a number of rows; raises a ValueError if it does not fit."""
        n = len(self.z)
        triangle = tensor_file.require_tensor(tensors, "triangle", np.float64, (n * (n + 1) // 2,))
        z = tensor_file.require_tensor(tensors, "z", np.float64, (n,))
        (squares,) = tensor_file.require_tensor(tensors, "squares", np.float64, (1,))
        R = np.zeros((n, n))
        R[np.triu_indices(n)] = triangle
        least = math.sqrt(self._ratio)  # of the diagonal, which only grows
        if not (np.diag(R) >= least).all() or squares < 0.0:
            raise ValueError(f"expected a triangle with a diagonal of at least {least:g}, and a sum of squares")
        self.span = span.restored(tensors)
        self._R, self.z, self.totals, self._solved = R, z.copy(), np.array([squares, examples], np.float64), None


class Recursive:
    """Bayesian linear regression on a fixed number of random features, exact at any time.

    With a number as `noise`, it is σ², for f of covariance k and mean 0. With ``None`` f has the covariance
    (σ²/ratio)·k around an unknown constant, and σ² is the most likely one. `ratio` is the noise in units of the prior
    variance of f.
    """

    def __init__(self, phi: FeatureMap, noise: float | None, ratio: float) -> None:
        self._phi, self._noise = phi, noise
        self.linear = BayesianLinear(phi.n_outputs + (noise is None), ratio)

    @property
    def examples(self) -> int:
        """Examples that have been learned."""
        return self.linear.examples

    @property
    def noise(self) -> float:
        """σ²; the targets' own mean takes one degree of freedom."""
        if self._noise is not None:
            return self._noise
        squares, examples = self.linear.totals.tolist()
        return float(squares / (examples - 1.0)) if examples > 1.0 else 1.0

    @property
    def of_targets(self) -> tuple[int, int]:
        """Numbers of predictions that were bounded, and of targets that did not extend the range in full."""
        return span.counts(self.linear.span)

    def features(self, rows: Rows) -> F64:
        """Return the features, with a constant one where the mean of the targets is unknown."""
        phi = self._phi(rows)
        return phi if self._noise is not None else np.column_stack([phi, np.ones(len(phi))])

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order; the noise of one of weight w has the variance σ²/w."""
        for part, piece in pieces(rows):
            self.linear.learn(self.features(piece), y[part], piece.weights)

    def mean(self, rows: Rows) -> F64:
        """Return the mean of f(x) for each row, in the range of the targets and of the prior mean."""
        solved = self.linear.solved()
        means = join(dots(self.features(piece), solved.w) for _, piece in pieces(rows))
        bound_all(solved.span, means)
        return means

    def variance(self, rows: Rows) -> F64:
        """Return the variance of f(x) for each row."""
        return self.noise * join(self.linear.spread(self.features(piece)) for _, piece in pieces(rows))

    def tensors(self) -> dict[str, Any]:
        """Return the learned state."""
        return self.linear.tensors() | {"count": np.array([self.examples], np.int64)}

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Restore the result of `tensors`; raises a ValueError if it does not fit."""
        self.linear.restore(tensors, read_count(tensors))
