"""The starting point and the step sizes of DSPDC on matrix blocks, from the data."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize_scalar

from streamkernel.solvers.matrix import psd_blocks as psd
from streamkernel.solvers.matrix.matrix_blocks import F64, Ints, MatrixProblem
from streamkernel.solvers.saddle_point.conjugates import mean_conjugate
from streamkernel.solvers.saddle_point.step_sizes import StepSizes, step_sizes

_DRAWS, _POWERS, _LONG, _SHORTEST = 4, 10, 1e9, -40.0


def starting_point(problem: MatrixProblem) -> tuple[F64, F64, float]:
    """Return X and y of the best dual point in one direction, and the distance that X moves for a y of length 1.

    The direction is u = φ'(A X⁰), where X⁰ is optimal without data. Along it D(tu) is concave and has its maximum at a
    t of at most 1; g* is approximated by the parabola with the right slope at t = 0 and the right value at t = 1, which
    is exact for X⁰ = 0. It takes two eigendecompositions of every block.
    """
    data, n = problem.data, problem.data.n
    X0 = problem.minimizer(np.zeros_like(problem.centers))
    z = data.forward(X0, problem.blocks, problem.rows)
    u = psd.dual_steps(problem.loss.code, np.zeros(n), problem.b, z, _LONG)
    G = data.backward(u, problem.rows, problem.blocks)

    def conjugate(t: float) -> float:
        return float(mean_conjugate(problem.loss.code, t * u, problem.b))

    slope = float(u @ z) / n
    bend = problem.dual(0.0 * u, 0.0 * G) + slope - problem.dual(u, G) - conjugate(1.0)
    found = minimize_scalar(
        lambda log_t: bend * math.exp(2.0 * log_t) - slope * math.exp(log_t) + conjugate(math.exp(log_t)),
        bounds=(_SHORTEST, 0.0),
        method="bounded",
    )
    y = math.exp(found.x) * u
    X = problem.minimizer(math.exp(found.x) * G)
    moved, length = float(np.linalg.norm(X - X0)), float(np.linalg.norm(y))
    return X, y, moved / length if moved > 0.0 < length else 1.0


def draw_blocks(generator: np.random.Generator, n: int, m: int) -> Ints:
    """Return m of the numbers below n, in ascending order."""
    return np.sort(generator.choice(n, m, replace=False))


def largest_block(problem: MatrixProblem, m: int, q: int, generator: np.random.Generator) -> float:
    """Return the largest squared spectral norm of a few random blocks of m rows and q matrices, by power iteration."""
    data, largest = problem.data, 0.0
    for _ in range(_DRAWS):
        rows, blocks = draw_blocks(generator, data.n, m), draw_blocks(generator, data.p, q)
        v, norm = generator.standard_normal(m), 1.0
        for _ in range(_POWERS):
            v = data.forward(data.backward(v / norm, rows, blocks), blocks, rows)
            norm = float(np.linalg.norm(v))
            if norm == 0.0:
                break
        largest = max(largest, norm)
    return largest or 1.0


def steps_of(problem: MatrixProblem, m: int, q: int, scale: float, moved: float) -> StepSizes:
    """Return the steps for Λ = `scale`, with the primal weight that suits how far X goes for a y of length 1.

    The bounds of the theorems grow with (p/qτ) ‖X - X*‖² + (n/mσ) ‖y - y*‖²; the weight makes both terms the same.
    """
    n, p = problem.data.n, problem.data.p
    given = n, p, m, q, scale, float(problem.l2.min()), 1.0 / problem.loss.curvature
    plain = step_sizes(*given)
    return step_sizes(*given, weight=moved * math.sqrt((p / q / plain.tau) / (n / m / plain.sigma)))
