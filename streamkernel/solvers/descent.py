"""The iteration of the saddle-point solvers: steps, periodic gaps, and trials of step sizes."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from streamkernel.jit import compiled
from streamkernel.losses.loss import SQUARE, derivative
from streamkernel.solvers.factors import F64, Factors, StepSizes, mean_conjugate, mean_loss, step_sizes
from streamkernel.solvers.primal_dual_steps import Blocks, CompiledProblem, Point, advance, as_compiled
from streamkernel.solvers.progress import Tell


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

    def _point(self, x: F64, y: F64) -> Point:
        U, V = self._problem.A
        v = x.copy() if V is None else np.asarray(V.T @ x)
        return Point(x.copy(), y.copy(), y.copy() if U is None else np.asarray(U.T @ y), v, v.copy())

    def _stretch(self, count: int, scale: float, weight: float, tol: float) -> float:
        """Take `count` steps, and return the logarithm of the factor by which the gap falls."""
        problem = self._problem
        sizes = self._sizes(scale, weight)
        U, V = as_compiled(problem.A.U), as_compiled(problem.A.V)
        compiled_problem = CompiledProblem(U, V, problem.code, problem.b, l1=problem.l1, l2=problem.l2)
        blocks = Blocks(self._rows, self._columns, self._keys)
        end = self.n_iterations + count
        while self.n_iterations < end:
            began, todo = time.perf_counter(), min(self._chunk, end - self.n_iterations)
            advance(compiled_problem, self._at, blocks, sizes, self.n_iterations, todo)
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
