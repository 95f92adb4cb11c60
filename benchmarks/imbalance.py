"""Rare classes: class weights of ours beside the samplers of River, where 1 event in 100 and 1 in 1,000 is positive.

A stream of five normal inputs is positive where sin(2x₀)·x₁ + 0.3·noise is among its largest values. Each event is
predicted, then learned. The samplers bring both classes to halves around River's LogisticRegression behind a scaler,
a forest, and ours. Judged by the balanced accuracy (the mean of the recalls) and by the average precision, without the
first tenth of the events.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from river import forest, imblearn, linear_model, preprocessing
from sklearn.metrics import average_precision_score, balanced_accuracy_score

from benchmarks.common import arguments, show
from streamkernel import KernelClassifier

SHARES = {100: 20_000, 1000: 100_000}
"""Events in which one is positive, and how many there are."""

EVEN = {False: 0.5, True: 0.5}


def logistic() -> Any:
    """Return River's linear model, which needs a scaler."""
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


def trees() -> Any:
    """Return a forest of ten trees."""
    return forest.ARFClassifier(n_models=10, seed=1)


MODELS: dict[str, Callable[[], Any]] = {
    "KernelClassifier()": KernelClassifier,
    'KernelClassifier(class_weight="balanced")': lambda: KernelClassifier(class_weight="balanced"),
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


def stream(n: int, one_in: int, seed: int) -> tuple[list[dict[str, float]], list[bool]]:
    """Return inputs and labels."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 5))
    score = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.3 * generator.normal(size=n)
    names = [f"x{j}" for j in range(X.shape[1])]
    xs = [dict(zip(names, row, strict=True)) for row in X.tolist()]
    return xs, (score >= np.quantile(score, 1.0 - 1.0 / one_in)).tolist()


def judged(model: Any, xs: list[dict[str, float]], ys: list[bool]) -> tuple[float, float, float]:
    """Return balanced accuracy, average precision and seconds."""
    found, began = [], time.perf_counter()
    for x, y in zip(xs, ys, strict=True):
        found.append(model.predict_proba_one(x).get(True, 0.0))
        model.learn_one(x, y)
    late = len(ys) // 10
    p, y = np.array(found[late:]), np.array(ys[late:])
    return balanced_accuracy_score(y, p > 0.5), average_precision_score(y, p), time.perf_counter() - began


def main() -> None:
    """Print a table for each share of positive events."""
    options = arguments(__doc__, seeds=3)
    for one_in, n in SHARES.items():
        rows = []
        for name, make in MODELS.items():
            each = np.array([judged(make(), *stream(n, one_in, seed)) for seed in range(options.seeds)])
            balanced, precision, seconds = np.median(each, axis=0)
            rows.append([name, f"{balanced:.3f}", f"{precision:.3f}", f"{1e6 * seconds / n:.0f}"])
        title = f"1 positive event in {one_in:,} of {n:,}, medians of {options.seeds} streams"
        show(title, ["model", "balanced accuracy", "average precision", "µs an event"], rows)


if __name__ == "__main__":
    main()
