"""DSPDC on factorised data beside SPDC and SDCA with the same loops: time to a gap, as ratios.

The data of section 6.1 of Yu, Lin and Yang: X of standard normal numbers, labels of a logistic model of its first 50
columns, and A = UV with U = XGᵀ and V = G, where the d rows of G are normal with variance 1/d; the smooth hinge loss.
All take one row at a time as in the paper (m = 1) and never form A. Times are those of the whole call, looking at A,
trials and gaps included, to a certified gap of 1e-6, or of 1e-3 with the weaker penalty. Peers end when they have had
`--patience` times the time of DSPDC. The last two columns are DSPDC as it chooses m and q itself, and on the product.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import arguments, ratio, show
from benchmarks.rivals.factorised_sdca import sdca
from streamkernel.losses import SmoothHinge
from streamkernel.solvers.saddle_point import Factorised, Measurement, minimise
from streamkernel.solvers.saddle_problem import F64, Factors, SaddlePointProblem


class Case(NamedTuple):
    """One setting: sizes, penalties and the gap to reach."""

    n: int
    p: int
    q: int
    d: int
    l1: float
    l2: float
    tol: float


STRONG, WEAK = (1e-3, 1e-2, 1e-6), (1e-6, 1e-5, 1e-3)
SIZES = ((5000, 100, 50, 20), (10000, 100, 50, 50), (10000, 500, 50, 50))
CASES = [Case(*size, *penalty) for penalty in (STRONG, WEAK) for size in SIZES]
Run = Callable[[float], list[Measurement]]


def data(case: Case, seed: int) -> tuple[Factorised, F64]:
    """Return A and the labels."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((case.n, case.p))
    b = np.where(generator.random(case.n) < 1.0 / (1.0 + np.exp(-X[:, :50].sum(axis=1))), 1.0, -1.0)
    G = generator.standard_normal((case.d, case.p)) / np.sqrt(case.d)
    return Factorised(X @ G.T, G), b


def methods(A: Factorised, b: F64, case: Any, tol: float, seed: int) -> dict[str, Run]:
    """Return the compared methods as functions of a time limit in seconds."""
    p = A.V.shape[1]
    given: dict[str, Any] = {"l1": case.l1, "l2": case.l2, "tol": tol, "seed": seed, "max_epochs": 1e6}

    def ours(seconds: float, **how: Any) -> list[Measurement]:
        began = time.perf_counter()

        def tell(done: float, text: str) -> None:
            if time.perf_counter() - began > seconds:
                raise KeyboardInterrupt

        history = minimise(A, b, "smooth_hinge", tell=tell, **given, **how).history
        before = time.perf_counter() - began - history[-1].seconds  # looking at A
        return [at._replace(seconds=at.seconds + before) for at in history]

    def theirs(seconds: float) -> list[Measurement]:
        factors = Factors(A.U, np.ascontiguousarray(A.V.T))
        problem = SaddlePointProblem(factors, b, SmoothHinge().load(), np.full(p, case.l2), np.full(p, case.l1), 0.0)
        return sdca(problem, tol=tol, seconds=seconds, seed=seed)

    return {
        "DSPDC": lambda seconds: ours(seconds, m=1, q=case.q),
        "SPDC": lambda seconds: ours(seconds, m=1, q=p, method="factorised"),
        "SDCA": theirs,
        "own m, q": lambda seconds: ours(seconds, method="factorised"),
        "formed": lambda seconds: ours(seconds, method="formed"),
    }


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, runs=3, patience=12.0, cases="0,1,2,3,4,5")
    rows = []
    with threadpool_limits(1):
        for case in [CASES[int(i)] for i in options.cases.split(",")]:
            took: dict[str, list[float]] = {}
            late: set[str] = set()
            for seed in range(-1, options.runs):
                A, b = data(case if seed >= 0 else case._replace(n=500), seed + 1)
                limit = 600.0
                for name, run in methods(A, b, case, case.tol if seed >= 0 else 1.0, seed + 1).items():
                    last = run(limit)[-1]
                    if seed < 0:  # compiled now
                        continue
                    if name == "DSPDC":
                        limit = options.patience * last.seconds
                    took.setdefault(name, []).append(last.seconds)
                    late |= {name} if last.gap > case.tol else set()
            base = took.pop("DSPDC")
            cells = [f"{'> ' if name in late else ''}{ratio(seconds, base):.2f}" for name, seconds in took.items()]
            sizes = f"{case.n:,}, {case.p}, {case.q}, {case.d}"
            rows.append(
                [sizes, f"{case.l1:g}, {case.l2:g}", f"{case.tol:g}", f"{statistics.median(base):.2f} s", *cells]
            )
    show(
        f"Seconds of DSPDC with m = 1, and how many times as long the others took; medians of {options.runs} data sets",
        ["n, p, q, d", "l1, l2", "gap", "DSPDC", *took],
        rows,
    )


if __name__ == "__main__":
    main()
