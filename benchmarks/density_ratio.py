"""Density ratios of known Gaussians from two streams: the error of log q/p, and the divergence KL(q‖p).

10,000 events of q and as many of p, in random order, one pass; then the mean absolute error of the estimated log q/p on
1,000 fresh events of q, and its mean there, which is an estimate of the divergence; "running" is the one that the model
keeps while it learns. Beside it the log-odds of classifiers that tell q from p: they estimate the same function.
Medians over the seeds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from river import linear_model

from benchmarks.common import arguments, show
from streamkernel import KernelClassifier, KernelDensityRatio, learners, rules

EVENTS, FRESH = 10_000, 1000
PROBLEMS: dict[str, tuple[np.ndarray, np.ndarray]] = {  # mean and covariance of q; p is N(0, I)
    "mean, 1 feature": (np.array([1.0]), np.eye(1)),
    "variance, 1 feature": (np.zeros(1), 0.25 * np.eye(1)),
    "correlation, 2 features": (np.zeros(2), np.array([[1.0, 0.8], [0.8, 1.0]])),
    "correlation, 6 features": (np.zeros(6), np.kron(np.eye(3), np.array([[1.0, 0.6], [0.6, 1.0]]))),
}
MODELS: dict[str, Callable[[int], Any]] = {
    "KernelDensityRatio()": lambda seed: KernelDensityRatio(seed=seed),
    "KernelDensityRatio(averaging)": lambda seed: KernelDensityRatio(
        learner=learners.DSG(rule=rules.DSG(), averaging=True), seed=seed
    ),
    "the same, rule=CDSG()": lambda seed: KernelDensityRatio(
        learner=learners.DSG(rule=rules.CDSG(1.0), averaging=True), seed=seed
    ),
    "KernelClassifier(averaging)": lambda seed: KernelClassifier(learner=learners.DSG(averaging=True), seed=seed),
    "LogisticRegression": lambda seed: linear_model.LogisticRegression(),
}


def log_ratio(model: Any, x: dict[int, float]) -> float:
    """Return a model's estimate of log q/p."""
    if isinstance(model, KernelDensityRatio):
        return model.predict_one(x)
    chance = min(max(model.predict_proba_one(x)[True], 1e-12), 1.0 - 1e-12)
    return math.log(chance / (1.0 - chance))


def measured(model: Any, mean: np.ndarray, covariance: np.ndarray, seed: int) -> tuple[float, float, float]:
    """Return a model's mean error, and its two estimates of the divergence."""
    generator = np.random.default_rng(seed)
    root, d = np.linalg.cholesky(covariance), len(mean)
    q = mean + generator.normal(size=(EVENTS + FRESH, d)) @ root.T
    X, of_q = np.concatenate([q[:EVENTS], generator.normal(size=(EVENTS, d))]), np.arange(2 * EVENTS) < EVENTS
    for i in generator.permutation(2 * EVENTS).tolist():
        model.learn_one(dict(enumerate(X[i].tolist())), bool(of_q[i]))
    fresh = q[EVENTS:]
    off = np.linalg.solve(root, (fresh - mean).T)
    exact = 0.5 * (fresh**2).sum(axis=1) - 0.5 * (off**2).sum(axis=0) - np.log(np.diag(root)).sum()
    found = np.array([log_ratio(model, dict(enumerate(row))) for row in fresh.tolist()])
    return float(np.abs(found - exact).mean()), float(found.mean()), getattr(model, "divergence_", math.nan)


def main() -> None:
    """Print errors and divergences."""
    options = arguments(__doc__, seeds=5)
    for title, (mean, covariance) in PROBLEMS.items():
        divergence = 0.5 * (np.trace(covariance) + mean @ mean - len(mean) - np.linalg.slogdet(covariance)[1])
        rows = []
        for name, make in MODELS.items():
            runs = [measured(make(seed), mean, covariance, seed) for seed in range(options.seeds)]
            medians = (statistics.median(column) for column in zip(*runs, strict=True))
            rows.append([name, *("" if math.isnan(median) else f"{median:.3f}" for median in medians)])
        show(f"{title}, KL(q‖p) = {divergence:.3f}", ["model", "mean error", "mean", "running"], rows)


if __name__ == "__main__":
    main()
