"""Novelty detection: the steps of the paper, the fraction ν, the batch solution, and the checks of all estimators."""

from __future__ import annotations

import numpy as np
import pytest
from reference import algorithms
from reference import tasks as plain
from sklearn.svm import OneClassSVM
from streams import SMALL, WAYS, content, examples, frame, nested

from streamkernel import InputError, KernelNoveltyDetector, learners, rules, step_sizes
from streamkernel.kernels import Gaussian, Intersection, Polynomial


def learn(model, xs):
    for x in xs:
        model.learn_one(x)
    return model


def events(X):
    return [dict(enumerate(map(float, row))) for row in X]


@pytest.mark.parametrize("nu", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("cap", [9, 10_000])
def test_steps_match_the_reference(nu, cap):
    X = np.random.default_rng(3).normal(size=(200, 3))
    step = step_sizes.PowerDecay(0.7, c=0.05)
    model = KernelNoveltyDetector(
        Gaussian(1.1),
        learner=learners.DSG(rule=rules.DSG(), features_per_seed=8, batch_size=1, step_size=step),
        nu=nu,
        max_features=8 * cap,
        seed=4,
    )
    reference = plain.Novelty(
        algorithms.gaussian([0, 1, 2], 1.1, 8, seed=4),
        None,
        None,
        lambda t: 0.7 / (1.0 + 0.05 * t),
        block_size=8,
        most_blocks=cap,
        seed=4,
        nu=nu,
    )
    for i, x in enumerate(events(X)):
        score = model.score_one(x)
        assert score == pytest.approx(reference.scores(X[i : i + 1])[0], abs=1e-5)
        assert i == 0 or abs(score) > 1e-5  # the sides of the threshold are not a matter of rounding
        model.learn_one(x)
        reference.learn(X[i])
        assert model.threshold == pytest.approx(reference.tau, abs=1e-12)
    assert model.n_seeds == reference.n_blocks == min(cap, 200)


@pytest.mark.parametrize("nu", [0.05, 0.2, 0.5, 0.9])
def test_a_fraction_nu_of_the_events_scores_above_0(nu):
    """Each event is scored before it is learned, with the default step; the first events are left out."""
    X = np.random.default_rng(1).standard_t(4, size=(6000, 2))
    model = KernelNoveltyDetector(nu=nu)
    above = 0
    for i, x in enumerate(events(X)):
        above += i >= 2000 and model.score_one(x) > 0.0
        model.learn_one(x)
    assert above / 4000 == pytest.approx(nu, abs=0.01)


def test_the_detector_converges_to_the_batch_solution():
    """scikit-learn minimises the same objective times 1/ν, and its coefficients are scaled by νn."""
    nu, X = 0.3, np.random.default_rng(5).normal(size=(150, 2)) * [1.0, 2.0]
    batch = OneClassSVM(nu=nu, gamma=0.5, tol=1e-6).fit(X)
    model = KernelNoveltyDetector(
        Gaussian(1.0),
        learner=learners.DSG(rule=rules.DSG(), features_per_seed=8192, step_size=step_sizes.PowerDecay(0.1, c=0.01)),
        nu=nu,
        max_features=8192,
    )
    generator = np.random.default_rng(0)
    for _ in range(60):
        model.learn_many(frame(events(generator.permutation(X))))
    scores = np.array([model.score_one(x) for x in events(X)])
    solution = batch.decision_function(X) / (nu * len(X))
    assert np.allclose(-scores, solution, atol=0.015)
    assert np.corrcoef(-scores, solution)[0, 1] > 0.995
    assert model.threshold == pytest.approx(batch.offset_[0] / (nu * len(X)), abs=0.01)


def test_the_objective_is_the_running_value_of_the_minimised_sum():
    X = np.random.default_rng(6).normal(size=(400, 2))
    model = KernelNoveltyDetector(
        Gaussian(1.0),
        learner=learners.DSG(rule=rules.DSG(), features_per_seed=256, step_size=step_sizes.Constant(0.05)),
        nu=0.2,
        max_features=256,
    )
    misses = []
    for x in events(X):
        misses.append(max(0.0, model.score_one(x)))
        model.learn_one(x)
    f = model._learner
    norm2 = (f.coef**2).sum() * f.numbers["scale"] ** 2  # one block
    assert model.objective == pytest.approx(np.mean(misses) + 0.1 * norm2 - 0.2 * model.threshold, abs=1e-9)


def test_unseen_events_score_highest():
    """The unseen events lie between two clusters, near the mean of all events."""
    X = np.random.default_rng(2).normal(size=(1000, 2)) * 0.3
    X[::2, 0] += 2.0
    X[1::2, 0] -= 2.0
    model = learn(KernelNoveltyDetector(), events(X))
    common, between = model.score_one({0: 2.0, 1: 0.0}), model.score_one({0: 0.0, 1: 0.0})
    assert common < 0.0 < between


@pytest.mark.parametrize("options", [{}, {"batch_size": 7, "rule": rules.UDSG()}, {"kernel": Gaussian(2.0)}], ids=repr)
def test_tables_match_single_events(options):
    xs, _ = examples(300)
    model, twin = (
        KernelNoveltyDetector(**nested(learner="novelty", **SMALL, **options)),
        KernelNoveltyDetector(**nested(learner="novelty", **SMALL, **options)),
    )
    learn(model, xs)
    for first in range(0, 300, 37):
        twin.learn_many(frame(xs[first : first + 37]))
    assert content(model) == content(twin)
    assert twin.score_many(frame(xs)).tolist() == [model.score_one(x) for x in xs]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [0, 1, 130, 290])
