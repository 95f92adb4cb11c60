"""Values of inputs with few values, in linear functions: which they are, against plain formulas, and in models."""

from __future__ import annotations

import copy
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from reference import second_order
from sklearn.linear_model import Ridge
from streams import content, learn, names_in_order

from streamkernel import KernelClassifier, KernelRegressor, kernels, load, losses, step_sizes
from streamkernel.features.rows import Rows
from streamkernel.second_order.linear import state as linear_state
from streamkernel.second_order.linear.few_values import FREQUENT, find_few_values
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
    f = f.with_few_values(f.directions.rows(names, X[:FIRST]))
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
