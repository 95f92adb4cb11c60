"""Weights of the mixture that are not negative, and their mean with those of any sign."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls
from streams import as_dicts, learn

from streamkernel import KernelClassifier, KernelRegressor, upkeep
from streamkernel.second_order.weights import mixed_weights, positive_weights

SMALL = {"max_features": 64}
N = 1600


def examples(is_class, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(N, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * generator.normal(size=N)
    return as_dicts(X), (y > 0.0).tolist() if is_class else y.tolist()


@max_examples(50)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_positive_weights_are_those_of_non_negative_least_squares(seed, n):
    generator = np.random.default_rng(seed)
    F = generator.normal(size=(4 * n, n)) + generator.normal(size=(4 * n, 1))
    factor, signed = np.linalg.qr(F, mode="r"), generator.normal(size=n)
    factor *= np.sign(np.diag(factor))[:, None]
    expected, _ = nnls(factor, factor @ signed)
    found = positive_weights(factor, signed)
    assert (found >= 0.0).all()
    assert np.linalg.norm(factor @ (found - signed)) <= 1.001 * np.linalg.norm(factor @ (expected - signed)) + 1e-6
    assert np.array_equal(positive_weights(0.0 * factor, signed), np.maximum(signed, 0.0))


@pytest.mark.parametrize("make", [KernelClassifier, KernelRegressor])
def test_weights_follow_from_both(make):
    """Also after growth, pruning and merging; and p is near its minimum after every example."""
    xs, ys = examples(make is KernelClassifier)
    model = learn(make(max_features=256), xs, ys)
    pruned = copy.deepcopy(model)
    upkeep.apply(upkeep.Pruning(keep=0.5), pruned, list(zip(xs, ys, strict=True)))
    other = learn(learn(make(max_features=256), xs[:600], ys[:600]), xs[:400], ys[:400])
    for found in (model, learn(pruned, xs[:300], ys[:300]), model.merge(other)):
        arrays = found._learner.arrays
        signed, positive, factor = arrays.signed, arrays.positive, arrays.mixer
        assert np.allclose(arrays.weights, mixed_weights(signed[None], positive[None], arrays.lead)[0], atol=1e-12)
        assert (positive >= 0.0).all()
        assert (signed < 0.0).any()
        best = positive_weights(factor, signed)
        here, there = (np.linalg.norm(factor @ (each - signed)) for each in (positive, best))
        assert here < 1.05 * there + 1e-3 * np.linalg.norm(factor @ signed)
