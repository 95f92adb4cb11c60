"""Answers of DSPDC: their gaps are true bounds, and other solvers find the same optimum."""

from __future__ import annotations

import functools
import logging

import cvxpy
import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from reference import dspdc as plain
from scipy import sparse
from sklearn.linear_model import ElasticNet, LogisticRegression

from streamkernel.errors import InputError
from streamkernel.solvers import primal_dual_steps
from streamkernel.solvers.primal_dual_steps import block_norm
from streamkernel.solvers.saddle_point import Factorised, minimise
from streamkernel.solvers.saddle_problem import LOSSES, Factors, step_sizes

N, P, L2 = 300, 60, 0.01
BLOCKS = [(1, 1), (1, 60), (300, 1), (30, 6), (7, 11), (1, 10), (300, 60)]


@functools.cache
def data(loss: str, n: int = N, p: int = P) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    A = generator.normal(size=(n, p))
    f = A[:, 0] - A[:, 1] + 0.5 * A[:, 2] + 0.7 * generator.normal(size=n) + 0.4
    return A, f if loss == "square" else np.where(f > 0.0, 1.0, -1.0)


@functools.cache
def optimum(loss: str, l1: float, intercept: bool = False) -> float:
    """The least objective, by a conic solver."""
    A, b = data(loss)
    x, c = cvxpy.Variable(P), cvxpy.Variable()
    z = A @ x + (c if intercept else 0.0)
    phi = {
        "square": lambda: cvxpy.sum_squares(z - b) / 2,
        "logistic": lambda: cvxpy.sum(cvxpy.logistic(-cvxpy.multiply(b, z))),
        "smooth_hinge": lambda: cvxpy.sum(cvxpy.huber(cvxpy.pos(1 - cvxpy.multiply(b, z)), 1)) / 2,
    }[loss]()
    problem = cvxpy.Problem(cvxpy.Minimize(phi / N + L2 / 2 * cvxpy.sum_squares(x) + l1 * cvxpy.norm1(x)))
    problem.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(problem.value)


def certified(found, A, b, loss, l1, l2=L2) -> None:
    """Check a solution's numbers by their formulas."""
    objective = plain.primal(A, b, loss, l1, l2, found.coef, found.intercept)
    assert found.objective == pytest.approx(objective, abs=1e-12)
    assert found.gap == pytest.approx(objective - plain.dual(A, b, loss, l1, l2, found.dual), abs=1e-12)


@pytest.mark.parametrize("l1", [0.0, 0.02])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("m", "q"), BLOCKS)
def test_the_gap_falls_as_theory_says_to_the_optimum(loss: str, l1: float, m: int, q: int) -> None:
    A, b = data(loss)
    found = minimise(A, b, loss, l2=L2, l1=l1, m=m, q=q, tol=1e-9, max_epochs=1e5)
    rows, columns = -(-N // m), -(-P // q)
    norm = block_norm(Factors(A, None), rows, columns)
    theta = step_sizes(N, P, N / rows, P / columns, norm, L2, 1.0 / LOSSES[loss].curvature).theta
    K = 0.5 / (1.0 - theta / columns)
    assert found.gap <= 1e-9
    assert found.n_iterations <= 15.0 * K
    certified(found, A, b, loss, l1)
    assert abs(found.objective - optimum(loss, l1)) <= 1e-7


def test_solutions_match_scikit_learn() -> None:
    for l1 in (0.0, 0.02):
        A, b = data("square")
        net = ElasticNet(alpha=l1 + L2, l1_ratio=l1 / (l1 + L2), tol=1e-12, max_iter=10**6).fit(A, b)
        found = minimise(A, b, "square", l2=L2, l1=l1, intercept=True, tol=1e-13)
        np.testing.assert_allclose(found.coef, net.coef_, atol=1e-5)
        assert found.intercept == pytest.approx(net.intercept_, abs=1e-5)
        assert plain.primal(A, b, "square", l1, L2, net.coef_, net.intercept_) - found.objective >= -1e-12
    A, b = data("logistic")
    for intercept in (False, True):
        model = LogisticRegression(C=1.0 / (N * L2), tol=1e-10, max_iter=10**5, fit_intercept=intercept).fit(A, b)
        found = minimise(A, b, "logistic", l2=L2, intercept=intercept, tol=1e-13)
        np.testing.assert_allclose(found.coef, model.coef_[0], atol=1e-5)
        assert found.intercept == pytest.approx(float(model.intercept_[0]), abs=1e-5)


@pytest.mark.parametrize("l1", [0.0, 0.02])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("m", "q"), [(None, None), (300, 6), (7, 11)])
def test_an_intercept_has_no_penalty(loss: str, l1: float, m: int | None, q: int | None) -> None:
    A, b = data(loss)
    for X in (A, sparse.csr_array(A), Factorised(A, np.eye(P))):
        found = minimise(X, b, loss, l2=L2, l1=l1, m=m, q=q, intercept=True, tol=1e-9)
        assert found.gap <= 1e-9
        certified(found, A, b, loss, l1)
        assert abs(found.objective - optimum(loss, l1, intercept=True)) <= 1e-7
        assert abs(found.dual.sum()) <= 1e-9
    far = minimise(A + 10.0, b, loss, l2=L2, l1=l1, m=m, q=q, intercept=True, tol=1e-9)
    assert far.objective == pytest.approx(found.objective, abs=2e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("m", "q"), BLOCKS)
