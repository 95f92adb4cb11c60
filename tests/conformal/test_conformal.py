"""Conformal intervals and sets: against the printed algorithm, and their coverage on any stream."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from river import base, compose, datasets, feature_extraction, linear_model, preprocessing, stats
from river.datasets import synth

import streamkernel
from streamkernel import (
    ConformalClassifier,
    ConformalRegressor,
    InputError,
    KernelClassifier,
    KernelMultiLabelClassifier,
    KernelMultiTargetRegressor,
    KernelRegressor,
)
from streamkernel.conformal.adaptive_level import AdaptiveLevel
from streamkernel.conformal.error_scale import ErrorScale
from streamkernel.conformal.rolling_scores import RollingScores

N = 4000


class Constant(base.Regressor):
    """Predicts one number, and counts its examples."""

    def __init__(self, number: float = 0.0) -> None:
        self.number = number
        self.seen: list[tuple[float, float]] = []

    def learn_one(self, x, y, w=1.0):
        self.seen.append((y, w))

    def predict_one(self, x):
        return self.number


def scores_of(kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    noise = np.abs(rng.normal(size=N))
    return {
        "the same all the time": noise,
        "ten times as large after half": noise * np.where(np.arange(N) < N // 2, 1.0, 10.0),
        "ten times as small after half": noise * np.where(np.arange(N) < N // 2, 1.0, 0.1),
        "growing": noise * np.exp(np.arange(N) / 500.0),
        "waves": noise * (1.5 + np.sin(np.arange(N) / 50.0)),
        "always larger than before": np.arange(N, dtype=float),
        "always smaller than before": np.arange(N, dtype=float)[::-1],
        "infinite at times": np.where(rng.random(N) < 0.03, math.inf, noise),
        "a hundred times as large every 500": noise * 100.0 ** (np.arange(N) // 500),
        "large in two of 24": noise * np.where(np.arange(N) % 12 == 9, 10.0, 1.0),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "the same all the time",
        "ten times as large after half",
        "ten times as small after half",
        "growing",
        "waves",
        "always larger than before",
        "always smaller than before",
        "infinite at times",
        "a hundred times as large every 500",
        "large in two of 24",
    ],
)
@pytest.mark.parametrize(
    ("coverage", "window"), [(0.5, 250), (0.8, 1000), (0.9, 250), (0.95, 100), (0.98, 250), (0.99, 1000), (0.995, 250)]
)
def test_coverage_is_reached_on_any_stream_with_finite_thresholds(kind: str, coverage: float, window: int) -> None:
    scores, inside, thresholds = RollingScores(coverage, window), [], []
    for score in scores_of(kind).tolist():
        thresholds.append(scores.threshold())
        inside.append(score <= thresholds[-1])
        scores.update(score)
    tolerance = min(0.01, 0.35 * (1.0 - coverage))
    assert np.mean(inside) > coverage - tolerance
    if coverage < 0.98 or kind not in ("always smaller than before", "infinite at times"):
        assert np.mean(inside) < coverage + tolerance
    if kind != "infinite at times":
        assert np.sum(np.array(thresholds) == math.inf) == round(1.0 / (1.0 - coverage)) - 1


def test_the_threshold_and_the_lowest_level_are_inverse() -> None:
    scores, rng = RollingScores(0.95, window=100), np.random.default_rng(4)
    for score in rng.exponential(size=150).tolist():
        scores.update(score)
    for score in (0.0, *rng.exponential(size=50).tolist(), *scores._sorted, 7.0, 90.0):
        level = scores._lowest_level_without(score)
        for nearby, is_inside in ((level - 1e-9, True), (level + 1e-9, False)):
            scores._level.offset += nearby - scores._level.get()
            assert (score <= scores.threshold()) is is_inside


def test_the_level_matches_the_published_algorithm() -> None:
    alpha, gammas, span = 0.1, 0.001 * 2.0 ** np.arange(8), 500
    eta = np.sqrt(3 / span) * np.sqrt(
        (np.log(8 * span) + 2) / ((1 - alpha) ** 2 * alpha**3 + (1 - alpha) ** 3 * alpha**2)
    )
    sigma, w, levels, offset, ours = 1 / (2 * span), np.ones(8), np.full(8, alpha), 0.0, AdaptiveLevel(alpha)
    for beta in np.random.default_rng(1).beta(1.0, 2.0, size=1000):
        level = float(w / w.sum() @ levels) + offset
        assert ours.get() == pytest.approx(level, abs=1e-9)
        offset += 0.005 * (alpha - (beta <= level))
        loss = alpha * (beta - levels) - np.minimum(0.0, beta - levels)
        kept = w * np.exp(-eta * loss)
        w = (1 - sigma) * kept + kept.sum() * sigma / 8
        levels = levels + gammas * (alpha - (beta <= levels))
        ours.update(float(beta))


def test_the_threshold_is_the_quantile_of_the_window() -> None:
    scores, seen = RollingScores(0.8, window=40), []
    for score in np.random.default_rng(2).integers(0, 30, 300).astype(float).tolist():
        recent = sorted(seen[-40:])
        rank = math.ceil((1.0 - scores._level.get()) * (len(recent) + 1))
        expected = math.inf if rank > len(recent) else -math.inf if rank < 1 else recent[rank - 1]
        assert scores.threshold() == pytest.approx(expected)
        scores.update(score)
        seen.append(score)
    assert len(scores._sorted) == len(scores._recent) == 40


@pytest.mark.parametrize(
    "make", [KernelRegressor, lambda: preprocessing.StandardScaler() | linear_model.BayesianLinearRegression()]
)
def test_interval_coverage_holds_under_drift(make) -> None:
    infinite = []
    for seed in (1, 2):
        model, inside, widths = ConformalRegressor(make(), coverage=0.9), [], []
        for x, y in synth.FriedmanDrift("gra", (1000, 2000), seed=seed).take(3000):
            interval = model.predict_interval_one(x)
            inside.append(y in interval)
            widths.append(interval.width)
            assert interval.lower <= model.predict_one(x) <= interval.upper
            model.learn_one(x, y)
        assert np.mean(inside) == pytest.approx(0.9, abs=0.01)
        infinite.append(np.isinf(widths).mean())
    assert np.mean(infinite) < 0.025


def hourly(n: int, unit: float = 1.0, seed: int = 1):
    """Return examples whose noise is ten times as large in two of 24 hours."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        hour = i % 24
        x = {"sine": math.sin(hour * math.pi / 12), "cosine": math.cos(hour * math.pi / 12)}
        yield x, unit * (50 + 20 * x["sine"] + rng.normal() * (10 if hour in (9, 17) else 1)), hour in (9, 17)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_hours_with_ten_times_the_noise_are_covered_as_others(unit: float) -> None:
    model, inside = ConformalRegressor(KernelRegressor(max_features=64)), {False: [], True: []}
    for i, (x, y, is_noisy) in enumerate(hourly(4000, unit)):
        if i >= 800:
            inside[is_noisy].append(y in model.predict_interval_one(x))
        model.learn_one(x, y)
    assert np.mean(inside[True]) == pytest.approx(0.9, abs=0.05)  # 0.17 without a scale; 267 examples
    assert np.mean(inside[False]) == pytest.approx(0.9, abs=0.02)


