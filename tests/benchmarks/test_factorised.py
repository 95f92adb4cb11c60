"""The rivals of DSPDC find the same optimum, and the gaps that they report are correct."""

from __future__ import annotations

import numpy as np
import pytest
from waiting import LIMIT

from benchmarks.factorised import CASES, data, methods
from benchmarks.rivals.factorised_sdca import sdca
from streamkernel.solvers.saddle_point import Factorised, minimise
from streamkernel.solvers.saddle_problem import LOSSES, Factors, SaddlePointProblem


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("factorised", [False, True])
def test_sdca_finds_the_optimum(loss: str, factorised: bool) -> None:
    generator = np.random.default_rng(0)
    U, V = generator.normal(size=(80, 4)), generator.normal(size=(4, 12)) / 2.0
    b = np.sign(generator.normal(size=80))
    factors = Factors(U, np.ascontiguousarray(V.T)) if factorised else Factors(U @ V, None)
    problem = SaddlePointProblem(factors, b, LOSSES[loss].load(), np.full(12, 0.1), np.full(12, 0.01), 0.0)
    last = sdca(problem, tol=1e-9, seconds=LIMIT)[-1]
    ours = minimise(Factorised(U, V), b, loss, l2=0.1, l1=0.01, tol=1e-9)
    assert 0.0 <= last.gap <= 1e-9
    assert last.objective == pytest.approx(ours.objective, abs=2e-9)


def test_all_methods_reach_the_gap() -> None:
    case = CASES[0]._replace(n=300)
    for name, run in methods(*data(case, 0), case, 1e-3, 0).items():
        history = run(LIMIT)
        assert history[-1].gap <= 1e-3, name
        assert [at.seconds for at in history] == sorted(at.seconds for at in history)
