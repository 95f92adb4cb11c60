"""Metrics of several tasks: Algorithm 3 step by step, semidefinite programs, and what scikit-learn expects."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from reference import matrix_blocks as plain
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamkernel.solvers import MultiTaskLMNN
from streamkernel.solvers.matrix_blocks import Iterate
from streamkernel.solvers.matrix_risk import dual_loss
from streamkernel.solvers.metric_learning import Triplets, large_margin, neighbours
from streamkernel.solvers.saddle_problem import step_sizes

LOSSES = ["smooth_hinge", "logistic"]


def make(tasks=3, per=14, d=3, seed=0):
    """Two classes a task, of which one is moved along an input of the task's own."""
    rng = np.random.default_rng(seed)
    task, y = np.repeat(np.arange(tasks), per), np.tile([0, 1], tasks * per // 2)
    X = rng.normal(size=(tasks * per, d))
    X[np.arange(len(X)), task % d] += 1.5 * y
    return X, y, task


def triplets(seed=0, sizes=(5, 4, 6), d=3):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(1, len(sizes) + 1), sizes)
    near, far = 0.5 * rng.normal(size=(len(task), d)), rng.normal(size=(len(task), d))
    return Triplets(far, near, np.cumsum(sizes)), task


@parametrize_with_checks([MultiTaskLMNN(), MultiTaskLMNN(loss="logistic")])
def test_scikit_learn_accepts_it(estimator, check) -> None:
    if check.func.__name__ != "check_array_api_input":  # it needs an environment variable, or is skipped
        check(estimator)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("m", "q"), [(15, 1), (8, 2), (3, 2), (1, 3), (2, 4), (15, 4)])
def test_a_step_matches_algorithm_3(loss: str, m: int, q: int) -> None:
    data, task = triplets()
    l2 = [0.3, 0.2, 0.2, 0.2]
    problem, _ = large_margin(data, dual_loss(loss), 0.3, 0.2)
    rng = np.random.default_rng(1)
    X, y = np.array([np.eye(3), *np.zeros((3, 3, 3))]), rng.uniform(-1, 0, data.n)
    sizes = step_sizes(data.n, data.p, m, q, 3.0, 0.2, 4.0 if loss == "logistic" else 1.0)
    draws = [tuple(np.sort(rng.choice(k, s, replace=False)) for k, s in ((data.n, m), (data.p, q))) for _ in range(25)]
    at = Iterate(problem, X, y, m, q)
    theirs = plain.algorithm_3(data.near, data.far, task, loss, l2, X, y, draws, m, *sizes)
    for draw, (their_X, their_y) in zip(draws, theirs, strict=True):
        assert at.step(*draw, sizes)
        np.testing.assert_allclose(at.X, their_X, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(at.y, their_y, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 10**6), data=st.data())
def test_the_map_is_that_of_the_matrices(seed: int, data: st.DataObject) -> None:
    found, task = triplets(seed)
    rng = np.random.default_rng(seed)
    rows = np.sort(data.draw(st.lists(st.integers(0, found.n - 1), min_size=1, unique=True)))
    blocks = np.sort(data.draw(st.lists(st.integers(0, found.p - 1), min_size=1, unique=True)))
    X, y = rng.normal(size=(len(blocks), 3, 3)), rng.normal(size=len(rows))
    X += X.swapaxes(1, 2)
    Z = np.array([np.outer(f, f) - np.outer(g, g) for f, g in zip(found.far, found.near, strict=True)])
    takes = np.array([[j in (0, task[i]) for j in blocks] for i in rows], float)
    forward = np.einsum("ik,iab,kab->i", takes, Z[rows], X)
    backward = np.einsum("ik,i,iab->kab", takes, y, Z[rows])
    np.testing.assert_allclose(found.forward(X, blocks, rows), forward, atol=1e-10)
    np.testing.assert_allclose(found.backward(y, rows, blocks), backward, atol=1e-10)


def by_hand(X, y, k):
    """(u, v, w) from all distances."""
    out = set()
    for u in range(len(X)):
        away = np.linalg.norm(X - X[u], axis=1)
        own = [v for v in np.argsort(away) if v != u and y[v] == y[u]][:k]
        others = [w for w in np.argsort(away) if y[w] != y[u]][:1]
        out |= {(u, int(v), int(w)) for v in own for w in others}
    return out


