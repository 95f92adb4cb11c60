"""Losses: derivatives, bounds and curvatures are those of their values, and the values are the known ones."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import special
from sklearn import metrics

from streamkernel import losses

CLASSES = [losses.Logistic(), losses.Softmax(), losses.Hinge(), losses.SquaredHinge()]
NUMBERS = [losses.Square(), losses.Huber(), losses.Huber(0.3), losses.Huber(20.0)]
score = st.floats(-30, 30)


@st.composite
def problems(draw, smooth=False):
    """Draw a loss with scores and a target that go together; `smooth` ones have a second derivative."""
    loss = draw(st.sampled_from([one for one in CLASSES + NUMBERS if not (smooth and one == losses.Hinge())]))
    if not loss.for_classes:
        return loss, np.array([draw(score)]), draw(score)
    columns = draw(st.integers(2 if loss == losses.Softmax() else 1, 5))
    f = np.array(draw(st.lists(score, min_size=columns, max_size=columns)))
    y = draw(st.sampled_from([-1, 0, 1]) if columns == 1 else st.integers(0, columns - 1))
    return loss, f, y


def signs(y, columns):
    return np.array([1.0 if y > 0 else -1.0]) if columns == 1 else 2.0 * (np.arange(columns) == y) - 1.0


@given(problems())
def test_the_derivative_is_that_of_the_value(problem):
    loss, f, y = problem
    h = 1e-5
    kinks = signs(y, len(f)) * f - 1.0 if loss.for_classes else np.abs(f - y) - loss.parameter
    assume(np.abs(kinks).min() > 2.0 * h)
    steps = h * np.eye(len(f))
    differences = [(loss.value(f + step, y) - loss.value(f - step, y)) / (2.0 * h) for step in steps]
    assert np.allclose(loss.derivative(f, y), differences, rtol=1e-5, atol=1e-5)


@given(problems())
def test_the_norm_of_the_derivative_is_bounded(problem):
    loss, f, y = problem
    assert np.linalg.norm(loss.derivative(f, y)) <= loss.bound(len(f)) * (1.0 + 1e-12)


@given(problems(smooth=True), st.data())
def test_the_slope_changes_no_faster_than_the_curvature(problem, data):
    """|∇ℓ(f) - ∇ℓ(g)| ≤ L|f - g|; the logistic loss of several columns is softmax, with softmax's curvature."""
    loss, f, y = problem
    g = np.array(data.draw(st.lists(score, min_size=len(f), max_size=len(f))))
    curvature = losses.Softmax.curvature if len(f) > 1 and loss == losses.Logistic() else loss.curvature
    change = np.linalg.norm(loss.derivative(f, y) - loss.derivative(g, y))
    assert change <= curvature * np.linalg.norm(f - g) * (1.0 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("loss", "f", "y", "change"),
    [
        (losses.Logistic(), [0.0], 1, [1.0]),
        (losses.Softmax(), [0.0, 0.0], 1, [1.0, -1.0]),
        (losses.SquaredHinge(), [-1.0], 1, [1.0]),
        (losses.Square(), [3.0], 1.0, [1.0]),
        (losses.Huber(1.0), [0.2], 0.0, [1.0]),
    ],
    ids=repr,
)
def test_the_curvature_and_the_bound_are_reached(loss, f, y, change):
    h = 1e-5 * np.array(change)
    second = (loss.derivative(f + h, y) - loss.derivative(f - h, y)) / (2.0 * np.linalg.norm(h))
    assert np.linalg.norm(second) == pytest.approx(loss.curvature, rel=1e-6)
    if math.isfinite(loss.bound(len(f))):
        far = np.array([-50.0, 50.0])[: len(f)]
        assert np.linalg.norm(loss.derivative(far, 1 if len(f) == 1 else 0)) == pytest.approx(loss.bound(len(f)))


@given(problems(), st.data())
def test_a_loss_is_convex_and_never_negative(problem, data):
    loss, f, y = problem
    g = np.array(data.draw(st.lists(score, min_size=len(f), max_size=len(f))))
    assert loss.value(f, y) >= 0.0
    tangent = loss.value(f, y) + loss.derivative(f, y) @ (g - f)
    assert loss.value(g, y) >= tangent - 1e-9 * (1.0 + abs(tangent))


