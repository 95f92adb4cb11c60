"""Eight targets in one model: processor time over that of one target and of eight models, and accuracy beside them.

A stream of ten normal inputs has eight targets in different units, each a sum of curved and linear parts of its own and
noise; labels are whether a target is above its median. With 1,024 features at most, no model adds groups, so that one
target and eight have the same features. The time of one target is the mean over a model for each. The solar flares that
ship with River have three counts of flares. Each event is predicted, then learned. The models take turns of 250 events,
and processor time is compared, not wall time. Accuracy is the mean over the targets of R², or of the share of right
labels, without the first tenth.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from river import compose, datasets, linear_model, multioutput, preprocessing, tree

from benchmarks.common import arguments, processor_seconds, show
from streamkernel import KernelClassifier, KernelMultiLabelClassifier, KernelMultiTargetRegressor, KernelRegressor
from streamkernel.estimators import parameters

INPUTS, TARGETS, TURN, OFF = 10, 8, 250, {"has_metric": False}

Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]


class Separate:
    """A model for each target."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._models = make, dict[str, Any]()

    def predict_one(self, x: dict[str, Any]) -> dict[str, Any]:
        """Return the prediction of each model."""
        return {name: model.predict_one(x) for name, model in self._models.items()}

    def learn_one(self, x: dict[str, Any], y: dict[str, Any]) -> None:
        """Let each model learn its target."""
        for name, target in y.items():
            if name not in self._models:
                self._models[name] = self._make()
            self._models[name].learn_one(x, target)


def without_metric(make: Callable[[], Any]) -> Any:
    """Return a model that learns no metric for its features."""
    made = parameters.SecondOrderLearner
    with patch.object(parameters, "SecondOrderLearner", lambda *own, **more: made(*own, **more | OFF)):
        return make()


def scaled(model: Any) -> Any:
    """Return a model of River behind what it needs: indicators of strings, and a scaler."""
    encoded = (compose.SelectType(str) | preprocessing.OneHotEncoder()) + compose.SelectType((int, float))
    return encoded | preprocessing.StandardScaler() | model


NUMBERS: dict[str, Callable[[], Any]] = {
    "KernelMultiTargetRegressor()": KernelMultiTargetRegressor,
    "KernelRegressor() for each": lambda: Separate(KernelRegressor),
    "the same without metrics": lambda: Separate(partial(without_metric, KernelRegressor)),
    "RegressorChain(LinearRegression)": lambda: scaled(multioutput.RegressorChain(linear_model.LinearRegression())),
    "ISOUPTreeRegressor": lambda: scaled(tree.ISOUPTreeRegressor()),
}
LABELS: dict[str, Callable[[], Any]] = {
    "KernelMultiLabelClassifier()": KernelMultiLabelClassifier,
    "KernelClassifier() for each": lambda: Separate(KernelClassifier),
    "the same without metrics": lambda: Separate(partial(without_metric, KernelClassifier)),
    "ClassifierChain(LogisticRegression)": lambda: scaled(
        multioutput.ClassifierChain(linear_model.LogisticRegression())
    ),
    "ClassifierChain(HoeffdingTreeClassifier)": lambda: scaled(
        multioutput.ClassifierChain(tree.HoeffdingTreeClassifier())
    ),
}


def stream(n: int) -> Rows:
    """Return inputs and eight numbers."""
    generator = np.random.default_rng(1)
    X, curved, straight = (generator.normal(size=size) for size in ((n, INPUTS), (INPUTS, TARGETS), (INPUTS, TARGETS)))
    Y = np.sin(0.4 * X @ curved) + 0.2 * X @ straight + 0.1 * generator.normal(size=(n, TARGETS))
    Y *= np.logspace(-0.5, 0.5, TARGETS)
    return [*map(named, X.tolist())], [*map(named, Y.tolist())]


def named(row: list[float]) -> dict[str, float]:
    """Return values by name."""
    return {f"v{i}": value for i, value in enumerate(row)}


def flares() -> Rows:
    """Return solar flares."""
    return tuple(map(list, zip(*datasets.SolarFlare(), strict=True)))  # type: ignore[return-value]


