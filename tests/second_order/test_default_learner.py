"""The default estimators against the default learner on one screen, on 2,000 events.

Three mechanisms of the compiled learner are switched off:

* gradients of f, which determine the metric of new groups, and how much an input counts for the neighbours, and the
  sums over pairs of inputs;
* the range of targets, which limits predictions, and outside of which a target may be an outlier;
* the sample of rows that Newton steps add to A; they add all rows.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import slow
from reference import default_learner
from reference.default_learner import DefaultLearner
from reference.given import LOGISTIC, SQUARE, Inputs

from streamkernel import KernelClassifier, KernelRegressor, learners
from streamkernel.learners.span import LARGEST, LEAST, NO_SPAN
from streamkernel.second_order import growth
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import SKETCHED_AT

NAMES, EVENTS = ("height", "width", "depth"), 2000
TOLERANCE = 1e-6
"""Of the root mean square difference, in deviations of the predictions; factors of A are in single precision."""


@pytest.fixture(autouse=True)
def without_gradients(monkeypatch):
    monkeypatch.setattr(SecondOrderLearner, "has_metric", False)


def without_range_and_sample(model):
    arrays = model._learner.arrays
    arrays.span[[LEAST, LARGEST]] = -NO_SPAN, NO_SPAN
    arrays.sampled[:, SKETCHED_AT] = 0.0


def events(is_class, frequency):
    """Yield examples and targets of a smooth function of them; the first label is -1, which has the number 0."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(EVENTS, len(NAMES)))
    f = np.sin(frequency * X[:, 0]) + frequency / 4.0 * X[:, 1] * X[:, 2] + 0.1 * generator.normal(size=EVENTS)
    f = np.where(f > 0.2, 1.0, -1.0) * (-1.0 if f[0] > 0.2 else 1.0) if is_class else np.clip(f, -3.0, 3.0)
    for x, y in zip(X.tolist(), f.tolist(), strict=True):
        yield dict(zip(NAMES, x, strict=True)), y


SMALL = {"learner": learners.Newton(features_per_seed=16), "max_features": 256}


@pytest.mark.parametrize(
    ("estimator", "options", "frequency", "larger_from", "blocks"),
    [
        (KernelRegressor, SMALL, 2.0, 1024, [1, 1, 1, 1, 0, 2]),
        (KernelRegressor, SMALL, 2.0, 256, [1, 1, 1, 1, 4, 8]),
        (KernelRegressor, SMALL, 0.5, 256, [0, 1, 1, 1, 0, 2]),  # and groups that forget change their block
        (KernelClassifier, SMALL, 2.0, 1024, [1, 1, 1, 1, 0, 2]),
        slow(KernelRegressor, {}, 2.0, 1024, [1, 1, 1, 1, 0, 2]),
        slow(KernelClassifier, {}, 2.0, 1024, [1, 1, 1, 1, 0, 2]),
    ],
)
def test_an_estimator_learns_what_the_screen_shows(monkeypatch, estimator, options, frequency, larger_from, blocks):
    """Larger groups may begin early, so that a second one can begin."""
    monkeypatch.setattr(growth, "FROM", larger_from)
    monkeypatch.setattr(default_learner, "FROM", larger_from)
    is_class, size = estimator is KernelClassifier, 16 if options else 256
    model, screen = estimator(**options), DefaultLearner(Inputs(NAMES, size), LOGISTIC if is_class else SQUARE)
    ours, theirs = [], []
    for i, (x, y) in enumerate(events(is_class, frequency)):
        f = screen.predict(x)
        if i > 1:  # both labels are known
            ours.append(model.predict_proba_one(x)[True] if is_class else model.predict_one(x))
            theirs.append(1.0 / (1.0 + np.exp(-f)) if is_class else f)
        model.learn_one(x, y > 0.0 if is_class else y)
        screen.learn(x, y)
        without_range_and_sample(model)
    assert [len(group.blocks) for group in screen.groups[:6]] == blocks
    assert model._learner.table[:6, 0].tolist() == blocks
    assert model.n_seeds == sum(blocks)
    ours, theirs = np.array(ours), np.array(theirs)
    assert np.sqrt(np.mean((ours - theirs) ** 2)) < TOLERANCE * ours.std()
    assert np.abs(ours - theirs).max() < 20.0 * TOLERANCE * ours.std()
