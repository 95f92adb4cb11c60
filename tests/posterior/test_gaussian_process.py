"""The Gaussian process regressor against closed forms, on streams, and with unusable input."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from processes import MODELS, XS, YS, gp
from river import datasets, proba
from river.datasets import synth
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import RBF
from streams import content, frame, learn

from streamkernel import InputError, step_sizes
from streamkernel.kernels import Gaussian
from streamkernel.posterior import bayesian_linear
from streamkernel.posterior.bayesian_linear import Recursive
from streamkernel.posterior.posteriors import FeatureMap
from streamkernel.posterior.stochastic_posterior import OperatorVariance, RidgeFunctions, Stochastic


def test_variance_never_grows_where_an_example_is_learned():
    model = learn(gp(noise=0.3, kernel=Gaussian(1.5), n_features=16), XS[:20], YS[:20])
    for x, y in zip(XS[20:], YS[20:], strict=True):
        before = model.predict_one(x, with_dist=True).sigma
        model.learn_one(x, y)
        assert 0.3 < model.predict_one(x, with_dist=True).sigma ** 2 < before**2


def test_before_any_example_the_variance_is_that_of_the_kernel_and_the_noise():
    for options in MODELS.values():
        if "noise" in options:
            for x in XS[:3]:
                distribution = gp(**options).predict_one(x, with_dist=True)
                assert distribution.mu == 0.0
                assert distribution.sigma**2 == pytest.approx(1.3, abs=1e-6)


@pytest.mark.parametrize("n", [30, 120])
def test_with_many_features_it_is_the_exact_process(n):
    """scikit-learn's posterior for the same kernel and noise."""
    X, y = frame(XS).to_numpy(), np.array(YS)
    exact = Exact(RBF(1.5, "fixed"), alpha=0.05, optimizer=None).fit(X[:n], y[:n])
    mean, deviation = exact.predict(X[n:], return_std=True)
    model = learn(gp(kernel=Gaussian(1.5), noise=0.05, n_features=1000), XS[:n], YS[:n])
    found = [model.predict_one(x, with_dist=True) for x in XS[n:]]
    assert np.sqrt(np.mean((mean - [d.mu for d in found]) ** 2)) < 0.1 * np.sqrt(np.mean(mean**2))
    assert np.abs(deviation**2 - [d.sigma**2 - 0.05 for d in found]).mean() < 0.02


@pytest.mark.parametrize(("a", "b"), [(1000.0, 0.0), (0.001, 0.0), (1.0, 1e4), (-30.0, 5.0)])
def test_predictions_follow_the_units_and_the_origin_of_the_targets(a, b):
    plain_model, other = gp(n_features=16), gp(n_features=16)
    for i, (x, y) in enumerate(zip(XS, YS, strict=True)):
        if i > 1:
            expected, found = (model.predict_one(x, with_dist=True) for model in (plain_model, other))
            assert found.mu == pytest.approx(a * expected.mu + b, abs=1e-6 * abs(a))
            assert found.sigma == pytest.approx(abs(a) * expected.sigma, rel=1e-6)
        plain_model.learn_one(x, y)
        other.learn_one(x, a * y + b)


def test_equal_targets_are_predicted_with_certainty():
    model = learn(gp(n_features=16), XS, [5.0] * 300)
    assert model.predict_one(XS[0]) == 5.0
    assert model.predict_one(XS[0], with_dist=True).sigma < 1e-6


@pytest.mark.parametrize("name", ["Friedman", "Planes2D"])
def test_interval_coverage(name):
    """Each event is predicted before it is learned, from the 21st on, with untuned defaults; the true σ² is 1."""
    model, inside = gp(), {0.5: 0, 0.9: 0, 0.95: 0}
    for i, (x, y) in enumerate(getattr(synth, name)(seed=1).take(2000)):
        if i >= 20:
            distribution = model.predict_one(x, with_dist=True)
            for level in inside:
                inside[level] += abs(distribution.cdf(y) - 0.5) < level / 2
        model.learn_one(x, y)
    for level, count in inside.items():
        assert count / 1980 == pytest.approx(level, abs=0.05)