def test_a_copy_scores_and_learns_the_same_bits(n, way, tmp_path):
    xs, _ = examples(330)
    model = learn(KernelNoveltyDetector(**nested(learner="novelty", batch_size=4, nu=0.2, **SMALL)), xs[:n])
    twin = WAYS[way](model, tmp_path)
    assert content(twin) == content(model)
    assert [twin.score_one(x) for x in xs] == [model.score_one(x) for x in xs]
    assert content(learn(twin, xs[n:])) == content(learn(model, xs[n:]))


@pytest.mark.parametrize("kernel", [Gaussian(1.1), Polynomial(2, 1.0), Intersection()], ids=repr)
@pytest.mark.parametrize("factor", [1e-4, 7.0, 1e6])
def test_scores_are_in_units_of_the_kernel(kernel, factor):
    X = np.abs(np.random.default_rng(3).normal(size=(300, 3)))
    one, other = (KernelNoveltyDetector(k, max_features=64) for k in (kernel, factor * kernel))
    for x in events(X):
        one.learn_one(x)
        other.learn_one(x)
    found = np.array([[one.score_one(x), other.score_one(x)] for x in events(X[:50])])
    assert np.allclose(factor * found[:, 0], found[:, 1], rtol=1e-3, atol=1e-3 * factor * np.abs(found[:, 0]).max())
    assert one.threshold == pytest.approx(other.threshold / factor, rel=1e-3)


@pytest.mark.parametrize("value", [float("inf"), 1e39, [1.0]], ids=repr)
def test_a_bad_value_is_named_and_changes_nothing(value):
    xs, _ = examples(40)
    for kernel in (None, Gaussian(1.0)):
        model = learn(KernelNoveltyDetector(**nested(kernel=kernel, learner="novelty", **SMALL)), xs)
        before = content(model)
        for call in (model.learn_one, model.score_one):
            with pytest.raises(InputError, match=r"at x\['x1'\]"):
                call({"x0": 1.0, "x1": value})
        assert content(model) == before


@pytest.mark.parametrize("nu", [0.0, 1.0, -0.1, float("nan"), "0.5"], ids=repr)
def test_nu_is_a_fraction(nu):
    with pytest.raises(ValueError, match="Expected 0 < nu < 1"):
        KernelNoveltyDetector(nu=nu)
