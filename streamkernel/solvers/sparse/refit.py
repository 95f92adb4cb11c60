"""The coefficients of selected features without the L1 penalty, which shrinks them towards 0."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular

from streamkernel.features.rows import F64
from streamkernel.losses import Loss
from streamkernel.solvers.sparse.sparse_problem import SparseProblem, check_problem

_ROWS = 4096
_STEPS = 1000


def _ridges(problem: SparseProblem, l2: float) -> F64:
    """Return the ridge of each output."""
    return np.asarray(l2 * np.repeat(problem.groups.weights > 0.0, np.diff(problem.groups.bounds)))


def largest_curvature(problem: SparseProblem, l2: float) -> F64:
    """Return κ (1/n) ZᵀZ + l2 I, with κ the loss's largest second derivative; unpenalised outputs have no ridge."""
    Z, n = problem.Z, len(problem.y)
    found = np.zeros((Z.shape[1], Z.shape[1]))
    for first in range(0, n, _ROWS):
        part = Z[first : first + _ROWS].astype(np.float64)
        found += part.T @ part
    found *= problem.curvature / n
    found[np.diag_indices_from(found)] += _ridges(problem, l2) + 1e-10 * max(found.diagonal().mean(), 1e-30)
    return found


def ridge(problem: SparseProblem, w: F64, l2: float, tol: float = 1e-13) -> F64:
    """Return the w, shape (columns, outputs), that minimises (1/n) Σ ℓ(f_i, y_i) + ½ l2 ‖penalised part of w‖².

    Accelerated gradient steps in u = wR, with RRᵀ = κ (1/n) ZᵀZ + l2 I and κ the loss's largest second derivative, so
    that curvatures are at most 1 although random features are strongly correlated; in float64. It ends when a step
    gains less than the fraction `tol` of the value.

    References
    ----------
    O'Donoghue and Candès, "Adaptive Restart for Accelerated Gradient Schemes", 2015.
    """
    ridges = _ridges(problem, l2)
    R = cholesky(largest_curvature(problem, l2), lower=True)
    inverse = solve_triangular(R, np.eye(len(R)), lower=True)
    smooth = problem._replace(groups=problem.groups._replace(weights=np.zeros_like(problem.groups.weights)))
    u = ahead = w @ R
    momentum = 1.0
    for _ in range(_STEPS):
        at = ahead @ inverse
        point = smooth.at(at)
        gradient = (point.gradient + ridges * at) @ inverse.T
        last, u = u, ahead - gradient
        if float((gradient * (u - last)).sum()) > 0.0:  # the momentum points uphill
            momentum = 1.0
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        ahead, momentum = u + (momentum - 1.0) / following * (u - last), following
        if 0.5 * float((gradient**2).sum()) <= tol * (point.objective + 0.5 * float((ridges * at * at).sum())):
            break
    return np.asarray(u @ inverse)


def refit(
    Z: npt.ArrayLike,
    y: npt.ArrayLike,
    loss: Loss,
    kept: npt.ArrayLike,
    *,
    l2: float = 1e-6,
    columns: int = 1,
    penalised: npt.ArrayLike | None = None,
    start: npt.ArrayLike | None = None,
    tol: float = 1e-13,
) -> F64:
    """Return the coefficients, shape (outputs, columns), that minimise (1/n) Σ ℓ(f_i, y_i) + ½ l2 ‖w‖².

    Those of outputs that are not kept are 0.

    Parameters
    ----------
    Z, y, loss, columns, penalised
        As for :func:`streamkernel.solvers.sparse.sparse.minimise_sparse`; unpenalised outputs have no ridge.
    kept
        A mask of the outputs to keep, shape (outputs,).
    l2
        The ridge, which makes the solution unique if features are nearly equal.
    start
        The initial coefficients, shape (outputs, columns), 0 by default. The result for a non-convex loss depends on
        it.
    tol
        The minimum gain of a step, as a fraction of the objective, for another step to be taken.

    Raises
    ------
    ValueError
        If an argument is invalid.
    """
    problem = check_problem(Z, y, loss, 1.0, columns, 1, penalised)
    outputs = problem.Z.shape[1]
    mask = np.asarray(kept)
    if mask.shape != (outputs,) or mask.dtype != bool:
        raise ValueError(f"Expected kept as {outputs} booleans, got {mask.dtype} of shape {mask.shape}")
    if not 0.0 <= l2 < math.inf:
        raise ValueError(f"Expected a finite l2 >= 0, got {l2!r}")
    coef = np.zeros((outputs, columns))
    if start is not None:
        given = np.asarray(start, np.float64)
        if given.shape != coef.shape or not np.isfinite(given).all():
            raise ValueError(f"Expected a finite start of shape {coef.shape}, got shape {given.shape}")
        coef[mask] = given[mask]
    if mask.any():
        part, _ = problem.part(np.flatnonzero(mask))
        coef[mask] = ridge(part, np.ascontiguousarray(coef[mask].T), l2, tol).T
    return coef
