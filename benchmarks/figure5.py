"""The posterior of a Gaussian process against its closed form (Dai et al. 2014, Figure 5), and what each form costs.

2,048 training and 1,024 test points of the 2-D synthetic data, y = cos(½π‖x‖) exp(-0.1π‖x‖) + 0.1 e; σ² = 0.1, a
Gaussian kernel of 0.1 times the median distance (the paper's median trick on these data), batches of 64, blocks of 512
features, steps γ/√(1 + decay·t). The rivals: the paper's two forms of the variance; the recursion, which sees each
training point once; and NORMA, functional gradients with the full kernel. After `blocks` blocks old ones are moved:
the operator's memory grows with the square of their number. With the defaults it takes less than 1 GB.

γ and its decay were found on these data. Beside them are first-order functions with no step given, on the same batches
and as many features: one of the mean, and one for each of the first `untuned` test points.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.common import arguments, seconds, show
from benchmarks.figure4 import target
from benchmarks.race import save
from streamkernel import losses, rules, step_sizes
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Gaussian
from streamkernel.learners.scoring import MIXTURE
from streamkernel.posterior.bayesian_linear import BayesianLinear
from streamkernel.posterior.posteriors import FeatureMap
from streamkernel.posterior.stochastic_posterior import OperatorVariance, RidgeFunctions

N, M, NOISE, NAMES = 2048, 1024, 0.1, ["x1", "x2"]
OPERATOR, POINTS, RECURSION, NORMA, UNTUNED = "operator", "given points", "recursion", "NORMA", "no step given"


class Norma:
    """Functions Σ_i c_i k(x_i, ·) with a coefficient for each training point, by functional gradients."""

    def __init__(self, gram: np.ndarray, columns: int) -> None:
        self.gram, self.c = gram, np.zeros((len(gram), columns))

    def step(self, chosen: np.ndarray, y: np.ndarray, gamma: float, nu: float) -> None:
        """Take a step on the training points `chosen`."""
        error = self.gram[chosen] @ self.c - y
        self.c *= 1.0 - gamma * nu
        np.subtract.at(self.c, chosen, gamma / len(chosen) * error)


class Untuned:
    """Functions that each learn targets of their own by first-order steps of automatic size."""

    def __init__(self, sigma: float, count: int, options: Any) -> None:
        self.functions = [
            FirstOrderLearner(
                Gaussian(sigma),
                losses.Square(),
                rules.DSG(),
                step_sizes.Constant(1.0),  # automatic steps do not use it
                block_size=options.block,
                max_features=options.block * options.blocks,
                batch_size=options.batch,
                l2=NOISE / N,
                average=MIXTURE,
                automatic=True,
                seed=options.seed,
            )
            for _ in range(count)
        ]

    def step(self, X: np.ndarray, y: np.ndarray) -> None:
        """Take a step on a batch, with a column of targets for each function."""
        for f, targets in zip(self.functions, y.T, strict=True):
            f.learn(f.directions.rows(NAMES, X), targets.copy())

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the first function, the mean, at each row of X."""
        f = self.functions[0]
        return f.scores(f.directions.rows(NAMES, X))[:, 0]

    def explained(self, X: np.ndarray) -> np.ndarray:
        """Return each other function at a point of its own."""
        rows = (f.directions.rows(NAMES, x[None]) for f, x in zip(self.functions[1:], X, strict=True))
        return np.array([f.scores(row)[0, 0] for f, row in zip(self.functions[1:], rows, strict=True)])


