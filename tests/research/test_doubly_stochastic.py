"""DSG, UDSG and CDSG of the papers against the plain NumPy algorithms: each decision, each step, each function."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reference import algorithms as plain

from streamkernel import losses, research, rules, step_sizes
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Gaussian

NAMES, SIGMA, STEPS, SEED = ["0", "1", "2"], 0.8, 120, 3
INVERSE = step_sizes.InverseTime(5.0)
DECAY = step_sizes.PowerDecay(0.8, c=0.02, power=0.5)
BOUND = 4.0


class BoundedSquare(plain.Square):
    """The square loss, with 4 as the bound of its derivatives."""

    def bound(self, columns):
        return BOUND


def derived(model, gradient, gamma, noise, room, batch=4):
    """CDSG with B in place of B² in (9)."""
    return plain.cdsg(np.inf)(model, gradient, gamma, noise * batch, room)


VARIANTS = {  # of batches of 4: class, options, the rule of the twin, the rule of the compiled learner
    "DSG": (research.DSG, {}, plain.dsg, rules.DSG()),
    "UDSG": (research.UDSG, {"grow": 2, "reuse": 3}, plain.udsg(2, 3), rules.UDSG(2, 3)),
    "CDSG": (research.CDSG, {}, plain.cdsg(np.inf), rules.CDSG(math.inf)),
    "CDSG with B": (research.CDSG, {"check": "derived"}, derived, None),
}
LOSSES = {
    "square": (losses.Square(), BoundedSquare()),
    "logistic": (losses.Logistic(), plain.Logistic()),
    "hinge": (losses.Hinge(), plain.Hinge()),
}


def model_of(variant, loss, step, features=8, batch=4):
    kind, options, _, _ = VARIANTS[variant]
    if kind is research.CDSG and loss == "square":
        options = options | {"gradient_bound": BOUND}
    sizes = {"features_per_seed": features, "batch_size": batch, "seed": SEED}
    return kind(Gaussian(SIGMA), LOSSES[loss][0], step_size=step, l2=0.2, **sizes, **options)


def examples(loss, batch=4):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(STEPS * batch, 3))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=len(X))
    return X, y if loss == "square" else np.sign(y)


@pytest.mark.parametrize(
    ("loss", "step"), [("square", INVERSE), ("logistic", INVERSE), ("square", DECAY), ("hinge", DECAY)]
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_decisions_and_values_match_plain_numpy(variant, loss, step):
    model, (X, y) = model_of(variant, loss, step), examples(loss)
    own = plain.gaussian(NAMES, SIGMA, 8, SEED)
    same = lambda block, X: model._features(model._rows(X), block + 1)[:, block]  # noqa: E731
    np.testing.assert_allclose(same(5, X), own(5, X), atol=1e-6)
    twin = plain.Reference(same, LOSSES[loss][1], VARIANTS[variant][2], step, block_size=8, l2=0.2, seed=SEED)
    decisions = []
    for first in range(0, len(y), 4):
        at = slice(first, first + 4)
        before = twin.n_blocks
        twin.learn(X[at], y[at])
        model.partial_fit(X[at], y[at])
        assert model.n_seeds == twin.n_blocks
        decisions.append(twin.n_blocks == before)
        assert model.history[-1][1] == pytest.approx(twin.eta, rel=1e-9)
        np.testing.assert_allclose(model.alpha, twin.alpha[:, :, 0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.predict(X), twin.function(X)[:, 0], atol=1e-9)
    assert model.n_reused == sum(decisions)
    assert (sum(decisions) > 3) == (variant != "DSG")
    assert np.abs(model.predict(X)).max() > 0.1
    if variant.startswith("CDSG"):
        np.testing.assert_allclose(model.beta, twin.beta[:, 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("variant", ["DSG", "UDSG", "CDSG"])
def test_the_compiled_learner_with_a_given_step_has_the_same_function(variant):
    """The seeds are shared with the estimators."""
    model, (X, y) = model_of(variant, "logistic", DECAY), examples("logistic")
    learner = FirstOrderLearner(
        Gaussian(SIGMA), losses.Logistic(), VARIANTS[variant][3], DECAY, block_size=8, max_features=None, batch_size=4,
        l2=0.2, seed=SEED,
    )  # fmt: skip
    learner.learn(learner.directions.rows(NAMES, X), (y > 0).astype(float))
    model.partial_fit(X, y)
    assert model.n_seeds == learner.n_blocks
    scores = learner.scores(learner.directions.rows(NAMES, X))[:, 0]
    np.testing.assert_allclose(model.predict(X), scores, atol=1e-5)


def test_a_checked_step_is_the_longest_that_satisfies_9():
    """For each of many random states, η satisfies (9), and a slightly longer one does not."""
    rng, model, reused = np.random.default_rng(0), model_of("CDSG", "logistic", DECAY), 0
    for _ in range(300):
        beta, g, gamma = rng.normal(size=5), rng.normal(), rng.uniform(0.01, 0.5)
        model.alpha, model.beta, batch = np.zeros((5, 16)), beta, int(rng.integers(1, 9))
        k, eta = model._choose(g, gamma, batch)
        if k == 5:
            assert eta == gamma
            continue
        reused += 1

        def excess(j, eta, beta=beta, g=g, gamma=gamma, batch=batch):
            noise = 2.0 * eta**2 * 0.5 / 8 / batch**2
            return 2.0 * (beta[j] - eta * g) ** 2 + noise - beta[j] ** 2 - (gamma * g) ** 2

        assert eta > gamma
        assert abs(excess(k, eta)) < 1e-9
        assert excess(k, eta * 1.001) > 0.0
        assert all(excess(j, eta * 1.001) > 0.0 for j in range(5))
    assert 50 < reused < 300


def test_with_a_batch_of_one_both_checks_are_one():
    X, y = examples("logistic", batch=1)
    printed, with_b = (model_of(variant, "logistic", DECAY, batch=1) for variant in ("CDSG", "CDSG with B"))
    assert printed.partial_fit(X, y).history == with_b.partial_fit(X, y).history


@np.errstate(all="ignore")
def test_the_printed_line_search_diverges_where_a_step_is_above_two_over_lambda():
    """What the docstring warns of: 1 - ηλ is then below -1, and all coefficients grow."""
    model, (X, y) = model_of("CDSG", "hinge", INVERSE), examples("hinge")
    assert max(eta for _, eta in model.partial_fit(X, y).history) > 1e6
    lengths = [eta for _, eta in model.history]
    first = next(t for t, eta in enumerate(lengths) if eta > 2.0 / 0.2)
    assert max(lengths[:first]) <= 2.0 / 0.2 < 1e6
    assert model_of("DSG", "hinge", INVERSE).partial_fit(X, y).history[-1][1] < 0.1


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (research.DSG, {"step_size": "auto"}, "step_size as a number > 0 or one of streamkernel.step_sizes"),
        (research.DSG, {"batch_size": 0}, "batch_size >= 1"),
        (research.UDSG, {"grow": 0}, "grow >= 1"),
        (research.CDSG, {}, "a finite gradient_bound > 0 for Square"),
        (research.CDSG, {"gradient_bound": 1.0, "check": "b"}, '"printed" or "derived"'),
    ],
)
def test_invalid_parameters_are_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(Gaussian(1.0), **({"step_size": 1.0, "l2": 0.1} | options))