@given(st.lists(st.tuples(score, st.booleans()), min_size=2, max_size=20))
def test_binary_values_are_those_of_scikit_learn(pairs):
    f, y = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs], int)
    logistic = np.mean([losses.Logistic().value(score, target) for score, target in zip(f, y, strict=True)])
    # The probability of the actual class, because scikit-learn clips what float64 rounds to 1.
    chances = special.expit(np.where(y > 0, f, -f))
    table = np.stack([1.0 - chances, chances], axis=1)
    assert logistic == pytest.approx(metrics.log_loss(np.ones(len(y)), table, labels=[0, 1]), rel=1e-6, abs=1e-6)
    hinge = np.sum([losses.Hinge().value(score, target) for score, target in zip(f, y, strict=True)])
    both = np.r_[y, 0, 1], np.r_[f, -1.0, 1.0]  # scikit-learn asks for both classes; these two cost nothing
    assert hinge == pytest.approx(metrics.hinge_loss(*both) * (len(f) + 2), rel=1e-12)
    squares = [losses.SquaredHinge().value(score, target) for score, target in zip(f, y, strict=True)]
    margins = [losses.Hinge().value(score, target) for score, target in zip(f, y, strict=True)]
    assert np.allclose(squares, np.square(margins))


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=6), st.data())
def test_softmax_values_are_those_of_scikit_learn(scores, data):
    f, y = np.array(scores), data.draw(st.integers(0, len(scores) - 1))
    expected = metrics.log_loss([y], special.softmax(f)[None], labels=range(len(f)))
    assert losses.Softmax().value(f, y) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert losses.Logistic().value(f, y) == losses.Softmax().value(f, y)
    assert np.array_equal(losses.Logistic().derivative(f, y), losses.Softmax().derivative(f, y))
    assert np.allclose(losses.Softmax().derivative(f, y), special.softmax(f) - np.eye(len(f))[y])


@given(score, score, st.floats(0.01, 10))
def test_values_for_numbers_are_those_of_scikit_learn_and_scipy(f, y, delta):
    assert losses.Square().value(f, y) == pytest.approx(0.5 * metrics.mean_squared_error([y], [f]))
    assert losses.Huber(delta).value(f, y) == pytest.approx(special.huber(delta, f - y))


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.SquaredHinge()], ids=repr)
def test_margin_losses_of_several_classes_are_summed_one_against_the_rest(loss):
    f = np.array([0.3, -0.2, 2.0])
    for y in range(3):
        parts = [(score, 1.0 if c == y else -1.0) for c, score in enumerate(f)]
        assert loss.value(f, y) == pytest.approx(sum(loss.value(*part) for part in parts))
        assert np.allclose(loss.derivative(f, y), np.concatenate([loss.derivative(*part) for part in parts]))


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Hinge(), losses.SquaredHinge()], ids=repr)
def test_zero_and_minus_one_are_one_class(loss):
    for f in (-2.0, 0.1, 3.0):
        assert loss.value(f, 0) == loss.value(f, -1)
        assert loss.derivative(f, 0) == loss.derivative(f, -1)


@pytest.mark.parametrize("loss", CLASSES, ids=repr)
def test_scores_of_any_size_have_finite_losses(loss):
    for size in (1e3, 1e8, 1e90):
        for f in ([size, -size], [-size, size]):
            assert math.isfinite(loss.value(f, 1))
            assert np.isfinite(loss.derivative(f, 1)).all()
            if loss != losses.Softmax():
                assert math.isfinite(loss.value(f[0], 1))
                assert np.isfinite(loss.derivative(f[0], 1)).all()


def test_names_stand_for_losses():
    assert losses.named("logistic", True) == losses.Logistic()
    assert losses.named(losses.Huber(2.0), False) == losses.Huber(2.0)
    for name, for_classes in [("square", True), ("hinge", False), ("none", True), (losses.Square(), True)]:
        with pytest.raises(ValueError, match="Expected a loss for"):
            losses.named(name, for_classes)


@pytest.mark.parametrize("delta", [0.0, -1.0, float("nan")])
def test_huber_refuses_what_is_not_positive(delta):
    with pytest.raises(ValueError, match="delta > 0"):
        losses.Huber(delta)


@pytest.mark.parametrize("loss", CLASSES + NUMBERS, ids=repr)
def test_a_loss_is_a_value(loss):
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert len({loss, pickle.loads(pickle.dumps(loss))}) == 1
    with pytest.raises(AttributeError):
        loss.anything = 1