def test_features_that_the_scale_refuses_count_as_the_mean() -> None:
    scale = ErrorScale()
    for i in range(50):
        scale.learn({"a": i % 5}, 3.0)
    for bad in ({"a": object()}, {"a": {"deep": 1}}, "a text"):
        assert scale.at(bad) == 1.0  # type: ignore[arg-type]
        assert scale.learn(bad, 6.0) == 6.0  # type: ignore[arg-type]
    words = ConformalRegressor(feature_extraction.BagOfWords() | linear_model.LinearRegression())
    imputed = ConformalRegressor(preprocessing.StatImputer(("a", stats.Mean())) | linear_model.LinearRegression())
    for i in range(30):
        words.learn_one("good film" if i % 2 else "bad film", float(i % 2))
        imputed.learn_one({"a": None if i % 3 else i % 2}, float(i % 2))
    assert words.predict_interval_one("good film").width < math.inf
    assert imputed.predict_interval_one({"a": None}).width < math.inf


def test_errors_that_are_not_finite_change_no_scale() -> None:
    scale = ErrorScale()
    assert math.isnan(scale.learn({"a": 1.0}, math.nan))
    assert scale.learn({"a": 1.0}, math.inf) == math.inf
    assert (scale.n, scale.mean, scale.log_ratio.n_features) == (0, 0.0, 0)


