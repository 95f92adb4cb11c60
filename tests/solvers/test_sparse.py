"""The sparse solver: the paper's steps, optima that others find, optimality conditions, threads, interruption."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import sparse as reference
from sklearn.linear_model import Lasso, LogisticRegression

from streamkernel import losses
from streamkernel.solvers import sparse_loops
from streamkernel.solvers.sparse import largest_l1, minimise_sparse
from streamkernel.solvers.sparse_problem import CoefficientGroups, SparseProblem, refit

TABLE_1 = {
    "logistic": losses.Logistic(),
    "smooth_hinge": losses.SmoothHinge(),
    "sigmoid": losses.Sigmoid(),
    "square": losses.Square(),
    "correntropy": losses.Correntropy(1.0),
}


def task(n: int = 300, p: int = 12, seed: int = 0, *, classes: bool = True) -> tuple[Any, Any]:
    """Features as float32 keeps them, and targets: -1 and 1, or numbers."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, p)).astype(np.float32)
    score = Z[:, :4] @ [1.0, -1.0, 0.5, 0.25] + 0.5 * rng.standard_normal(n)
    return Z, np.where(score > 0, 1.0, -1.0) if classes else score


def objective(name: str, Z: Any, y: Any, w: Any, l1: float) -> float:
    return float(reference.value(name, Z.astype(float) @ w, y).mean() + l1 * np.abs(w).sum())


@pytest.mark.parametrize("name", TABLE_1)
def test_the_paper_form_matches_algorithm_2(name: str) -> None:
    loss = TABLE_1[name]
    Z, y = task(classes=loss.for_classes is True)
    rng, n, p = np.random.default_rng(1), *Z.shape
    problem = SparseProblem(Z, y, loss, 1, CoefficientGroups.of(p, 1, 0.3, 1, None))
    theirs = ours = 0.3 * rng.standard_normal(p)
    for _ in range(3):
        samples, coordinates = rng.integers(0, n, n), rng.integers(0, p, n)
        theirs = reference.outer_iteration(name, Z.astype(float), y, theirs, samples, coordinates, 0.1, 0.3)
        point, w = problem.at(ours[None]), ours[None].copy()
        examples = sparse_loops.SparseExamples(Z, y, loss.code, loss.parameter)
        groups = sparse_loops.GroupSteps(problem.groups.bounds, problem.groups.weights, np.full(p, 0.1))
        snapshot = sparse_loops.Snapshot(point.gradient, point.slopes)
        sparse_loops.paper_steps(examples, groups, snapshot, samples[:, None], coordinates, w)
        ours = w[0]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    assert (ours == 0.0).any()
    assert ((ours == 0.0) == (theirs == 0.0)).all()


def test_a_group_sees_the_moves_of_the_groups_before_it_in_its_batch() -> None:
    """A batch of all rows is a pass of coordinate descent, whose residuals change after each coordinate."""
    Z, y = task(64, 12, classes=False)
    w, rows, l1 = np.zeros(12), Z.astype(float), 0.05
    for j, curvature in enumerate(np.square(rows).mean(axis=0)):
        ahead = w[j] - rows[:, j] @ (rows @ w - y) / len(y) / curvature
        w[j] = np.sign(ahead) * max(0.0, abs(ahead) - l1 / curvature)
    found = minimise_sparse(Z, y, losses.Square(), l1=l1, gamma=1.0, max_epochs=1, tol=1e-9)
    np.testing.assert_allclose(found.coef[:, 0], w, atol=1e-6)


@pytest.mark.parametrize("name", TABLE_1)
def test_second_derivatives_are_those_of_the_slopes(name: str) -> None:
    loss, h = TABLE_1[name], 1e-6
    for f in (-2.3, -0.7, 0.4, 0.9, 3.1):
        for y in (-1.0, 1.0):
            slope = loss.derivative(f, y)[0]
            rise = (loss.derivative(f + h, y)[0] - loss.derivative(f - h, y)[0]) / (2 * h)
            assert sparse_loops.second(loss.code, loss.parameter, f, y, slope) == pytest.approx(rise, abs=1e-7)


