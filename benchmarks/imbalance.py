"""Rare classes: class weights and a moved threshold, beside the samplers of River.

A stream of five normal inputs is positive where sin(2x₀)·x₁ + 0.3·noise is among its largest values, one of 20 or 30
inputs with a probability that depends on four of them. Each event is predicted, then learned. The samplers bring both
classes to halves around River's LogisticRegression behind a scaler, a forest, and ours. A moved threshold is the share
of positive events so far. Judged by the balanced accuracy (the mean of the recalls) and by the average precision,
without the first fifth of the events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from river import forest, imblearn, linear_model, preprocessing
from sklearn.metrics import average_precision_score, balanced_accuracy_score

from benchmarks.common import arguments, show
from streamkernel import KernelClassifier

EVEN = {False: 0.5, True: 0.5}

MOVED = "KernelClassifier(), moved threshold"
WEIGHTED = 'KernelClassifier(class_weight="balanced")'


def logistic() -> Any:
    """Return River's linear model, which needs a scaler."""
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def trees() -> Any:
    """Return a forest of ten trees."""
    return forest.ARFClassifier(n_models=10, seed=1)


MODELS: dict[str, Callable[[], Any]] = {
    "KernelClassifier()": KernelClassifier,
    MOVED: KernelClassifier,
    WEIGHTED: lambda: KernelClassifier(class_weight="balanced"),
    'KernelClassifier(learner="dsg", class_weight="balanced")': lambda: KernelClassifier(
        learner="dsg", class_weight="balanced"
    ),
    "RandomUnderSampler(KernelClassifier())": lambda: imblearn.RandomUnderSampler(KernelClassifier(), EVEN, seed=1),
    "LogisticRegression": logistic,
    "RandomUnderSampler(LogisticRegression)": lambda: imblearn.RandomUnderSampler(logistic(), EVEN, seed=1),
    "RandomOverSampler(LogisticRegression)": lambda: imblearn.RandomOverSampler(logistic(), EVEN, seed=1),
    "HardSamplingClassifier(LogisticRegression)": lambda: imblearn.HardSamplingClassifier(
        logistic(), size=100, p=0.1, seed=1
    ),
    "ARFClassifier(10)": trees,
    "RandomUnderSampler(ARFClassifier(10))": lambda: imblearn.RandomUnderSampler(trees(), EVEN, seed=1),
    "RandomOverSampler(ARFClassifier(10))": lambda: imblearn.RandomOverSampler(trees(), EVEN, seed=1),
}


Events = tuple[list[dict[str, float]], list[bool]]
"""Inputs and labels."""


def named(X: Any) -> list[dict[str, float]]:
    """Return rows as dictionaries."""
    names = [f"x{j}" for j in range(X.shape[1])]
    return [dict(zip(names, row, strict=True)) for row in X.tolist()]


def product(n: int, one_in: int, seed: int) -> Events:
    """Return events that are positive where a product is large."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 5))
    score = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.3 * generator.normal(size=n)
    return named(X), (score >= np.quantile(score, 1.0 - 1.0 / one_in)).tolist()


def logit(n: int, width: int, seed: int) -> Events:
    """Return events whose log-odds are a function of four of `width` inputs; with more inputs, fewer are positive."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, width))
    odds = 1.6 * X[:, 0] * X[:, 1] + X[:, 2] + 0.8 * X[:, 3] ** 2 - 4.0 - 0.1 * width
    return named(X), (generator.random(n) < 1.0 / (1.0 + np.exp(-odds))).tolist()


STREAMS: dict[str, Callable[[int], Events]] = {
    "1 of 100, 5 inputs": lambda seed: product(20_000, 100, seed),
    "1 of 1,000, 5 inputs": lambda seed: product(100_000, 1000, seed),
    "4 of 100, 20 inputs": lambda seed: logit(12_000, 20, seed),
    "2 of 100, 30 inputs": lambda seed: logit(12_000, 30, seed),
}


def judged(name: str, events: Events) -> tuple[float, float, float]:
    """Return balanced accuracy, average precision and microseconds an event."""
    model, scores, thresholds, positive = MODELS[name](), [], [], 0
    began = time.perf_counter()
    for i, (x, y) in enumerate(zip(*events, strict=True)):
        scores.append(model.predict_proba_one(x).get(True, 0.0))
        thresholds.append(positive / max(i, 1) if name == MOVED else 0.5)
        model.learn_one(x, y)
        positive += y
    microseconds = 1e6 * (time.perf_counter() - began) / len(scores)
    late = len(scores) // 5
    p, limits, labels = np.array(scores[late:]), np.array(thresholds[late:]), np.array(events[1][late:])
    return balanced_accuracy_score(labels, p > limits), average_precision_score(labels, p), microseconds


def draw(figures: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw the balanced accuracy and the average precision of three ways with one model."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    ways = {"no weights": "KernelClassifier()", "moved threshold": MOVED, 'class_weight="balanced"': WEIGHTED}
    for column, (axis, title) in enumerate(
        zip(figure.subplots(1, 2), ("balanced accuracy", "average precision"), strict=True)
    ):
        for i, (label, name) in enumerate(ways.items()):
            heights = [medians[name][column] for medians in figures.values()]
            axis.bar(np.arange(len(heights)) + 0.27 * (i - 1), heights, 0.25, label=label)
        axis.set_xticks(np.arange(len(figures)), [name.replace(", ", ",\n") for name in figures])
        axis.set_title(title)
        axis.set_ylim(0.5 if column == 0 else 0.0)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Print a table for each stream, and draw the ways with one model."""
    options = arguments(__doc__, seeds=3, output=Path("figures/imbalance.png"))
    figures = {}
    for title, events in STREAMS.items():
        streams = [events(seed) for seed in range(options.seeds)]
        figures[title] = {
            name: np.median([judged(name, stream) for stream in streams], axis=0).tolist() for name in MODELS
        }
        rows = [
            [name, f"{balanced:.3f}", f"{precision:.3f}", f"{microseconds:.0f}"]
            for name, (balanced, precision, microseconds) in figures[title].items()
        ]
        show(title, ["model", "balanced accuracy", "average precision", "µs an event"], rows)
    draw(figures, options.output)
    print(f"drawn to {options.output}")


if __name__ == "__main__":
    main()