@given(seed=st.integers(0, 10**6), n=st.integers(1, 20), classes=st.integers(1, 4), k=st.integers(1, 4))
def test_neighbours_are_the_nearest(seed: int, n: int, classes: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)), rng.integers(0, classes, n)
    found = list(zip(*(part.tolist() for part in neighbours(X, y, k)), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == by_hand(X, y, k)


def program(X, y, task, k, l2):
    """The optimum of (33) by another solver, from the inputs alone."""
    names, d = np.unique(task), X.shape[1]
    near, far, of = [], [], []
    for j, name in enumerate(names, start=1):
        at = np.flatnonzero(task == name)
        for u, v, w in sorted(by_hand(X[at], y[at], k)):
            near.append(X[at[u]] - X[at[v]])
            far.append(X[at[u]] - X[at[w]])
            of.append(j)
    scale = np.mean(np.square(near).sum(axis=1)) ** -0.5
    near, far, n = scale * np.array(near), scale * np.array(far), len(of)
    V = [cp.Variable((d, d), PSD=True) for _ in range(len(names) + 1)]
    by = cp.hstack([cp.sum(cp.multiply(np.outer(g, g), V[0] + V[j])) for g, j in zip(near, of, strict=True)])
    off = cp.hstack([cp.sum(cp.multiply(np.outer(f, f), V[0] + V[j])) for f, j in zip(far, of, strict=True)])
    value = (cp.sum(by) + cp.sum(cp.huber(cp.pos(1 - off + by), 1)) / 2) / n
    value += l2[0] / 2 * cp.sum_squares(V[0] - np.eye(d)) + l2[1] / 2 * sum(cp.sum_squares(U) for U in V[1:])
    least = cp.Problem(cp.Minimize(value)).solve(solver=cp.CLARABEL)
    found = np.array([U.value for U in V])
    whole = plain.large_margin_objective(near, far, of, "smooth_hinge", [l2[0], *[l2[1]] * len(names)], found)
    assert whole == pytest.approx(least, rel=1e-6)
    return least, scale**2 * (found[1:] + found[0])


@pytest.mark.parametrize("l2", [(0.03, 0.1), (1.0, 0.01)])
def test_it_finds_the_optimum_of_the_semidefinite_program(l2: tuple[float, float]) -> None:
    X, y, task = make()
    least, metrics = program(X, y, task, 2, l2)
    model = MultiTaskLMNN(2, l2_common=l2[0], l2_task=l2[1], tol=1e-10).fit(X, y, task)
    assert model.gap_ <= 1e-10
    assert model.objective_ == pytest.approx(least, rel=1e-7)
    np.testing.assert_allclose(model.metrics_, metrics, atol=1e-3)


def test_the_default_is_better_than_euclidean_on_digits() -> None:
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        task = rng.integers(0, 5, len(y))
        train = np.concatenate([np.flatnonzero(task == j)[:40] for j in range(5)])
        test = np.setdiff1d(np.arange(len(y)), train)
        right = 0.0
        for j in range(5):
            a, b = train[task[train] == j], test[task[test] == j]
            right += KNeighborsClassifier(3).fit(X[a], y[a]).score(X[b], y[b]) * len(b) / len(test)
        model = MultiTaskLMNN().fit(X[train], y[train], task[train])
        assert model.score(X[test], y[test], task[test]) > right + 0.05


def test_predictions_are_those_of_the_learned_distance() -> None:
    X, y, task = make(per=20)
    model = MultiTaskLMNN().fit(X, y, task)
    new, _, of = make(per=20, seed=1)
    points = model.transform(new, of)
    for j in range(3):
        at, A = np.flatnonzero(of == j), model.metrics_[j]
        between = new[at][:, None] - new[at][None]
        squares = np.einsum("uva,ab,uvb->uv", between, A, between)
        np.testing.assert_allclose(
            np.square(points[at][:, None] - points[at][None]).sum(axis=-1), squares, atol=1e-9, rtol=1e-9
        )
        away = new[at][:, None] - X[task == j][None]
        nearest = np.argsort(np.einsum("uva,ab,uvb->uv", away, A, away), axis=1)[:, :3]
        votes = y[task == j][nearest].mean(axis=1) > 0.5
        assert (model.predict(new[at], of[at]) == votes).all()
    assert model.score(new, y, of) == np.mean(model.predict(new, of) == y)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-3, 1.0, 1e4]), shift=st.sampled_from([0.0, 10.0]))
def test_metrics_are_semidefinite_and_scale_invariant(seed: int, scale: float, shift: float) -> None:
    X, y, task = make(seed=seed)
    a, b = MultiTaskLMNN(tol=1e-9).fit(X, y, task), MultiTaskLMNN(tol=1e-9).fit(scale * X + shift, y, task)
    assert a.gap_ >= 0
    for model in (a, b):
        assert np.linalg.eigvalsh(model.metrics_).min() >= -1e-9 * np.abs(model.metrics_).max()
    assert b.objective_ == pytest.approx(a.objective_, abs=1e-8)
    np.testing.assert_allclose(b.metrics_ * scale**2, a.metrics_, atol=2e-3)


@max_examples(15)
@given(seed=st.integers(0, 10**6))
def test_neither_the_order_of_examples_nor_names_matter(seed: int) -> None:
    X, y, task = make(seed=seed)
    order = np.random.default_rng(seed).permutation(len(X))
    names, classes = np.array(["c", "a", "b"]), np.array(["yes", "no"])
    a = MultiTaskLMNN(tol=1e-9).fit(X, y, task)
    b = MultiTaskLMNN(tol=1e-9).fit(X[order], classes[y][order], names[task][order])
    assert b.tasks_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(a.metrics_, b.metrics_[[2, 0, 1]], atol=2e-3)


