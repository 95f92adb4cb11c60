"""Predictions of the last function and an average together: against plain NumPy, and no worse than the better one."""

from __future__ import annotations

import numpy as np
import pytest
from reference import algorithms as plain

from streamkernel import kernels, losses, rules, step_sizes
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.learners.scoring import AVERAGE, LAST, MIXTURE, SURE, share
from streamkernel.learners.state import LEARNED_REALS

NAMES = ["height", "width", ("a", 1)]


def function(average, loss=None, **options):
    return FirstOrderLearner(
        kernels.Gaussian(0.8),
        loss or losses.Square(),
        rules.DSG(),
        step_sizes.Constant(0.25),
        **{"block_size": 8, "max_features": 72, "automatic": True, "seed": 5, "average": average, **options},
    )


def examples(n, seed=1):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 3))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + generator.normal(size=n)


def prequential(f, X, y):
    """Return f at each row before it is learned."""
    rows, found = f.directions.rows(NAMES, X), []
    for i in range(len(y)):
        found.append(f.scores(rows.part(i, i + 1))[0])
        f.learn(rows.part(i, i + 1), y[i : i + 1])
    return np.array(found)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("columns", [1, 3])
def test_the_mixture_matches_plain_numpy(columns, batch, weighted):
    loss, plain_loss = (losses.Square(), plain.Square()) if columns == 1 else (losses.Softmax(), plain.Softmax())
    f = function(MIXTURE, loss, batch_size=batch, l2=0.02, columns=columns)
    reference = plain.Reference(
        plain.gaussian(NAMES, 0.8, 8, 5), plain_loss, plain.dsg, lambda t: 0.25, block_size=8, most_blocks=9, l2=0.02,
        columns=columns, curvature=loss.curvature, seed=5,
    )  # fmt: skip
    X, y = examples(100 * batch)
    y = y if columns == 1 else np.digitize(y, [-0.5, 0.7]).astype(float)
    w = np.random.default_rng(2).choice([0.5, 1.0, 3.0], len(y)) if weighted else np.ones(len(y))
    for t in range(100):
        part = slice(t * batch, (t + 1) * batch)
        f.learn(f.directions.rows(NAMES, X[part])._replace(weights=w[part]), y[part])
        reference.learn(X[part], y[part], w[part])
    assert 0.01 < share(MIXTURE, f.numbers["log_odds"]) < 0.99
    rows = f.directions.rows(NAMES, X[:50])
    assert f.numbers["log_odds"] == pytest.approx(reference.log_odds, rel=1e-3, abs=1e-3)
    assert f.scores(rows) == pytest.approx(reference.mixture(X[:50]), rel=1e-4, abs=1e-4)
    assert f.embed_rows(rows) @ f.predicting() == pytest.approx(f.scores(rows), rel=1e-6, abs=1e-6)


def loss_of(average, X, y):
    scores = prequential(function(average, losses.Logistic()), X, y)[:, 0]
    return float(np.mean(np.logaddexp(0.0, -(2.0 * y - 1.0) * scores)))


@pytest.mark.parametrize("moves", [False, True])
def test_it_is_as_good_as_the_better_of_both(moves):
    """Of noisy labels the average is better where nothing changes, and the last function where labels change sides."""
    X, y = examples(3000)
    generator = np.random.default_rng(3)
    label = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] > 0.0
    label ^= (np.arange(3000) // 300 % 2 == 1) & moves
    y = (label ^ (generator.random(3000) < 0.2)).astype(float)
    last, average, mixture = (loss_of(kind, X, y) for kind in (LAST, AVERAGE, MIXTURE))
    assert (average > last) == moves
    assert mixture < 1.02 * min(last, average)


@pytest.mark.parametrize("log_odds", [-1e3, np.nextafter(SURE, np.inf)])
def test_a_file_with_log_odds_that_no_function_has_is_refused(log_odds):
    f = function(MIXTURE)
    tensors = f.tensors()
    reals = tensors["reals"].copy()
    reals[LEARNED_REALS.index("log_odds")] = log_odds
    with pytest.raises(ValueError, match=r"expected log odds from -40\.0 to 40\.0, got"):
        function(MIXTURE).restore(tensors | {"reals": reals})
