"""Weights of a Gaussian process: the noise of an example has the variance σ²/w, as in scikit-learn's process."""

from __future__ import annotations

import numpy as np
import pytest
from processes import MODELS, XS, YS, gp
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import RBF
from streams import content, frame

from streamkernel import InputError
from streamkernel.kernels import Gaussian
from streamkernel.posterior.posteriors import FeatureMap, most_likely

N = 60
W = np.random.default_rng(5).choice([0.25, 1.0, 4.0, 100.0], size=len(XS))
XTEST = XS[N:]


def learned(ws, n=N, **options):
    model = gp(**options)
    for x, y, w in zip(XS[:n], YS[:n], ws, strict=False):
        model.learn_one(x, y, w)
    return model


def found(model):
    distributions = [model.predict_one(x, with_dist=True) for x in XTEST]
    return np.array([(d.mu, d.sigma**2) for d in distributions])


def test_weights_are_noise_variances_of_examples():
    """scikit-learn's posterior with alpha = noise/w, and the closed form for these very features."""
    X, y = frame(XS).to_numpy(), np.array(YS)
    model = learned(W, kernel=Gaussian(1.5), noise=0.05, n_features=1000)
    mean, deviation = (
        Exact(RBF(1.5, "fixed"), alpha=0.05 / W[:N], optimizer=None).fit(X[:N], y[:N]).predict(X[N:], return_std=True)
    )
    ours = found(model)
    assert np.sqrt(np.mean((mean - ours[:, 0]) ** 2)) < 0.1 * np.sqrt(np.mean(mean**2))
    assert np.abs(deviation**2 - (ours[:, 1] - 0.05)).mean() < 0.02

    phi = FeatureMap(Gaussian(1.5), 1000, 0, 0)
    known, new = phi(phi.table(frame(XS[:N]))), phi(phi.table(frame(XTEST)))
    gram = np.linalg.inv(known @ known.T + 0.05 * np.diag(1.0 / W[:N]))
    across = new @ known.T
    assert ours[:, 0] == pytest.approx(across @ gram @ y[:N], abs=1e-8)
    assert ours[:, 1] == pytest.approx(0.05 + np.sum(new**2, axis=1) - np.sum(across @ gram * across, axis=1), abs=1e-8)


def test_a_weight_of_2_is_the_row_twice():
    options = {"kernel": Gaussian(1.5), "noise": 0.3, "n_features": 16}
    twice = gp(**options)
    for x, y in zip(XS[:N], YS[:N], strict=True):
        for _ in range(2):
            twice.learn_one(x, y)
    assert found(learned([2.0] * N, **options)) == pytest.approx(found(twice), abs=1e-10)


def test_noise_that_is_not_given_is_that_of_weight_1():
    weights = np.random.default_rng(6).choice([0.1, 1.0, 10.0], size=len(XS))
    noise = np.random.default_rng(7).normal(0.0, 0.5, len(XS)) / np.sqrt(weights)
    model = gp(n_features=16)
    for x, y, w in zip(XS, YS + noise, weights, strict=True):
        model.learn_one(x, y, w)
    assert model.noise_variance == pytest.approx(0.25, rel=0.25)


def test_the_likelihood_of_weighted_targets_is_that_of_their_noise():
    rng = np.random.default_rng(0)
    f, w = np.repeat(rng.normal(size=100), 5), rng.choice([0.1, 1.0, 10.0], size=500)
    y = f + 0.1 * rng.normal(size=500) / np.sqrt(w)
    root = np.sqrt(w)
    _, ratio = most_likely(np.kron(np.eye(100), np.ones((5, 5))) * np.outer(root, root), y * root)
    assert 0.008 < ratio < 0.0125


@pytest.mark.parametrize("name", MODELS)
def test_a_weight_of_0_changes_nothing_and_1_is_the_default(name):
    plain, with_zeros = gp(**MODELS[name]), gp(**MODELS[name])
    for i, (x, y) in enumerate(zip(XS[:N], YS[:N], strict=True)):
        plain.learn_one(x, y)
        with_zeros.learn_one(x, y, w=1.0)
        with_zeros.learn_one(XS[-i - 1], 99.0, w=0.0)
    assert content(plain) == content(with_zeros)


@pytest.mark.parametrize("name", MODELS)
def test_tables_match_single_examples_and_files_keep_weights(name, tmp_path):
    weights = W[:N].copy()
    weights[::7] = 0.0
    one, many = learned(weights, **MODELS[name]), gp(**MODELS[name])
    many.learn_many(frame(XS[:N]), YS[:N], w=weights)
    assert content(one) == content(many)


@pytest.mark.parametrize("options", [{"variance": "operator"}, {"variance": "points", "points": XTEST[:2]}])
def test_gradients_are_weighted(options):
    """A batch in which each example of weight 2 is there twice has the same gradients but for the size of the batch."""
    base = {"kernel": Gaussian(1.5), "noise": 0.3, "n_features": 16, "features_per_seed": 16, **options}
    heavy = gp(**base, batch_size=5, step_size=0.5)
    even = gp(**base, batch_size=10, step_size=1.0)
    heavy.learn_many(frame(XS[:5]), YS[:5], w=[2.0] * 5)
    even.learn_many(frame(XS[:5] * 2), YS[:5] * 2)
    assert heavy.predict_one(XTEST[0]) == pytest.approx(even.predict_one(XTEST[0]), rel=1e-9)


@pytest.mark.parametrize("w", [-1.0, float("nan"), "heavy", 1e10])
def test_an_unusable_weight_is_refused(w):
    model = gp(n_features=16)
    with pytest.raises(InputError, match="at w"):
        model.learn_one(XS[0], YS[0], w)
    assert content(model) == content(gp(n_features=16))
