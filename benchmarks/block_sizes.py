"""Blocks of 1, 8, 32 and 256 features, first-order, no step size given: events a second, R², and what growth costs.

1,024 features of ten inputs, single events, predicted and learned; at the cap, and while a model grows to it. A block a
step is what the papers' engine adds, so blocks of one feature take 1,024 steps to grow where blocks of 256 take four.
Speeds are medians of runs of the four sizes in turn, ratios of runs that stand side by side.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

from river import evaluate, metrics, preprocessing
from river.datasets import synth

from benchmarks.common import arguments, interleaved, processor_seconds, ratio, show
from benchmarks.hot_path import stream
from benchmarks.prequential import predicted
from streamkernel import KernelClassifier, KernelRegressor, kernels, learners, rules

SIZES = (1, 8, 32, 256)
RULES: dict[str, rules.Rule] = {"DSG": rules.DSG(), "CDSG": rules.CDSG()}


def learned(make: Callable[[], KernelClassifier], data: list[tuple[dict[str, float], bool]], skipped: int) -> float:
    """Return the seconds of processor time of an event after some that do not count."""
    model = make()
    for x, y in data[:skipped]:
        model.learn_one(x, y)
    return processor_seconds(partial(predicted, model, data[skipped:])) / (len(data) - skipped)


def main() -> None:
    """Print the speeds and the scores of both rules."""
    options = arguments(__doc__, runs=5, features=1024)
    data = stream(10, 2 * options.features + 2000)
    friedman = list(synth.Friedman(seed=1).take(5000))
    rows = []
    for name, rule in RULES.items():

        def make(size: int, rule: rules.Rule = rule) -> KernelClassifier:
            learner = learners.DSG(rule=rule, features_per_seed=size)
            return KernelClassifier(kernels.Gaussian(1.0), learner=learner, max_features=options.features)

        learned(partial(make, 1), data[:100], 0)  # compiles
        grown = interleaved(
            options.runs, *(partial(learned, partial(make, size), data, len(data) - 2000) for size in SIZES)
        )
        growing = interleaved(
            options.runs, *(partial(learned, partial(make, size), data[: options.features], 0) for size in SIZES)
        )
        for size, late, early in zip(SIZES, grown, growing, strict=True):
            learner = learners.DSG(rule=rule, features_per_seed=size)
            model = preprocessing.StandardScaler() | KernelRegressor(learner=learner, max_features=options.features)
            score = evaluate.progressive_val_score(friedman, model, metrics.R2()).get()
            speeds = [
                f"{1.0 / statistics.median(late):,.0f}",
                f"{ratio(late, grown[-1]):.2f}",
                f"{1.0 / statistics.median(early):,.0f}",
                f"{ratio(early, growing[-1]):.2f}",
            ]
            rows.append([f"{name}, {size}", *speeds, f"{score:.3f}"])
    columns = ["rule, features a seed", "events/s, grown", "time / 256", "growing", "time / 256", "R², Friedman"]
    show(f"{options.features:,} features", columns, rows)


if __name__ == "__main__":
    main()