@pytest.mark.parametrize("options", [MODELS["operator"], MODELS["points"]], ids=["operator", "points"])
def test_the_regressor_matches_its_parts(options):
    """Whole batches, σ²/n for the n examples seen, each block new at first."""
    model = learn(gp(**options), XS[:17], YS[:17])
    phi, phi2 = (FeatureMap(Gaussian(1.5), 12, seed, 0) for seed in (0, 1))
    if options["variance"] == "operator":
        phi2 = model._seen.phis[1]
        assert (
            phi2.directions.plan.parts_compiled["key"][0]
            != model._seen.phis[0].directions.plan.parts_compiled["key"][0]
        )
    f, A, functions = RidgeFunctions(8, 1), OperatorVariance(8), RidgeFunctions(8, 3)
    for t in range(3):
        X = frame(XS[5 * t : 5 * t + 5])
        rows, rows2 = phi.table(X), phi2.table(X)
        nu = 0.3 / (5 * (t + 1))
        table = math.sqrt(3.0) * phi(rows)
        y = np.array(YS[5 * t : 5 * t + 5])[:, None]
        f = f.after_step(table, y, t, 1.0, nu)
        A = A.after_step(table, math.sqrt(3.0) * phi2(rows2), t, 1.0, nu)
        exact = np.exp(-0.5 * ((X.to_numpy()[:, None] - frame(XS[:3]).to_numpy()) ** 2).sum(axis=2) / 1.5**2)
        functions = functions.after_step(table, exact, t, 1.0, nu)
    at = frame(XS[:3])
    table = math.sqrt(3.0) * phi(phi.table(at))
    if options["variance"] == "operator":
        explained = A(table, math.sqrt(3.0) * phi2(phi2.table(at)))
    else:
        explained = np.diagonal(functions(table))
    found = [model.predict_one(x, with_dist=True) for x in XS[:3]]
    assert np.allclose([d.mu for d in found], f(table)[:, 0])
    assert np.allclose([d.sigma**2 for d in found], np.maximum(0.0, 1.0 - explained) + 0.3)
    assert model._seen.posterior._learned.steps == 3
    assert len(model._seen.posterior._learned.pending) == 2


def test_the_variance_is_known_only_at_the_points():
    model = learn(gp(**MODELS["points"]), XS[:20], YS[:20])
    same = dict(reversed(XS[1].items())) | {"more": 0.0}
    assert model.predict_one(same, with_dist=True).sigma == model.predict_one(XS[1], with_dist=True).sigma
    assert math.isfinite(model.predict_one(XS[9]))
    with pytest.raises(InputError, match="one of the given points"):
        model.predict_one(XS[9], with_dist=True)


@pytest.mark.parametrize("variance", ["operator", "points"])
def test_steps_that_diverge_are_refused_and_change_nothing(variance):
    points = {"points": XS[:2]} if variance == "points" else {}
    options = (
        MODELS["operator"] | {"variance": variance, "batch_size": 1, "step_size": step_sizes.Constant(1e30)} | points
    )
    model, before = gp(**options), ""

    def learn_on():
        nonlocal before
        for x, y in zip(XS, YS, strict=True):
            before = content(model)
            model.learn_one(x, y)

    with pytest.raises(InputError, match="diverged"):
        learn_on()
    assert content(model) == before


def test_a_huge_target_that_only_the_mean_refuses_changes_nothing():
    model = learn(gp(**MODELS["points"] | {"batch_size": 1, "step_size": step_sizes.Constant(1e30)}), XS[:1], [1e60])
    before = content(model)
    with pytest.raises(InputError, match="diverged"):
        model.learn_one(XS[0], 1.0)
    assert content(model) == before