@pytest.mark.parametrize("small", [0.0, 1e-12, 1e-3, 0.1])
def test_intervals_are_not_too_wide_where_errors_are_0_or_tiny_elsewhere(small: float) -> None:
    rng, scale, scores, reaches = np.random.default_rng(7), ErrorScale(), RollingScores(0.9, 250), []
    for i in range(3000):
        is_quiet = i % 7 < 3
        x = {"quiet": is_quiet, "a": rng.normal()}
        if i >= 500 and not is_quiet:
            reaches.append(scores.threshold() * scale.at(x))
        scores.update(scale.learn(x, abs(rng.normal()) * (small if is_quiet else 1.0)))
    assert 1.2 < np.median(reaches) < 1.9  # with errors of 0, intervals of the others hold 82 %, to have 90 % of all
    assert max(reaches) < 6.0


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_thresholds_follow_errors_of_another_size(factor: float) -> None:
    rng, scale, scores, reaches = np.random.default_rng(6), ErrorScale(), RollingScores(0.9, 250), []
    for i in range(4000):
        x = {"a": rng.normal()}
        reaches.append(scores.threshold() * scale.at(x))
        scores.update(scale.learn(x, (factor if i >= 1000 else 1.0) * abs(rng.normal())))
    after = np.array(reaches[1000:])
    assert np.median(after[1000:]) == pytest.approx(1.64 * factor, rel=0.15)
    assert after.max() < 40.0 * max(factor, 1.0)


def test_one_huge_error_at_the_start_widens_few_intervals() -> None:
    rng, scale, scores, reaches = np.random.default_rng(8), ErrorScale(), RollingScores(0.9, 250), []
    for i in range(1000):
        x = {"a": rng.normal()}
        reaches.append(scores.threshold() * scale.at(x))
        scores.update(scale.learn(x, 1e89 if i == 0 else abs(rng.normal())))
    assert max(reaches[100:]) < 5.0


def test_a_model_from_before_the_scale_continues() -> None:
    model = ConformalRegressor(Constant())
    for i in range(50):
        model.learn_one({"a": 1.0}, float(i % 10))
    del model._scale  # as files had none
    assert 9.0 < model.predict_interval_one({"a": 1.0}).width < 30.0
    model.learn_one({"a": 1.0}, 5.0)
    assert 9.0 < model.predict_interval_one({"a": 1.0}).width < 30.0


class Uncertain(Constant, base.Classifier):
    """Predicts a probability that is not a number, once."""

    def predict_proba_one(self, x):
        return {True: self.number, False: 0.3}


def test_a_probability_that_is_not_a_number_costs_one_set() -> None:
    model = ConformalClassifier(Uncertain(math.nan))
    for i in range(100):
        model.model.number = math.nan if i == 30 else 0.7
        assert model.predict_set_one({}) <= {True, False}
        model.learn_one({}, i % 3 > 0)
    assert model.predict_set_one({}) == {True, False}


@pytest.mark.parametrize(
    "make",
    [
        lambda: KernelClassifier(max_features=64),
        lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    ],
)
def test_set_coverage(make) -> None:
    model, inside = ConformalClassifier(make(), coverage=0.8), []
    for x, y in datasets.Phishing():
        inside.append(y in model.predict_set_one(x))
        model.learn_one(x, y)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.015)  # of 1,250 examples


def test_an_untrained_model_gives_unbounded_sets() -> None:
    assert ConformalRegressor(Constant()).predict_interval_one({}) == (-math.inf, math.inf)
    model = ConformalClassifier(KernelClassifier())
    assert model.predict_set_one({"a": 1.0}) == set()
    for y in "ab":
        model.learn_one({"a": 1.0}, y)
    assert model.predict_set_one({"a": 1.0}) == {"a", "b"}
    assert model.predict_one({"a": 1.0}) == model.model.predict_one({"a": 1.0})
    assert model.predict_proba_one({"a": 1.0}) == model.model.predict_proba_one({"a": 1.0})


def test_perfect_predictions_give_intervals_of_width_0() -> None:
    model = ConformalRegressor(Constant(3.0))
    for _ in range(1000):
        model.learn_one({"a": 1.0}, 3.0)
    assert model.predict_interval_one({"a": 1.0}) == (3.0, 3.0)


