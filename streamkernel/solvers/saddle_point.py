"""Minimisation of regularised losses to a certified gap by DSPDC, for dense, sparse and factorised matrices."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from streamkernel.errors import InputError
from streamkernel.features.counter_rng import domain_key
from streamkernel.solvers import primal_dual_steps as steps
from streamkernel.solvers.progress import Tell
from streamkernel.solvers.saddle_problem import (
    F64,
    LOSSES,
    SaddlePointProblem,
    StepSizes,
    as_factors,
    as_targets,
    as_vector,
    step_sizes,
)

log = logging.getLogger(__name__)

Method = Literal["auto", "formed", "factorised"]


class Factorised(NamedTuple):
    """The matrix A = UV, given as its factors: U of shape (n, d) and V of shape (d, p), dense or sparse."""

    U: Any
    V: Any


_FIRST_WEIGHTS = 1.0, 0.1
_TRIAL_EVERY = 4
_STRETCH = 0.05  # steps between two measurements, in units of the theory's K
_PATIENCE = 0.5  # steps without progress before steps become shorter, in units of K
_HEAVIEST = 100.0  # primal weight
_LONGEST = 64.0  # scale of Λ: if even such short steps make no progress, float64 has no better solution
_SECONDS = 0.2  # duration of a compiled call


class Measurement(NamedTuple):
    """The best objective after a number of steps, and its distance from the largest lower bound."""

    n_iterations: int
    seconds: float
    objective: float
    gap: float


class Descent:
    """DSPDC on one problem, with the best x and the best y so far: P(x) - D(y) bounds the error of x.

    Theorem 2 gives steps for Λ that are conservative. So the steps are those for Λ times a scale, initially ¼, or 1/16
    if both x and y are sampled, which the theory does not exploit. The first stretch is run with the theory's primal
    weight 1 and again with 0.1; the one with the smaller gap is kept. Then every fourth stretch is a trial: of a weight
    that balances the distances of x and y from the start, of a smaller scale, or of a weight nearer to 1. It is kept if
    the gap falls faster than before, and otherwise undone. When the gap no longer falls, Λ is doubled, starting from
    the best point.
    """

    def __init__(
        self,
        problem: SaddlePointProblem,
        rows: int,
        columns: int,
        norm: float,
        *,
        gamma: float,
        keys: Any,
        start: tuple[F64, F64],
        tell: Tell,
    ) -> None:
        self._problem, self._rows, self._columns, self._norm = problem, rows, columns, norm
        self._gamma, self._keys, self._tell = gamma, keys, tell
        self._convexity = float(problem.l2.max())
        self._scale, self._weight = 1 / 16 if min(rows, columns) > 1 else 1 / 4, 1.0
        self._chunk, self._began, self.n_iterations = 64, time.perf_counter(), 0
        self.epoch = max(rows, columns)
        condition = norm / (len(problem.b) * self._convexity * gamma)
        self.theory = self.epoch + rows * columns * math.sqrt(condition)
        self.best_x, self.best_y = self._start = start
        self.objective, self.bound = math.inf, -math.inf
        self.history: list[Measurement] = []
        self._at = self._point(*start)
        self._first = self._last = self._measure()

    @property
    def gap(self) -> float:
        """The certified gap of the best x and y so far."""
        return max(self.objective - self.bound, 0.0)

    def run(self, tol: float, most: int) -> None:
        """Continue until the gap is at most `tol`, or `most` steps are taken."""
        count = max(2 * self.epoch, math.ceil(_STRETCH * self.theory))
        trials = itertools.cycle((self._balance, self._lengthen, self._keep_scale))
        trial, rate = next(trials), 0.0
        self._first_steps(max(2 * self.epoch, math.ceil(2 * _STRETCH * self.theory)), tol, most)
        progress_at, progress = self.n_iterations, self.gap
        for stretch in itertools.count(1):
            if self.gap <= tol or self.n_iterations >= most or self._scale > _LONGEST:
                return
            todo = min(count, most - self.n_iterations)
            if stretch % _TRIAL_EVERY == _TRIAL_EVERY - 1 and rate > 0.0:
                before, last = self._at.copy(), self._last
                tried = trial()
                gain = self._stretch(todo, *tried, tol)
                if gain > 1.1 * rate:
                    (self._scale, self._weight), rate = tried, gain
                else:
                    self._at, self._last = before, last
                    trial = next(trials)
            else:
                rate = self._stretch(todo, self._scale, self._weight, tol)
            if self.gap < 0.9 * progress:
                progress_at, progress = self.n_iterations, self.gap
            elif self.n_iterations - progress_at > _PATIENCE * self.theory + 2 * count or self._last > 1e3 * progress:
                self._scale *= 2.0
                self._at = self._point(self.best_x, self.best_y)
                self._last, rate, progress_at = self._measure(), 0.0, self.n_iterations

    def _first_steps(self, count: int, tol: float, most: int) -> None:
        """Choose the initial primal weight."""
        before, last, ends = self._at.copy(), self._last, []
        for weight in _FIRST_WEIGHTS:
            if self.gap > tol and self.n_iterations < most:
                self._at, self._last = before.copy(), last
                self._stretch(min(count, most - self.n_iterations), self._scale, weight, tol)
                ends.append((self._last, weight, self._at))
        if ends:
            self._last, self._weight, self._at = min(ends, key=lambda end: end[0])

    def _balance(self) -> tuple[float, float]:
        """Return a scale and a weight: half way, in logarithms, to a weight that balances x and y.

        It equates ‖x‖²/τ and ‖y‖²/σ, each over its probability.
        """
        x, y = (float(np.linalg.norm(part - began)) for part, began in zip(self._at[:2], self._start, strict=True))
        if not 0.0 < x * y < math.inf:
            return self._lengthen()
        sizes = self._sizes(1.0, 1.0)
        level = x / y * math.sqrt(self._columns / self._rows * sizes.sigma / sizes.tau)
        return self._scale, math.sqrt(self._weight * max(1.0 / _HEAVIEST, min(level, _HEAVIEST)))

    def _lengthen(self) -> tuple[float, float]:
        return 0.5 * self._scale, self._weight

    def _keep_scale(self) -> tuple[float, float]:
        return self._scale, math.sqrt(self._weight)

    def _sizes(self, scale: float, weight: float) -> StepSizes:
        n, p = len(self._problem.b), len(self._problem.l2)
        m, q, norm = n / self._rows, p / self._columns, scale * self._norm
        return step_sizes(n, p, m, q, norm, self._convexity, self._gamma, weight=weight)

    def _point(self, x: F64, y: F64) -> steps.Point:
        U, V = self._problem.A
        v = x.copy() if V is None else np.asarray(V.T @ x)
        return steps.Point(x.copy(), y.copy(), y.copy() if U is None else np.asarray(U.T @ y), v, v.copy())

    def _stretch(self, count: int, scale: float, weight: float, tol: float) -> float:
        """Take `count` steps, and return the logarithm of the factor by which the gap falls."""
        problem = self._problem
        sizes = self._sizes(scale, weight)
        U, V = steps.as_compiled(problem.A.U), steps.as_compiled(problem.A.V)
        compiled_problem = steps.CompiledProblem(U, V, problem.code, problem.b, l1=problem.l1, l2=problem.l2)
        blocks = steps.Blocks(self._rows, self._columns, self._keys)
        end = self.n_iterations + count
        while self.n_iterations < end:
            began, todo = time.perf_counter(), min(self._chunk, end - self.n_iterations)
            steps.advance(compiled_problem, self._at, blocks, sizes, self.n_iterations, todo)
            self.n_iterations += todo
            if time.perf_counter() - began < 0.5 * _SECONDS:
                self._chunk *= 2
            self._tell(self._progress(tol), f"gap {self.gap:.1e}")
        before, self._last = self._last, self._measure()
        return math.log(before / self._last) if 0.0 < self._last < math.inf else -math.inf

    def _progress(self, tol: float) -> float:
        if not 0.0 < tol < self.gap < self._first:
            return 0.0 if self.gap > tol else 1.0
        return math.log(self._first / self.gap) / math.log(self._first / tol)

    def _measure(self) -> float:
        """Return the gap of the current point, and keep its x and y if they are the best."""
        with np.errstate(all="ignore"):  # steps that are too long diverge to infinity
            objective, x = self._problem.primal(self._at.x)
            bound, y = self._problem.dual(self._at.y)
        if objective < self.objective:
            self.objective, self.best_x = objective, x.copy()
        if bound > self.bound:
            self.bound, self.best_y = bound, y.copy()
        seconds = time.perf_counter() - self._began
        self.history.append(Measurement(self.n_iterations, seconds, self.objective, self.gap))
        gap = objective - bound
        return gap if math.isfinite(gap) else math.inf


class Solution(NamedTuple):
    """A solution and its certificate.

    Attributes
    ----------
    coef, intercept
        x, shape (p,), and c, which is 0 without `intercept`.
    dual
        y, shape (n,); its dual objective is objective - gap.
    objective
        P(x).
    gap
        P(x) - D(y), which bounds the distance of P(x) from the minimum.
    n_iterations
        Number of steps, each on one block of x and one of y, including steps of trials.
    method
        A description of the method in use.
    interrupted
        Whether Ctrl-C stopped the solver.
    history
        Iterations, seconds, objective and gap at each measurement.
    """

    coef: F64
    intercept: float
    dual: F64
    objective: float
    gap: float
    n_iterations: int
    method: str
    interrupted: bool
    history: list[Measurement]


def minimise(
    A: Any,
    b: npt.ArrayLike,
    loss: str,
    *,
    l2: float,
    l1: float = 0.0,
    tol: float = 1e-6,
    intercept: bool = False,
    method: Method = "auto",
    m: int | None = None,
    q: int | None = None,
    max_epochs: float = 1000.0,
    seed: int = 0,
    start: F64 | tuple[F64, F64] | None = None,
    tell: Tell | None = None,
) -> Solution:
    """Minimise (1/n) Σᵢ φᵢ(aᵢᵀx + c) + (l2/2)‖x‖² + l1‖x‖₁ over x, and over c with an intercept.

    Parameters
    ----------
    A
        Shape (n, p): an array, a SciPy sparse matrix, or a :class:`Factorised` one.
    b
        Shape (n,): numbers for the square loss, -1 and 1 for the others.
    loss
        ``"square"``, ½(z - b)²; ``"logistic"``, log(1 + exp(-bz)); or ``"smooth_hinge"``.
    l2, l1
        The weights of the penalties; l2 is positive.
    tol
        The gap at which the solver stops.
    intercept
        Whether to add an unpenalised intercept c.
    method
        For a factorised A: ``"formed"`` multiplies the factors, ``"factorised"`` never does, and ``"auto"`` takes the
        cheaper way.
    m, q
        Number of coordinates of y and of x in a step. By default, theory and costs determine them, with all of x or all
        of y if A is formed. If one of them is given, the default of the other is all.
    max_epochs
        Maximum number of epochs, each of max(n/m, p/q) steps.
    seed
        Seed of the draws of blocks; the same seed gives the same solution.
    start
        The initial x, or a pair of x and y.
    tell
        Called several times per second with the completed share and the gap as text.

    Raises
    ------
    InputError
        If an argument is not as described.

    References
    ----------
    Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point Problem", Algorithms 1
    and 2, Theorem 2.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.random.default_rng(0).normal(size=(200, 5))
    >>> found = minimise(A, A[:, 0] - A[:, 1], "square", l2=1e-3, l1=0.1, tol=1e-9)
    >>> found.coef.round(2) + 0.0, found.gap <= 1e-9
    (array([ 0.87, -0.88,  0.  ,  0.  ,  0.  ]), True)
    """
    factors = as_factors(*A) if isinstance(A, Factorised) else as_factors(A)
    (n, p, _), extra = factors.shape, int(intercept)
    dual = LOSSES[_one_of("loss", loss, LOSSES)]
    dual.load()
    code, gamma = dual.code, 1.0 / dual.curvature
    targets = as_targets(b, n, loss, intercept=intercept)
    _check(n, p, l2=l2, l1=l1, tol=tol, m=m, q=q, max_epochs=max_epochs)
    x, y = _start(start, n, p, targets, loss)

    factors, mean = factors.centre() if intercept else (factors, np.zeros(p))
    seen, condition = steps.norms(factors), 1.0 / (n * l2 * gamma)
    may_form, may_factor = steps.ways(factors, _one_of("method", method, get_args(Method)), has_sizes=bool(m or q))
    way = steps.choose(factors, seen, condition, m=m, q=q, may_form=may_form, may_factor=may_factor)
    words = steps.in_words(way, factors)
    log.info("%s", words)
    if way.formed:
        factors = factors.form(by_rows=way.rows >= way.columns)
    constant = 0.0
    if intercept:  # the column's value is small enough not to shorten the steps
        constant = 0.5 * (seen.block(way.rows, way.columns) * way.rows / n) ** 0.5 or 1.0
        factors = factors.with_constant(constant)
    rows = steps.random_order([seed, 0], n, way.rows)
    columns = steps.random_order([seed, 1], p + extra, way.columns)
    factors = factors.reorder(rows, columns)

    penalised = np.append(np.ones(p), np.zeros(extra))[columns]
    problem = SaddlePointProblem(factors, targets[rows], code, l2 * penalised, l1 * penalised, constant)
    x = np.append(x, np.zeros(extra))[columns]
    y = problem.best_dual(factors.scores(problem.primal(x)[1])) if y is None else y[rows]
    search = Descent(
        problem,
        way.rows,
        way.columns,
        steps.block_norm(factors, way.rows, way.columns) or 1.0,
        gamma=gamma,
        keys=np.array([domain_key(seed, "dspdc rows"), domain_key(seed, "dspdc columns")]),
        start=(x, y),
        tell=tell or (lambda done, text: None),
    )
    interrupted = False
    try:
        search.run(tol, math.ceil(max_epochs * search.epoch))
    except KeyboardInterrupt:
        interrupted = True
        log.warning("DSPDC was interrupted at a gap of %.1e; the best result so far is kept", search.gap)
    x, y = np.empty(p + extra), np.empty(n)
    x[columns], y[rows] = search.best_x, search.best_y
    return Solution(
        coef=x[:p],
        intercept=float(constant * x[-1] - mean @ x[:p]) if intercept else 0.0,
        dual=y,
        objective=search.objective,
        gap=search.gap,
        n_iterations=search.n_iterations,
        method=words,
        interrupted=interrupted,
        history=search.history,
    )


def _start(start: Any, n: int, p: int, targets: F64, loss: str) -> tuple[F64, F64 | None]:
    """Return the initial x and y; y is None if it is computed from x."""
    if start is None:
        return np.zeros(p), np.zeros(n)
    if not isinstance(start, tuple):
        return as_vector(start, p, "start"), None
    x, y = as_vector(start[0], p, "start[0]"), as_vector(start[1], n, "start[1]")
    return x, y if loss == "square" else targets * np.clip(targets * y, -1.0, 0.0)


def _check(n: int, p: int, m: int | None, q: int | None, **numbers: float) -> None:
    for name, value in numbers.items():
        least = "positive" if name in ("l2", "max_epochs") else "non-negative"
        if not (math.isfinite(value) and (value > 0.0 or (value == 0.0 and least == "non-negative"))):
            raise InputError(f"Expected a {least} {name}, got {value!r}")
    for name, size, most in (("m", m, n), ("q", q, p)):
        if size is not None and not (isinstance(size, (int, np.integer)) and 1 <= size <= most):
            raise InputError(f"Expected {name} from 1 to {most}, got {size!r}")


def _one_of(name: str, value: str, names: Iterable[str]) -> str:
    if value not in names:
        raise InputError(f"Expected {name} to be one of {', '.join(names)}, got {value!r}")
    return value
