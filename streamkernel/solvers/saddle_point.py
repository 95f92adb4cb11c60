"""Minimisation of regularised losses to a certified gap by DSPDC, for dense, sparse and factorised matrices."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from scipy import sparse

from streamkernel.errors import InputError
from streamkernel.features.counter_rng import domain_key
from streamkernel.solvers.descent import Descent, Measurement, SaddlePointProblem
from streamkernel.solvers.factors import F64, LOSSES, Factors, Order
from streamkernel.solvers.primal_dual_steps import FORMED_BYTES, BlockPlan, block_norm, choose, norms
from streamkernel.solvers.progress import Tell

log = logging.getLogger(__name__)

Method = Literal["auto", "formed", "factorised"]


class Factorised(NamedTuple):
    """The matrix A = UV, given as its factors: U of shape (n, d) and V of shape (d, p), dense or sparse."""

    U: Any
    V: Any


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
    factors = _factors(A)
    (n, p, _), extra = factors.shape, int(intercept)
    dual = LOSSES[_one_of("loss", loss, LOSSES)]
    dual.load()
    code, gamma = dual.code, 1.0 / dual.curvature
    targets = _targets(b, n, loss, intercept=intercept)
    _check(n, p, l2=l2, l1=l1, tol=tol, m=m, q=q, max_epochs=max_epochs)
    x, y = _start(start, n, p, targets, loss)

    factors, mean = factors.centre() if intercept else (factors, np.zeros(p))
    seen, condition = norms(factors), 1.0 / (n * l2 * gamma)
    may_form, may_factor = _ways(factors, _one_of("method", method, get_args(Method)), has_sizes=bool(m or q))
    way = choose(factors, seen, condition, m=m, q=q, may_form=may_form, may_factor=may_factor)
    words = _in_words(way, factors)
    log.info("%s", words)
    if way.formed:
        factors = factors.form(by_rows=way.rows >= way.columns)
    constant = 0.0
    if intercept:  # the column's value is small enough not to shorten the steps
        constant = 0.5 * (seen.block(way.rows, way.columns) * way.rows / n) ** 0.5 or 1.0
        factors = factors.with_constant(constant)
    rows, columns = _order([seed, 0], n, way.rows), _order([seed, 1], p + extra, way.columns)
    factors = factors.reorder(rows, columns)

    penalised = np.append(np.ones(p), np.zeros(extra))[columns]
    problem = SaddlePointProblem(factors, targets[rows], code, l2 * penalised, l1 * penalised, constant)
    x = np.append(x, np.zeros(extra))[columns]
    y = problem.best_dual(factors.scores(problem.primal(x)[1])) if y is None else y[rows]
    search = Descent(
        problem,
        way.rows,
        way.columns,
        block_norm(factors, way.rows, way.columns) or 1.0,
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


def _factors(A: Any) -> Factors:
    """Return A as float64, stored by rows."""
    if not isinstance(A, Factorised):
        return Factors(_matrix(A, "A"), None)
    U, V = _matrix(A.U, "U"), _matrix(A.V, "V")
    if U.shape[1] != V.shape[0]:
        raise InputError(f"Expected A = UV with as many columns of U as rows of V, got shapes {U.shape} and {V.shape}")
    return Factors(U, V.T.tocsr() if sparse.issparse(V) else np.ascontiguousarray(V.T))


def _matrix(A: Any, name: str) -> Any:
    if sparse.issparse(A):
        A = sparse.csr_array(A, dtype=np.float64)
    else:
        try:
            A = np.ascontiguousarray(A, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"Expected numbers in {name}, got {type(A).__name__}: {error}") from None
    if A.ndim != 2 or 0 in A.shape:
        raise InputError(f"Expected {name} of shape (rows, columns), none of them 0, got {A.shape}")
    if not np.isfinite(A.data if sparse.issparse(A) else A).all():
        raise InputError(f"Expected finite numbers in {name}, got NaN or infinity")
    return A


def _targets(b: npt.ArrayLike, n: int, loss: str, *, intercept: bool) -> F64:
    targets = _vector(b, n, "b")
    if loss != "square" and not np.isin(targets, (-1.0, 1.0)).all():
        raise InputError(f"Expected labels -1 and 1 in b for the {loss} loss, got {np.unique(targets)[:5]}")
    if loss != "square" and intercept and np.ptp(targets) == 0.0:
        raise InputError(f"Expected both labels in b where there is an intercept, got {targets[0]:g} alone")
    return targets


def _vector(values: npt.ArrayLike, length: int, name: str) -> F64:
    vector = np.array(values, np.float64)
    if vector.shape != (length,):
        raise InputError(f"Expected {name} of shape ({length},), got {vector.shape}")
    if not np.isfinite(vector).all():
        raise InputError(f"Expected finite numbers in {name}, got NaN or infinity")
    return vector


def _start(start: Any, n: int, p: int, targets: F64, loss: str) -> tuple[F64, F64 | None]:
    """Return the initial x and y; y is None if it is computed from x."""
    if start is None:
        return np.zeros(p), np.zeros(n)
    if not isinstance(start, tuple):
        return _vector(start, p, "start"), None
    x, y = _vector(start[0], p, "start[0]"), _vector(start[1], n, "start[1]")
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


def _ways(factors: Factors, method: str, *, has_sizes: bool) -> tuple[bool, bool]:
    """Return whether A may be formed, and whether it may stay factorised."""
    n, p, _ = factors.shape
    if factors.V is None:
        return True, False
    if method != "auto":
        return method == "formed", method == "factorised"
    return 8 * n * p <= FORMED_BYTES and not has_sizes, True


def _in_words(way: BlockPlan, factors: Factors) -> str:
    n, p, d = factors.shape
    form = "A"
    if factors.V is not None:
        form = "A = UV, formed" if way.formed else f"A = UV with d = {d:,}, not formed"
    name = "SPDC" if way.columns == 1 else "DSPDC"
    height, width = math.ceil(n / way.rows), math.ceil(p / way.columns)
    return f"{name} on {form}: steps on {height:,} of {n:,} rows and {width:,} of {p:,} columns"


def _order(seed: list[int], length: int, blocks: int) -> Order:
    """Return an order of coordinates whose blocks form a random partition; any order for one or single blocks."""
    if blocks in (1, length):
        return slice(None)
    return np.random.default_rng(seed).permutation(length)
