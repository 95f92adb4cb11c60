"""Conformal intervals and sets on ten streams: coverage, the worst stretch, size and time, beside River's jackknife."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from river import conf, linear_model, multiclass, preprocessing, tree

from benchmarks.common import arguments, show
from benchmarks.scenarios import CLASSES, NUMBERS, SCENARIOS, Event, filled
from streamkernel import ConformalClassifier, ConformalRegressor, KernelClassifier, KernelRegressor

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


class Found(NamedTuple):
    """Result of a stream: the coverage, overall and worst, the size, and the number of infinite or empty sets."""

    share: float
    worst: float
    size: float
    extreme: float
    microseconds: float


def main() -> None:
    """Print a table for each kind of target, and how many of the streams are within a point."""
    options = arguments(__doc__, data=True, events=20_000, coverage=0.9)
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
