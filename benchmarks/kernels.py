"""All kernels: events a second relative to the Gaussian, and how near the estimate of 512 features is to k(x, x').

Events have ten names with values uniform on [0, 1], which every kernel can read. The speed is the events a second of
predict_one + learn_one of a first-order regressor at its cap of features over those of the Gaussian, which runs right
before; it is the median over rounds. The error is that of φ(x)·φ(x') in units of √(k(x, x) k(x', x')), the root of its
mean square over pairs x ≠ x' and seeds; "sparse" is the same with all but two names of each event 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.common import arguments, interleaved, ratio, seconds, show
from streamkernel import KernelRegressor, RandomFeatures, kernels

NAMES = [f"x{i}" for i in range(10)]
GAUSSIAN = kernels.Gaussian(1.0)
EXPONENTIAL = [1.0 / math.factorial(n) for n in range(12)]
KERNELS: dict[str, kernels.Kernel] = {
    "Gaussian(1.0)": GAUSSIAN,
    "Laplacian(4.0)": kernels.Laplacian(4.0),
    "Cauchy(1.5)": kernels.Cauchy(1.5),
    "Matern(1.5, 1.0)": kernels.Matern(1.5, 1.0),
    "DotProduct([1, 1])": kernels.DotProduct(),
    "DotProduct(exp)": kernels.DotProduct(EXPONENTIAL),
    "DotProduct(exp).of('unit')": kernels.DotProduct(EXPONENTIAL).of("unit"),
    "Polynomial(2)": kernels.Polynomial(2),
    "Polynomial(4)": kernels.Polynomial(4),
    "ArcCosine(0)": kernels.ArcCosine(0),
    "ArcCosine(1)": kernels.ArcCosine(1),
    "ArcCosine(2)": kernels.ArcCosine(2),
    "Hellinger()": kernels.Hellinger(),
    "ChiSquared()": kernels.ChiSquared(),
    "Intersection()": kernels.Intersection(),
    "JensenShannon()": kernels.JensenShannon(),
    "SkewedChiSquared(1.0)": kernels.SkewedChiSquared(),
    "SkewedIntersection(1.0)": kernels.SkewedIntersection(),
    "ExponentialSemigroup(0.1)": kernels.ExponentialSemigroup(0.1),
    "ReciprocalSemigroup(10.0)": kernels.ReciprocalSemigroup(10.0),
    "MultiScale(Gaussian(1.0))": kernels.MultiScale(GAUSSIAN),
    "Gaussian + DotProduct": GAUSSIAN + kernels.DotProduct(),
    "Gaussian * ArcCosine(1)": GAUSSIAN * kernels.ArcCosine(1),
    "Gaussian * Polynomial(2)": GAUSSIAN * kernels.Polynomial(2),
    "2.0 * Gaussian": 2.0 * GAUSSIAN,
    "Gaussian.on(5 of 10)": GAUSSIAN.on(*NAMES[:5]),
    "Gaussian.of('unit')": GAUSSIAN.of("unit"),
}


def events(count: int, *, sparse: bool = False) -> pd.DataFrame:
    """Return random events, a row each."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, (count, len(NAMES)))
    if sparse:
        X *= rng.permuted(np.tile(np.arange(len(NAMES)) < 2, (count, 1)), axis=1)
    return pd.DataFrame(X, columns=NAMES)


def error(kernel: kernels.Kernel, X: pd.DataFrame, features: int, seeds: int) -> float:
    """Return the relative error of the estimate."""
    rows: list[Any] = X.to_dict("records")
    exact = np.array([[kernel(x, x2) for x2 in rows] for x in rows])
    scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    apart = ~np.eye(len(rows), dtype=bool)
    squares = []
    for seed in range(seeds):
        z = RandomFeatures(kernel, n_features=features, seed=seed).transform_many(X).to_numpy()
        squares.append(np.mean(((z @ z.T - exact) / scale)[apart] ** 2))
    return math.sqrt(np.mean(squares))


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, events=2000, features=512, runs=7, seeds=20)
    X = events(options.events)
    stream = [(x, math.sin(3.0 * x["x0"]) + x["x1"] * x["x2"]) for x in X.to_dict("records")]

    def take(model: KernelRegressor) -> float:
        def job() -> None:
            for x, y in stream:
                model.predict_one(x)
                model.learn_one(x, y)

        return seconds(job) / len(stream)

    models = {
        name: KernelRegressor(kernel, learner="dsg", max_features=options.features) for name, kernel in KERNELS.items()
    }
    base = KernelRegressor(GAUSSIAN, learner="dsg", max_features=options.features)
    for model in (base, *models.values()):
        take(model)  # grows to its cap
    rows, fastest = [], math.inf
    for name, kernel in KERNELS.items():
        ours, theirs = interleaved(options.runs, lambda: take(base), lambda name=name: take(models[name]))
        fastest = min(fastest, *ours)
        errors = [error(kernel, events(60, sparse=sparse), options.features, options.seeds) for sparse in (False, True)]
        rows.append([name, f"{ratio(ours, theirs):.2f}", *(f"{found:.3f}" for found in errors)])
    title = f"{options.features} features, 10 names; the Gaussian takes {1.0 / fastest:,.0f} events/s at best"
    show(title, ["kernel", "speed", "error", "error, sparse"], rows)


if __name__ == "__main__":
    main()
