"""(1/n) Σ ℓ(f_i, y_i) + Σ_g weight_g ‖w_g‖ with f = wZᵀ: its groups, value, gradient and violation of optimality."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular

from streamkernel.features.rows import F32, F64, I64
from streamkernel.losses import Correntropy, Logistic, Loss, Sigmoid, SmoothHinge, Softmax, Square
from streamkernel.solvers import sparse_loops

SPARSE: tuple[type[Loss], ...] = (Logistic, Softmax, SmoothHinge, Sigmoid, Square, Correntropy)
"""The losses that can be learned sparsely: the ones in Table 1 of the paper, and softmax."""

_LARGEST_CALL = 1 << 27
"""Number of multiplications in one compiled call, a fraction of a second, after which Ctrl-C takes effect."""


class CoefficientGroups(NamedTuple):
    """Coefficients that are dropped together: group g is ``w[:, bounds[g]:bounds[g + 1]]``.

    Its penalty is ``weights[g]`` times its norm; the weight is ``units[g]``, l1 √size, or 0 if it is unpenalised.
    """

    bounds: I64
    weights: F64
    units: F64

    @classmethod
    def of(cls, outputs: int, columns: int, l1: float, group: int, penalised: Any) -> CoefficientGroups:
        """Return the groups of `group` consecutive outputs; an unpenalised output is one by itself and costs nothing.

        Examples
        --------
        >>> groups = CoefficientGroups.of(5, 1, 1.0, 2, [True, True, True, True, False])
        >>> groups.bounds.tolist(), groups.weights.round(2).tolist()
        ([0, 2, 4, 5], [1.41, 1.41, 0.0])
        """
        mask = np.ones(outputs, bool) if penalised is None else np.asarray(penalised)
        if mask.shape != (outputs,) or mask.dtype != bool:
            raise ValueError(f"Expected penalised as {outputs} booleans, got {mask.dtype} of shape {mask.shape}")
        bounds = [0]
        while bounds[-1] < outputs:
            first = bounds[-1]
            bounds.append(first + (group if mask[first] else 1))
            if mask[first] and mask[first : bounds[-1]].sum() < group:
                raise ValueError(f"Expected penalised outputs in groups of {group}, got a part of one at {first}")
        units = l1 * np.sqrt(np.diff(bounds) * columns)
        return cls(np.array(bounds), units * mask[bounds[:-1]], units)

    def norms(self, w: F64) -> F64:
        """Return the norm of each group of `w`, shape (columns, outputs)."""
        return np.asarray(np.sqrt(np.add.reduceat((w * w).sum(axis=0), self.bounds[:-1])))

    def violations(self, w: F64, gradient: F64) -> F64:
        """Return for each group how far -gradient is from the subdifferential of weight‖w_g‖, in units."""
        norms = self.norms(w)
        pull = np.repeat(self.weights / np.where(norms > 0.0, norms, 1.0), np.diff(self.bounds))
        off = self.norms(gradient + w * pull)
        return np.where(norms > 0.0, off, np.maximum(0.0, off - self.weights)) / self.units

    def part(self, chosen: I64) -> tuple[CoefficientGroups, I64]:
        """Return the `chosen` groups side by side, and which outputs these are."""
        sizes = np.diff(self.bounds)[chosen]
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        outputs = np.repeat(self.bounds[chosen] - bounds[:-1], sizes) + np.arange(bounds[-1])
        return CoefficientGroups(bounds, self.weights[chosen], self.units[chosen]), outputs


class SparsePoint(NamedTuple):
    """Coefficients, shape (columns, outputs), with derived quantities; `slopes` are ∂ℓ/∂f of all rows."""

    w: F64
    objective: float
    gradient: F64
    slopes: F64
    violations: F64


class SparseProblem(NamedTuple):
    """Features, shape (rows, outputs), targets, a loss, penalties, and the threads that evaluate it."""

    Z: F32
    y: F64
    loss: Loss
    columns: int
    groups: CoefficientGroups
    threads: int = 1
    pool: ThreadPoolExecutor | None = None

    @property
    def curvature(self) -> float:
        """The largest second derivative of the loss in any direction."""
        is_softmax = isinstance(self.loss, Logistic) and self.columns > 1
        return Softmax.curvature if is_softmax else self.loss.curvature

    @property
    def examples(self) -> sparse_loops.SparseExamples:
        """The features, targets and loss in compiled form."""
        return sparse_loops.SparseExamples(self.Z, self.y, self.loss.load(self.columns), self.loss.parameter)

    def part(self, chosen: I64) -> tuple[SparseProblem, I64]:
        """Return the problem of the `chosen` groups alone, and which outputs these are."""
        groups, outputs = self.groups.part(chosen)
        if len(outputs) == self.Z.shape[1]:
            return self, outputs
        return self._replace(Z=sparse_loops.columns_of(self.Z, outputs), groups=groups), outputs

    @np.errstate(over="ignore", invalid="ignore")  # steps that were too long diverge to infinity, and are not taken
    def at(self, w: F64) -> SparsePoint:
        """Return the quantities at `w` that the solver needs, with a copy of it."""
        n, examples, w = len(self.y), self.examples, w.copy()
        slopes = np.empty((n, len(w)))

        def work(first: int, last: int) -> tuple[float, F64]:
            out = np.empty_like(w)
            return sparse_loops.gradient(examples, first, last, w, slopes, out), out

        parts = self.split(n, 2 * w.size, work)
        gradient = np.sum([part for _, part in parts], axis=0) / n
        objective = math.fsum(value for value, _ in parts) / n + float(self.groups.weights @ self.groups.norms(w))
        return SparsePoint(w, objective, gradient, slopes, self.groups.violations(w, gradient))

    def split(self, n: int, cost: int, work: Callable[[int, int], Any]) -> list[Any]:
        """Run ``work(first, last)`` in threads for parts of 0 to n; one item takes `cost` multiplications."""
        length = max(1, min(-(-n // self.threads), _LARGEST_CALL // cost))
        firsts = range(0, n, length)
        return list((self.pool.map if self.pool else map)(work, firsts, [min(first + length, n) for first in firsts]))


def check_problem(
    Z: npt.ArrayLike, y: npt.ArrayLike, loss: Loss, l1: float, columns: int, group: int, penalised: npt.ArrayLike | None
) -> SparseProblem:
    """Return the problem of these arguments, or raise an error that names the invalid one."""
    if not isinstance(loss, SPARSE):
        raise ValueError(f"Expected a loss of {', '.join(kind.__name__ for kind in SPARSE)}, got {loss!r}")
    for name, whole in (("columns", columns), ("group", group)):
        if not isinstance(whole, (int, np.integer)) or whole < 1:
            raise ValueError(f"Expected {name} as an integer of 1 or more, got {whole!r}")
    with np.errstate(over="ignore"):  # the error below reports it
        features = np.ascontiguousarray(Z, np.float32)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(f"Expected Z of shape (rows, outputs), got shape {features.shape}")
    if not math.isfinite(features.sum(dtype=np.float64)):
        raise ValueError("Expected finite numbers in Z, got NaN, infinity, or too large for float32")
    targets = np.asarray(y, np.float64)
    if targets.shape != (len(features),):
        raise ValueError(f"Expected y of shape ({len(features)},), a target for each row of Z, got {targets.shape}")
    if loss.for_classes:
        classes = [-1.0, 0.0, 1.0] if columns == 1 else np.arange(columns)
        unknown = targets[~np.isin(targets, classes)]
        if len(unknown):
            raise ValueError(f"Expected y of classes 0 to {max(columns - 1, 1)}, got {unknown[0]}")
        if columns == 1 and isinstance(loss, Softmax):
            raise ValueError("Expected columns of 2 or more for Softmax, got 1")
    elif columns != 1:
        raise ValueError(f"Expected columns=1 for {loss!r}, got {columns}")
    elif not np.isfinite(targets).all():
        raise ValueError("Expected finite numbers in y, got NaN or infinity")
    return SparseProblem(
        features, targets, loss, columns, CoefficientGroups.of(features.shape[1], columns, l1, group, penalised)
    )


@contextmanager
def pool_of(threads: int) -> Iterator[ThreadPoolExecutor | None]:
    """Yield a pool of threads, or ``None`` for one thread."""
    if threads == 1:
        yield None
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


_ROWS = 4096
_STEPS = 1000


def _ridges(problem: SparseProblem, l2: float) -> F64:
    """Return the ridge of each output."""
    return np.asarray(l2 * np.repeat(problem.groups.weights > 0.0, np.diff(problem.groups.bounds)))


def largest_curvature(problem: SparseProblem, l2: float) -> F64:
    """Return κ (1/n) ZᵀZ + l2 I, with κ the loss's largest second derivative; unpenalised outputs have no ridge."""
    Z, n = problem.Z, len(problem.y)
    hessian = np.zeros((Z.shape[1], Z.shape[1]))
    for first in range(0, n, _ROWS):
        part = Z[first : first + _ROWS].astype(np.float64)
        hessian += part.T @ part
    hessian *= problem.curvature / n
    hessian[np.diag_indices_from(hessian)] += _ridges(problem, l2) + 1e-10 * max(hessian.diagonal().mean(), 1e-30)
    return hessian


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

    Outputs that are not kept have 0. `Z`, `y`, `loss`, `columns` and `penalised` are as for
    :func:`streamkernel.solvers.sparse.minimise_sparse`; unpenalised outputs have no ridge. `kept` is a mask of
    the outputs, shape (outputs,), and `l2` the ridge, which makes the solution unique if features are nearly equal. The
    result for a non-convex loss depends on the initial coefficients `start`. `tol` is the minimum gain of a step, as a
    fraction of the objective, for another step to be taken. Raise a ValueError if an argument is invalid.
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
        initial = np.asarray(start, np.float64)
        if initial.shape != coef.shape or not np.isfinite(initial).all():
            raise ValueError(f"Expected a finite start of shape {coef.shape}, got shape {initial.shape}")
        coef[mask] = initial[mask]
    if mask.any():
        part, _ = problem.part(np.flatnonzero(mask))
        coef[mask] = ridge(part, np.ascontiguousarray(coef[mask].T), l2, tol).T
    return coef
