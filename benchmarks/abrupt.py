"""An abrupt change, and streams that drift: the default learner beside learners that keep all, that forget, and one
begun anew.

The change: y = sin(2x₀)x₁ + 0.3x₂ > 0 of six normal inputs, and after half of the events the first term has the other
sign, or the function is one of the other three inputs. Accuracy is that of each 2,000 events from the change on, each
predicted before it is learned; the last model begins at the change. The second table has three seeds, and no cap on
features. The streams are those of ``benchmarks.accuracy``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, show
from benchmarks.prequential import predicted, whole_score
from benchmarks.scenarios import CLASSES, SCENARIOS, Event
from streamkernel import KernelClassifier, KernelRegressor, learners

BEFORE, AFTER, PART, SETTLED, SEEDS = 16_000, 16_000, 2000, 4000, 3
STREAMS = ("rbf_abrupt", "rbf_gradual", "rbf_moving", "sea_abrupt", "hyperplane", "friedman_abrupt")
FORGETTING = ("auto", 1.0, 0.9999, 0.999)


def changing(seed: int, others: bool = False) -> list[Event]:
    """Return the events of a change, after which the other three inputs count or the first term has the other sign."""
    X = np.random.default_rng(seed).normal(size=(BEFORE + AFTER, 6))
    a, b, c, *rest = X.T
    term = np.sin(2.0 * a) * b
    before = term + 0.3 * c
    after = np.sin(2.0 * rest[0]) * rest[1] + 0.3 * rest[2] if others else 0.3 * c - term
    y = np.where(np.arange(len(X)) < BEFORE, before, after) > 0.0
    return [(dict(zip("abcdef", x, strict=True)), bool(of)) for x, of in zip(X.tolist(), y, strict=True)]


def accuracies(model: Any, events: Sequence[Event]) -> np.ndarray:
    """Return the accuracy of each part of the events after the change."""
    right = np.array(predicted(model, events)) == np.array([y for _, y in events])
    return np.asarray(right[-AFTER:].reshape(-1, PART).mean(axis=1))


def main() -> None:
    """Print both tables."""
    arguments(__doc__)
    events = changing(0)
    makes = {
        "no arguments": (KernelClassifier(max_features=1024), events),
        "forgetting=1.0": (KernelClassifier(max_features=1024, learner=learners.Newton(forgetting=1.0)), events),
        "a model begun there": (KernelClassifier(max_features=1024), events[BEFORE:]),
    }
    heads = ["", *map(str, range(PART, AFTER + 1, PART))]
    table = [[name, *(f"{part:.3f}" for part in accuracies(model, own))] for name, (model, own) in makes.items()]
    show("Accuracy of each 2,000 events from the change on", heads, table)
    table = []
    for others, seed in itertools.product((False, True), range(SEEDS)):
        events = changing(seed, others)
        ahead = 100.0 * (accuracies(KernelClassifier(), events) - accuracies(KernelClassifier(), events[BEFORE:]))
        name = f"{'other inputs' if others else 'other sign'}, seed {seed}"
        table.append([name, *(f"{part:+.1f}" for part in ahead), f"{ahead[SETTLED // PART :].mean():+.2f}"])
    show("No arguments, points ahead of a model begun there", [*heads, f"from {SETTLED} on"], table)
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