def test_without_tasks_there_is_a_single_one() -> None:
    X, y, _ = make()
    model, same = MultiTaskLMNN().fit(X, y), MultiTaskLMNN().fit(X, y, np.zeros(len(y)))
    assert model.tasks_ is None
    assert (model.metrics_ == same.metrics_).all()
    assert (model.predict(X) == same.predict(X, np.zeros(len(y)))).all()


def test_the_same_state_gives_the_same_bits() -> None:
    X, y, task = make()
    a, b = MultiTaskLMNN().fit(X, y, task), clone(MultiTaskLMNN()).fit(X, y, task)
    assert (a.metrics_ == b.metrics_).all()
    assert (a.fit_transform(X, y, task) == a.transform(X, task)).all()


def test_small_classes_take_part_and_singletons_are_only_impostors() -> None:
    X, y, task = make()
    y = y.copy()
    y[:2], y[2] = 7, 8
    model = MultiTaskLMNN(5).fit(X, y, task)
    assert model.metrics_.shape == (3, 3, 3)
    assert set(model.classes_) == {0, 1, 7, 8}


def test_a_task_of_one_class_uses_the_common_metric() -> None:
    X, y, task = make()
    model = MultiTaskLMNN().fit(X, np.where(task == 1, 5, y), task)
    of_task, common = model.metrics_[1], model.common_
    np.testing.assert_allclose(of_task * common[0, 0], common * of_task[0, 0], atol=1e-12)
    assert common[0, 0] > 0
    assert (model.predict(X[task == 1], task[task == 1]) == 5).all()


def test_it_works_in_pipelines_and_searches() -> None:
    X, y, _ = make()
    X[:, 0] += 5 * y
    pipe = make_pipeline(StandardScaler(), MultiTaskLMNN())
    search = GridSearchCV(pipe, {"multitasklmnn__l2_common": [0.01, 1.0]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.95


def test_a_missed_gap_is_reported() -> None:
    X, y, task = make()
    with pytest.warns(ConvergenceWarning, match=r"after 3 steps, more than tol=1.0e-12"):
        model = MultiTaskLMNN(tol=1e-12, max_steps=3).fit(X, y, task)
    assert model.gap_ > 1e-12
    assert model.n_iter_ == 3


def test_an_interruption_leaves_a_fitted_model(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, task = make()
    step, left = Iterate.step, iter(range(30))

    def interrupted(self, *arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Iterate, "step", interrupted)
    with pytest.warns(ConvergenceWarning):
        model = MultiTaskLMNN(tol=1e-12).fit(X, y, task)
    assert model.gap_ > 1e-12
    assert model.score(X, y, task) > 0.5


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"task": np.zeros(5)}, r"task of shape \(42,\), one for each example, got \(5,\)"),
        ({"task": np.where(np.arange(42) == 3, np.nan, 0.0)}, "task contains NaN"),
        ({"X": np.full((42, 3), np.nan)}, "contains NaN"),
        ({"y": np.zeros(42)}, "at least 2 classes in y, got 1 class"),
        ({"y": np.linspace(0, 1, 42)}, "continuous"),
        ({"y": np.arange(42), "task": np.arange(42) // 3}, "a task with 2 classes and 2 examples of a class, got none"),
    ],
)
def test_bad_input_is_named(given: dict, says: str) -> None:
    X, y, task = make()
    with pytest.raises(ValueError, match=says):
        MultiTaskLMNN().fit(**({"X": X, "y": y, "task": task} | given))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"n_neighbors": 0}, "n_neighbors of 1 or more, got 0"),
        ({"n_neighbors": 15}, "n_neighbors of at most the 14 examples of task 0, got 15"),
        ({"l2_common": 0.0}, "l2_common > 0"),
        ({"l2_task": np.nan}, "l2_task > 0"),
        ({"loss": "square"}, "loss of smooth_hinge, logistic, got 'square'"),
        ({"loss": "hinge"}, "got 'hinge'"),
        ({"tol": 0.0}, "tol > 0"),
        ({"max_steps": 0.5}, "max_steps of 1 or more, got 0.5"),
    ],
)
def test_a_bad_argument_is_named(given: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MultiTaskLMNN(**given).fit(*make())


def test_unknown_and_missing_tasks_are_named() -> None:
    X, y, task = make()
    model = MultiTaskLMNN().fit(X, y, task)
    with pytest.raises(ValueError, match="a task of 0, 1, 2, got 9"):
        model.predict(X, np.where(task == 1, 9, task))
    with pytest.raises(ValueError, match="a task for each example, one of 0, 1, 2, got none"):
        model.predict(X)
    with pytest.raises(ValueError, match=r"task of shape \(42,\)"):
        model.transform(X, task[:-1])
    with pytest.raises(ValueError, match="Expected no task, as in fit"):
        MultiTaskLMNN().fit(X, y).predict(X, task)
    with pytest.raises(NotFittedError):
        MultiTaskLMNN().predict(X)


def test_ordinary_use_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MultiTaskLMNN().fit(*make())