def main() -> None:
    """Print errors and times, and draw both."""
    options = arguments(
        __doc__,
        steps=512,
        batch=64,
        block=512,
        blocks=4,
        gamma=20.0,
        decay=0.01,
        multiple=0.1,
        features=1024,
        untuned=128,
        seed=1,
        output=Path("figures/figure5.png"),
    )
    rng = np.random.default_rng(options.seed)
    X, X_test = rng.uniform(-5, 5, (N, 2)), rng.uniform(-5, 5, (M, 2))
    y = target(X) + 0.1 * rng.standard_normal(N)
    distances = np.linalg.norm(X[:, None] - X[None], axis=-1)
    sigma = options.multiple * float(np.median(distances[np.triu_indices(N, 1)]))
    gram = np.exp(-0.5 * (distances / sigma) ** 2)
    across = np.exp(-0.5 * (np.linalg.norm(X_test[:, None] - X[None], axis=-1) / sigma) ** 2)
    solved = np.linalg.solve(gram + NOISE * np.eye(N), np.column_stack([y, across.T]))
    mean, variance = across @ solved[:, 0], 1.0 - np.einsum("ij,ji->i", across, solved[:, 1:])
    goals = np.column_stack([y, across.T])

    def mean_error(found: np.ndarray) -> float:
        return float(np.sqrt(np.mean((found - mean) ** 2) / np.mean(mean**2)))

    def variance_error(found: np.ndarray) -> float:
        return float(np.mean(np.abs(found - variance[: len(found)])))

    means: dict[str, dict[float, float]] = defaultdict(dict)
    variances: dict[str, dict[float, float]] = defaultdict(dict)
    took: dict[str, float] = defaultdict(float)

    # One after the other: the recursion, once through the training points.
    phi = FeatureMap(Gaussian(sigma), options.features, options.seed, 1 << 26)
    linear, test = BayesianLinear(phi.n_outputs, NOISE), phi(phi.directions.rows(NAMES, X_test))
    linear.learn(phi(phi.directions.rows(NAMES, X[:0])), y[:0])  # compiles
    for first in track(range(0, N, options.batch), description="recursion"):
        part = slice(first, first + options.batch)
        took[RECURSION] += seconds(
            lambda part=part: linear.learn(phi(phi.directions.rows(NAMES, X[part])), y[part].copy())
        )
        t = first // options.batch + 1
        if t & (t - 1) == 0:
            means[RECURSION][t] = mean_error(linear.mean(test))
            variances[RECURSION][t] = variance_error(NOISE * linear.spread(test.copy()))
    memory = {RECURSION: 8 * phi.n_outputs**2}

    # The stochastic forms and NORMA, on the same batches.
    phis = [FeatureMap(Gaussian(sigma), options.block * options.blocks, options.seed + i, 1 << 26) for i in (0, 1)]

    def features(Z: np.ndarray, i: int) -> np.ndarray:
        return np.sqrt(options.blocks) * phis[i](phis[i].directions.rows(NAMES, Z))

    at, at2 = features(X_test, 0), features(X_test, 1)
    width = phis[0].n_outputs // options.blocks
    A, f, norma = OperatorVariance(width), RidgeFunctions(width, 1 + M), Norma(gram, 1 + M)
    untuned = Untuned(sigma, 1 + options.untuned, options)
    nu = NOISE / N

    def step_operator(chosen: np.ndarray, block: int, gamma: float) -> None:
        nonlocal A
        A = A.after_step(features(X[chosen], 0), features(X[chosen], 1), block, gamma, nu)

    def step_points(chosen: np.ndarray, block: int, gamma: float) -> None:
        nonlocal f
        f = f.after_step(features(X[chosen], 0), goals[chosen], block, gamma, nu)

    for t in track(range(1, options.steps + 1), description="steps"):
        chosen = rng.integers(0, N, options.batch)
        block = t - 1 if t <= options.blocks else int(rng.integers(options.blocks))
        gamma = options.gamma / np.sqrt(1.0 + options.decay * t)
        jobs: dict[str, Callable[[], None]] = {
            OPERATOR: partial(step_operator, chosen, block, gamma),
            POINTS: partial(step_points, chosen, block, gamma),
            NORMA: partial(norma.step, chosen, goals[chosen], gamma, nu),
            UNTUNED: partial(untuned.step, X[chosen], goals[chosen, : 1 + options.untuned]),
        }
        for name, job in jobs.items():
            took[name] += seconds(job)
        if t & (t - 1) == 0:
            for name, found in ((POINTS, f(at)), (NORMA, across @ norma.c)):
                means[name][t] = mean_error(found[:, 0])
                variances[name][t] = variance_error(1.0 - np.diagonal(found[:, 1:]))
            variances[OPERATOR][t] = variance_error(1.0 - A(at, at2))
            means[UNTUNED][t] = mean_error(untuned(X_test))
            variances[UNTUNED][t] = variance_error(1.0 - untuned.explained(X_test[: options.untuned]))
    memory |= {
        OPERATOR: sum(column.nbytes for column in A.theta),
        POINTS: f.alpha.nbytes,
        NORMA: norma.c.nbytes + gram.nbytes,
        UNTUNED: sum(one.nbytes for one in untuned.functions),
    }

    for title, found in (("mean, RMSE / RMS of the closed form", means), ("variance, mean |error|", variances)):
        rows = [
            [str(t), *(f"{found[name][t]:.1e}" if t in found[name] else "" for name in found)]
            for t in sorted(variances[POINTS])
        ]
        show(title, ["batches", *found], rows)
    print(f"variance of the closed form: {variance.mean():.1e} on average, {variance.max():.1e} at most; k(x, x) = 1")
    events = dict.fromkeys(took, options.steps * options.batch) | {RECURSION: N}
    rows = [[name, f"{1e6 * took[name] / events[name]:.0f} µs", f"{memory[name] / 1e6:.0f} MB"] for name in took]
    show("cost", ["form", "an event", "memory"], rows)
    draw(means, variances, options.output)


def draw(means: dict[str, dict[float, float]], variances: dict[str, dict[float, float]], path: Path) -> None:
    """Draw the errors against the number of steps, a panel each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    colours = {OPERATOR: "C0", POINTS: "C1", UNTUNED: "C2", NORMA: "C7", RECURSION: "C3"}
    for axes, found, title in zip(
        figure.subplots(1, 2),
        (means, variances),
        ("posterior mean, relative RMSE", "posterior variance, mean absolute error"),
        strict=True,
    ):
        for name, colour in colours.items():
            if name in found:
                label = "stochastic" if found is means and name == POINTS else name
                style = {"marker": "o", "ms": 3, "color": colour, "ls": "--" if name == NORMA else "-"}
                axes.loglog(list(found[name]), list(found[name].values()), label=label, **style)
        axes.set(title=title, xlabel="batches of 64 examples")
        axes.grid(alpha=0.3)
        axes.legend()
    save(figure, path)


if __name__ == "__main__":
    main()