def test_dense_sparse_and_factorised_inputs_agree(loss: str, m: int, q: int) -> None:
    generator = np.random.default_rng(4)
    U, V = generator.normal(size=(90, 5)), generator.normal(size=(5, 40)) / np.sqrt(5)
    b = np.sign(generator.normal(size=90))
    m, q = min(m, 90), min(q, 40)
    A, factors = U @ V, (Factorised(U, V), Factorised(sparse.csc_matrix(U), V))
    found = [
        minimise(X, b, loss, l2=0.1, l1=0.01, m=m, q=q, tol=1e-10, max_epochs=1e5)
        for X in (A, sparse.csr_matrix(A), sparse.coo_array(A), *factors)
    ]
    formed = minimise(Factorised(U, V), b, loss, l2=0.1, l1=0.01, m=m, q=q, tol=1e-10, method="formed", max_epochs=1e5)
    for other in [*found[1:], formed]:
        np.testing.assert_allclose(other.coef, found[0].coef, atol=3e-5)
        assert other.objective == pytest.approx(found[0].objective, abs=2e-10)
        certified(other, U @ V, b, loss, 0.01, 0.1)


def test_the_product_is_never_formed_unless_that_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    A = Factorised(generator.normal(size=(3000, 4)), generator.normal(size=(4, 2000)) / 2.0)
    b = np.sign(A.U @ A.V[:, 0])
    small = Factorised(generator.normal(size=(200, 300)), generator.normal(size=(300, 40)))
    assert ", formed" in minimise(small, b[:200], "logistic", l2=0.1).method
    monkeypatch.setattr(primal_dual_steps, "FORMED_BYTES", 1000)
    assert "not formed" in minimise(small, b[:200], "logistic", l2=0.1).method
    monkeypatch.setattr(Factors, "form", None)
    assert minimise(A, b, "logistic", l2=0.1, m=1, q=20, tol=1e-4).gap <= 1e-4
    assert minimise(A, b, "logistic", l2=0.1, method="factorised", tol=1e-4).gap <= 1e-4


def test_it_continues_from_a_start() -> None:
    A, b = data("logistic")
    cold = minimise(A, b, "logistic", l2=1e-4, tol=1e-8)
    for start in ((cold.coef, cold.dual), cold.coef):
        warm = minimise(A, b, "logistic", l2=1e-4, tol=1e-7, start=start)
        assert warm.gap <= 1e-7
        assert warm.n_iterations < 0.5 * cold.n_iterations
    infeasible = minimise(A, b, "logistic", l2=1e-4, tol=1e-8, start=(cold.coef, 5.0 * b))
    assert infeasible.objective == pytest.approx(cold.objective, abs=2e-8)


def test_a_seed_determines_the_solution() -> None:
    A, b = data("smooth_hinge")
    one, same, other = (minimise(A, b, "smooth_hinge", l2=L2, m=7, q=11, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.coef, same.coef)
    np.testing.assert_array_equal(one.dual, same.dual)
    assert (one.coef != other.coef).any()
    assert one.objective == pytest.approx(other.objective, abs=2e-6)


def test_interruption_keeps_the_best_so_far(caplog: pytest.LogCaptureFixture) -> None:
    A, b = data("square")
    told: list[tuple[float, str]] = []

    def tell(done: float, text: str) -> None:
        told.append((done, text))
        if len(told) == 20:
            raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING):
        found = minimise(A, b, "square", l2=1e-6, m=1, q=1, tol=1e-12, max_epochs=1e9, tell=tell)
    assert found.interrupted
    assert "interrupted" in caplog.text
    assert found.gap > 1e-12
    assert found.objective < plain.primal(A, b, "square", 0.0, 1e-6, np.zeros(P))
    certified(found, A, b, "square", 0.0, 1e-6)
    assert all(0.0 <= done <= 1.0 for done, _ in told)
    assert "gap" in told[0][1]


def test_history_and_description() -> None:
    A, b = data("square")
    found = minimise(A, b, "square", l2=L2, m=30, q=6)
    gaps = [at.gap for at in found.history]
    assert gaps == sorted(gaps, reverse=True)
    assert found.history[0].n_iterations == 0
    assert found.history[-1][2:] == (found.objective, found.gap)
    assert found.history[-1].n_iterations == found.n_iterations
    assert found.method == "DSPDC on A: steps on 30 of 300 rows and 6 of 60 columns"


