"""Effects of few among many inputs: the default learner, with and without pairs of inputs, beside gradient boosting.

Predictions are made before an example is learned. Boosting is scikit-learn's, fitted again to all examples so far at
every twentieth of the stream, which takes far longer than an event may take. The best possible R² is known from the
noise. A ratio of errors is ours over boosting's.

    python -m benchmarks.interactions [--events 8000] [--seeds 3]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from rich.progress import track
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from benchmarks import common
from benchmarks.prequential import predicted, whole_score
from benchmarks.scenarios import CLASSES, NUMBERS
from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.second_order import pairs

SIGNAL, REFITS = 0.94, 20
"""The best possible R², and how often boosting is fitted."""

FLIPPED = 0.004
"""The share of wrong labels where a class has two thresholds."""


def noisy(f: Any, generator: Any) -> Any:
    """Return targets of which a function explains SIGNAL."""
    return f / f.std() + generator.normal(size=len(f)) * np.sqrt((1.0 - SIGNAL) / SIGNAL)


def thresholds(X: Any, generator: Any) -> Any:
    """Return a rare class: two of the inputs, which are exponentials, are beyond a threshold."""
    X[:] = np.exp(0.7 * X)
    X[:, 10:] = X[:, 10:] > 2.0
    return ((X[:, 3] > 1.9) & (X[:, 7] < 0.55)) != (generator.random(len(X)) < FLIPPED)


def spreads(X: Any, generator: Any) -> Any:
    """Return two classes that differ in the spread of all inputs, and a little in their means."""
    label = generator.random(len(X)) < 0.5
    X[:] = np.where(label[:, None], 2.0 * X, X + 2.0 / np.sqrt(X.shape[1]))
    return label


STREAMS: dict[str, tuple[str, int, Callable[[Any, Any], Any]]] = {
    "x15 cos(1.35 x4)": (NUMBERS, 32, lambda X, g: noisy(X[:, 15] * np.cos(1.35 * X[:, 4]), g)),
    "x15 (|x4| - 0.4)": (NUMBERS, 32, lambda X, g: noisy(X[:, 15] * (np.abs(X[:, 4]) - 0.4), g)),
    "x3 x11": (NUMBERS, 20, lambda X, g: noisy(X[:, 3] * X[:, 11], g)),
    "x0 + x3 sin(2 x11) + tanh(2 x5) x6": (
        NUMBERS,
        20,
        lambda X, g: noisy(X[:, 0] + X[:, 3] * np.sin(2.0 * X[:, 11]) + np.tanh(2.0 * X[:, 5]) * X[:, 6], g),
    ),
    "sin(2 x0) + |x1| + x2²/2 + [x3 > 0]": (
        NUMBERS,
        30,
        lambda X, g: noisy(np.sin(2.0 * X[:, 0]) + np.abs(X[:, 1]) + X[:, 2] ** 2 / 2.0 + (X[:, 3] > 0.0), g),
    ),
    "a rare class by two thresholds": (CLASSES, 25, thresholds),
    "Gaussians of two spreads": (CLASSES, 20, spreads),
    "noise": (NUMBERS, 10, lambda X, g: g.normal(size=len(X))),
}


def events(name: str, n: int, seed: int) -> tuple[Any, Any]:
    """Return inputs, shape (events, inputs), and targets."""
    generator = np.random.default_rng((32, seed))
    _, width, make = STREAMS[name]
    X = generator.normal(size=(n, width))
    return X, make(X, generator)


def boosted(task: str, X: Any, y: Any) -> list[Any]:
    """Return the predictions of a model that is fitted to all earlier examples at each twentieth of the stream."""
    first = int(len(y) / REFITS)
    found: list[Any] = [bool(y[:first].mean() > 0.5) if task == CLASSES else float(y[:first].mean())] * first
    for at in range(first, len(y), first):
        make = HistGradientBoostingClassifier if task == CLASSES else HistGradientBoostingRegressor
        found += make(random_state=0).fit(X[:at], y[:at]).predict(X[at : at + first]).tolist()
    return found


def scores(name: str, n: int, seed: int) -> tuple[float, float, float]:
    """Return the scores with pairs, without them, and of boosting, on one draw of a stream."""
    task, (X, y) = STREAMS[name][0], events(name, n, seed)
    stream = [
        ({f"x{j}": value for j, value in enumerate(row)}, target)
        for row, target in zip(X.tolist(), y.tolist(), strict=True)
    ]

    def ours() -> float:
        model = (KernelClassifier if task == CLASSES else KernelRegressor)(seed=seed)
        return whole_score(task, stream[1:], predicted(model, stream)[1:])

    together, base = ours(), pairs.BASE
    pairs.BASE = np.inf  # type: ignore[misc]
    try:
        return together, ours(), whole_score(task, stream, boosted(task, X, y))
    finally:
        pairs.BASE = base  # type: ignore[misc]


def main() -> None:
    """Print the table."""
    options = common.arguments(__doc__, events=8000, seeds=3)
    rows = []
    for name in track(STREAMS, description="streams"):
        ours, alone, theirs = np.mean([scores(name, options.events, seed) for seed in range(options.seeds)], axis=0)
        ratio = (1.0 - ours) / (1.0 - theirs)
        rows.append([name, str(STREAMS[name][1]), f"{ours:.3f}", f"{alone:.3f}", f"{theirs:.3f}", f"{ratio:.2f}"])
    columns = ["target", "inputs", "no arguments", "without pairs", "boosting, refitted", "ratio of errors"]
    common.show(f"Accuracy or R², {options.events:,} events; the best possible R² is {SIGNAL}", columns, rows)


if __name__ == "__main__":
    main()
