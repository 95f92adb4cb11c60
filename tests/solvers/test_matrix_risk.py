"""Matrix risk minimisation against the paper's algorithm step by step, and against semidefinite programs."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import matrix_blocks as plain

from streamkernel.solvers.matrix_blocks import Iterate, MatrixProblem
from streamkernel.solvers.matrix_risk import DenseBlocks, Search, dual_loss, matrix_risk
from streamkernel.solvers.saddle_problem import step_sizes

LOSSES = ["square", "logistic", "smooth_hinge"]


def symmetric(X):
    return (X + np.swapaxes(X, -1, -2)) / 2


def make(n=12, p=4, d=3, seed=0, loss="smooth_hinge"):
    rng = np.random.default_rng(seed)
    D = rng.normal(size=(n, p, d, d))
    z = np.trace(D, axis1=2, axis2=3).sum(axis=1)
    return D, z + rng.normal(size=n) if loss == "square" else np.where(z + rng.normal(size=n) > 0, 1.0, -1.0)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("m", "q"), [(12, 1), (6, 2), (2, 3), (1, 1), (1, 4), (12, 4)])
def test_a_step_matches_the_paper(loss: str, m: int, q: int) -> None:
    D, b = make(loss=loss)
    n, p, d = D.shape[:3]
    problem = MatrixProblem(DenseBlocks(D), dual_loss(loss), b, np.full(p, 0.1), np.zeros((p, d, d)))
    rng = np.random.default_rng(1)
    X = np.array([A @ A.T for A in rng.normal(size=(p, d, d))])
    y = -0.5 * b
    sizes = step_sizes(n, p, m, q, 3.0, 0.1, 4.0 if loss == "logistic" else 1.0)
    draws = [tuple(np.sort(rng.choice(k, s, replace=False)) for k, s in ((n, m), (p, q))) for _ in range(25)]
    at = Iterate(problem, X, y, m, q)
    theirs = plain.block_dspdc(symmetric(D), b, loss, 0.1, X, y, draws, m, q, *sizes)
    for draw, (their_X, their_y) in zip(draws, theirs, strict=True):
        assert at.step(*draw, sizes)
        np.testing.assert_allclose(at.X, their_X, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(at.y, their_y, rtol=1e-9, atol=1e-9)


def test_numbers_are_kept_where_that_is_cheaper_and_matrices_elsewhere() -> None:
    D, b = make()
    problem = MatrixProblem(DenseBlocks(D), dual_loss("square"), b, np.full(4, 0.1), np.zeros((4, 3, 3)))
    assert Iterate(problem, np.zeros((4, 3, 3)), 0.0 * b, m=12, q=1).keeps_numbers
    assert not Iterate(problem, np.zeros((4, 3, 3)), 0.0 * b, m=1, q=4).keeps_numbers


def optimum(D, b, loss, l2):
    n, p, d = D.shape[:3]
    X = [cp.Variable((d, d), PSD=True) for _ in range(p)]
    z = cp.hstack([sum(cp.sum(cp.multiply(D[i, j], X[j])) for j in range(p)) for i in range(n)])
    value = {
        "square": lambda: cp.sum_squares(z - b) / 2,
        "logistic": lambda: cp.sum(cp.logistic(-cp.multiply(b, z))),
        "smooth_hinge": lambda: cp.sum(cp.huber(cp.pos(1 - cp.multiply(b, z)), 1)) / 2,
    }[loss]()
    program = cp.Problem(cp.Minimize(value / n + l2 / 2 * sum(cp.sum_squares(V) for V in X)))
    return program.solve(solver=cp.CLARABEL), np.array([V.value for V in X])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("m", "q"), [(None, None), (3, 3)])
def test_it_finds_the_optimum_of_the_semidefinite_program(loss: str, m: int | None, q: int | None) -> None:
    D, b = make(loss=loss, seed=3)
    least, X = optimum(D, b, loss, 0.1)
    found = matrix_risk(D, b, loss=loss, l2=0.1, tol=1e-11, m=m, q=q)
    assert found.converged
    assert found.objective == pytest.approx(least, rel=1e-7, abs=1e-9)
    np.testing.assert_allclose(found.X, X, atol=2e-4)
    assert found.objective == pytest.approx(plain.objective(D, b, loss, 0.1, found.X), rel=1e-12)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 12),
    p=st.integers(1, 4),
    d=st.integers(1, 4),
    loss=st.sampled_from(LOSSES),
    l2=st.sampled_from([0.01, 0.1, 3.0]),
    data=st.data(),
)
def test_every_result_is_certified(seed, n, p, d, loss, l2, data) -> None:
    D, b = make(n, p, d, seed, loss)
    m, q = data.draw(st.integers(1, n)), data.draw(st.integers(1, p))
    found = matrix_risk(D, b, loss=loss, l2=l2, m=m, q=q, tol=1e-7, max_steps=20_000)
    assert found.converged
    assert 0.0 <= found.gap <= 1e-7
    assert np.linalg.eigvalsh(found.X).min() >= -1e-12 * max(1.0, np.abs(found.X).max())
    # The certificate, from the definitions alone: P - D, with D = -g*(-Aᵀy/n) - mean φ*.
    G = np.einsum("i,ijab->jab", found.y, symmetric(D))
    below = np.array([plain.nearest_psd(-M / (n * l2)) for M in G])
    a = -b * found.y
    if loss == "square":
        conjugate = found.y**2 / 2 + b * found.y
    else:
        assert (a >= 0).all()
        assert (a <= 1).all()
        entropy = np.where(a > 0, a * np.log(np.maximum(a, 1e-300)), 0)
        other = np.where(a < 1, (1 - a) * np.log(np.maximum(1 - a, 1e-300)), 0)
        conjugate = entropy + other if loss == "logistic" else a**2 / 2 - a
    dual = -l2 / 2 * np.sum(below**2) - conjugate.mean()
    assert found.objective == pytest.approx(plain.objective(D, b, loss, l2, found.X), rel=1e-10, abs=1e-13)
    assert found.objective - dual == pytest.approx(found.gap, abs=1e-10)


def test_only_the_symmetric_part_of_the_data_counts() -> None:
    D, b = make()
    a, c = matrix_risk(D, b, tol=1e-9), matrix_risk(symmetric(D), b, tol=1e-9)
    np.testing.assert_allclose(a.X, c.X, atol=1e-12)


def test_the_order_of_the_examples_does_not_matter() -> None:
    D, b = make()
    order = np.random.default_rng(5).permutation(len(b))
    a, c = matrix_risk(D, b, tol=1e-12), matrix_risk(D[order], b[order], tol=1e-12)
    np.testing.assert_allclose(a.X, c.X, atol=1e-5)
    np.testing.assert_allclose(a.y[order], c.y, atol=1e-4)


def test_the_same_seed_gives_the_same_bits() -> None:
    D, b = make()
    a, c = (matrix_risk(D, b, m=3, q=2, seed=4) for _ in range(2))
    assert (a.X == c.X).all()
    assert (a.y == c.y).all()
    assert [mark._replace(seconds=0) for mark in a.history] == [mark._replace(seconds=0) for mark in c.history]


def test_the_best_bound_improves_monotonically_and_work_is_counted() -> None:
    D, b = make(40, 6, 4)
    found = matrix_risk(D, b, m=5, q=2, tol=1e-10)
    gaps = [mark.gap for mark in found.history]
    assert gaps == sorted(gaps, reverse=True)
    assert found.history[0].decompositions == 2 * 6
    assert found.decompositions == 2 * 6 + 2 * found.steps


def test_it_stops_after_so_many_steps_and_reports_it() -> None:
    D, b = make()
    found = matrix_risk(D, b, m=1, q=1, tol=1e-15, max_steps=20)
    assert found.steps == 20
    assert not found.converged
    assert found.gap > 1e-15


def test_steps_that_are_far_too_long_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    D, b = make(loss="square")
    monkeypatch.setattr(Search, "scales", (1e-6,))
    found = matrix_risk(D, b, loss="square", l2=0.1, m=3, q=2, tol=1e-8)
    assert found.converged


def test_an_interruption_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    D, b = make()
    step, left = Iterate.step, iter(range(60))

    def interrupted(self, *arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Iterate, "step", interrupted)
    found = matrix_risk(D, b, tol=1e-13, m=2, q=1)
    assert not found.converged
    assert found.gap == pytest.approx(found.history[-1].gap, abs=1e-14)
    assert found.gap < found.history[0].gap
    assert found.objective == pytest.approx(plain.objective(D, b, "smooth_hinge", 0.01, found.X), rel=1e-12)


def test_zero_data_is_solved_immediately() -> None:
    found = matrix_risk(np.zeros((5, 2, 3, 3)), np.ones(5))
    assert found.converged
    assert found.objective == pytest.approx(0.5)
    assert (found.X == 0).all()


def test_a_progress_line_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    D, b = make()
    matrix_risk(D, b, verbose=True)
    assert "Matrix risk minimisation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"D": np.zeros((3, 2, 2))}, r"D of shape \(n, p, d, d\), got \(3, 2, 2\)"),
        ({"D": np.zeros((3, 2, 2, 3))}, r"D of shape"),
        ({"D": np.full((3, 2, 2, 2), np.nan)}, "finite numbers in D"),
        ({"b": np.ones(4)}, r"b of shape \(3,\).*got \(4,\)"),
        ({"b": [1.0, np.inf, 1.0]}, "finite numbers in b"),
        ({"b": [0.0, 1.0, 1.0]}, "labels b of -1 and 1"),
        ({"loss": "hinge"}, "loss of square, logistic, smooth_hinge, got 'hinge'"),
        ({"l2": 0.0}, "l2 > 0 and finite, got 0.0"),
        ({"tol": -1.0}, "tol > 0"),
        ({"m": 4}, "m of 1 to 3, got 4"),
        ({"q": 0}, "q of 1 to 2, got 0"),
        ({"q": 1.5}, "q of 1 to 2, got 1.5"),
        ({"max_steps": 0}, "max_steps of 1 or more, got 0"),
    ],
)
def test_a_bad_argument_is_named(changes: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        matrix_risk(**({"D": np.ones((3, 2, 2, 2)), "b": np.ones(3)} | changes))
