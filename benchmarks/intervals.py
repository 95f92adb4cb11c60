"""Prediction intervals on streams, each event predicted before it is learned, untuned, beside River's Bayesian one."""

from __future__ import annotations

import time

import numpy as np
from river import datasets, linear_model, preprocessing
from river.datasets import synth

from benchmarks.common import arguments, show
from streamkernel import GaussianProcessRegressor

LEVELS = (0.5, 0.9, 0.95)
FIRST = 20


def main() -> None:
    """Print R², how many targets were in the intervals, and the time an event."""
    options = arguments(__doc__, events=5000)
    streams = {
        "Friedman": lambda: synth.Friedman(seed=1).take(options.events),
        "Planes2D": lambda: synth.Planes2D(seed=1).take(options.events),
        "TrumpApproval": lambda: datasets.TrumpApproval(),
    }
    models = {"GaussianProcessRegressor()": GaussianProcessRegressor} | {
        f"GaussianProcessRegressor(n_features={n})": lambda n=n: GaussianProcessRegressor(n_features=n)
        for n in (64, 512)
    }
    models["BayesianLinearRegression()"] = linear_model.BayesianLinearRegression
    for stream, events in streams.items():
        rows = []
        for name, make in models.items():
            model, errors, targets, inside, took = make(), [], [], dict.fromkeys(LEVELS, 0), 0.0
            scaler = preprocessing.StandardScaler()
            for i, (x, y) in enumerate(events()):
                scaler.learn_one(x)
                scaled = scaler.transform_one(x) | {"constant": 1.0}  # River's model has no intercept
                began = time.perf_counter()
                found = model.predict_one(scaled, with_dist=True)
                took += time.perf_counter() - began
                if i >= FIRST:
                    errors.append(y - found.mu)
                    targets.append(y)
                    for level in LEVELS:
                        inside[level] += abs(found.cdf(y) - 0.5) <= level / 2
                began = time.perf_counter()
                model.learn_one(scaled, y)
                took += time.perf_counter() - began
            r2 = 1.0 - np.mean(np.square(errors)) / np.var(targets)
            shares = [f"{count / len(errors):.3f}" for count in inside.values()]
            rows.append([name, f"{r2:.3f}", *shares, f"{1e6 * took / (len(errors) + FIRST):.0f} µs"])
        columns = ["model", "R²", *(f"in {level:.0%}" for level in LEVELS), "an event"]
        show(f"{stream}, from event {FIRST + 1} on", columns, rows)


if __name__ == "__main__":
    main()
