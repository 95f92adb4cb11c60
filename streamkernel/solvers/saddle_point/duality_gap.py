"""The problem of the saddle-point solvers, and the certificate P(x) - D(y), which bounds the error.

With an intercept c, P is minimised over c too, and the dual problem requires Σ yᵢ = 0: each y is projected first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from streamkernel.jit import compiled
from streamkernel.losses.compiled import SQUARE, derivative
from streamkernel.solvers.saddle_point.conjugates import mean_conjugate, mean_loss
from streamkernel.solvers.saddle_point.factors import F64, Factors


class SaddlePointProblem(NamedTuple):
    """min (1/n) Σᵢ φᵢ(aᵢᵀx) + Σⱼ (l2ⱼ/2) xⱼ² + l1ⱼ|xⱼ|, where the coordinate with l2ⱼ = 0, if any, is an intercept.

    Its column of A is constant.
    """

    A: Factors
    b: F64
    code: int
    l2: F64
    l1: F64
    constant: float
    """The constant value of the intercept's column; 0 without an intercept."""

    def primal(self, x: F64) -> tuple[float, F64]:
        """Return P at x with the best intercept, and that x."""
        scores = self.A.scores(x)
        if self.constant:
            x = x.copy()
            c = self.best_intercept(scores)
            x[self.l2 == 0.0] += c / self.constant
            scores = scores + c
        return float(mean_loss(self.code, scores, self.b) + 0.5 * self.l2 @ (x * x) + self.l1 @ np.abs(x)), x

    def dual(self, y: F64) -> tuple[float, F64]:
        """Return D at y, or at a feasible point near it, and that point.

        D(y) = -(1/n) Σᵢ φᵢ*(yᵢ) - Σⱼ max(|(Aᵀy)ⱼ|/n - l1ⱼ, 0)²/2l2ⱼ
        """
        y = self.feasible(y)
        there = self.l2 > 0.0
        over = np.maximum(np.abs(self.A.slopes(y)) / len(y) - self.l1, 0.0)[there]
        return float(-mean_conjugate(self.code, y, self.b) - 0.5 * (over * over) @ (1.0 / self.l2[there])), y

    def feasible(self, y: F64) -> F64:
        """Return y, or with an intercept a y near it that sums to 0."""
        if not self.constant:
            return y
        if self.code == SQUARE:
            return np.asarray(y - y.mean())
        up, down = y[self.b < 0.0].sum(), -y[self.b > 0.0].sum()
        least = min(up, down)
        return y * np.where(self.b < 0.0, least / up if up else 0.0, least / down if down else 0.0)

    def best_dual(self, scores: F64) -> F64:
        """Return φ', the best y for these scores."""
        return np.asarray(_derivatives(self.code, scores, self.b))

    def best_intercept(self, scores: F64) -> float:
        """Return the best c to add to these scores."""
        if self.code == SQUARE or not np.isfinite(scores).all():
            return float((self.b - scores).mean())

        def slope(c: float) -> float:
            return float(_derivatives(self.code, scores + c, self.b).mean())

        reach = 1.0
        while slope(-reach) > 0.0 or slope(reach) < 0.0:
            reach *= 2.0
        return float(brentq(slope, -reach, reach, xtol=1e-14))


@compiled(nogil=True)
def _derivatives(code, scores, b):  # type: ignore[no-untyped-def]
    out = np.empty_like(scores)
    for i in range(len(b)):
        derivative(code, 0.0, scores[i : i + 1], b[i], out[i : i + 1])
    return out
