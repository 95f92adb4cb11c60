"""Matrix risk minimisation: a loss of linear functions of several positive semi-definite matrices."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from streamkernel import losses
from streamkernel.jit import compiled
from streamkernel.solvers import matrix_blocks as psd
from streamkernel.solvers.matrix_blocks import F64, Ints, Iterate, MatrixProblem
from streamkernel.solvers.progress import Tell, progress
from streamkernel.solvers.saddle_problem import LOSSES, StepSizes, mean_conjugate, step_sizes

_DRAWS, _POWERS, _LONG, _SHORTEST = 4, 10, 1e9, -40.0
_TRIAL, _OFTEN, _SHARE = 1, 2, 3
"""Passes of a trial; passes between evaluations of the gap: the second number, or a third of those so far."""
_PATIENCE, _WORSE, _LEAST = 4, 3.0, 1e-300
"""Λ is doubled after more evaluations without a smaller gap, or if the gap exceeds the smallest by the factor."""
_BLOCKS_PER_STEP = 20
"""A step takes one in 20 of the blocks, by default."""


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
    best = minimize_scalar(
        lambda log_t: bend * math.exp(2.0 * log_t) - slope * math.exp(log_t) + conjugate(math.exp(log_t)),
        bounds=(_SHORTEST, 0.0),
        method="bounded",
    )
    y = math.exp(best.x) * u
    X = problem.minimizer(math.exp(best.x) * G)
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
    arguments = n, p, m, q, scale, float(problem.l2.min()), 1.0 / problem.loss.curvature
    plain = step_sizes(*arguments)
    return step_sizes(*arguments, weight=moved * math.sqrt((p / q / plain.tau) / (n / m / plain.sigma)))


class Mark(NamedTuple):
    """The progress of a solution: steps, eigendecompositions and seconds so far, and the best objective and gap."""

    steps: int
    decompositions: int
    seconds: float
    objective: float
    gap: float


class MatrixSolution(NamedTuple):
    """The solution of a matrix problem.

    Attributes
    ----------
    X
        The matrices, shape (p, d, d).
    y
        The dual numbers, shape (n,).
    objective
        P(X).
    gap
        P(X) - D(y): the objective is at most so far above the least one.
    converged
        Whether the gap is at most the one asked for.
    steps, decompositions
        Steps of the algorithm, and eigendecompositions of a matrix; trials count too, eigenvalues alone,
        which an evaluation of the gap takes, do not.
    history
        A mark for each evaluation of the gap.
    """

    X: F64
    y: F64
    objective: float
    gap: float
    converged: bool
    steps: int
    decompositions: int
    history: list[Mark]


class Search:
    """The lowest P and the highest D so far. They need not be of the same iterate: each bounds the optimum alone."""

    scales: tuple[float, ...] = (1 / 4, 1 / 12)
    """Parts of the largest squared norm of a block that are tried for Λ; the theorems' Λ is too careful."""

    def __init__(self, problem: MatrixProblem, m: int, q: int, *, tol: float, max_steps: int, seed: int) -> None:
        self._began = time.perf_counter()
        self._problem, self._m, self._q, self._tol, self._max_steps = problem, m, q, tol, max_steps
        self._generator = np.random.default_rng(seed)
        self._pass = math.ceil(max(problem.data.n / m, problem.data.p / q))
        self._X, self._y, self._moved = starting_point(problem)
        self._largest = largest_block(problem, m, q, self._generator)
        self._primal, self._dual, self._steps = math.inf, -math.inf, 0
        self._most = float(problem.data.n * problem.data.p)
        self._history: list[Mark] = []
        self._first = self._look(self._iterate())

    def run(self, tell: Tell) -> None:
        """Take steps until the gap is small enough or the steps are used up.

        Λ is a fraction of the largest squared norm of a few random blocks; short trials from the same start choose the
        fraction by their gaps. If the gap grows or stagnates later, Λ is doubled and the search continues from the best
        point.
        """
        trials, starts = [], [self._iterate() for _ in self.scales]
        for scale, at in zip(self.scales, starts, strict=True):
            trials.append((self._advance(at, _TRIAL, scale, tell), scale, at))
        gap, scale, at = min(trials, key=lambda trial: trial[0])
        passes, least, idle = _TRIAL, gap, 0
        while not self.over:
            last, gap = gap, self._advance(at, passes, scale, tell)
            idle = 0 if gap < least else idle + 1
            least = min(least, gap)
            if gap >= _WORSE * least or idle > _PATIENCE:
                scale, at = min(2.0 * scale, self._most), self._iterate()
                gap, passes, least, idle = math.inf, _TRIAL, math.inf, 0
            elif gap < last < math.inf and not self.over:
                needed = passes * math.log(gap / max(self._tol, _LEAST)) / math.log(last / gap)
                rarely = max(_OFTEN, self._steps // (_SHARE * self._pass))
                passes = min(max(math.ceil(0.5 * needed), 1), rarely)

    @property
    def gap(self) -> float:
        """The difference of P and D, which only rounding could make negative."""
        return max(self._primal - self._dual, 0.0)

    @property
    def over(self) -> bool:
        """Whether the search is finished."""
        return self.gap <= self._tol or self._steps >= self._max_steps

    def solution(self) -> MatrixSolution:
        """Return the best point, with a gap evaluated from X and y alone, because maintained sums may drift."""
        last, (primal, dual) = self._history[-1], self._iterate().bounds()
        gap = max(primal - dual, 0.0)
        return MatrixSolution(
            self._X, self._y, primal, gap, gap <= self._tol, last.steps, last.decompositions, self._history
        )

    def _iterate(self) -> Iterate:
        return Iterate(self._problem, self._X, self._y, self._m, self._q)

    def _sizes(self, scale: float) -> StepSizes:
        return steps_of(self._problem, self._m, self._q, scale, self._moved)

    def _advance(self, at: Iterate, passes: int, scale: float, tell: Tell) -> float:
        """Take steps and return the gap they lead to."""
        if self.over:
            return math.inf
        n, p, generator = self._problem.data.n, self._problem.data.p, self._generator
        sizes = self._sizes(scale * self._largest)
        for _ in range(min(passes * self._pass, self._max_steps - self._steps)):
            self._steps += 1
            if not at.step(draw_blocks(generator, n, self._m), draw_blocks(generator, p, self._q), sizes):
                return math.inf
        gap = self._look(at)
        far = math.log(self._first / max(self.gap, _LEAST)) / math.log(self._first / max(self._tol, _LEAST))
        tell(min(max(far, self._steps / self._max_steps), 1.0), f"gap {self.gap:.1e}")
        return gap

    def _look(self, at: Iterate) -> float:
        """Evaluate an iterate, keep the better bounds, and return the iterate's own gap."""
        primal, dual = at.bounds()
        if primal < self._primal:
            self._X, self._primal = at.X.copy(), primal
        if dual > self._dual:
            self._y, self._dual = at.y.copy(), dual
        decompositions = 2 * self._problem.data.p + self._steps * self._q
        seconds = time.perf_counter() - self._began
        self._history.append(Mark(self._steps, decompositions, seconds, self._primal, self.gap))
        return primal - dual


def solve(
    problem: MatrixProblem, m: int, q: int, *, tol: float, max_steps: int, seed: int, verbose: bool, what: str
) -> MatrixSolution:
    """Return matrices whose gap is at most `tol`, or the best after `max_steps` steps or an interruption."""
    search = Search(problem, m, q, tol=tol, max_steps=max_steps, seed=seed)
    with progress(what, show=verbose) as tell:
        search.run(tell)
    return search.solution()


class DenseBlocks:
    """Data of n · p symmetric matrices that are all different, kept as vectors of their lower triangles."""

    def __init__(self, D: F64) -> None:
        self.n, self.p, self.d = D.shape[:3]
        self._A = np.stack([psd.pack(np.ascontiguousarray(D[:, j])) for j in range(self.p)])

    def forward(self, X: F64, blocks: Ints, rows: Ints) -> F64:
        """Return Σ_j ⟨D_i^j, X_j⟩ over `blocks`, whose matrices are `X`, for each of `rows`."""
        return np.asarray(_forward(self._A, psd.pack(X), blocks, rows))

    def backward(self, y: F64, rows: Ints, blocks: Ints) -> F64:
        """Return Σ_i y_i D_i^j over `rows`, whose numbers are `y`, for each of `blocks`."""
        return np.asarray(psd.unpack(_backward(self._A, y, rows, blocks), self.d))


# Rows are in ascending order: as many as there are are all of them, one product of a matrix and a vector a block.


@compiled(nogil=True)
def _forward(A, v, blocks, rows):  # type: ignore[no-untyped-def]
    out = np.zeros(len(rows))
    for k in range(len(blocks)):
        if len(rows) == A.shape[1]:
            out += np.dot(A[blocks[k]], v[k])
            continue
        for r in range(len(rows)):
            out[r] += np.dot(A[blocks[k], rows[r]], v[k])
    return out


@compiled(nogil=True)
def _backward(A, y, rows, blocks):  # type: ignore[no-untyped-def]
    out = np.zeros((len(blocks), A.shape[2]))
    for k in range(len(blocks)):
        if len(rows) == A.shape[1]:
            out[k] = np.dot(y, A[blocks[k]])
            continue
        for r in range(len(rows)):
            row, weight = A[blocks[k], rows[r]], y[r]
            for a in range(len(row)):
                out[k, a] += weight * row[a]
    return out


def matrix_risk(
    D: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    loss: str | losses.Loss = "smooth_hinge",
    l2: float = 0.01,
    m: int | None = None,
    q: int | None = None,
    tol: float = 1e-6,
    max_steps: int = 100_000,
    seed: int = 0,
    verbose: bool = False,
) -> MatrixSolution:
    """Minimise (1/n) Σ_i φ_i(Σ_j ⟨D_i^j, X_j⟩) + (λ/2) Σ_j ‖X_j‖² over positive semi-definite matrices X_j.

    Doubly stochastic primal-dual coordinate steps: each changes m of the n dual numbers and q of the p matrices. Step
    sizes are chosen from the data, and it stops at a certified distance from the optimum.

    Parameters
    ----------
    D
        The data, shape (n, p, d, d); of each matrix the symmetric part counts.
    b
        The labels, shape (n,): -1 and 1, or any numbers for the square loss.
    loss
        φ: ``"smooth_hinge"``, ``"logistic"``, ``"square"``, or a loss of these.
    l2
        λ > 0.
    m
        Dual numbers per step, from 1 to n; all by default, because they cost little compared with matrices.
    q
        Matrices per step, from 1 to p; a twentieth by default. All of them is SPDC.
    tol
        The gap between the primal and the dual objective to stop at.
    max_steps
        The maximum number of steps.
    seed
        The seed of the random choices; the same seed gives the same matrices.
    verbose
        Whether to show a progress line. Ctrl-C ends the work and returns the best so far in any case.

    Returns
    -------
    MatrixSolution
        The matrices, the dual numbers, the objective, the gap, and how they were arrived at.

    Raises
    ------
    ValueError
        If an argument has another shape, is not finite or out of its range.

    References
    ----------
    Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point Problem", section 5.2.

    Examples
    --------
    >>> import numpy as np
    >>> D = np.random.default_rng(0).normal(size=(50, 4, 3, 3))
    >>> b = np.sign(np.trace(D, axis1=2, axis2=3).sum(axis=1))
    >>> found = matrix_risk(D, b, l2=0.1, tol=1e-9)
    >>> found.X.shape, found.converged, round(found.objective, 6)
    ((4, 3, 3), True, 0...)
    """
    data = np.asarray(D, np.float64)
    if data.ndim != 4 or data.shape[2] != data.shape[3] or 0 in data.shape:
        raise ValueError(f"Expected D of shape (n, p, d, d), got {data.shape}")
    if not np.isfinite(data).all():
        raise ValueError("Expected finite numbers in D, got NaN or infinity")
    n, p = data.shape[:2]
    phi = dual_loss(loss)
    labels = np.asarray(b, np.float64)
    if labels.shape != (n,):
        raise ValueError(f"Expected b of shape ({n},), one label for each of the examples of D, got {labels.shape}")
    if not np.isfinite(labels).all():
        raise ValueError("Expected finite numbers in b, got NaN or infinity")
    if phi.for_classes and not np.isin(labels, (-1.0, 1.0)).all():
        raise ValueError(f"Expected labels b of -1 and 1 for {phi!r}, got {np.unique(labels)[:5]}")
    positive("l2", l2)
    m, q = within("m", n if m is None else m, n), within("q", math.ceil(p / _BLOCKS_PER_STEP) if q is None else q, p)
    problem = MatrixProblem(DenseBlocks(data), phi, labels, np.full(p, float(l2)), np.zeros((p, *data.shape[2:])))
    return solve(
        problem,
        m,
        q,
        tol=positive("tol", tol),
        max_steps=within("max_steps", max_steps, None),
        seed=seed,
        verbose=verbose,
        what="Matrix risk minimisation",
    )


def dual_loss(loss: str | losses.Loss) -> losses.Loss:
    """Return a loss, given by name or itself, that has a dual here."""
    dual = LOSSES.get(loss) if isinstance(loss, str) else loss
    if dual is None or dual not in LOSSES.values():
        raise ValueError(f"Expected a loss of {', '.join(LOSSES)}, got {loss!r}")
    dual.load()
    return dual


def positive(name: str, value: float) -> float:
    """Return the value if it is finite and above 0."""
    if not (isinstance(value, (int, float, np.number)) and 0 < value < math.inf):
        raise ValueError(f"Expected {name} > 0 and finite, got {value!r}")
    return float(value)


def within(name: str, value: int, most: int | None) -> int:
    """Return the value if it is a whole number from 1 to `most`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 1 or (most is not None and value > most):
        raise ValueError(f"Expected {name} of 1 {f'to {most}' if most else 'or more'}, got {value!r}")
    return int(value)
