"""When CDSG's check reuses a block and when it adds one: three streams, blocks of 32 features, no step size given.

Adult in batches of 64 (hinge), Bananas in batches of 8 (logistic), and Friedman in batches of 32 (square), without a
cap on the features, with single events beside the batches. With one event a step, the variance of the check is that of
one gradient and one block, and it seldom vouches for an old block; with batches it soon does. Beyond 8,192 features a
check comes less often the more there are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from river import datasets
from river.datasets import synth

from benchmarks import adult, race
from benchmarks.common import arguments, show
from streamkernel import KernelClassifier, KernelRegressor, kernels, learners

MOMENTS = 40


def streams(folder: Path) -> dict[str, tuple[pd.DataFrame, pd.Series, Any, int]]:
    """Return inputs, targets, what makes the estimator of a learner, and the batch of each stream."""
    X, y = adult.table(folder / "a9a.svm.gz", np.random.default_rng(0).permutation(adult.ROWS))
    bananas, friedman = list(datasets.Bananas()), list(synth.Friedman(seed=1).take(10_000))
    hinge: dict[str, Any] = {"kernel": kernels.Gaussian(4.0), "loss": "hinge", "l2": 1e-6}
    return {
        "Adult": (X, y, lambda learner: KernelClassifier(learner=learner, max_features=None, **hinge), 64),
        "Bananas": (
            pd.DataFrame([x for x, _ in bananas]),
            pd.Series([y for _, y in bananas]),
            lambda learner: KernelClassifier(learner=learner, max_features=None),
            8,
        ),
        "Friedman": (
            pd.DataFrame([x for x, _ in friedman]),
            pd.Series([y for _, y in friedman]),
            lambda learner: KernelRegressor(learner=learner, max_features=None),
            32,
        ),
    }


def main() -> None:
    """Print the counts and draw how many blocks there are after so many steps."""
    options = arguments(__doc__, data=True, events=6000, output=Path("figures/checks.png"))
    figure = Figure(figsize=(12, 4), layout="constrained")
    rows = []
    for axis, (name, (X, y, make, batch)) in zip(figure.subplots(1, 3), streams(options.data).items(), strict=True):
        for size in (1, batch):
            model = make(learners.DSG(features_per_seed=32, batch_size=size))
            most = min(len(y), options.events if size == 1 else len(y))
            marks = np.unique(np.linspace(size, most, MOMENTS).astype(int))
            steps, blocks, first = [0], [0], 0
            for last in marks.tolist():
                model.learn_many(X[first:last], y[first:last])
                steps, blocks, first = [*steps, model.n_steps], [*blocks, model.n_seeds], last
            axis.plot(np.array(steps) / steps[-1], np.array(blocks) / steps[-1], label=f"batches of {size}", marker=".")
            half = len(steps) // 2
            shares = [
                (blocks[half] - blocks[0]) / (steps[half] - steps[0]),
                (blocks[-1] - blocks[half]) / (steps[-1] - steps[half]),
            ]
            cells = [f"{model.n_steps:,}", f"{model.n_seeds:,}", f"{model.n_reused:,}", *(f"{s:.2f}" for s in shares)]
            rows.append([f"{name}, {size}", *cells])
        axis.set(title=name, xlabel="steps, as a share", ylabel="blocks over all steps")
        axis.legend(frameon=False)
        axis.grid(alpha=0.3)
    columns = ["stream, batch", "steps", "grew", "reused", "grew, first half", "second half"]
    show("CDSG's check, 32 features a seed, no cap", columns, rows)
    race.save(figure, options.output)


if __name__ == "__main__":
    main()