def as_labels(rows: Rows) -> Rows:
    """Return whether targets are above their medians."""
    xs, ys = rows
    medians = {name: float(np.median([y[name] for y in ys])) for name in ys[0]}
    return xs, [{name: value > medians[name] for name, value in y.items()} for y in ys]


def in_turns(models: list[Any], rows: list[Rows]) -> tuple[list[list[float]], list[list[dict[str, Any]]]]:
    """Return the processor seconds of each turn of each model, and the predictions of each."""
    times, found = [[[] for _ in models] for _ in range(2)]  # type: ignore[var-annotated]
    for first in range(0, len(rows[0][0]), TURN):
        for k, (model, (xs, ys)) in enumerate(zip(models, rows, strict=True)):

            def job(model: Any = model, xs: Any = xs, ys: Any = ys, k: int = k, first: int = first) -> None:
                for x, y in zip(xs[first : first + TURN], ys[first : first + TURN], strict=True):
                    found[k].append(model.predict_one(x))
                    model.learn_one(x, y)

            times[k].append(processor_seconds(job))
    return times, found


def accuracy(ys: list[dict[str, Any]], found: list[dict[str, Any]]) -> float:
    """Return the mean over targets of R², or of the share of right labels."""
    late, scores = len(ys) // 10, []
    for name, first in ys[0].items():
        y, f = (np.array([float(row.get(name) or 0.0) for row in rows[late:]]) for rows in (ys, found))
        mse = np.mean((y - f) ** 2)
        scores.append(1.0 - mse if isinstance(first, bool) else 1.0 - mse / max(y.var(), 1e-300))
    return float(np.mean(scores))


def costs(make: Callable[[], Any], rows: Rows) -> list[str]:
    """Return features, microseconds an event of one target and of eight, and their ratio, early and late.

    Those of one target are the means over eight models, one for each target.
    """
    (xs, ys), models = rows, [make() for _ in range(TARGETS + 1)]
    alone = [(xs, [{name: y[name]} for y in ys]) for name in ys[0]]
    (*each, eight), _ = in_turns(models, [*alone, rows])
    one, features = np.mean(each, axis=0), [model.n_features for model in models]
    early = max(1, min(4, len(one) // 2))
    cells = [f"{np.mean(features[:-1]):,.0f}, {features[-1]:,}"]
    for part in (slice(0, early), slice(early, None)):
        a, b = sum(one[part]), sum(eight[part])
        events = TURN * len(one[part]) or 1
        cells += [f"{1e6 * a / events:.0f}", f"{1e6 * b / events:.0f}", f"{b / a:.2f}" if a else "-"]
    return cells


def main() -> None:
    """Print a table of costs, and one of accuracy for each stream."""
    options = arguments(__doc__, events=8000, costs=False)
    rows = stream(options.events)
    makes = {"numbers": (KernelMultiTargetRegressor, rows), "labels": (KernelMultiLabelClassifier, as_labels(rows))}
    for make, own in makes.values():  # compiled code is loaded
        in_turns([make(max_features=1024)], [(own[0][:1000], own[1][:1000])])
    kinds = {
        f"{name}, max_features={most}": (partial(make, max_features=most), own)
        for name, (make, own) in makes.items()
        for most in (1024, "auto")
    }
    show(
        f"one target and eight, {INPUTS} inputs: processor time, µs an event",
        ["targets", "features", "one, to 1,000", "eight", "ratio", f"one, to {options.events:,}", "eight", "ratio"],
        [[kind, *costs(make, own)] for kind, (make, own) in kinds.items()],
    )
    if options.costs:
        return
    for title, own in (("made", rows), ("solar flares", flares())):
        for kind, models, data in (("numbers, R²", NUMBERS, own), ("labels, accuracy", LABELS, as_labels(own))):
            times, found = in_turns([make() for make in models.values()], [data] * len(models))
            ours, n = sum(times[0]), len(data[0])
            table = [
                [name, f"{accuracy(data[1], answers):.3g}", f"{1e6 * sum(time) / n:.0f}", f"{sum(time) / ours:.2f}"]
                for name, time, answers in zip(models, times, found, strict=True)
            ]
            columns = ["model", kind.split(", ")[1], "µs an event", "time over ours"]
            show(f"{title}, {kind}: {n:,} events, {len(data[1][0])} targets", columns, table)


if __name__ == "__main__":
    main()