@pytest.mark.parametrize("form", ["minibatch", "paper"])
def test_liblinear_finds_the_same_optimum(form: Any) -> None:
    Z, y = task()
    l1 = 0.1 * largest_l1(Z, y, losses.Logistic())
    theirs = LogisticRegression(
        l1_ratio=1.0, solver="liblinear", C=1.0 / (len(y) * l1), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(Z.astype(float), y)
    found = minimise_sparse(Z, y, losses.Logistic(), l1=l1, form=form, tol=1e-3, max_epochs=3000)
    best = objective("logistic", Z, y, theirs.coef_[0], l1)
    assert found.converged
    assert found.objective == pytest.approx(objective("logistic", Z, y, found.coef[:, 0], l1), abs=1e-12)
    assert found.objective - best == pytest.approx(0.0, abs=1e-7)
    assert ((found.coef[:, 0] != 0) == (theirs.coef_[0] != 0)).all()


def test_lasso_finds_the_same_optimum() -> None:
    Z, y = task(classes=False)
    theirs = Lasso(alpha=0.1, fit_intercept=False, tol=1e-12).fit(Z.astype(float), y)
    found = minimise_sparse(Z, y, losses.Square(), l1=0.1, tol=1e-6)
    np.testing.assert_allclose(found.coef[:, 0], theirs.coef_, atol=1e-6)


def test_groups_columns_and_a_constant_match_cvxpy() -> None:
    rng = np.random.default_rng(2)
    Z = np.hstack([rng.standard_normal((200, 8)), np.ones((200, 1))]).astype(np.float32)
    y = (Z[:, :8] @ rng.standard_normal((8, 3)) * np.repeat([1, 0, 1, 0], 2)[None, :1] + [0.5, 0, -1]).argmax(axis=1)
    penalised = np.arange(9) < 8
    l1 = 0.2 * largest_l1(Z, y, losses.Logistic(), columns=3, group=2, penalised=penalised)
    w = cp.Variable((9, 3))
    scores = Z.astype(float) @ w
    mean = (cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(np.eye(3)[y], scores))) / len(y)
    price = l1 * np.sqrt(6) * sum(cp.norm(cp.vec(w[g : g + 2], order="F")) for g in range(0, 8, 2))
    best = cp.Problem(cp.Minimize(mean + price)).solve(solver="CLARABEL")
    found = minimise_sparse(Z, y, losses.Logistic(), l1=l1, columns=3, group=2, penalised=penalised, tol=1e-4)
    assert found.objective == pytest.approx(best, abs=1e-7)
    np.testing.assert_allclose(found.coef[:8], w.value[:8], atol=1e-3)


def test_smooth_hinge_matches_cvxpy() -> None:
    Z, y = task()
    w = cp.Variable(12)
    mean = cp.sum(cp.huber(cp.pos(1 - cp.multiply(y, Z.astype(float) @ w)), 1)) / 2 / len(y)
    best = cp.Problem(cp.Minimize(mean + 0.02 * cp.norm1(w))).solve(solver="CLARABEL")
    assert minimise_sparse(Z, y, losses.SmoothHinge(), l1=0.02, tol=1e-4).objective == pytest.approx(best, abs=1e-7)


@given(
    name=st.sampled_from(sorted(TABLE_1)),
    group=st.integers(1, 3),
    columns=st.integers(1, 3),
    fraction=st.sampled_from([0.03, 0.3, 0.9]),
    constant=st.booleans(),
    seed=st.integers(0, 5),
)
def test_solutions_are_stationary(
    name: str, group: int, columns: int, fraction: float, constant: bool, seed: int
) -> None:
    loss = TABLE_1[name]
    columns = columns if loss.for_classes else 1
    Z, y = task(150, 6 * group + constant, seed, classes=loss.for_classes is True)
    if columns > 1:
        y = np.random.default_rng(seed).integers(0, columns, len(y)) * (y > 0)
    penalised = np.arange(Z.shape[1]) < 6 * group
    given: dict[str, Any] = {"columns": columns, "group": group, "penalised": penalised}
    l1 = fraction * largest_l1(Z, y, loss, **given)
    found = minimise_sparse(Z, y, loss, l1=l1, tol=1e-2, max_epochs=4000, **given)
    assert found.converged
    slopes = np.array([loss.derivative(f, t) for f, t in zip(Z @ found.coef, y, strict=True)])
    gradient, size = Z.T @ slopes / len(y), np.sqrt(group * columns)
    for first in range(0, 6 * group, group):
        G, w = gradient[first : first + group], found.coef[first : first + group]
        if w.any():
            assert np.linalg.norm(G + l1 * size * w / np.linalg.norm(w)) <= 0.0101 * l1 * size
        else:
            assert np.linalg.norm(G) <= 1.0101 * l1 * size
    assert np.linalg.norm(gradient[6 * group :]) <= 0.0101 * l1 * np.sqrt(columns)


