"""Indicators of values and squares, in linear functions: which ones, against plain formulas, and in models."""

from __future__ import annotations

import copy
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from reference import second_order
from sklearn.linear_model import LinearRegression, Ridge
from streams import as_dicts, content, learn, names_in_order

from streamkernel import KernelClassifier, KernelRegressor, kernels, load, losses, step_sizes
from streamkernel.features.rows import Rows
from streamkernel.second_order.linear import further_inputs, merging
from streamkernel.second_order.linear import state as linear_state
from streamkernel.second_order.linear.further_inputs import FREQUENT, explained, find_few_values
from streamkernel.second_order.mixture import SecondOrderLearner

FIRST, SMALL = 256, {"max_features": 32}


def mixture(loss):
    step = step_sizes.Constant(0.75 / loss.curvature)
    return SecondOrderLearner(
        kernels.Gaussian(1.0), loss, step, block_size=4, max_features=16, columns=1, seed=5, is_linear=True
    )


def inner(xs):
    """Return the values that have indicators, and their shares, by name."""
    found = {}
    for name in {name for x in xs for name in x}:
        counts = Counter(x[name] for x in xs if name in x)
        frequent = sorted(value for value, count in counts.items() if count >= FREQUENT)
        if FREQUENT * len(counts) <= len(xs) <= 2 * sum(counts.values()):
            found[name] = {value: counts[value] / len(xs) for value in frequent[1:-1]}
    return found


CASES = {
    "three values": [{"a": i % 3, "b": i / 7} for i in range(48)],
    "a flag": [{"a": i % 2} for i in range(48)],
    "a rare value": [{"a": i % 4 if i < 60 else 9} for i in range(60 + FREQUENT - 1)],
    "a value that is frequent enough": [{"a": i % 4 if i < 60 else 9} for i in range(60 + FREQUENT)],
    "a rare value among the others": [{"a": i % 4 if i < 60 else 1.5} for i in range(60 + FREQUENT - 1)],
    "only two frequent values": [{"a": i % 2 if i < 60 else i} for i in range(66)],
    "as many values as are few": [{"a": i % 12} for i in range(12 * FREQUENT)],
    "one more": [{"a": i % 13} for i in range(13 * FREQUENT - 1)],
    "in half of the examples": [{"a": i % 3, "b": 0.1 * i} if i % 2 else {"b": 0.1 * i} for i in range(60)],
    "in less": [{"a": i % 3, "b": 0.1 * i} if i % 20 < 9 else {"b": 0.1 * i} for i in range(100)],
    "two zeros": [{"a": (-1.0, 0.0, -0.0, 1.0)[i % 4], "b": (-1, 5e-324, 2)[i % 3]} for i in range(48)],
    "few examples": [{"a": i % 3} for i in range(3 * FREQUENT - 1)],
    "no names": [{} for _ in range(40)],
}


@pytest.mark.parametrize("case", CASES)
def test_values_are_found(case):
    xs, f = CASES[case], mixture(losses.Square())
    found = find_few_values(Rows.stack([f.row(x) for x in xs]))
    names = {int(f.row({name: 1.0}).hashes[0]): name for x in xs for name in x}
    own = [(names[int(name)], value) for name, value in zip(found.names, found.values.tolist(), strict=True)]
    expected = {(name, value): share for name, shares in inner(xs).items() for value, share in shares.items()}
    assert sorted(own) == sorted(expected)
    shares = np.array([expected[one] for one in own])
    assert np.allclose(found.divisors, np.sqrt(shares * (1.0 - shares)))