def test_with_dist_matches_river():
    model = learn(gp(n_features=16), XS, YS)
    distribution = model.predict_one(XS[0], with_dist=True)
    assert isinstance(distribution, proba.Gaussian)
    assert distribution.mu == model.predict_one(XS[0])
    assert type(model.predict_one(XS[0])) is float
    assert distribution.sigma**2 > model.noise_variance > 0.0


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
@max_examples(4)
@given(sizes=st.lists(st.one_of(st.just(0), st.integers(1, 90)), max_size=20))
def test_neither_grouping_nor_predictions_change_learning(options, sizes):
    model, done = gp(**options), 0
    for size in sizes:
        if size == 0:
            learn(model, XS[done : done + 1], YS[done : done + 1])
        elif done < len(XS):
            model.learn_many(frame(XS[done : done + size]), pd.Series(YS[done : done + size]))
        model.predict_one(XS[done % 300])
        model.predict_one(XS[done % 3], with_dist=True)
        done += max(1, size)
    learn(model, XS[done:], YS[done:])
    assert content(model) == content(learn(gp(**options), XS, YS))
    assert np.allclose(model.predict_many(frame(XS)), [model.predict_one(x) for x in XS], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_bad_input_is_named_and_changes_nothing(options):
    for n in (0, 42, 300):
        model = learn(gp(**options), XS[:n], YS[:n])
        before = content(model)
        for value in (float("inf"), 1e39, 10**400):
            bad = {"x0": 1.0, "x1": value}
            table = pd.DataFrame([bad, {"x0": 1.0, "x1": 2.0}], dtype=object)
            for call, arguments, where in [
                (model.learn_one, (bad, 1.0), r"x\['x1'\]"),
                (model.predict_one, (bad,), r"x\['x1'\]"),
                (model.predict_one, (bad, True), r"x\['x1'\]"),
                (model.learn_many, (table, pd.Series([1.0, 2.0])), r"X\['x1'\], row 0"),
                (model.predict_many, (table,), r"X\['x1'\], row 0"),
            ]:
                with pytest.raises(InputError, match=where):
                    call(*arguments)
        for y in (float("nan"), float("inf"), 1e95, "1", None, [1.0]):
            with pytest.raises(InputError, match="at y"):
                model.learn_one(XS[0], y)
            with pytest.raises(InputError, match="at y"):
                model.learn_many(frame(XS[:2]), pd.Series([1.0, y], dtype=object))
        assert content(model) == before


@pytest.mark.parametrize("y", [1e90, -1e90, 1e-300, 0.0])
def test_targets_of_any_size_are_learned_without_a_warning(y):
    for kernel in (None, Gaussian(1.5)):
        model = learn(gp(kernel=kernel, n_features=8), XS[:20], [y * i for i in range(20)] if abs(y) < 1 else [y] * 20)
        assert math.isfinite(model.predict_one(XS[0], with_dist=True).sigma)


@pytest.mark.parametrize(
    "options",
    [
        {"n_features": 0},
        {"n_features": "8"},
        {"noise": 0.0},
        {"noise": -1.0},
        {"noise": math.inf},
        {"noise": "much"},
        {"variance": "best"},
        {"variance": "operator", "noise": None},
        {"variance": "points", "noise": 0.1},
        {"variance": "points", "noise": 0.1, "points": []},
        {"variance": "points", "noise": 0.1, "points": [{1: 1.0}]},
        {"variance": "points", "noise": 0.1, "points": [{"a": math.inf}]},
        {"variance": "operator", "points": [{"a": 1.0}]},
        {"variance": "operator", "n_features": 8, "features_per_seed": 9},
        {"variance": "operator", "batch_size": 0},
        {"kernel": Gaussian},
        {"cache_bytes": -1},
        {"seed": "a"},
    ],
    ids=repr,
)
def test_parameters_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="Expected"):
        gp(**options)


def test_memory_is_that_of_the_posterior():
    """Memory is constant for the recursion, and for the operator once all blocks exist."""
    model = learn(gp(n_features=16), XS, YS)
    before = model._raw_memory_usage
    assert learn(model, XS, YS)._raw_memory_usage == before
    operator = learn(gp(**MODELS["operator"]), XS, YS)
    assert [len(column) for column in operator._seen.posterior._learned.A.theta] == [24, 24, 24]


def test_a_real_stream_is_learned():
    """River's TrumpApproval, unscaled and in order."""
    model, errors, ys = gp(), [], []
    for x, y in datasets.TrumpApproval():
        errors.append(model.predict_one(x) - y)
        ys.append(y)
        model.learn_one(x, y)
    assert np.var(errors[100:]) < 0.5 * np.var(ys[100:])


def test_the_forms_match_their_names():
    assert isinstance(gp()._seen.posterior, Recursive)
    for name in ("operator", "points"):
        assert isinstance(gp(**MODELS[name])._seen.posterior, Stochastic)


def test_one_compiled_version_serves_every_call():
    """Another type of argument would be compiled again, for seconds in the middle of a stream."""
    for options in ({"n_features": 8}, {"n_features": 8, "noise": 1.0}):
        for dtype in ("float32", "float64", "int32"):
            model = learn(gp(**options), XS[:5], [int(y) for y in YS[:5]])
            model.learn_many(frame(XS[:9]).astype(dtype), pd.Series(YS[:9]).astype(dtype))
            model.predict_many(frame(XS).astype(dtype))
            model.predict_one(XS[0], with_dist=True)
    for function in (bayesian_linear.rotate, bayesian_linear.solve, bayesian_linear.dots, bayesian_linear.spreads):
        assert len(function.signatures) == 1
