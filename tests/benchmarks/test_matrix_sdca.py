"""The rival of the matrix problems finds the same optimum, and its steps rise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.dspdc_figure3 import problem
from benchmarks.dspdc_race import METHODS, Sampling, solved
from benchmarks.rivals.matrix_sdca import DualAscent
from streamkernel.solvers.saddle_problem import StepSizes


def test_all_methods_arrive_at_one_optimum() -> None:
    given = problem(8, 4, seed=0)
    found = {name: solved(given, Sampling(2, 3), name, 1e-10, 4000, seed=1) for name in METHODS}
    assert all(run.converged for run in found.values())
    assert found["DSPDC"].decompositions != found["SPDC"].decompositions
    for run in found.values():
        assert run.objective == pytest.approx(found["DSPDC"].objective, abs=1e-10)


def test_a_step_of_safe_length_never_lowers_the_dual_objective() -> None:
    given = problem(8, 4, seed=0)
    rng, at = np.random.default_rng(0), DualAscent(given, np.zeros(8))
    A = np.array([given.data.backward(np.ones(1), given.rows[i : i + 1], given.blocks).ravel() for i in range(8)])
    sigma = 0.01 * 8**2 / np.linalg.norm(A, 2) ** 2
    last = at.bounds().dual
    for _ in range(40):
        at.step(np.sort(rng.choice(8, 3, replace=False)), given.blocks, StepSizes(0.0, math.inf, sigma))
        now = at.bounds().dual
        assert now >= last - 1e-15
        last = now
    assert last > 0.0