@given(name=st.sampled_from(["logistic", "smooth_hinge", "square"]), constant=st.booleans(), seed=st.integers(0, 5))
def test_coefficients_are_0_from_the_largest_l1_on(name: str, constant: bool, seed: int) -> None:
    loss = TABLE_1[name]
    Z, y = task(100, 6 + constant, seed, classes=loss.for_classes is True)
    if constant:
        Z[:, 6] = 1.0
    penalised = np.arange(Z.shape[1]) < 6
    most = largest_l1(Z, y, loss, penalised=penalised)
    found = [
        minimise_sparse(Z, y, loss, l1=by * most, penalised=penalised, tol=1e-3, max_epochs=2000).coef[:6]
        for by in (1.01, 0.95)
    ]
    assert not found[0].any()
    assert found[1].any()


def test_one_thread_has_the_same_bits_and_two_reach_the_same_optimum() -> None:
    Z, y = task(2000, 200)
    l1 = 0.05 * largest_l1(Z, y, losses.Logistic())
    one, again, two = (
        minimise_sparse(Z, y, losses.Logistic(), l1=l1, threads=threads, tol=1e-3, seed=7) for threads in (1, 1, 2)
    )
    assert one.coef.tobytes() == again.coef.tobytes()
    assert two.converged
    assert two.objective == pytest.approx(one.objective, abs=1e-7)


def test_the_paper_form_with_two_threads() -> None:
    Z, y = task()
    one, two = (
        minimise_sparse(Z, y, losses.Logistic(), l1=0.01, form="paper", threads=threads, tol=1e-2, max_epochs=2000)
        for threads in (1, 2)
    )
    assert one.converged
    assert two.converged
    assert two.objective == pytest.approx(one.objective, abs=1e-5)


def test_outliers_do_not_move_correntropy() -> None:
    Z, y = task(400, classes=False)
    clean = minimise_sparse(Z, y, losses.Square(), l1=0.01).coef[:, 0]
    y[:40] += 100.0
    robust = minimise_sparse(Z, y, losses.Correntropy(2.0), l1=0.01, tol=1e-3)
    moved = minimise_sparse(Z, y, losses.Square(), l1=0.01).coef[:, 0]
    assert robust.converged
    assert np.linalg.norm(robust.coef[:, 0] - clean) < 0.1 * np.linalg.norm(moved - clean)


def test_the_objective_never_rises_and_starts_are_used() -> None:
    Z, y = task(1000, 100)
    found = minimise_sparse(Z, y, losses.Logistic(), l1=0.003, tol=1e-4)
    values = [check.objective for check in found.history]
    assert values == sorted(values, reverse=True)
    again = minimise_sparse(Z, y, losses.Logistic(), l1=0.003, tol=1e-4, start=found.coef)
    assert again.history[-1].epochs == 0
    assert (again.coef == found.coef).all()


def test_an_interruption_keeps_the_best_so_far() -> None:
    Z, y = task(1000, 100)
    told = []

    def stop(done: float, text: str) -> None:
        told.append(text)
        if len(told) == 3:
            raise KeyboardInterrupt

    found = minimise_sparse(Z, y, losses.Logistic(), l1=0.003, tol=1e-6, tell=stop)
    assert found.interrupted
    assert not found.converged
    assert found.history[-1].epochs == 3
    assert found.objective < found.history[0].objective
    assert told[-1] == f"objective {found.objective:.6g}"


