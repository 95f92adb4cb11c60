"""Stochastic dual coordinate ascent for matrix blocks (Shalev-Shwartz and Zhang 2013), made of the parts that ours is.

After each change of m dual numbers all p matrices are computed afresh from y: p eigendecompositions. The m numbers go
to the maximum of the dual objective's lower bound with ‖A_Iᵀδ‖² ≤ v ‖δ‖², where v is the largest squared norm of a few
random blocks of m rows, its usual step, or what a trial of v and v/2 finds better. The starting point, when the gap is
looked at, steps that are shortened where the gap grows, and keeping the best of P and of D, are as in ours.
"""

from __future__ import annotations

import math

from streamkernel.solvers import matrix_blocks as psd
from streamkernel.solvers.matrix_blocks import F64, Bounds, Ints, MatrixProblem
from streamkernel.solvers.matrix_risk import Search
from streamkernel.solvers.saddle_problem import StepSizes


class DualAscent:
    """y, Aᵀy, and the matrices that are best for y."""

    def __init__(self, problem: MatrixProblem, y: F64) -> None:
        self.problem, self.y = problem, y.copy()
        self._G = problem.data.backward(y, problem.rows, problem.blocks)
        self.X = problem.minimizer(self._G)

    def bounds(self) -> Bounds:
        """Return P(X) and D(y)."""
        problem = self.problem
        z = problem.data.forward(self.X, problem.blocks, problem.rows)
        return Bounds(problem.primal(self.X, z), problem.dual(self.y, self._G))

    def step(self, rows: Ints, blocks: Ints, sizes: StepSizes) -> bool:
        """Change the dual numbers of `rows`, and all matrices."""
        problem, data = self.problem, self.problem.data
        c = data.forward(self.X, problem.blocks, rows)
        y = psd.dual_steps(problem.loss.code, self.y[rows], problem.b[rows], c, sizes.sigma / data.n)
        self._G += data.backward(y - self.y[rows], rows, problem.blocks)
        self.y[rows] = y
        self.X = problem.minimizer(self._G)
        return True


class MatrixSdca(Search):
    """With its usual step."""

    scales = (1.0,)

    def _iterate(self) -> DualAscent:
        return DualAscent(self._problem, self._y)

    def _sizes(self, scale: float) -> StepSizes:
        n = self._problem.data.n
        return StepSizes(0.0, math.inf, float(self._problem.l2.min()) * n**2 / scale)


class TriedMatrixSdca(MatrixSdca):
    """With the better of two steps."""

    scales = (1.0, 0.5)