def test_values_of_a_wide_table_are_those_of_each_column():
    generator, f = np.random.default_rng(0), mixture(losses.Square())
    X = np.concatenate([generator.integers(2, 14, (100, 40)), generator.normal(size=(100, 20))], axis=1).round(2)
    X[:, :40] %= generator.integers(2, 14, 40)
    names = [f"x{j}" for j in range(60)]
    found = find_few_values(f.directions.rows(names, X))
    expected = inner([dict(zip(names, row, strict=True)) for row in X.tolist()])
    assert len(found.names) == sum(map(len, expected.values())) > 40
    assert Counter(found.values.tolist()) == Counter(value for values in expected.values() for value in values)


def examples(n, names, for_classes, seed=3):
    """Return inputs, codes and a number, and targets that a linear function of the codes does not explain."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, len(names)))
    X[:, 0], X[:, 1] = generator.integers(4, size=n), generator.integers(3, size=n) - 1.0
    X[0, :2] = 1.0  # a name gets its place with its first value that is not 0
    f = np.array([2.0, -1.0, 1.5, -2.0])[X[:, 0].astype(int)] + 2.0 * (X[:, 1] == 0.0) + X[:, 2] - 1.0
    f += 0.3 * generator.normal(size=n)
    return X, (f > 0.0).astype(float) if for_classes else f


def with_indicators(f, names, X, first):
    """Return the inputs in the order of the places: the names, and the values."""
    columns = [X]
    found = find_few_values(f.directions.rows(names, X[:first]))
    hashes = [int(f.row({name: 1.0}).hashes[0]) for name in names]
    for name, value, divisor in zip(*found, strict=True):
        columns.append(((X[:, hashes.index(int(name))] == value) / divisor)[:, None])
    assert len(found.names) == 3
    return np.concatenate(columns, axis=1)


def prepared(loss, names, X):
    f = mixture(loss)
    f = f.with_first(f.directions.rows(names, X[:FIRST]), np.arange(FIRST) % 2.0)
    f.arrays.bounds[:-1] = 1e9  # nothing is clipped
    return f


def test_it_is_ridge_regression_on_inputs_and_indicators():
    names = names_in_order(mixture(losses.Square()), 5)
    X, y = examples(600, names, False)
    f = prepared(losses.Square(), names, X)
    f.learn(f.directions.rows(names, X), y)
    inputs = with_indicators(f, names, X, FIRST)
    root = linear_state.CONSTANT**-0.5
    ridge = Ridge(alpha=linear_state.PRIOR, fit_intercept=False, solver="cholesky")
    ridge.fit(np.c_[np.full(len(X), root), inputs], y)
    expected = np.r_[ridge.coef_[0] * root, ridge.coef_[1:]]
    assert np.allclose(f.arrays.linear.w[0, : len(expected)], expected, rtol=1e-9)


def test_classes_match_the_reference_on_inputs_and_indicators():
    names = names_in_order(mixture(losses.Logistic()), 5)
    X, y = examples(400, names, True)
    f, loss = prepared(losses.Logistic(), names, X), losses.Logistic()
    inputs = with_indicators(f, names, X, FIRST)
    line = second_order.Line(second_order.Logistic(), loss.curvature, inputs.shape[1], 1, 1.0, 0.0)
    rows = f.directions.rows(names, X)
    for i in range(len(y)):
        f.learn_one(rows.part(i, i + 1), y[i])
        line.see(inputs[i], y[i], 0.0, i + 1, 0.0, 0.0, 1.0)
        line.step(i + 1)
    assert np.allclose(f.arrays.linear.w[:, : len(line.w)], line.w.T, rtol=1e-6)
    expected = np.array([line.bounded(line.scores(x), 0.0) for x in inputs])
    assert np.allclose(f.scores_of_others(rows)[:, 1], expected, rtol=1e-6, atol=1e-9)


def stream(n, kinds=6, seed=1):
    """Return examples of three codes with an effect of each value, and a number, and whether their sum is positive."""
    generator = np.random.default_rng(seed)
    effects, codes = generator.normal(size=(3, kinds)), generator.integers(kinds, size=(n, 3))
    extra = generator.normal(size=n)
    f = effects[np.arange(3), codes].sum(axis=1) + 0.5 * extra
    xs = [{"a": a, "b": b / 10, "c": float(c), "d": d} for (a, b, c), d in zip(codes.tolist(), extra, strict=True)]
    return xs, (f > 0.0).tolist(), f.tolist()


def places(model):
    return int(model._learner.arrays.linear.counts[linear_state.PLACES])


def test_codes_are_learned_as_well_as_strings():
    xs, ys, targets = stream(3000)
    as_strings = [{name: value if name == "d" else str(value) for name, value in x.items()} for x in xs]
    correct, errors = [], []
    for given in (xs, as_strings):
        model = KernelClassifier()
        correct.append(0)
        for x, y in zip(given, ys, strict=True):
            correct[-1] += model.predict_one(x) == y
            model.learn_one(x, y)
        regressor = learn(KernelRegressor(), given[:2000], targets[:2000])
        found = np.array([regressor.predict_one(x) for x in given[2000:]])
        errors.append(math.sqrt(np.mean((found - targets[2000:]) ** 2)))
    assert correct[0] > 0.9 * len(ys)
    assert correct[0] > correct[1] - 0.01 * len(ys)
    assert errors[0] < 1.1 * errors[1]


def test_grouping_of_events_order_of_fields_and_files_change_no_bit(tmp_path):
    xs, ys, _ = stream(600)
    model = learn(KernelClassifier(**SMALL), xs, ys)
    assert places(model) == 1 + 4 + 3 * 4
    turned = learn(KernelClassifier(**SMALL), [dict(reversed(x.items())) for x in xs], ys)
    grouped, stored = KernelClassifier(**SMALL), KernelClassifier(**SMALL)
    for first, last in ((0, 3), (3, 40), (40, 400), (400, 600)):
        grouped.learn_many(pd.DataFrame(xs[first:last]), pd.Series(ys[first:last]))
        learn(stored, xs[first:last], ys[first:last])
        stored.save(tmp_path / "model")
        stored = load(tmp_path / "model")
    assert content(model) == content(turned) == content(grouped) == content(stored)


def test_a_value_that_comes_later_counts_as_a_number():
    xs, ys, _ = stream(600)
    model = learn(KernelClassifier(**SMALL), xs, ys)
    before = places(model)
    learn(model, [x | {"a": 2.5} for x in xs[:100]], ys[:100])
    assert places(model) == before


def test_a_merged_model_is_that_of_all_examples():
    """The linear function of replicas with a common base."""
    xs, _, targets = stream(900)
    base = learn(KernelRegressor(**SMALL), xs[:300], targets[:300])
    parts = [learn(copy.deepcopy(base), xs[i : i + 300], targets[i : i + 300]) for i in (300, 600)]
    whole = learn(copy.deepcopy(base), xs[300:], targets[300:])
    merged = parts[0].merge(parts[1], base=base)
    own, expected = merged._learner.arrays.linear, whole._learner.arrays.linear
    n = places(whole)
    assert places(merged) == n == 1 + 4 + 3 * 4
    assert np.array_equal(own.names[:n], expected.names[:n])
    assert np.allclose(own.scales[5:n], expected.scales[5:n])
    assert np.allclose(own.w[0, 5:n], expected.w[0, 5:n], atol=0.02 * np.abs(expected.w[0, :n]).max())


def squared(s):
    return (np.minimum(s * s, 9.0) - 1.0) / math.sqrt(2.0)


def two_spreads(n, inputs, seed=0):
    """Return examples of two classes whose inputs have the deviations 1 and 2."""
    generator = np.random.default_rng(seed)
    y = generator.integers(2, size=n)
    return generator.normal(size=(n, inputs)) * (1.0 + y[:, None]), y


def parabola(n, inputs, seed=0):
    """Return examples of a number that depends on the square of the second input."""
    X = np.random.default_rng(seed).normal(size=(n, inputs))
    return X, X[:, 1] ** 2 + 0.5 * X[:, 0]


@pytest.mark.parametrize("kinds", [0, 2, 4])
def test_the_explained_share_is_the_one_of_regressions(kinds):
    generator = np.random.default_rng(kinds)
    s = generator.normal(size=(200, 12)) * generator.uniform(0.5, 1.5, size=12) + generator.normal(size=12) / 3
    y = np.digitize(s[:, 0] ** 2 + s[:, 1] + generator.normal(size=200), [0.5, 1.5, 2.5][: kinds - 1])
    targets = y.astype(float) if kinds else s[:, 0] ** 2 + 2.0 * generator.normal(size=200)
    chosen = explained(s, targets, for_classes=kinds > 0)
    read = np.eye(kinds)[y] if kinds else np.argsort(np.argsort(targets))[:, None]
    found, rests, k = [], [], max(kinds - 1, 1)
    for j in range(12):
        x = np.clip(s[:, [j]], -3.0, 3.0)
        rests.append(x[:, 0] ** 2 - LinearRegression().fit(x, x[:, 0] ** 2).predict(x))
        found.append(200.0 * LinearRegression().fit(read, rests[-1]).score(read, rests[-1]))
    mu = np.linalg.eigvalsh(np.corrcoef(rests))
    assert sum(found) > 12 * k + 2.0 * math.sqrt(3.0 * k * (mu @ mu)) + 6.0 * mu.max()
    assert chosen.tolist() == [share > 2.0 * k for share in found]
    assert chosen[0]
    assert not chosen.all()


@pytest.mark.parametrize(("inputs", "factors", "n"), [(10, 0, 256), (100, 0, 8), (60, 1, 128), (60, 3, 256)])
def test_noise_is_chosen_as_seldom_as_the_bound_says(inputs, factors, n):
    chosen = []
    for seed in range(150):
        generator = np.random.default_rng(seed)
        s, y = generator.normal(size=(n, inputs)), generator.integers(3, size=n).astype(float)
        if factors:
            s = 0.3 * s + generator.normal(size=(n, factors)) @ generator.normal(size=(factors, inputs))
        chosen.append(explained(s / s.std(axis=0), y, for_classes=True).any())
    assert np.mean(chosen) < math.exp(-further_inputs.SURE)


@pytest.mark.parametrize("for_classes", [False, True])
def test_degenerate_examples_choose_nothing(for_classes):
    n = 64
    s = np.c_[np.zeros(n), np.arange(n) % 2 * 2.0 - 1.0, np.full(n, 1e300), np.linspace(-1, 1, n) ** 3]
    for y in (np.zeros(n), np.arange(n) % 2 * 1.0, np.where(np.arange(n) == 3, 1e300, 0.0), np.zeros((n, 2))):
        assert explained(s, y, for_classes=for_classes)[:3].tolist() == [False] * 3
    assert not explained(s[:1], np.zeros(1), for_classes=for_classes).any()


def test_it_is_ridge_regression_on_inputs_and_squares():
    names = names_in_order(mixture(losses.Square()), 4)
    X, y = parabola(600, 4)
    f = mixture(losses.Square())
    rows = f.directions.rows(names, X)
    f = f.with_first(rows.part(0, FIRST), y[:FIRST])
    f.arrays.bounds[:-1] = 1e9
    assert f.arrays.linear.squares.tolist() == [[2, 5]]
    f.learn(rows, y)
    root = linear_state.CONSTANT**-0.5
    inputs = np.c_[np.full(len(X), root), X, squared(X[:, 1])]
    ridge = Ridge(alpha=linear_state.PRIOR, fit_intercept=False, solver="cholesky").fit(inputs, y)
    expected = np.r_[ridge.coef_[0] * root, ridge.coef_[1:]]
    assert np.allclose(f.arrays.linear.w[0, :6], expected, rtol=1e-9)


@pytest.mark.parametrize("make", [KernelClassifier, KernelRegressor])
def test_files_and_copies_have_them(make, tmp_path):
    X, y = (two_spreads if make is KernelClassifier else parabola)(500, 5)
    X[3, 2] = X[FIRST + 9, 1] = np.nan  # read as the mean
    xs = [{k: v for k, v in x.items() if v == v} for x in as_dicts(X)]
    model = learn(make(**SMALL), xs[:400], y[:400].tolist())
    assert len(model._learner.arrays.linear.squares) >= 1
    model.save(tmp_path / "model")
    copy = load(tmp_path / "model")
    for one in (model, copy, model.clone(include_attributes=True)):
        learn(one, xs[400:], y[400:].tolist())
        assert content(one) == content(model)


def test_parts_on_other_scales_become_one_function():
    generator = np.random.default_rng(3)
    f = mixture(losses.Square())
    X, y = parabola(FIRST, 2)
    place = f.with_first(f.directions.rows(names_in_order(f, 2), X), y).arrays.linear.names[:4]
    rows = generator.normal(size=(60, 2))

    def on(scales):
        s = (rows - scales[1:3, 0]) / scales[1:3, 1]
        return np.c_[np.ones(60), s, (s[:, 1] ** 2 - 1.0) / math.sqrt(2.0)]  # none is cut off

    first, second = (np.array([[0.0, 1.0], [a, b], [c, d], [0.0, -1.0]]) for a, b, c, d in ((0, 1, 0, 1), (1, 2, 3, 4)))
    w, s = generator.normal(size=(1, 4)), on(first)
    part = merging.LinearSummary(place, first, w, s.T @ s, np.diagonal(s.T @ s), np.ones(1))
    gram, _, changed = merging._on(part, place, second.copy(), 0.0, 1.0)
    assert np.allclose(changed @ on(second).T, w @ s.T)
    assert np.allclose(gram, on(second).T @ on(second))


def errors(X, y):
    """Return the number of errors after the first examples."""
    model, wrong = KernelClassifier(seed=1), 0
    for i, (x, target) in enumerate(zip(as_dicts(X), y.tolist(), strict=True)):
        wrong += i >= FIRST and model.predict_one(x) != target
        model.learn_one(x, target)
    return wrong


def test_classes_of_other_spreads_are_learned_sooner(monkeypatch):
    X, y = two_spreads(700, 15)
    X += 0.3 * y[:, None]
    with_squares = errors(X, y)
    monkeypatch.setattr(further_inputs, "SURE", 1e9)
    assert with_squares < 0.75 * errors(X, y)


def test_importances_see_squares():
    X, y = parabola(3000, 6)
    model = learn(KernelRegressor(seed=2), as_dicts(X), y.tolist())
    importances = model.feature_importances_
    assert max(importances, key=importances.get) == "x1"


def test_importances_see_no_slope_where_squares_end():
    """Where an input has moved further than its square reaches, f no longer changes along it."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(3000, 3))
    X[300:, 0] += 20.0
    y = np.minimum(X[:, 0] ** 2, 9.0) + 0.3 * X[:, 1]
    model = learn(KernelRegressor(seed=1), as_dicts(X), y.tolist())
    assert len(model._learner.arrays.linear.squares) == 1
    assert model.feature_importances_["x1"] > 0.5


def test_many_or_rare_names_have_none():
    X, y = two_spreads(400, 140)
    model = learn(KernelClassifier(**SMALL), as_dicts(X), y.tolist())
    assert len(model._learner.arrays.linear.squares) == 0
    X, y = two_spreads(400, 4)
    rare = [{k: v for j, (k, v) in enumerate(x.items()) if (i + j) % 3 == 0} for i, x in enumerate(as_dicts(X))]
    model = learn(KernelClassifier(**SMALL), rare, y.tolist())
    assert len(model._learner.arrays.linear.squares) == 0
