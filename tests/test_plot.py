"""Plots contain the known values of their data, in given or new axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from river import evaluate, linear_model, metrics
from river.datasets import synth
from sklearn.calibration import calibration_curve

from streamkernel import GaussianProcessRegressor, KernelClassifier, KernelRegressor, plot
from streamkernel import sklearn as estimators
from streamkernel.kernels import Gaussian

mpl.use("Agg")
generator = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def drawn(ax: Any, i: int) -> Any:
    return ax.lines[i].get_xydata()


def test_a_learning_curve_has_the_points_of_a_progressive_run() -> None:
    def steps() -> Any:
        stream = synth.Friedman(seed=1).take(300)
        return evaluate.iter_progressive_val_score(stream, linear_model.LinearRegression(), metrics.MAE(), step=100)

    ax = plot.learning_curve((step["Step"], step["MAE"]) for step in steps())  # one metric that moves on
    expected = [(step["Step"], step["MAE"].get()) for step in steps()]
    np.testing.assert_array_equal(drawn(ax, 0), expected)
    assert ax.get_legend() is None


def test_the_recent_metric_is_that_of_the_events_between_two_points() -> None:
    hits = generator.random(500) < 0.7
    points = [(n, hits[:n].mean()) for n in (100, 200, 200, 350, 500)]
    ax = plot.learning_curve({"one": points, "other": points}, recent=1)
    expected = [(200, hits[100:200].mean()), (350, hits[200:350].mean()), (500, hits[350:].mean())]
    np.testing.assert_allclose(drawn(ax, 1), expected)
    assert ax.lines[1].get_color() == ax.lines[0].get_color() != ax.lines[2].get_color()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        f"{n}: {hits.mean():.3g}" for n in ("one", "other")
    ]


def test_a_curve_without_points_is_empty() -> None:
    assert len(drawn(plot.learning_curve({"one": []}, recent=3), 0)) == 0


def test_importances_are_those_of_online_and_of_scikit_learn_models() -> None:
    X = generator.normal(size=(400, 3))
    model = estimators.KernelRegressor(max_features=64).fit(X, X[:, 2] + 0.2 * X[:, 0])
    for one in (model, model.model_, model.model_.feature_importances_):
        ax = plot.importances(one, most=2)
        assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "2"]
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], model.feature_importances_[[0, 2]])
    with pytest.raises(AttributeError, match="feature_importances_"):
        plot.importances(KernelRegressor(learner="dsg"))


def test_calibration_is_that_of_scikit_learn() -> None:
    p = generator.random(2000)
    y = generator.random(2000) < p**2
    ax = plot.calibration(y, p, bins=8, label="squares")
    share, said = calibration_curve(y, p, n_bins=8)
    np.testing.assert_allclose(drawn(ax, 1), np.c_[said, share])
    assert plot.calibration([True], [1.0]).lines[1].get_xydata().tolist() == [[1.0, 1.0]]
    for bad in ([0.5], [0.5, 1.5], [0.5, np.nan]):
        with pytest.raises(ValueError, match="probabilities from 0 to 1"):
            plot.calibration([True, False], bad)


def test_points_and_intervals_of_other_shapes_are_named() -> None:
    for points in ([(1, 2.0, 3.0)], [1, 2]):
        with pytest.raises(ValueError, match="Expected pairs of a number of events and a metric"):
            plot.learning_curve(points)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Expected as many numbers as places, \(2,\), got \(1,\) - at y"):
        plot.interval_band([1, 2], [0, 0], [1, 2], y=[1.0])


def test_groups_have_features_and_the_weights_of_the_mixture() -> None:
    model, history = KernelClassifier(max_features=64), []
    for i in range(60):
        model.learn_one({"x": i % 5}, i % 2 == 0)
        history.append((i + 1, model.n_features, model.mixture_weights))
    ax = plot.groups(history)
    names = ax.get_legend_handles_labels()[1]
    assert names == list(model.mixture_weights)
    for i, name in enumerate(names):
        np.testing.assert_array_equal(drawn(ax, i), [(n, weights[name]) for n, _, weights in history])
    assert KernelClassifier(Gaussian(1.0), learner="dsg").mixture_weights == {}
    behind = ax.figure.axes[1].collections[0]
    assert behind.get_paths()[0].vertices[:, 1].max() == model.n_features


def test_intervals_show_their_coverage() -> None:
    x = generator.random(100)
    y = generator.normal(size=100)
    ax = plot.interval_band(x, np.full(100, -1.0), np.ones(100), y=y, prediction=np.zeros(100))
    held = (np.abs(y) <= 1.0).mean()
    assert ax.get_legend_handles_labels()[1] == [f"interval, covers {held:.1%}", "prediction", "outside"]
    assert (np.diff(drawn(ax, 0)[:, 0]) >= 0.0).all()
    assert len(ax.collections[2].get_offsets()) == round(100 * (1.0 - held))
    assert plot.interval_band([1], [0], [2]).get_legend_handles_labels()[1] == ["interval"]


def test_pictures_go_into_axes_that_are_given() -> None:
    ax = Figure().subplots()
    model = GaussianProcessRegressor(n_features=8)
    model.learn_one({"x": 1.0}, 1.0)
    d = model.predict_one({"x": 1.0}, with_dist=True)
    assert plot.interval_band([1.0], [d.mu - d.sigma], [d.mu + d.sigma], ax=ax) is ax
    assert plot.learning_curve([(1, 0.5)], ax=ax) is ax
    assert pyplot.get_fignums() == []
