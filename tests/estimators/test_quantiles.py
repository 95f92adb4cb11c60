"""Losses whose derivative is only a direction: their units and intercept, and the quantiles that they learn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases import covering
from reference import algorithms as plain
from scipy.stats import norm
from sklearn import metrics
from streams import content, examples, learn, nested, predictions, regressor, targets

from streamkernel import KernelRegressor, learners, losses, rules, step_sizes
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Gaussian
from streamkernel.learners import state

DIRECTIONAL = {
    "absolute": {"loss": "absolute"},
    "quantile": {"loss": "quantile", "tau": 0.8},
    "quantile, batches, averaged": {"loss": "quantile", "tau": 0.1, "batch_size": 4, "averaging": True},
    "quantile, UDSG, shrunk": {"loss": "quantile", "tau": 0.3, "rule": rules.UDSG(), "l2": 0.05},
}


class Relative(plain.Reference):
    """The reference with steps in units of the running mean error, and an intercept with the same steps as f."""

    def learn(self, X, y):
        if self.t == 0:
            self.mean, self.spread, self.means = y[0], 0.0, []
        errors = np.abs(self.function(X)[:, 0] + self.mean - y)
        for n, error in enumerate(errors, self.examples + 1):
            most = 10.0 * self.spread if self.spread > 0.0 else np.inf
            self.spread += (min(error, most) - self.spread) / min(n, 100)
        gamma = min(0.25 * self.spread, 1.0 / self.l2 if self.l2 else np.inf)
        self.step = lambda t: gamma
        f = self.function(X)
        gradient = np.mean([self.loss.gradient(*pair) for pair in zip(f, y - self.mean, strict=True)])
        with np.errstate(invalid="ignore"):  # the margin of a first step, which is 0
            super().learn(X, y)
        self.mean -= gamma * gradient
        self.means.append(self.mean)


@pytest.mark.parametrize(
    ("rule", "batch", "l2", "average"),
    covering(itertools.product(["DSG", "CDSG"], [1, 4], [0.0, 0.01, 3.0], [False, True])),
)
def test_steps_in_units_of_the_spread_are_those_of_the_reference(rule, batch, l2, average):
    names, block_size, n = ["a", "b"], 8, 1200
    compiled_rule, plain_rule = {"DSG": (rules.DSG(), plain.dsg), "CDSG": (rules.CDSG(1.0), plain.cdsg(1.0))}[rule]
    f = FirstOrderLearner(
        Gaussian(0.8),
        losses.Quantile(0.7),
        compiled_rule,
        step_sizes.Constant(0.25),
        block_size=block_size,
        max_features=5 * block_size,
        batch_size=batch,
        l2=l2,
        average=average,
        intercept=state.LEARNED,
        per_error=True,
    )
    reference = Relative(
        plain.gaussian(names, 0.8, block_size, seed=0),
        plain.Quantile(0.7),
        plain_rule,
        None,
        block_size=block_size,
        most_blocks=5,
        l2=l2,
        columns=1,
    )
    generator = np.random.default_rng(2)
    X = generator.normal(size=(n, 2))
    y = 50.0 + np.sin(2.0 * X[:, 0]) + 0.3 * generator.normal(size=n)
    y[300] = 1e6
    for t in range(n // batch):
        part = slice(t * batch, (t + 1) * batch)
        f.learn(f.directions.rows(names, X[part]), y[part])
        reference.learn(X[part], y[part])
    expected = reference.scores(X[:20], averaged=average)
    if average:
        expected += np.mean(reference.means) - reference.mean
    assert np.allclose(f.scores(f.directions.rows(names, X[:20])), expected, rtol=1e-4)
    assert f.numbers["last_step"] == pytest.approx(reference.eta, rel=1e-4)


@pytest.mark.parametrize("options", DIRECTIONAL.values(), ids=DIRECTIONAL)
@pytest.mark.parametrize("exponent", [13, -10])
def test_the_units_of_the_targets_do_not_matter(options, exponent):
    """Targets times a power of two are rounded alike, so predictions have the same bits, except with a penalty."""
    xs, _ = examples(400)
    ys = targets(xs)
    unit = 2.0**exponent
    l2 = options.get("l2", 0.0)
    model = learn(regressor(**options), xs, ys)
    other = learn(regressor(**{**options, "l2": l2 / unit}), xs, [unit * y for y in ys])
    assert predictions(other, xs) == [unit * f for f in predictions(model, xs)]


@pytest.mark.parametrize("scale", [1e4, 1e-3])
def test_large_and_small_targets_are_learned_equally(scale):
    xs, ys = heteroscedastic(500)
    model, other = (
        learn(KernelRegressor(learner="dsg", loss="quantile", tau=0.9), xs, ys * unit) for unit in (1.0, scale)
    )
    assert np.allclose(predictions(other, xs), scale * np.array(predictions(model, xs)), rtol=1e-3, atol=1e-6 * scale)


@pytest.mark.parametrize("options", DIRECTIONAL.values(), ids=DIRECTIONAL)
def test_tables_match_single_rows(options):
    xs, _ = examples(300)
    ys = targets(xs)
    model, twin = regressor(**options), learn(regressor(**options), xs, ys)
    directions = model._learner.directions
    rows = directions.rows(["x0", "x1", "x2"], np.array([list(x.values()) for x in xs]))
    for first in range(0, 300, 77):
        some = rows.part(first, min(first + 77, 300))
        model._model.learn_rows(some, np.array(ys[first : first + 77]), directions, twin._state.numeric)
    assert content(model) == content(twin)


def test_an_outlier_does_not_ruin_the_steps():
    xs, ys = heteroscedastic(2000)
    model = learn(KernelRegressor(learner="dsg", loss="absolute"), xs, ys)
    before = np.array(predictions(model, xs[:200]))
    model.learn_one(xs[0], 1e12)
    learn(model, xs[:50], ys[:50])
    assert np.abs(predictions(model, xs[:200]) - before).mean() < np.std(ys)


def test_a_large_change_of_targets_is_followed_quickly():
    """Steps in units of the mean error grow while errors are large, and shrink with them."""
    xs, ys = heteroscedastic(4000)
    ys[1000:] = 1000.0 * ys[1000:] + 50_000.0
    losses_of = []
    for first in (0, 1000):  # with the targets before the change, and without
        model = learn(KernelRegressor(learner="dsg", loss="quantile", tau=0.9), xs[first:2000], ys[first:2000])
        predicted = []
        for x, y in zip(xs[2000:], ys[2000:].tolist(), strict=True):
            predicted.append(model.predict_one(x))
            model.learn_one(x, y)
        assert np.mean(ys[2000:] <= predicted) == pytest.approx(0.9, abs=0.0135)  # two deviations of 2,000 targets
        losses_of.append(metrics.mean_pinball_loss(ys[2000:], predicted, alpha=0.9))
    assert losses_of[0] < 1.1 * losses_of[1]


def heteroscedastic(n, seed=7):
    """Return inputs and targets y = sin(3a) + s(b) e with e normal: the τ-quantile is sin(3a) + s(b) Φ⁻¹(τ)."""
    X = np.random.default_rng(seed).uniform(-1.0, 1.0, (n, 2))
    y = true_quantile(X, 0.5) + spread(X) * np.random.default_rng(seed + 1).normal(size=n)
    return [{"a": a, "b": b} for a, b in X.tolist()], y


def spread(X):
    return 0.4 + 0.3 * np.cos(3.0 * X[:, 1])


def true_quantile(X, tau):
    return np.sin(3.0 * X[:, 0]) + spread(X) * norm.ppf(tau)


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.9])
def test_the_predicted_quantiles_are_the_true_ones(tau):
    xs, ys = heteroscedastic(20_000)
    model = learn(KernelRegressor(learner=learners.DSG(averaging=True), loss="quantile", tau=tau), xs, ys)
    X = np.random.default_rng(1).uniform(-0.9, 0.9, (500, 2))
    found = np.array(predictions(model, [{"a": a, "b": b} for a, b in X.tolist()]))
    true = true_quantile(X, tau)
    assert np.sqrt(np.mean((found - true) ** 2)) < 0.15 * np.std(true)
    chances = norm.cdf((found - true_quantile(X, 0.5)) / spread(X))  # that a target is below, given its input
    for where in (spread(X) < 0.3, spread(X) > 0.5, X[:, 0] < 0.0, X[:, 0] > 0.0):
        assert np.mean(chances[where]) == pytest.approx(tau, abs=0.06)


@pytest.mark.parametrize("tau", [0.05, 0.5, 0.95])
def test_the_share_of_targets_below_the_prediction_is_tau(tau):
    xs, ys = heteroscedastic(10_000)
    model = KernelRegressor(learner="dsg", loss="quantile", tau=tau)
    below = []
    for x, y in zip(xs, ys.tolist(), strict=True):
        below.append(y <= model.predict_one(x))
        model.learn_one(x, y)
    assert np.mean(below) == pytest.approx(tau, abs=0.01)


@pytest.mark.parametrize(("tau", "side"), [(0.05, -1.0), (0.95, 1.0)])
def test_far_from_examples_a_quantile_differs_from_the_mean(tau, side):
    xs, ys = heteroscedastic(3000)
    model = learn(KernelRegressor(learner="dsg", loss="quantile", tau=tau), xs, ys)
    far = np.random.default_rng(1).uniform(1e3, 1e4, (100, 2)).tolist()
    found = np.mean(predictions(model, [{"a": a, "b": b} for a, b in far]))
    assert side * (found - np.mean(ys)) > 0.4 * np.std(ys)


def test_the_default_quantile_is_the_median():
    xs, ys = heteroscedastic(400)
    median, half = (learn(regressor(loss="quantile", tau=tau), xs, ys) for tau in (None, 0.5))
    assert predictions(median, xs) == predictions(half, xs)


def test_tau_is_rejected_with_other_losses():
    for options in ({"loss": "square"}, {"loss": "absolute"}, {"loss": losses.Quantile(0.5)}, {}):
        with pytest.raises(ValueError, match=r"tau with loss=\"quantile\" only"):
            KernelRegressor(**nested(tau=0.9, **options))
    for tau in (0.0, 1.0, 90, float("nan")):
        with pytest.raises(ValueError, match="0 < tau < 1"):
            KernelRegressor(learner="dsg", loss="quantile", tau=tau)
