"""The median trick on a stream: what the first examples decide, and what they must survive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import classifier, content, examples, learn

from streamkernel import RandomFeatures, bandwidth
from streamkernel.features import Directions
from streamkernel.kernels import Gaussian


def rows(X, names=None):
    directions = Directions(seed=0, per_block=1, cache_bytes=0)
    names = names or [f"x{i}" for i in range(X.shape[1])]
    return [directions.row(dict(zip(names, map(float, row), strict=True))) for row in X]


def median(X):
    distances = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))[np.triu_indices(len(X), 1)]
    return np.median(distances[distances > 0.0])


@given(st.integers(2, 60), st.integers(1, 8), st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_the_median_is_that_of_all_pairs(n, d, seed, scale):
    X = scale * np.random.default_rng(seed).normal(size=(n, d))
    assert bandwidth.median_distance(rows(X)) == pytest.approx(median(X), rel=1e-6)


def test_missing_names_count_as_zero_and_equal_examples_do_not_count():
    directions = Directions(seed=0, per_block=1, cache_bytes=0)
    xs = [{"a": 3.0}, {"b": 4.0}, {"a": 3.0, "b": 0.0}, {"a": 3.0}]
    assert bandwidth.median_distance([directions.row(x) for x in xs]) == pytest.approx(5.0)
    assert bandwidth.median_distance([directions.row({"a": 2.0})] * 10) == 1.0


@pytest.mark.parametrize("outlier", [1e3, 1e6, 1e9, 1e10, 1e15, 1e20, 1e28])
def test_one_outlier_does_not_move_the_median(outlier):
    """As a value that stands for a missing one would be."""
    X = np.random.default_rng(0).normal(size=(256, 4))
    usual = bandwidth.median_distance(rows(X))
    X[7, 2] = outlier
    assert bandwidth.median_distance(rows(X)) == pytest.approx(usual, rel=0.05)


@pytest.mark.parametrize("offset", [1e3, 1e6, 1.7e9, 1e12])
def test_where_the_origin_is_does_not_matter(offset):
    """Times in seconds, or prices: only differences count."""
    X = 100.0 * np.random.default_rng(0).normal(size=(256, 4))
    assert bandwidth.median_distance(rows(X + offset)) == pytest.approx(median(X), rel=0.01)


def test_examples_that_decide_the_bandwidth_are_learnt_whatever_they_are():
    """A value that is usable with the provisional bandwidth may be none with the next; the model goes on."""
    xs, ys = examples(300)
    xs = [{name: 1e-6 * value for name, value in x.items()} for x in xs]
    for outlier in (1e15, 1e22, 1e28, 1e30):
        model = classifier(kernel=Gaussian())
        learn(model, [{"x0": outlier}, *xs], ["yes", *ys])
        assert model._first is None
        assert 1e-7 < model.sigma < 1e-5
        assert np.isfinite(list(model.predict_proba_one(xs[0]).values())).all()


@pytest.mark.parametrize("multiple", [0.25, 1.0, 4.0])
def test_the_bandwidth_is_a_multiple_of_the_median(multiple):
    xs, ys = examples(300)
    X = np.array([list(x.values()) for x in xs])
    features, model = RandomFeatures(Gaussian(multiple=multiple), 4), classifier(kernel=Gaussian(multiple=multiple))
    for i, (x, y) in enumerate(zip(xs, ys, strict=True), start=1):
        features.learn_one(x)
        model.learn_one(x, y)
        seen = min(256, 1 << (i.bit_length() - 1))  # the median is taken at 2, 4, 8, ..., 256
        if i >= 2:
            assert features.sigma == model.sigma == pytest.approx(multiple * median(X[:seen]), rel=1e-9)


def test_a_model_of_the_stream_is_its_scale():
    """Inputs in other units make the same model, with the bandwidth in other units."""
    xs, ys = examples(400)
    scaled = [{name: 1024.0 * value for name, value in x.items()} for x in xs]
    model, other = (learn(classifier(kernel=Gaussian()), inputs, ys) for inputs in (xs, scaled))
    assert other.sigma == pytest.approx(1024.0 * model.sigma, rel=1e-12)
    for x, x2 in zip(xs[:50], scaled, strict=False):
        assert other.predict_proba_one(x2) == pytest.approx(model.predict_proba_one(x), rel=1e-3)


def test_a_refused_example_decides_nothing():
    xs, ys = examples(60)
    model, twin = classifier(kernel=Gaussian()), classifier(kernel=Gaussian())
    for x, y in zip(xs, ys, strict=True):
        with pytest.raises(ValueError, match="at x"):
            model.learn_one({**x, "x1": float("nan")}, y)
        model.learn_one(x, y)
        twin.learn_one(x, y)
    assert content(model) == content(twin)