def test_more_features_than_rows() -> None:
    Z, y = task(120, 1500, classes=False)
    l1 = 0.1 * largest_l1(Z, y, losses.Square())
    theirs = Lasso(alpha=l1, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(Z.astype(float), y)
    found = minimise_sparse(Z, y, losses.Square(), l1=l1, tol=1e-3)
    assert found.converged
    assert found.objective == pytest.approx(objective("square", Z, y, theirs.coef_, l1), abs=1e-6)


def test_refit_is_the_ridge_solution_of_the_kept() -> None:
    Z, y = task(classes=False)
    kept = np.arange(12) % 3 == 0
    X = Z[:, kept].astype(float)
    exact = np.linalg.solve(X.T @ X / len(y) + 0.01 * np.eye(4), X.T @ y / len(y))
    coef = refit(Z, y, losses.Square(), kept, l2=0.01)
    np.testing.assert_allclose(coef[kept, 0], exact, atol=1e-6)
    assert not coef[~kept].any()


def test_refit_with_classes_and_a_constant_is_scikit_learns() -> None:
    Z, _ = task()
    y = (Z[:, :3] + [0.0, 0.5, -0.5]).argmax(axis=1).astype(float)
    with_one = np.hstack([Z, np.ones((len(Z), 1), np.float32)])
    coef = refit(with_one, y, losses.Logistic(), np.ones(13, bool), l2=0.1, columns=3, penalised=np.arange(13) < 12)
    theirs = LogisticRegression(C=1.0 / (0.1 * len(y)), tol=1e-10, max_iter=1000).fit(Z.astype(float), y)
    np.testing.assert_allclose(coef[:12].T, theirs.coef_, atol=1e-5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"loss": losses.Hinge()}, "a loss of Logistic, Softmax, SmoothHinge, Sigmoid, Square, Correntropy, got Hinge"),
        ({"l1": 0.0}, "l1 > 0, got 0.0"),
        ({"gamma": -1.0}, "gamma > 0, got -1.0"),
        ({"tol": float("nan")}, "tol > 0, got nan"),
        ({"threads": 0}, "threads as an integer of 1 or more, got 0"),
        ({"max_epochs": 1.5}, "max_epochs as an integer of 1 or more, got 1.5"),
        ({"columns": 0}, "columns as an integer of 1 or more, got 0"),
        ({"group": 5}, "penalised outputs in groups of 5, got a part of one at 10"),
        ({"penalised": [True]}, "penalised as 12 booleans, got bool of shape"),
        ({"form": "newton"}, "form 'minibatch' or 'paper', got 'newton'"),
        ({"Z": np.zeros(3)}, r"Z of shape \(rows, outputs\), got shape \(3,\)"),
        ({"Z": np.full((300, 12), np.nan)}, "finite numbers in Z"),
        ({"Z": np.full((300, 12), 1e300)}, "finite numbers in Z"),
        ({"y": np.ones(3)}, r"y of shape \(300,\), a target for each row of Z, got \(3,\)"),
        ({"y": np.full(300, 3.0)}, "y of classes 0 to 1, got 3.0"),
        ({"columns": 3, "y": np.full(300, 3.0)}, "y of classes 0 to 2, got 3.0"),
        ({"loss": losses.Softmax()}, "columns of 2 or more for Softmax"),
        ({"loss": losses.Square(), "columns": 2}, r"columns=1 for Square\(\), got 2"),
        ({"loss": losses.Square(), "y": np.full(300, np.inf)}, "finite numbers in y"),
        ({"start": np.zeros(3)}, r"start of shape \(12, 1\)"),
    ],
)
def test_errors_name_the_argument(changed: dict[str, Any], message: str) -> None:
    Z, y = task()
    told: dict[str, Any] = {"Z": Z, "y": y, "loss": losses.Logistic(), "l1": 0.1} | changed
    with pytest.raises(ValueError, match=message):
        minimise_sparse(**told)
