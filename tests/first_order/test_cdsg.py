"""The compiled first-order learner against CDSG on one screen, on 2,000 events."""

from __future__ import annotations

import numpy as np
import pytest
from reference import algorithms
from reference.cdsg import CDSG

from streamkernel import KernelClassifier, kernels, learners, losses, rules, step_sizes
from streamkernel.features.distributions import NORMAL
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.learners.scoring import LAST, MIXTURE

NAMES, SIGMA, EVENTS = ("height", "width", "depth"), 0.8, 2000
TOLERANCE = 1e-6
"""Of the root mean square difference, in deviations of the predictions; features are in single precision."""


def features(size):
    """Return φ(n, x) of the first n blocks."""

    def phi(n, x):
        omega = [algorithms.directions(NORMAL, NAMES, size, 0, 0, block) for block in range(n)]
        turns = x @ np.array(omega) / SIGMA
        return np.concatenate([np.cos(turns), np.sin(turns)], axis=1) / np.sqrt(size)

    return phi


def examples():
    generator = np.random.default_rng(3)
    X = generator.normal(size=(EVENTS, len(NAMES)))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * generator.normal(size=EVENTS)


def check(ours, theirs):
    ours, theirs = np.array(ours), np.array(theirs)
    assert np.sqrt(np.mean((ours - theirs) ** 2)) < TOLERANCE * ours.std()
    assert np.abs(ours - theirs).max() < 5.0 * TOLERANCE * ours.std()


@pytest.mark.parametrize(
    ("learner", "gamma", "blocks", "size", "l2"),
    [
        ("dsg", None, 4, 256, 0.0),
        (learners.DSG(features_per_seed=16), None, 64, 16, 0.05),  # the shortest steps
        (learners.DSG(features_per_seed=16, step_size=0.5), 0.5, 64, 16, 0.0),
        (learners.DSG(features_per_seed=4, step_size=0.5), 0.5, 200, 4, 0.001),
    ],
)
def test_the_classifier_learns_what_the_screen_shows(learner, gamma, blocks, size, l2):
    model = KernelClassifier(kernels.Gaussian(SIGMA), learner=learner, max_features=blocks * size, l2=l2)
    screen = CDSG(features(size), algorithms.Logistic(), blocks, 2 * size, gamma=gamma, l2=l2)
    ours, theirs, (X, f) = [], [], examples()
    for x, is_true in zip(X, f < 0.2, strict=True):
        event = dict(zip(NAMES, x.tolist(), strict=True))
        if screen.t > 1:
            ours.append(model.predict_proba_one(event)[True])
            theirs.append(1.0 / (1.0 + np.exp(-screen.predict(x)[0])))
        label = bool(is_true) if screen.t > 1 else screen.t == 1  # the first label has the number 0
        model.learn_one(event, label)
        screen.learn(x, float(label))
        assert model.n_seeds == screen.n, screen.t
    check(ours, theirs)


@pytest.mark.parametrize("gamma", [None, 0.3])
def test_three_classes_have_three_columns(gamma):
    compiled = FirstOrderLearner(
        kernels.Gaussian(SIGMA),
        losses.Logistic(),
        rules.CDSG(),
        step_sizes.Constant(gamma or 1.0),
        block_size=16,
        max_features=32 * 16,
        columns=3,
        automatic=gamma is None,
        average=MIXTURE if gamma is None else LAST,
    )
    screen = CDSG(features(16), algorithms.Softmax(), 32, 32, columns=3, gamma=gamma)
    X, f = examples()
    y, rows = np.digitize(f, [-0.5, 0.7]).astype(float), compiled.directions.rows(NAMES, X)
    ours, theirs = [], []
    for i in range(EVENTS):
        ours.append(compiled.scores(rows.part(i, i + 1))[0])
        theirs.append(screen.predict(X[i]))
        compiled.learn_one(rows.part(i, i + 1), y[i])
        screen.learn(X[i], y[i])
    check(ours, theirs)
