"""The effect of `preconditioner=`: error against examples and against time, with it and without, on two streams.

The streams are the 2-D ridge data of figure 4 (a Gaussian of 0.1 times the median distance, λ = 10⁻⁶) and Friedman's
(ten inputs on [0, 1], five of them noise; a Gaussian of σ = 1, λ = 10⁻⁶, targets in units of their deviation). The
error is the mean squared one on 1,000 points without noise. All models have DSG with a cap of 4,096 features, and steps
γ/(1 + n/1280)^½ after n examples. Each way has eight settings to choose from by its error at the end: γ of 4⁻³, 4⁻²,
..., 4⁴ without, and γ of 0.3 or 1 with ε of 10⁻⁴, 10⁻³, 10⁻² or 10⁻¹ with. One seed decides, the others are measured in
turn: the table has the medians of the errors and the least times. Single examples (B = 1), which the preconditioner
cannot help, are there for comparison. It takes about three minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks import figure4, race
from benchmarks.common import arguments, show
from benchmarks.rivals.parts import F64
from streamkernel import kernels, losses, rules, step_sizes
from streamkernel.first_order.expansion import FirstOrderLearner

CAP, L2 = 4096, 1e-6
PLAIN = [(4.0**power, 0.0) for power in range(-3, 5)]
PRECONDITIONED = [(gamma, epsilon) for epsilon in (1e-4, 1e-3, 1e-2, 1e-1) for gamma in (0.3, 1.0)]

Data = tuple[F64, F64, F64, F64, float]


def ridge(rows: int, seed: int) -> Data:
    """Return inputs, targets, points to test on, their targets, and the bandwidth of the 2-D data."""
    rng = np.random.default_rng(seed)
    X, X_test = rng.uniform(-5, 5, (rows, 2)), rng.uniform(-5, 5, (1000, 2))
    y = figure4.target(X) + 0.1 * rng.standard_normal(rows)
    return X, y, X_test, figure4.target(X_test), figure4.bandwidth(X_test)


def friedman(rows: int, seed: int) -> Data:
    """Return the same of Friedman's data."""

    def target(X: F64) -> F64:
        a = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2 + 10.0 * X[:, 3] + 5.0 * X[:, 4]
        return np.asarray((a - 14.4) / 4.9)

    rng = np.random.default_rng(seed)
    X, X_test = rng.uniform(0, 1, (rows, 10)), rng.uniform(0, 1, (1000, 10))
    return X, target(X) + rng.standard_normal(rows) / 4.9, X_test, target(X_test), 1.0


class Learner:
    """f with the steps of a setting (γ, ε)."""

    def __init__(self, data: Data, batch: int, block: int, setting: tuple[float, float]) -> None:
        self._X, self._y, self._X_test, self._y_test, sigma = data
        gamma, epsilon = setting
        self._names = [str(i) for i in range(self._X.shape[1])]
        self._f = FirstOrderLearner(
            kernels.Gaussian(sigma),
            losses.Square(),
            rules.DSG(),
            step_sizes.PowerDecay(gamma, c=batch / 1280, power=0.5),
            epsilon=epsilon,
            block_size=block,
            max_features=CAP,
            batch_size=batch,
            l2=L2,
        )

    @property
    def size(self) -> str:
        """The stored state."""
        return f"{self._f.n_blocks * self._f.block_size:,} features"

    def learn(self, part: slice) -> None:
        """Take a step for each batch of these rows."""
        self._f.learn(self._f.directions.rows(self._names, self._X[part]), self._y[part])

    def error(self) -> float:
        """Return the mean squared error on the points to test on."""
        f = self._f.scores(self._f.directions.rows(self._names, self._X_test))[:, 0]
        return float(np.mean((f - self._y_test) ** 2))


def best(data: Data, settings: list[tuple[float, float]], measure: Callable[[Any], list[race.Mark]]) -> Any:
    """Return the setting with the least error at the end; steps that diverge are no choice."""
    found = {}
    for setting in settings:
        try:
            found[setting] = measure(setting)[-1].error
        except ValueError:
            continue
    return min(found, key=found.__getitem__)


def main() -> None:
    """Print the errors at four places of the stream, and the seconds."""
    options = arguments(__doc__, rows=32_768, seeds=3)
    parts = [slice(i, i + 256) for i in range(0, options.rows, 256)]
    marks = [len(parts) // 8, len(parts) // 4, len(parts) // 2]
    rows = []

    def measure(setting: tuple[float, float], data: Data, batch: int, block: int) -> list[race.Mark]:
        return race.run(Learner(data, batch, block, setting), parts, marks, Learner.error)[0]

    cases = [(make, batch, block) for make in (ridge, friedman) for block in (64, 256) for batch in (1, 64, 256)]
    for make, batch, block in track(cases):
        data = make(options.rows, 0)
        others = [make(options.rows, seed) for seed in range(1, options.seeds + 1)]
        ways = (PLAIN, PRECONDITIONED) if batch > 1 else (PLAIN,)
        chosen = [best(data, settings, partial(measure, data=data, batch=batch, block=block)) for settings in ways]
        found = [[measure(setting, other, batch, block) for setting in chosen] for other in others]
        for (gamma, epsilon), *runs in zip(chosen, *found, strict=True):
            case = f"{make.__name__}, F = {block}, B = {batch}"
            setting = f"γ = {gamma:g}, ε = {epsilon:g}" if epsilon else f"γ = {gamma:g}"
            cells = [
                f"{race.median(at)[1]:.5f} ({min(mark.seconds for mark in at):.2f} s)" for at in zip(*runs, strict=True)
            ]
            rows.append([case, setting, *cells])
    places = [f"{256 * mark:,}" for mark in [*marks, len(parts)]]
    title = f"mean squared error after so many examples, and seconds of learning; {options.seeds} seeds"
    show(title, ["case", "setting", *places], rows)


if __name__ == "__main__":
    main()
