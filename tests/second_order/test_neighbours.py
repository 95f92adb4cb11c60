"""The functions of the nearest neighbours: against scikit-learn, in files and merges, and under drift."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from streams import as_dicts, content, examples, learn, names_in_order

from streamkernel import KernelClassifier, KernelRegressor, kernels, load, losses, step_sizes
from streamkernel.learners import state
from streamkernel.merging.summaries import columns_of
from streamkernel.second_order.linear import state as linear_state
from streamkernel.second_order.linear.state import NEAR
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.neighbours import state as neighbours
from streamkernel.second_order.neighbours.search import SEARCHED, UNSEEN, influence
from streamkernel.second_order.neighbours.state import NEIGHBOURS, STORED, WINDOWS
from streamkernel.second_order.sensitivity import rows_of

SMALL = {"max_features": 16}
FIRST, SECOND, _ = WINDOWS
N = 2 * FIRST + 230


def moving(n=N, classes=3, seed=4):
    """Return inputs around many centres that move, and the classes of the centres."""
    generator = np.random.default_rng(seed)
    centres, ways = generator.uniform(-2.0, 2.0, size=(2, 20 * classes, 4))
    which = generator.integers(20 * classes, size=n)
    moved = np.sin(0.0015 * np.arange(n))[:, None] * ways[which]
    return centres[which] + 0.7 * moved + 0.2 * generator.normal(size=(n, 4)), which % classes


def model_of(kind, n=N):
    X, which = moving(n)
    y = which.tolist() if kind == "classifier" else (which + X[:, 0]).tolist()
    return (KernelClassifier if kind == "classifier" else KernelRegressor)(**SMALL), as_dicts(X), y


def mixture(loss, columns=1):
    """Return a mixture that takes inputs as they are."""
    intercept = state.NOTHING if loss.for_classes else state.MEAN
    return SecondOrderLearner(
        kernels.Gaussian(1.0), loss, step_sizes.Constant(0.75), block_size=2, max_features=8, columns=columns,
        intercept=intercept, is_linear=True,
    )  # fmt: skip


def closeness(distances):
    return np.maximum(distances, 1e-6) ** -4.0


def near(f, rows):
    """Return the scores of the nearest neighbours at rows in each window."""
    return f.scores_of_others(rows)[:, -len(WINDOWS) :].swapaxes(0, 1)


@pytest.mark.parametrize(
    ("known", "inputs", "searched"),
    [
        (3, 4, (3, 0, 0)),
        (400, 4, (400, 0, 0)),
        (2 * FIRST - 1, 4, (FIRST, 0, 0)),
        (2 * FIRST, 4, (FIRST, 2 * FIRST, 0)),
        (2 * SECOND, 4, (FIRST, SECOND, 2 * SECOND)),
        (STORED + 230, 4, (FIRST, SECOND, STORED)),
        (STORED + 1300, 4, (FIRST, SECOND, STORED)),
        (5000, 30, (FIRST, SECOND, SEARCHED // 31)),
        (3000, 70, (FIRST, SEARCHED // 71, 0)),
    ],
)
def test_regression_matches_scikit_learn(known, inputs, searched):
    X, which = moving(known + 50)
    X = np.c_[X, np.random.default_rng(7).normal(size=(len(X), inputs - 4))]
    y = which + X[:, 0]
    f = mixture(losses.Square())
    names = [f"x{j}" for j in range(inputs)]
    f.learn(f.directions.rows(names, X[:known]), y[:known])
    for found, last in zip(near(f, f.directions.rows(names, X[known:])), searched, strict=True):
        recent = slice(known - last, known)
        other = last and KNeighborsRegressor(min(last, NEIGHBOURS), weights=closeness).fit(X[recent], y[recent])
        expected = (other.predict(X[known:]) - f.numbers["offset"]) if last else 0.0
        assert np.allclose(found[:, 0], expected, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_class_odds_match_scikit_learn(classes):
    X, y = moving(N + 50, classes)
    f = mixture(losses.Logistic(), 1 if classes == 2 else classes)
    names = [f"x{j}" for j in range(X.shape[1])]
    f.learn(f.directions.rows(names, X[:N]), y[:N].astype(float))
    other = KNeighborsClassifier(NEIGHBOURS, weights=closeness).fit(X[N - FIRST : N], y[N - FIRST : N])
    scores = np.log(NEIGHBOURS * other.predict_proba(X[N:]) + UNSEEN)
    expected = scores[:, 1:] - scores[:, :1] if classes == 2 else scores - scores.mean(axis=1, keepdims=True)
    assert np.allclose(near(f, f.directions.rows(names, X[N:]))[0], expected, atol=1e-3)


def test_drift_is_followed():
    X, y = moving(3000)
    models, right = [KernelClassifier(max_features=64) for _ in range(2)], []
    for i, (x, label) in enumerate(zip(as_dicts(X), y.tolist(), strict=True)):
        if i == 300:
            models[1]._learner.restore(without(models[1]._learner))
        right.append([model.predict_one(x) == label for model in models])
        for model in models:
            model.learn_one(x, label)
    with_them, without_them = np.mean(right[600:], axis=0)
    assert with_them > without_them + 0.08
    assert models[0]._learner.shares["neighbours"] > 0.5


def test_inputs_beyond_the_limit_are_ignored():
    f = mixture(losses.Square())
    for i in range(200):
        f.learn_one(f.row({f"x{i}": 1.0, "first": float(i % 3)}), float(i % 2))
    assert f.arrays.neighbours.points.shape == (NEAR, STORED)
    assert (f.arrays.linear.counts[0], f.arrays.neighbours.remembered[0]) == (202, 200)
    known, other = (f.row({"first": 2.0, name: 1.0}) for name in ("x199", "x999"))
    assert np.array_equal(near(f, known), near(f, other))


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_saving_and_loading_changes_no_bit(kind, tmp_path):
    """Before and after the first examples are forgotten by each function."""
    model, xs, ys = model_of(kind, STORED + 500)
    other = type(model)(**SMALL)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if i in (0, 40, N, STORED + 300):
            other.save(tmp_path / "model")
            other = load(tmp_path / "model")
        model.learn_one(x, y)
        other.learn_one(x, y)
    assert content(model) == content(other)


def without(f):
    """Return the tensors of a function without its functions of neighbours."""
    gone, tensors = -len(WINDOWS), f.tensors()
    cut = {name: part for name, part in tensors.items() if not name.startswith("neighbours.")}
    cut |= {name: cut[name][:gone] for name in ("weights", "signed", "positive", "standing")}
    cut["mixer"] = cut["mixer"][:gone, :gone].copy()
    cut["bounds"] = np.delete(cut["bounds"], np.arange(gone, 0) - 2)
    return cut


def test_a_model_without_neighbours_continues_and_merges(tmp_path):
    _, xs, ys = model_of("regressor", N + 1000)
    first, second = (learn(KernelRegressor(**SMALL), xs[:600], ys[:600]) for _ in range(2))
    f = second._learner
    f.restore(without(f))
    learn(first, xs[600:], ys[600:])
    learn(second, xs[600:], ys[600:])
    assert f.arrays.neighbours.weights.shape == (0,)
    second.save(tmp_path / "model")
    assert load(tmp_path / "model").predict_one(xs[3]) == second.predict_one(xs[3])
    merged = first.merge(second)
    assert "linear" in merged._learner.shares
    for learner in (f, merged._learner):
        assert "neighbours" not in learner.shares
    assert len(merged._learner.arrays.weights) == len(f.arrays.weights)
    assert np.isfinite(merged.predict_one(xs[900]))


def test_a_new_class_does_not_change_arrays_that_still_predict():
    """It has no column for it."""
    xs, ys = examples(300, ("a", "b", "c"))
    model = learn(KernelClassifier(**SMALL), xs, ys)
    old = model._learner
    row = model._state.scales(old.directions.row(xs[0]))
    before = old.scores(row)
    for _ in range(20):
        model.learn_one(xs[0], "d")
    assert model._learner is not old
    assert model._learner.arrays.neighbours.answers.max() == 3.0
    assert old.arrays.neighbours.answers.max() == 2.0
    assert np.array_equal(old.scores(row), before)


CRAFTED = {
    "far": np.full((5, 40), 1e20, np.float32),
    "neighbours.points": np.zeros((2, 40), np.float32),
    "neighbours.targets": np.full(40, 7.0),
    "neighbours.count": np.array([-3]),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_file_is_refused(case):
    model, xs, ys = model_of("classifier")
    tensors = learn(model, xs[:40], ys[:40])._learner.tensors()
    linear = linear_state.unpack(tensors, 3)
    neighbours.unpack(tensors, linear, 3)
    name = "neighbours.points" if case == "far" else case
    with pytest.raises(ValueError, match="neighbours"):
        neighbours.unpack({**tensors, name: CRAFTED[case]}, linear, 3)


def summary_of(f):
    return neighbours.summarize(f.arrays.neighbours, f.arrays.linear)


def remembered(model):
    """Return the recent examples that a model knows, as inputs by name with their labels, the oldest first."""
    summary, names = summary_of(model._learner), model._learner.arrays.linear.names.tolist()
    labels = [list(model.labels)[int(answer)] for answer in summary.answers[0]]
    return [
        ({name: value for name, value in zip(names, point, strict=False) if value}, label)
        for point, label in zip(summary.points.T.tolist(), labels, strict=True)
    ]


def test_merged_replicas_keep_recent_examples_of_each_and_of_the_base():
    X, y = moving(900)
    xs, labels = as_dicts(X), [("a", "b", "c")[c] for c in y.tolist()]
    base = learn(KernelClassifier(**SMALL), xs[:600], labels[:600])
    parts = [copy.deepcopy(base) for _ in range(2)]
    learn(parts[0], xs[600:700], labels[600:700])
    learn(parts[1], xs[700:], labels[700:])
    own = [remembered(part) for part in parts]
    found = remembered(parts[0].merge(parts[1], base=base))
    assert len(found) == 900
    assert found[:600] == remembered(base)
    assert sorted(map(repr, found[600:])) == sorted(map(repr, own[0][600:] + own[1][600:]))
    assert [one for one in found if one in own[1][600:]] == own[1][600:]


def test_a_merged_model_merges_again_with_the_same_base():
    """Though no more examples are kept than there is room for."""
    X, _ = moving(STORED + 1200)
    names = names_in_order(mixture(losses.Square()), 4)

    def learn_parts(*parts):
        f = mixture(losses.Square())
        for first, last in parts:
            f.learn(f.directions.rows(names, X[first:last]), np.arange(float(first), last))
        return summary_of(f), f.arrays.linear

    def merge(*parts):
        merged = neighbours.merge(parts, base, base.names)
        return neighbours.summarize(neighbours.unpack(merged, linear, None), linear)

    start = (0, STORED + 500)
    base, linear = learn_parts(start)
    first, second, third = (learn_parts(start, (n, n + 100))[0] for n in range(STORED + 500, STORED + 800, 100))
    both = merge(first, second)
    assert both.remembered == STORED + 700
    assert set(both.answers[0, -200:]) == set(first.answers[0, -100:]) | set(second.answers[0, -100:])
    assert np.array_equal(both.answers[0, :-200], base.answers[0, 200:])
    found = merge(both, third)
    assert found.remembered == STORED + 800
    assert set(found.answers[0, -300:]) == set(both.answers[0, -200:]) | set(third.answers[0, -100:])


@pytest.mark.parametrize("more", [["a"], ["a", "c"], []])
@pytest.mark.parametrize("columns", [["b", "a"], ["b"], ["c", "b", "a"]])
def test_class_numbers_are_those_of_the_merged_labels(columns, more):
    together = list(dict.fromkeys([*more, *columns]))
    for is_binary in (True, False):
        if is_binary and len(columns) > 2:
            continue
        matrix = columns_of(columns, together, is_binary, 0.5)
        summary = summary_of(mixture(losses.Logistic(), matrix.shape[1]))
        own = np.arange(float(len(columns)))
        found = replace(summary, answers=own).with_columns(matrix).answers
        assert [together[int(c)] for c in found] == columns


def test_inputs_count_by_their_influence():
    X, noise = np.random.default_rng(8).normal(size=(2, 1700, 9))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * noise[:, 0]
    model = learn(KernelRegressor(**SMALL), as_dicts(X[:1400]), y[:1400].tolist())
    f, scales = model._learner, model._state.scales
    table = f.arrays.metric.sensitivities
    found = influence(f.arrays.linear, 10, table)[1:10]
    of_name = {row["key"]: row for row in rows_of(table)}
    known = np.array([of_name[name].tolist()[1:] for name in f.arrays.linear.names[1:10]])
    share = (4.0 + known[:, 0] * len(known) / (known[:, 0] / known[:, 1]).sum()) / (4.0 + known[:, 1])
    assert found == pytest.approx(np.maximum(np.sqrt(share), 0.1), rel=1e-6)
    matters = np.isin(names_in_order(f, 9), ["x0", "x1"])
    assert found[matters].min() > max(0.6, 2.0 * found[~matters].max())
    errors = []
    rows = scales(f.directions.rows([f"x{i}" for i in range(9)], X[1400:]))
    for squares in (table["squares"].copy(), 0.0):  # without squares all inputs count the same
        table["squares"] = squares
        errors.append(np.square(near(f, rows)[0, :, 0] + y[:1400].mean() - y[1400:]).mean())
    assert errors[0] < 0.4 * errors[1]
