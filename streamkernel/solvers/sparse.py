"""Sparse learning on a matrix of features: the part of AsyDSSKL within one round of candidates."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkernel.features.rows import F64, I64
from streamkernel.losses import Loss
from streamkernel.solvers import sparse_loops
from streamkernel.solvers.progress import Tell
from streamkernel.solvers.sparse_loops import BATCH, Batches, GroupSteps, Snapshot
from streamkernel.solvers.sparse_problem import (
    CoefficientGroups,
    SparsePoint,
    SparseProblem,
    check_problem,
    pool_of,
    ridge,
)

log = logging.getLogger(__name__)

_OUTPUTS = 128
"""Number of outputs that a batch updates."""

_FASTER, _SLOWER = 1.1, 0.6
"""Factors of the step length after an epoch in which the objective fell, and after one in which it did not."""

_FIRST = 128
"""Minimum number of zero groups that join the working set; more join if more groups are non-zero."""

_ENOUGH = 0.2
"""The working set is chosen again when its violation has fallen to this fraction."""

_SOME = 4096
"""Number of rows on which the length of the first steps is found."""

_TINY = 1e-30


class Check(NamedTuple):
    """The progress of a fit: epochs and seconds so far, objective, violation, and number of non-zero groups."""

    epochs: int
    seconds: float
    objective: float
    violation: float
    kept: int


class SparseSolution(NamedTuple):
    """A solution.

    `coef` has shape (outputs, columns). `violation` is the largest violation of the optimality conditions by a group,
    divided by `l1` √size. `history` has an entry for each check of all groups, the last of which is for `coef`;
    `interrupted` is true if Ctrl-C stopped the solver.
    """

    coef: F64
    objective: float
    violation: float
    converged: bool
    interrupted: bool
    history: list[Check]


def minimise_sparse(
    Z: npt.ArrayLike,
    y: npt.ArrayLike,
    loss: Loss,
    *,
    l1: float,
    columns: int = 1,
    group: int = 1,
    penalised: npt.ArrayLike | None = None,
    form: Literal["minibatch", "paper"] = "minibatch",
    threads: int = 1,
    gamma: float | None = None,
    max_epochs: int = 1000,
    tol: float = 1e-2,
    seed: int = 0,
    start: npt.ArrayLike | None = None,
    tell: Tell | None = None,
) -> SparseSolution:
    """Return the w that minimises (1/n) Σ ℓ(f_i, y_i) + l1 Σ_g √size_g ‖w_g‖ for f = Zw, or a stationary point.

    A group is `group` consecutive outputs in all columns, size_g = group × columns coefficients, which are dropped
    together. With one output and one column the penalty is l1 ‖w‖₁. The square and the correntropy loss have a factor ½
    here, unlike in the paper, whose λ is therefore 2 l1 for these.

    Parameters
    ----------
    Z
        Features, shape (rows, outputs); float32 in C order is used without a copy.
    y
        Targets, shape (rows,): numbers; or classes, 0 and 1 or -1 and 1 for one column, 0 to columns - 1 for several.
    loss
        ``Logistic`` (softmax for several columns), ``Softmax``, ``SmoothHinge``, ``Sigmoid``, ``Square`` or
        ``Correntropy``.
    l1
        The weight of the penalty, above 0; see :func:`largest_l1`.
    columns
        Columns of f.
    group
        Consecutive outputs of Z in one group, 2 for a feature that is a cosine and a sine.
    penalised
        A mask of the penalised outputs, shape (outputs,); by default all. An unpenalised output of ones is an
        intercept.
    form
        ``"paper"`` has the steps of the paper's Algorithm 2, with a row and a group per step and n steps per epoch, and
        returns the best epoch; `streamkernel.research.AsyDSSKL` returns the last, as printed. ``"minibatch"`` deviates:
        the 64 rows of a batch update 128 outputs one after the other, with the residuals corrected after each; the step
        becomes longer while the objective falls; and groups that will probably stay 0 are skipped until all are checked
        again.
    threads
        Number of threads, which share w without locks. One thread gives the same bits in every run.
    gamma
        The step is gamma/L. For ``"paper"`` it is constant, with L the largest over rows and coordinates; the default
        is 0.03. For ``"minibatch"`` it is the first step, with L of each group; the default is 0.3.
    max_epochs
        Maximum number of passes over the rows.
    tol
        The violation (see :class:`SparseSolution`) at which the solver stops.
    seed
        Seed of the draws.
    start
        The initial coefficients, shape (outputs, columns); 0 by default.
    tell
        Called after every epoch with the progress and the objective.

    Raises
    ------
    ValueError
        If an argument is invalid.

    References
    ----------
    Gu, Miao, Huo and Huang, "Asynchronous Doubly Stochastic Sparse Kernel Learning", AAAI 2018, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel.losses import Square
    >>> Z = np.random.default_rng(0).standard_normal((200, 5))
    >>> y = 2.0 * Z[:, 0] - 1.0 * Z[:, 3]
    >>> minimise_sparse(Z, y, Square(), l1=0.1).coef[:, 0].round(1)
    array([ 1.9,  0. ,  0. , -0.9, 0. ])
    """
    if form not in ("minibatch", "paper"):
        raise ValueError(f"Expected form 'minibatch' or 'paper', got {form!r}")
    if gamma is None:
        gamma = 0.03 if form == "paper" else 0.3
    for name, number in (("l1", l1), ("gamma", gamma), ("tol", tol)):
        if not 0.0 < number < math.inf:
            raise ValueError(f"Expected a finite {name} > 0, got {number!r}")
    for name, whole in (("threads", threads), ("max_epochs", max_epochs)):
        if not isinstance(whole, (int, np.integer)) or whole < 1:
            raise ValueError(f"Expected {name} as an integer of 1 or more, got {whole!r}")
    problem = check_problem(Z, y, loss, l1, columns, group, penalised)
    w = np.zeros((columns, problem.Z.shape[1]))
    if start is not None:
        w = np.ascontiguousarray(np.asarray(start, np.float64).T)
        if w.shape != (columns, problem.Z.shape[1]) or not np.isfinite(w).all():
            raise ValueError(f"Expected a finite start of shape {problem.Z.shape[1], columns}, got shape {w.T.shape}")
    began, epochs, history, interrupted = time.perf_counter(), 0, [], False
    with pool_of(threads) as pool:
        problem = problem._replace(threads=threads, pool=pool)
        descent = _Descent(problem, form, gamma, seed)

        def improve(point: SparsePoint, off: float) -> None:
            # not a loop within `try`, whose jump back may be outside of it from Python 3.13 on
            nonlocal epochs
            for near, outputs in descent.run(problem, point):
                w[:, outputs] = near.w
                epochs += 1
                if tell is not None:
                    tell(epochs / max_epochs, f"objective {near.objective:.6g}")
                if epochs >= max_epochs or near.violations.max() <= max(0.5 * tol, _ENOUGH * off):
                    break

        while True:
            point = problem.at(w)
            off = float(point.violations.max())
            kept = int(np.count_nonzero(problem.groups.norms(w)))
            history.append(Check(epochs, time.perf_counter() - began, point.objective, off, kept))
            if off <= tol or epochs >= max_epochs or interrupted:
                break
            try:
                improve(point, off)
            except KeyboardInterrupt:
                log.warning("minimise_sparse was interrupted; the best result so far is kept")
                interrupted = True
    return SparseSolution(w.T.copy(), point.objective, off, off <= tol, interrupted, history)


class _Descent:
    """SVRG over rows with proximal steps over groups, in one of the two forms."""

    def __init__(self, problem: SparseProblem, form: str, gamma: float, seed: int) -> None:
        self._rng, self._gamma, self._is_paper = np.random.default_rng(seed), gamma, form == "paper"
        if self._is_paper:
            bounds = sparse_loops.largest(problem.Z, problem.groups.bounds)
        else:
            some = problem.Z[:: -(-len(problem.Z) // _SOME)]
            bounds = sparse_loops.lipschitz(np.ascontiguousarray(some), problem.groups.bounds)
        self._lipschitz = np.maximum(bounds * problem.curvature, _TINY)

    def run(self, problem: SparseProblem, start: SparsePoint) -> Iterator[tuple[SparsePoint, I64]]:
        """Continue from `start`: yield the best point after each epoch, and its outputs."""
        chosen = np.arange(len(start.violations)) if self._is_paper else _working(problem.groups, start)
        part, outputs = problem.part(chosen)
        best = point = part.at(start.w[:, outputs])
        epoch = epoch_by_rows if self._is_paper else epoch_by_batches
        while math.isfinite(point.objective):
            w = point.w.copy()
            epoch(part, point, self._gamma / self._lipschitz[chosen], w, self._rng)
            point = part.at(w)
            if point.objective <= best.objective:
                best = point
                self._gamma *= 1.0 if self._is_paper else _FASTER
            elif not self._is_paper:
                point = best
                self._gamma *= _SLOWER
            yield best, outputs


def _working(groups: CoefficientGroups, point: SparsePoint) -> I64:
    """Return the groups of the next epoch: non-zero ones, unpenalised ones, and the worst of the others."""
    inside = (groups.norms(point.w) > 0.0) | (groups.weights == 0.0)
    waiting = np.where(inside, 0.0, point.violations)
    most = max(_FIRST, np.count_nonzero(inside))
    worst = np.argsort(-waiting, kind="stable")[:most]
    inside[worst[waiting[worst] > 0.0]] = True
    return np.flatnonzero(inside)


def epoch_by_batches(problem: SparseProblem, point: SparsePoint, steps: F64, w: F64, rng: np.random.Generator) -> None:
    """Let every batch of a random partition of the rows drive a random run of groups of `w`."""
    rows, bounds = rng.permutation(len(problem.y)), problem.groups.bounds
    batches = -(-len(rows) // BATCH)
    run = max(1, _OUTPUTS * len(steps) // bounds[-1])
    runs = rng.integers(0, -(-len(steps) // run), batches) * run

    examples, groups = problem.examples, GroupSteps(bounds, problem.groups.weights, steps)
    snapshot, drawn = Snapshot(point.gradient, point.slopes), Batches(rows, runs, run)

    def work(first: int, last: int) -> None:
        sparse_loops.batch_steps(examples, groups, snapshot, drawn, first, last, w)

    problem.split(batches, 2 * BATCH * w.size, work)


def epoch_by_rows(problem: SparseProblem, point: SparsePoint, steps: F64, w: F64, rng: np.random.Generator) -> None:
    """Take as many steps as there are rows, each for a random row along a random group of `w`."""
    n = len(problem.y)
    samples, drawn = rng.integers(0, n, (n, 1)), rng.integers(0, len(steps), n)
    examples, groups = problem.examples, GroupSteps(problem.groups.bounds, problem.groups.weights, steps)
    snapshot = Snapshot(point.gradient, point.slopes)

    def work(first: int, last: int) -> None:
        sparse_loops.paper_steps(examples, groups, snapshot, samples[first:last], drawn[first:last], w)

    problem.split(n, w.size, work)


def largest_l1(
    Z: npt.ArrayLike,
    y: npt.ArrayLike,
    loss: Loss,
    *,
    columns: int = 1,
    group: int = 1,
    penalised: npt.ArrayLike | None = None,
) -> float:
    """Return the smallest l1 at which :func:`minimise_sparse` leaves all groups 0: max_g ‖∂F/∂w_g‖/√size_g at 0.

    If the loss is convex, unpenalised outputs are fitted first. If it is not, 0 is only stationary there, and another w
    may be better.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel.losses import Square
    >>> Z, y = np.array([[1.0, 0.0], [1.0, 2.0]]), np.array([1.0, -2.0])
    >>> largest_l1(Z, y, Square())
    2.0
    """
    problem = check_problem(Z, y, loss, 1.0, columns, group, penalised)
    groups, w = problem.groups, np.zeros((columns, problem.Z.shape[1]))
    free = np.flatnonzero(groups.weights == 0.0)
    if len(free) and loss.is_curved:
        part, outputs = problem.part(free)
        w[:, outputs] = ridge(part, np.zeros((columns, len(outputs))), 0.0)
    return float((problem.groups.norms(problem.at(w).gradient) / groups.units)[groups.weights > 0.0].max(initial=0.0))
