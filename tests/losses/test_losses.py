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

CLASSES = [
    losses.Logistic(),
    losses.Softmax(),
    losses.Hinge(),
    losses.SquaredHinge(),
    losses.SmoothHinge(),
    losses.Sigmoid(),
]
NUMBERS = [
    losses.Square(),
    losses.Huber(),
    losses.Huber(0.3),
    losses.Huber(20.0),
    losses.EpsilonInsensitive(0.5),
    losses.EpsilonInsensitive(0.0),
    losses.Absolute(),
    losses.Quantile(0.1),
    losses.Quantile(),
    losses.Correntropy(),
    losses.Correntropy(20.0),
]
SMOOTH = [one for one in CLASSES + NUMBERS if one != losses.Hinge() and not one.directional]
NOT_CONVEX = (losses.Sigmoid, losses.Correntropy)
score = st.floats(-30, 30)


@st.composite
def problems(draw, among=CLASSES + NUMBERS):
    """Draw a loss with matching scores and target."""
    loss = draw(st.sampled_from(among))
    if not loss.for_classes:
        return loss, np.array([draw(score)]), draw(score)
    columns = draw(st.integers(2 if loss == losses.Softmax() else 1, 5))
    f = np.array(draw(st.lists(score, min_size=columns, max_size=columns)))
    y = draw(st.sampled_from([-1, 0, 1]) if columns == 1 else st.integers(0, columns - 1))
    return loss, f, y


def signs(y, columns):
    return np.array([1.0 if y > 0 else -1.0]) if columns == 1 else 2.0 * (np.arange(columns) == y) - 1.0


@given(problems())
def test_the_derivative_matches_finite_differences(problem):
    loss, f, y = problem
    h = 1e-5
    m, r = signs(y, len(f)) * f, np.abs(f - y)
    kinks = np.minimum(np.abs(m), np.abs(m - 1.0)) if loss.for_classes else np.minimum(r, np.abs(r - loss.parameter))
    assume(kinks.min() > 2.0 * h)
    steps = h * np.eye(len(f))
    differences = [(loss.value(f + step, y) - loss.value(f - step, y)) / (2.0 * h) for step in steps]
    assert np.allclose(loss.derivative(f, y), differences, rtol=1e-5, atol=1e-5)


@given(problems())
def test_the_norm_of_the_derivative_is_bounded(problem):
    loss, f, y = problem
    assert np.linalg.norm(loss.derivative(f, y)) <= loss.bound(len(f)) * (1.0 + 1e-12)


@given(problems(SMOOTH), st.data())
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
        (losses.SmoothHinge(), [0.5], 1, [1.0]),
        (losses.Sigmoid(), [math.log(2.0 + math.sqrt(3.0))], 1, [1.0]),
        (losses.Square(), [3.0], 1.0, [1.0]),
        (losses.Huber(1.0), [0.2], 0.0, [1.0]),
        (losses.Correntropy(2.0), [3.0], 3.0, [1.0]),
    ],
    ids=repr,
)
def test_the_curvature_is_reached(loss, f, y, change):
    h = 1e-5 * np.array(change)
    second = (loss.derivative(f + h, y) - loss.derivative(f - h, y)) / (2.0 * np.linalg.norm(h))
    assert np.linalg.norm(second) == pytest.approx(loss.curvature, rel=1e-6)


@pytest.mark.parametrize("loss", [one for one in CLASSES + NUMBERS if math.isfinite(one.bound(1))], ids=repr)
def test_the_bound_is_reached(loss):
    """At a score of no column, or somewhere on a line through the target; by all columns of a sum at once."""
    line = np.r_[np.linspace(-50.0, 50.0, 20_001), loss.parameter / math.sqrt(2.0)]
    norms = [np.linalg.norm(loss.derivative(f, 0)) for f in line] if loss != losses.Softmax() else [0.0]
    assert max(norms) == pytest.approx(0.0 if loss == losses.Softmax() else loss.bound(1))
    if loss.for_classes:
        far = [0.0, 0.0] if loss == losses.Sigmoid() else [-50.0, 50.0]
        assert np.linalg.norm(loss.derivative(far, 0)) == pytest.approx(loss.bound(2))


@given(problems())
def test_a_loss_is_never_negative(problem):
    loss, f, y = problem
    assert loss.value(f, y) >= 0.0


@pytest.mark.parametrize("loss", [losses.Sigmoid(), losses.Correntropy(2.0)], ids=repr)
def test_the_losses_that_are_not_convex_bend_down_where_an_error_is_large(loss):
    near, middle, far = (loss.value(f, 0) for f in (4.0, 5.0, 6.0))
    assert middle > 0.5 * (near + far)


@given(problems([one for one in CLASSES + NUMBERS if not isinstance(one, NOT_CONVEX)]), st.data())
def test_the_other_losses_are_above_their_tangents(problem, data):
    loss, f, y = problem
    g = np.array(data.draw(st.lists(score, min_size=len(f), max_size=len(f))))
    tangent = loss.value(f, y) + loss.derivative(f, y) @ (g - f)
    assert loss.value(g, y) >= tangent - 1e-9 * (1.0 + abs(tangent))