def test_a_nan_prediction_gives_an_unbounded_interval_and_counts_as_a_miss() -> None:
    model = ConformalRegressor(Constant(1.0), coverage=0.5)
    for _ in range(100):
        model.learn_one({"a": 1.0}, 2.0)
    model.model.number = math.nan
    assert model.predict_interval_one({"a": 1.0}) == (-math.inf, math.inf)
    model.learn_one({"a": 1.0}, 2.0)
    assert model._scores._sorted[-1] == math.inf


def test_weights_are_passed_on_and_weight_0_changes_nothing() -> None:
    model = ConformalRegressor(Constant())
    model.learn_one({"a": 1.0}, 1.0)
    model.learn_one({"a": 1.0}, 2.0, w=3.0)
    before = copy.deepcopy(model._scores)
    model.learn_one({"a": 1.0}, 4.0, w=0.0)
    assert model.model.seen == [(1.0, 1.0), (2.0, 3.0)]
    assert list(model._scores._recent) == list(before._recent) == [1.0, 2.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, "high", None])
def test_a_nan_target_changes_nothing(bad) -> None:
    model = ConformalRegressor(Constant())
    with pytest.raises(InputError):
        model.learn_one({"a": 1.0}, bad)
    assert model.model.seen == []
    assert not model._scores._recent


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 1.0}, "Expected 0 < coverage < 1, got 1.0"),
        ({"coverage": "high"}, "Expected 0 < coverage < 1, got 'high'"),
        ({"coverage": True}, "Expected 0 < coverage < 1, got True"),
        ({"window": 9}, "Expected a window of at least 10 scores for coverage=0.9, got 9"),
        ({"coverage": 0.999}, "Expected a window of at least 1000 scores for coverage=0.999, got 250"),
    ],
)
def test_options_out_of_range_are_refused(options, message) -> None:
    for kind, model in ((ConformalRegressor, Constant()), (ConformalClassifier, KernelClassifier())):
        with pytest.raises(ValueError, match=message):
            kind(model, **options)


def wrapped() -> dict[str, compose.Pipeline | base.Estimator]:
    linear = linear_model.LinearRegression()
    return {
        "ours": ConformalRegressor(KernelRegressor(max_features=64)),
        "around a pipeline": ConformalRegressor(preprocessing.StandardScaler() | linear),
        "in a pipeline": preprocessing.StandardScaler() | ConformalRegressor(KernelRegressor(max_features=64)),
    }


@pytest.mark.parametrize("name", list(wrapped()))
@pytest.mark.parametrize("way", ["file", "deepcopy", "pickle"])
def test_copies_continue_unchanged(name: str, way: str, tmp_path: Path) -> None:
    model = wrapped()[name]
    events = list(synth.Friedman(seed=3).take(400))
    for x, y in events[:300]:
        model.learn_one(x, y)
    if way == "file":
        streamkernel.save(model, tmp_path / "model")
        twin = streamkernel.load(tmp_path / "model")
    else:
        twin = copy.deepcopy(model) if way == "deepcopy" else pickle.loads(pickle.dumps(model))
    for x, y in events[300:]:
        last = [(m[-1] if isinstance(m, compose.Pipeline) else m, m) for m in (model, twin)]
        xs = [m["StandardScaler"].transform_one(x) for _, m in last] if name == "in a pipeline" else [x, x]
        ours, theirs = (found.predict_interval_one(z) for (found, _), z in zip(last, xs, strict=True))
        assert ours == theirs
        for m in (model, twin):
            m.learn_one(x, y)


@pytest.mark.parametrize(
    ("make", "model", "got"),
    [
        (ConformalRegressor, KernelClassifier(max_features=64), "regressor of one target as model, got a KernelClassi"),
        (ConformalRegressor, KernelMultiTargetRegressor(max_features=64), "got a KernelMultiTargetRegressor"),
        (ConformalRegressor, KernelRegressor, "got the class KernelRegressor"),
        (ConformalClassifier, KernelMultiLabelClassifier(max_features=64), "classifier of one target as model"),
    ],
)
def test_models_of_another_kind_are_refused(make, model, got):
    with pytest.raises(ValueError, match=got):
        make(model)