def test_it_stops_without_progress() -> None:
    """At a gap below float64's precision, and at the largest number of steps."""
    A, b = data("square")
    precise = minimise(A, 1e6 * b, "square", l2=L2, tol=1e-12)
    assert precise.gap < 1e-12 * precise.objective
    assert precise.n_iterations < 1e5
    early = minimise(A, b, "square", l2=1e-6, m=1, q=1, max_epochs=10)
    assert early.n_iterations == 3000
    assert early.gap > 1e-6


def test_matrices_of_zeros_and_of_one_number() -> None:
    b = np.array([1.0, -1.0, 1.0])
    for A in (np.zeros((3, 2)), sparse.csr_array((3, 2)), Factorised(np.zeros((3, 1)), np.ones((1, 2)))):
        for loss in LOSSES:
            for intercept in (False, True):
                found = minimise(A, b, loss, l2=0.1, intercept=intercept, tol=1e-9)
                assert found.gap <= 1e-9
                assert not found.coef.any()
    single = minimise([[2.0]], [3.0], "square", l2=1.0, tol=1e-12)
    assert single.coef == pytest.approx(6.0 / 5.0)


BAD = [
    ({"A": np.ones(3)}, "A of shape"),
    ({"A": np.ones((0, 2))}, "A of shape"),
    ({"A": [["a"]]}, "numbers in A"),
    ({"A": np.full((4, 2), np.nan)}, "finite numbers in A"),
    ({"A": sparse.csr_array(np.full((4, 2), np.inf))}, "finite numbers in A"),
    ({"A": Factorised(np.ones((4, 3)), np.ones((2, 2)))}, r"as many columns of U as rows of V.*\(4, 3\) and \(2, 2\)"),
    ({"A": Factorised(np.ones((4, 3)), np.ones(3))}, "V of shape"),
    ({"b": np.ones(3)}, r"b of shape \(4,\), got \(3,\)"),
    ({"b": [1.0, np.nan, 1.0, 1.0]}, "finite numbers in b"),
    ({"b": [0.0, 1.0, 1.0, 0.0], "loss": "logistic"}, "labels -1 and 1 in b"),
    ({"b": np.ones(4), "loss": "smooth_hinge", "intercept": True}, "both labels in b"),
    ({"loss": "hinge"}, "loss to be one of square, logistic, smooth_hinge, got 'hinge'"),
    ({"method": "svd"}, "method to be one of auto, formed, factorised"),
    ({"l2": 0.0}, "positive l2, got 0.0"),
    ({"l2": np.nan}, "positive l2"),
    ({"l1": -1.0}, "non-negative l1"),
    ({"tol": np.inf}, "non-negative tol"),
    ({"max_epochs": 0}, "positive max_epochs"),
    ({"m": 0}, "m from 1 to 4, got 0"),
    ({"m": 5}, "m from 1 to 4, got 5"),
    ({"q": 3}, "q from 1 to 2, got 3"),
    ({"q": 1.5}, "q from 1 to 2, got 1.5"),
    ({"start": np.ones(3)}, "start of shape"),
    ({"start": (np.ones(2), np.ones(2))}, r"start\[1\] of shape"),
]


@pytest.mark.parametrize(("bad", "message"), BAD, ids=[message for _, message in BAD])
def test_errors_name_the_expected_value(bad: dict, message: str) -> None:
    given = {"A": np.ones((4, 2)), "b": [1.0, -1.0, 1.0, -1.0], "loss": "square", "l2": 0.1} | bad
    with pytest.raises(InputError, match=f"Expected.*{message}"):
        minimise(given.pop("A"), given.pop("b"), given.pop("loss"), **given)


@max_examples(60)
@given(
    st.integers(1, 12), st.integers(1, 8), st.sampled_from(list(LOSSES)), st.sampled_from([0.0, 0.05, 2.0]),
    st.sampled_from([1e-3, 0.1, 10.0]), st.booleans(), st.integers(0, 2**31), st.data(),
)  # fmt: skip
def test_no_point_is_below_the_bound(n, p, loss, l1, l2, intercept, seed, draw) -> None:
    """Weak duality, wherever the search ends: P(any x) ≥ D(y) = P(x̂) - gap, and the gap is never negative."""
    generator = np.random.default_rng(seed)
    A, b = generator.normal(size=(n, p)) * generator.choice([0.1, 1.0, 10.0]), generator.normal(size=n)
    if loss != "square":
        b = np.sign(b)
        if np.ptp(b) == 0.0:
            intercept = False
    m, q = draw.draw(st.integers(1, n)), draw.draw(st.integers(1, p))
    epochs = draw.draw(st.sampled_from([0.5, 5.0, 200.0]))
    found = minimise(A, b, loss, l2=l2, l1=l1, m=m, q=q, intercept=intercept, max_epochs=epochs, tol=1e-8, seed=seed)
    assert 0.0 <= found.gap < np.inf
    certified(found, A, b, loss, l1, l2)
    for scale in (0.0, 0.01, 1.0):
        x = found.coef + scale * generator.normal(size=p)
        c = found.intercept + intercept * scale * generator.normal()
        assert plain.primal(A, b, loss, l1, l2, x, c) >= found.objective - found.gap - 1e-9 * (1.0 + found.objective)