@given(st.lists(st.tuples(score, st.booleans()), min_size=2, max_size=20))
def test_binary_values_match_scikit_learn(pairs):
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
def test_softmax_values_match_scikit_learn(scores, data):
    f, y = np.array(scores), data.draw(st.integers(0, len(scores) - 1))
    expected = metrics.log_loss([y], special.softmax(f)[None], labels=range(len(f)))
    assert losses.Softmax().value(f, y) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert losses.Logistic().value(f, y) == losses.Softmax().value(f, y)
    assert np.array_equal(losses.Logistic().derivative(f, y), losses.Softmax().derivative(f, y))
    assert np.allclose(losses.Softmax().derivative(f, y), special.softmax(f) - np.eye(len(f))[y])


@given(score, score, st.floats(0.01, 10))
def test_regression_values_match_scikit_learn_and_scipy(f, y, delta):
    assert losses.Square().value(f, y) == pytest.approx(0.5 * metrics.mean_squared_error([y], [f]))
    assert losses.Huber(delta).value(f, y) == pytest.approx(special.huber(delta, f - y))
    absolute = metrics.mean_absolute_error([y], [f])
    assert losses.Absolute().value(f, y) == pytest.approx(absolute)
    assert losses.EpsilonInsensitive(delta).value(f, y) == pytest.approx(max(0.0, absolute - delta))
    tau = delta / 11.0
    assert losses.Quantile(tau).value(f, y) == pytest.approx(metrics.mean_pinball_loss([y], [f], alpha=tau))
    correntropy = delta**2 * (0.5 - np.exp(-absolute / delta * absolute / delta) / 2.0)
    assert losses.Correntropy(delta).value(f, y) == pytest.approx(correntropy, abs=1e-12)


@given(score, st.sampled_from([-1, 1]))
def test_smooth_margin_losses_match_scipy(f, y):
    """The smooth hinge is Huber's function of the hinge; the sigmoid loss is the chance of the other class."""
    assert losses.SmoothHinge().value(f, y) == pytest.approx(special.huber(1.0, max(0.0, 1.0 - y * f)))
    assert losses.Sigmoid().value(f, y) == pytest.approx(special.expit(-y * f))


def test_the_quantile_minimises_the_pinball_loss():
    y = np.random.default_rng(1).exponential(size=199)
    for tau in (0.05, 0.5, 0.9):
        total = [sum(losses.Quantile(tau).value(f, target) for target in y) for f in np.sort(y)]
        assert np.sort(y)[np.argmin(total)] == np.quantile(y, tau, method="inverted_cdf")


@pytest.mark.parametrize(
    "loss", [losses.Hinge(), losses.SquaredHinge(), losses.SmoothHinge(), losses.Sigmoid()], ids=repr
)
def test_margin_losses_of_several_classes_are_summed_one_against_the_rest(loss):
    f = np.array([0.3, -0.2, 2.0])
    for y in range(3):
        parts = [(score, 1.0 if c == y else -1.0) for c, score in enumerate(f)]
        assert loss.value(f, y) == pytest.approx(sum(loss.value(*part) for part in parts))
        assert np.allclose(loss.derivative(f, y), np.concatenate([loss.derivative(*part) for part in parts]))


@pytest.mark.parametrize("loss", [one for one in CLASSES if one != losses.Softmax()], ids=repr)
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


@pytest.mark.parametrize("loss", NUMBERS, ids=repr)
def test_residuals_of_any_size_have_finite_losses(loss):
    for f, y in [(1e90, -1e90), (-1e90, 1e-300), (0.0, 0.0)]:
        assert math.isfinite(loss.value(f, y))
        assert np.isfinite(loss.derivative(f, y)).all()


def test_losses_by_name():
    assert losses.resolve_loss("logistic", True) == losses.Logistic()
    assert losses.resolve_loss(losses.Huber(2.0), False) == losses.Huber(2.0)
    for name, for_classes in [("square", True), ("hinge", False), ("none", True), (losses.Square(), True)]:
        with pytest.raises(ValueError, match="Expected a loss for"):
            losses.resolve_loss(name, for_classes)


@pytest.mark.parametrize(
    ("kind", "refused", "expected"),
    [
        (losses.Huber, [0.0, -1.0], "delta > 0"),
        (losses.EpsilonInsensitive, [-0.1, math.inf], "epsilon >= 0"),
        (losses.Quantile, [0.0, 1.0, -0.5, 90], "0 < tau < 1"),
        (losses.Correntropy, [0.0, -1.0, math.inf], "sigma > 0"),
    ],
)
def test_a_parameter_out_of_its_range_is_refused(kind, refused, expected):
    for parameter in (*refused, math.nan):
        with pytest.raises(ValueError, match=expected):
            kind(parameter)


@pytest.mark.parametrize("loss", CLASSES + NUMBERS, ids=repr)
def test_a_loss_is_a_value(loss):
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert len({loss, pickle.loads(pickle.dumps(loss))}) == 1
    with pytest.raises(AttributeError):
        loss.anything = 1
