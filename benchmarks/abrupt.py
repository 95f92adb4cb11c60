"""An abrupt change, and streams that drift: the default learner beside learners that keep all, that forget, and one
begun anew.

The change: y = sin(2x₀)x₁ + 0.3x₂ > 0 of six normal inputs, and after half of the events the first term has the other
sign. Accuracy is that of each 2,000 events from the change on, each predicted before it is learned; the last model
begins at the change. The streams are those of ``benchmarks.accuracy``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, show
from benchmarks.prequential import predicted, whole_score
from benchmarks.scenarios import CLASSES, SCENARIOS
from streamkernel import KernelClassifier, KernelRegressor, learners

BEFORE, AFTER, PART = 16_000, 16_000, 2000
STREAMS = ("rbf_abrupt", "rbf_gradual", "rbf_moving", "sea_abrupt", "hyperplane", "friedman_abrupt")
FORGETTING = ("auto", 1.0, 0.9999, 0.999)


def turned(seed: int) -> list[Any]:
    """Return the events of the change."""
    X = np.random.default_rng(seed).normal(size=(BEFORE + AFTER, 6))
    sign = np.where(np.arange(len(X)) < BEFORE, 1.0, -1.0)
    y = sign * np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.3 * X[:, 2] > 0.0
    return [(dict(zip("abcdef", x, strict=True)), bool(of)) for x, of in zip(X.tolist(), y, strict=True)]


def main() -> None:
    """Print both tables."""
    arguments(__doc__)
    events = turned(0)
    targets = np.array([y for _, y in events])
    makes = {
        "no arguments": (KernelClassifier(max_features=1024), events),
        "forgetting=1.0": (KernelClassifier(max_features=1024, learner=learners.Newton(forgetting=1.0)), events),
        "a model begun there": (KernelClassifier(max_features=1024), events[BEFORE:]),
    }
    table = []
    for name, (model, own) in makes.items():
        right = (np.array(predicted(model, own)) == targets[-len(own) :])[-AFTER:]
        table.append([name, *(f"{part.mean():.3f}" for part in np.split(right, AFTER // PART))])
    show("Accuracy of each 2,000 events from the change on", ["", *map(str, range(PART, AFTER + 1, PART))], table)
    table = []
    for name in STREAMS:
        scenario = SCENARIOS[name]
        make = KernelClassifier if scenario.task == CLASSES else KernelRegressor
        own = scenario.events(Path())
        models = [make(learner=learners.Newton(forgetting=forgetting)) for forgetting in FORGETTING]
        scores = [whole_score(scenario.task, own, predicted(model, own)) for model in models]
        table.append([name, *(f"{score:.4f}" for score in scores)])
    show("Streams that drift", ["", *(f"forgetting={forgetting}" for forgetting in FORGETTING)], table)


if __name__ == "__main__":
    main()
