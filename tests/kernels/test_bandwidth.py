"""The median heuristic on a stream: bandwidths from the first examples, also from unusual ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import classifier, content, examples, learn

from streamkernel import RandomFeatures
from streamkernel.features.directions import Directions
from streamkernel.features.rows import Rows
from streamkernel.kernels import Gaussian, Laplacian, bandwidth
from streamkernel.kernels.program import KernelProgram


def rows(X, names=None):
    names = names or [f"x{i}" for i in range(X.shape[1])]
    return told([dict(zip(names, map(float, row), strict=True)) for row in X])


def told(xs):
    directions = Directions(KernelProgram(Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
    return Rows.stack([directions.row(x) for x in xs])


def median_distance(rows, norm=2):
    return bandwidth.median_distance(rows, 0, norm)


def median(X, norm=2):
    distances = np.linalg.norm(X[:, None] - X, norm, axis=2)[np.triu_indices(len(X), 1)]
    return np.median(distances[distances > 0.0])


@given(st.integers(2, 60), st.integers(1, 8), st.integers(0, 10**6), st.floats(1e-3, 1e3), st.sampled_from([1, 2]))
def test_the_median_is_that_of_all_pairs(n, d, seed, scale, norm):
    X = scale * np.random.default_rng(seed).normal(size=(n, d))
    assert median_distance(rows(X), norm) == pytest.approx(median(X, norm), rel=1e-6)


def test_each_part_of_a_kernel_has_the_median_of_its_inputs():
    X = np.random.default_rng(0).normal(size=(256, 3)) * [1.0, 10.0, 100.0]
    kernel = Gaussian("median").on("a") + Laplacian("median", median_factor=0.5).on("b", "c") * Gaussian(7.0)
    features = RandomFeatures(kernel, n_features=8)
    for x in X:
        features.learn_one(dict(zip("abc", x.tolist(), strict=True)))
    found = features.kernel_
    assert found.left.kernel.sigma == pytest.approx(median(X[:, :1]))
    assert found.right.left.kernel.sigma == pytest.approx(0.5 * median(X[:, 1:], norm=1))
    assert found.right.right == Gaussian(7.0)


def test_missing_names_count_as_zero_and_equal_examples_do_not_count():
    xs = [{"a": 3.0}, {"b": 4.0}, {"a": 3.0, "b": 0.0}, {"a": 3.0}]
    assert median_distance(told(xs)) == pytest.approx(5.0)
    assert median_distance(told([{"a": 2.0}] * 10)) == 1.0


@pytest.mark.parametrize("outlier", [1e3, 1e6, 1e9, 1e10, 1e15, 1e20, 1e28])
def test_one_outlier_does_not_move_the_median(outlier):
    """As a value that stands for a missing one would be."""
    X = np.random.default_rng(0).normal(size=(256, 4))
    usual = median_distance(rows(X))
    X[7, 2] = outlier
    assert median_distance(rows(X)) == pytest.approx(usual, rel=0.05)


@pytest.mark.parametrize("offset", [1e3, 1e6, 1.7e9, 1e12])
def test_translation_does_not_change_the_median(offset):
    """Times in seconds, or prices: only differences count."""
    X = 100.0 * np.random.default_rng(0).normal(size=(256, 4))
    assert median_distance(rows(X + offset)) == pytest.approx(median(X), rel=0.01)


def test_all_examples_that_decide_the_bandwidth_are_learned():
    """A value that is usable with the provisional bandwidth may be unusable with the next; the model continues."""
    xs, ys = examples(300)
    xs = [{name: 1e-6 * value for name, value in x.items()} for x in xs]
    for outlier in (1e15, 1e22, 1e28, 1e30):
        model = classifier(kernel=Gaussian())
        learn(model, [{"x0": outlier}, *xs], ["yes", *ys])
        assert model._state.first is None
        assert 1e-7 < model.kernel_.sigma < 1e-5
        assert np.isfinite(list(model.predict_proba_one(xs[0]).values())).all()


@pytest.mark.parametrize("multiple", [0.25, 1.0, 4.0])
def test_the_bandwidth_is_a_multiple_of_the_median(multiple):
    xs, ys = examples(300)
    X = np.array([list(x.values()) for x in xs])
    features, model = (
        RandomFeatures(Gaussian(median_factor=multiple), n_features=4),
        classifier(kernel=Gaussian(median_factor=multiple)),
    )
    for i, (x, y) in enumerate(zip(xs, ys, strict=True), start=1):
        features.learn_one(x)
        model.learn_one(x, y)
        seen = min(256, 1 << (i.bit_length() - 1))  # the median is taken at 2, 4, 8, ..., 256
        if i >= 2:
            assert features.kernel_.sigma == model.kernel_.sigma == pytest.approx(multiple * median(X[:seen]), rel=1e-9)


def test_the_model_uses_the_bandwidth_of_the_stream():
    """Inputs in other units make the same model, with the bandwidth in other units."""
    xs, ys = examples(400)
    scaled = [{name: 1024.0 * value for name, value in x.items()} for x in xs]
    model, other = (learn(classifier(kernel=Gaussian()), inputs, ys) for inputs in (xs, scaled))
    assert other.kernel_.sigma == pytest.approx(1024.0 * model.kernel_.sigma, rel=1e-12)
    for x, x2 in zip(xs[:50], scaled, strict=False):
        assert other.predict_proba_one(x2) == pytest.approx(model.predict_proba_one(x), rel=1e-3)


def test_a_rejected_example_does_not_influence_the_bandwidth():
    xs, ys = examples(60)
    model, twin = classifier(kernel=Gaussian()), classifier(kernel=Gaussian())
    for x, y in zip(xs, ys, strict=True):
        with pytest.raises(ValueError, match="at x"):
            model.learn_one({**x, "x1": float("inf")}, y)
        model.learn_one(x, y)
        twin.learn_one(x, y)
    assert content(model) == content(twin)
