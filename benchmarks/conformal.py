"""Conformal intervals and sets on ten streams, and where the noise differs by hour, beside other intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from river import conf, linear_model, multiclass, preprocessing, tree

from benchmarks.common import arguments, show
from benchmarks.scenarios import CLASSES, NUMBERS, SCENARIOS, Event, filled
from streamkernel import (
    ConformalClassifier,
    ConformalRegressor,
    GaussianProcessRegressor,
    KernelClassifier,
    KernelRegressor,
    losses,
)
from streamkernel.conformal import Interval
from streamkernel.conformal.rolling_scores import RollingScores

STREAMS = (
    "friedman", "friedman_abrupt", "friedman_gradual", "friedman_local", "trump_approval",
    "elec2", "rbf_abrupt", "rbf_moving", "sea_abrupt", "sea_gradual",
)  # fmt: skip
"""The first five have numbers as targets, the others classes; all but friedman drift."""

STRETCH = 500


class Jackknife(conf.RegressionJackknife[Any]):
    """River's intervals, by the method of ours."""

    def predict_interval_one(self, x: dict[str, Any]) -> conf.Interval:
        return self.predict_one(x, with_interval=True)


class ConformalizedQuantiles:
    """CQR: two quantile regressors, whose interval is widened by a quantile of the recent distances from it.

    Romano, Patterson and Candès, "Conformalized quantile regression", NeurIPS 2019, with the adaptive level of ours.
    """

    def __init__(self, coverage: float) -> None:
        shares = (1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0
        self._bounds = [KernelRegressor(loss=losses.Quantile(share), learner="dsg") for share in shares]
        self._scores = RollingScores(coverage, 250)

    def predict_interval_one(self, x: dict[str, Any]) -> Interval:
        lower, upper = sorted(bound.predict_one(x) for bound in self._bounds)
        reach = self._scores.threshold()
        return Interval(min(lower - reach, upper + reach), max(lower - reach, upper + reach))

    def learn_one(self, x: dict[str, Any], y: float) -> None:
        lower, upper = sorted(bound.predict_one(x) for bound in self._bounds)
        self._scores.update(max(lower - y, y - upper))
        for bound in self._bounds:
            bound.learn_one(x, y)


class Gaussian(GaussianProcessRegressor):
    """A Gaussian process, by the method of ours."""

    def predict_interval_one(self, x: dict[str, Any]) -> Interval:
        prediction = self.predict_one(x, with_dist=True)
        return Interval(prediction.mu - 1.645 * prediction.sigma, prediction.mu + 1.645 * prediction.sigma)


class Found(NamedTuple):
    """Result of a stream: the coverage, overall and worst, the size, and the number of infinite or empty sets."""

    share: float
    worst: float
    size: float
    extreme: float
    microseconds: float


def main() -> None:
    """Print a table for each kind of target, and how many of the streams are within a point."""
    options = arguments(__doc__, data=True, events=20_000, coverage=0.9, repeats=6)
    for task in (NUMBERS, CLASSES):
        rows, within = [], dict.fromkeys(makers(task, options.coverage), 0)
        streams = [name for name in STREAMS if SCENARIOS[name].task == task]
        for name in streams:
            events = filled(SCENARIOS[name].events(options.data)[: options.events])
            for label, make in makers(task, options.coverage).items():
                found = run(make(), events)
                within[label] += abs(found.share - options.coverage) <= 0.01
                rows.append(
                    [
                        f"{name}, {label}", f"{found.share:.4f}", f"{found.worst:.3f}", f"{found.size:.3f}",
                        f"{found.extreme:.4f}", f"{found.microseconds:.0f} µs",
                    ]
                )  # fmt: skip
        what = ("median width", "infinite") if task == NUMBERS else ("mean labels", "empty")
        columns = ["stream, model", "inside", f"worst {STRETCH}", *what, "an event"]
        show(f"{task}, coverage {options.coverage}", columns, rows)
        show("streams within a point", ["model", "streams"], [[k, f"{n} of {len(streams)}"] for k, n in within.items()])
    show_by_hour(options.repeats)
    show_infinite()


def show_by_hour(repeats: int) -> None:
    """Print the coverage of 90 % intervals in two hours with ten times the noise, and in the others."""
    rows = []
    for label, make in {
        "ours": lambda: ConformalRegressor(KernelRegressor()),
        "River's jackknife, window 250": lambda: Jackknife(KernelRegressor(), 0.9, 250),
        "two quantiles, conformalized": lambda: ConformalizedQuantiles(0.9),
        "Gaussian process": Gaussian,
    }.items():
        results = [by_hour(make(), seed) for seed in range(repeats)]
        rows.append([label, *(f"{value:.3f}" for value in np.mean(results, axis=0))])
    columns = ["model", "noisy hours", "other hours", "mean width", "interval score"]
    show("ten times the noise at 9 and 17 o'clock, coverage 0.9", columns, rows)


def by_hour(model: Any, seed: int, n: int = 4000) -> tuple[float, float, float, float]:
    """Return the coverage in the noisy hours and in the others, the mean width and the mean interval score.

    The score is the width, and 20 times the distance of a target outside (Gneiting and Raftery, JASA 2007); it is the
    lower the better. The first 800 events are left out.
    """
    rng, inside, widths, scores = np.random.default_rng(seed), np.zeros(n, bool), np.zeros(n), np.zeros(n)
    hours = np.arange(n) % 24
    is_noisy = np.isin(hours, (9, 17))
    for i, hour in enumerate(hours.tolist()):
        x = {"sine": math.sin(hour * math.pi / 12), "cosine": math.cos(hour * math.pi / 12)}
        y = 50 + 20 * x["sine"] + rng.normal() * (10 if is_noisy[i] else 1)
        interval = model.predict_interval_one(x)
        inside[i], widths[i] = interval.lower <= y <= interval.upper, interval.upper - interval.lower
        scores[i] = widths[i] + 20.0 * max(interval.lower - y, y - interval.upper, 0.0)
        model.learn_one(x, y)
    used = np.arange(n) >= 800
    parts = inside[used & is_noisy], inside[used & ~is_noisy], widths[used], scores[used]
    return tuple(float(part.mean()) for part in parts)  # type: ignore[return-value]


def show_infinite() -> None:
    """Print the share of infinite thresholds for scores that are all alike, by coverage and window."""
    rows = []
    for coverage in (0.8, 0.9, 0.95, 0.98, 0.99, 0.995):
        for window in (250, 1000):
            rows.append([f"{coverage}, window {window}", *(f"{value:.4f}" for value in thresholds(coverage, window))])
    show("10,000 absolute normal numbers", ["coverage", "infinite", "inside", "median"], rows)


def thresholds(coverage: float, window: int) -> Iterator[float]:
    """Yield the share of infinite thresholds after the first window, the share of scores inside, and the median."""
    scores, levels, inside = RollingScores(coverage, window), [], []
    for score in np.abs(np.random.default_rng(0).normal(size=10_000)).tolist():
        levels.append(scores.threshold())
        inside.append(score <= levels[-1])
        scores.update(score)
    yield float(np.mean(np.isinf(levels[window:])))
    yield float(np.mean(inside))
    yield float(np.median(levels))


def makers(task: str, coverage: float) -> dict[str, Callable[[], Any]]:
    """Return a constructor for each model."""
    scaler = preprocessing.StandardScaler
    if task == NUMBERS:
        linear: Callable[[], Any] = lambda: (  # noqa: E731
            scaler() | preprocessing.TargetStandardScaler(linear_model.LinearRegression())
        )
        return {
            "ours around KernelRegressor": lambda: ConformalRegressor(KernelRegressor(), coverage),
            "River's around KernelRegressor": lambda: Jackknife(KernelRegressor(), coverage),
            "River's around it, window 250": lambda: Jackknife(KernelRegressor(), coverage, 250),
            "ours around LinearRegression": lambda: ConformalRegressor(linear(), coverage),
            "River's around LinearRegression": lambda: Jackknife(linear(), coverage),
        }
    return {
        "ours around KernelClassifier": lambda: ConformalClassifier(KernelClassifier(), coverage),
        "ours around LogisticRegression": lambda: ConformalClassifier(
            scaler() | multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), coverage
        ),
        "ours around HoeffdingTreeClassifier": lambda: ConformalClassifier(tree.HoeffdingTreeClassifier(), coverage),
    }


def run(model: Any, events: Sequence[Event]) -> Found:
    """Predict each event, then learn it; nothing is left out at the beginning."""
    inside, sizes = [], []
    began = time.process_time()
    for x, y in events:
        if hasattr(model, "predict_set_one"):
            labels = model.predict_set_one(x)
            inside.append(y in labels)
            sizes.append(float(len(labels)))
        else:
            interval = model.predict_interval_one(x)
            inside.append(y in interval)
            sizes.append(interval.upper - interval.lower)
        model.learn_one(x, y)
    took = time.process_time() - began
    stretches = np.convolve(inside, np.full(STRETCH, 1.0 / STRETCH), "valid")
    size = np.array(sizes)
    extreme = np.mean(np.isinf(size) | (size == 0.0))
    middle = np.mean(size) if hasattr(model, "predict_set_one") else np.median(size)
    return Found(
        float(np.mean(inside)),
        float(stretches.min()),
        float(middle),
        float(extreme),
        1e6 * took / len(events),
    )


if __name__ == "__main__":
    main()
