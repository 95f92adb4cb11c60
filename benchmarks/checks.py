"""What the checks of features decide on four streams, one of them noise, beside the best fixed caps in hindsight.

Each event is predicted, then learned, by ``KernelRegressor()``. The upper row of the picture shows its features, the
lower one the shares of the loss that new features and old ones were expected to gain at the last check. The table has
the features at the end and R², and the smallest ``max_features`` of several whose mean squared error is within 1 % of
the best one, with R² there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from river.datasets import synth

from benchmarks import race
from benchmarks.common import arguments, show
from streamkernel import KernelRegressor
from streamkernel.estimators.internals import learner_of

EVERY = 256
CAPS = 256, 512, 1024, 1536, 2560, 4096


def law(inputs: int, f: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[int], Iterable[Any]]:
    """Return a stream of normal inputs, of which `f` makes the target with more normal numbers."""

    def make(n: int) -> Iterable[Any]:
        generator = np.random.default_rng(3)
        X = generator.normal(size=(n, inputs))
        return [
            ({f"x{i}": v for i, v in enumerate(x)}, y)
            for x, y in zip(X.tolist(), f(X, generator.normal(size=n)).tolist(), strict=True)
        ]

    return make


STREAMS: dict[str, Callable[[int], Iterable[Any]]] = {
    "noise": law(10, lambda X, noise: noise),
    "one wave, sin x₀": law(10, lambda X, noise: np.sin(X[:, 0]) + 0.3 * noise),
    "Friedman": lambda n: synth.Friedman(seed=1).take(n),
    "sin(3x₀)x₁, then cos(3x₁)x₀": law(
        4, lambda X, noise: np.where(np.arange(len(X)) < len(X) // 2, np.sin(3.0 * X[:, 0]) * X[:, 1],
            np.cos(3.0 * X[:, 1]) * X[:, 0]) + 0.1 * noise
    ),
}  # fmt: skip


def run(events: Iterable[Any], **options: Any) -> tuple[list[float], np.ndarray]:
    """Return the squared errors, and of every 256 events the number, features, and both expected gains."""
    model, errors, course = KernelRegressor(**options), [], []
    for n, (x, y) in enumerate(events, start=1):
        errors.append((model.predict_one(x) - y) ** 2)
        model.learn_one(x, y)
        if n % EVERY == 0:
            course.append((n, model.n_features, *(learner_of(model).expected_descent or (np.nan, np.nan))))
    return errors, np.array(course)


def main() -> None:
    """Print the table and draw the picture."""
    options = arguments(__doc__, events=20_000, output=Path("figures/checks.png"))
    figure, rows = Figure(figsize=(13, 5.5), layout="constrained"), []
    for (name, make), (above, below) in zip(STREAMS.items(), figure.subplots(2, 4, sharex=True).T, strict=True):
        events = list(make(options.events))
        of_mean = np.var([y for _, y in events])
        errors, course = run(events)
        by_cap = {cap: float(np.mean(run(events, max_features=cap)[0])) for cap in CAPS}
        smallest = next(cap for cap, error in by_cap.items() if error <= 1.01 * min(by_cap.values()))
        scores = [1.0 - np.mean(errors) / of_mean, 1.0 - by_cap[smallest] / of_mean]
        n, features, new, old = course.T
        rows.append(
            [
                name,
                f"{features.mean():,.0f}",
                f"{features[-1]:,.0f}",
                f"{scores[0]:.4f}",
                f"{smallest:,}",
                f"{scores[1]:.4f}",
            ]
        )
        above.step(n, features, where="post")
        above.set(title=name, ylim=(0, 4200))
        below.step(n, new, where="post", label="new features")
        below.step(n, old, where="post", label="old ones, with more events")
        below.set(xlabel="events", ylim=(0, 0.5))
        below.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        for axis in (above, below):
            axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("features")
    figure.axes[4].set_ylabel("expected gain, share of the loss")
    figure.axes[4].legend(frameon=False)
    columns = ["stream", "features, mean", "at the end", "R²", "smallest good cap", "R² there"]
    show(f"KernelRegressor(), {options.events:,} events", columns, rows)
    race.save(figure, options.output)


if __name__ == "__main__":
    main()
