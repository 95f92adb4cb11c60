"""Corrupt targets: mean absolute error against the signal before corruption, as ratios to Huber's loss.

The first stream is an hourly demand with two daily peaks, weekdays, temperature and noise that persists. Of the targets
seen, 0.3 % are corrupt (zero, ten times the value, or -999), and a day is an outage of zeros. The inputs are the hour,
the weekday and the temperature, without or with the last 24 targets, which are then corrupt as well.

The second one is y = 50 + 10a + 8 sin(2π hour/24) + noise, all normal, with one kind of corruption at a time, because
values such as zero are then near the range of the others.

    python -m benchmarks.outliers [--events 4800] [--seeds 6]

The rules were chosen on seeds 1 and 2 of the first stream, and on other streams like the second one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from river import compose, linear_model, neighbors, preprocessing, tree

from streamkernel import KernelRegressor

CORRUPT = 0.003


def signal(events: int, generator: np.random.Generator) -> tuple[Any, Any]:
    """Return the temperatures and the demand of each hour."""
    t = np.arange(events)
    hour, day = t % 24, t // 24 % 7
    weather, noise = np.zeros((2, events))
    for i in range(1, events):
        weather[i] = 0.97 * weather[i - 1] + 0.6 * generator.normal()
        noise[i] = 0.7 * noise[i - 1] + 5.0 * generator.normal()
    temperature = 12.0 + 9.0 * np.sin(2 * np.pi * t / 8760) + 4.0 * np.sin(2 * np.pi * (hour - 9) / 24) + weather
    peaks = 60.0 * np.exp(-(((hour - 8.5) / 2.5) ** 2)) + 80.0 * np.exp(-(((hour - 18.5) / 3.0) ** 2))
    demand = (220.0 + peaks - 35.0 * (hour < 6)) * np.where(day >= 5, 0.8, 1.0)
    return temperature, demand + 0.25 * np.maximum(15.0 - temperature, 0.0) ** 1.6 + 0.02 * t + noise


def demand(events: int = 4800, seed: int = 1, lags: int = 0) -> Iterator[tuple[dict[str, Any], float, float]]:
    """Yield inputs, the target that is seen, and the target before corruption."""
    generator = np.random.default_rng(seed)
    temperature, clean = signal(events, generator)
    seen, outage = clean.copy(), events * 5 // 8
    at = np.flatnonzero(generator.random(events) < CORRUPT)
    at = at[at >= events // 16]
    kinds = np.array([np.zeros(len(at)), 10.0 * clean[at], np.full(len(at), -999.0)])
    seen[at] = kinds[generator.integers(0, 3, len(at)), np.arange(len(at))]
    seen[outage : outage + 24] = 0.0
    for i in range(events):
        x = {"hour": float(i % 24), "day": str(i // 24 % 7), "temperature": float(temperature[i])}
        x |= {f"lag {k}": float(seen[i - k]) for k in range(1, lags + 1) if i >= k}
        yield x, float(seen[i]), float(clean[i])


def plain(events: int, seed: int) -> Iterator[tuple[dict[str, Any], float, float]]:
    """Yield inputs, the target, and the target without its noise."""
    generator = np.random.default_rng(seed)
    for i in range(events):
        a, noise = generator.normal(size=2).tolist()
        clean = 50.0 + 10.0 * a + 8.0 * np.sin(2 * np.pi * i / 24)
        yield {"a": a, "hour": i % 24}, float(clean + noise), float(clean)


KINDS = ("none", "zero", "ten times", "-999", "five deviations", "outage")


def corrupt(
    events: Iterator[tuple[dict[str, Any], float, float]], seed: int, kind: str
) -> Iterator[tuple[dict[str, Any], float, float]]:
    """Yield events of which `CORRUPT` are corrupt in one way, or 24 in succession."""
    generator = np.random.default_rng([seed, KINDS.index(kind)])
    for i, (x, y, clean) in enumerate(events):
        values = {"zero": 0.0, "ten times": 10.0 * y, "-999": -999.0, "five deviations": y + 60.0 * (-1.0) ** (i % 2)}
        is_corrupt = i > 100 and generator.random() < CORRUPT
        if kind == "outage":
            y = 0.0 if 1000 <= i < 1024 else y
        yield x, values.get(kind, y) if is_corrupt else y, clean


def error(model: Any, events: Iterator[tuple[dict[str, Any], float, float]]) -> float:
    """Return the mean absolute error against the signal, without the first 100 predictions."""
    errors = []
    for x, y, clean in events:
        errors.append(abs(model.predict_one(x) - clean))
        model.learn_one(x, y)
    return float(np.mean(errors[100:]))


def peers() -> dict[str, Any]:
    """Return River's models by name."""
    numbers = compose.SelectType(float) | preprocessing.StandardScaler()
    scaled = numbers + (compose.SelectType(str) | preprocessing.OneHotEncoder())
    return {
        "HoeffdingTreeRegressor": scaled.clone() | tree.HoeffdingTreeRegressor(),
        "KNNRegressor": scaled.clone() | neighbors.KNNRegressor(aggregation_method="median"),
        "BayesianLinearRegression": scaled.clone() | linear_model.BayesianLinearRegression(),
    }


def both() -> tuple[KernelRegressor, KernelRegressor]:
    """Return regressors with Huber's loss, and with no arguments."""
    return KernelRegressor(loss="huber"), KernelRegressor()


def main() -> None:
    """Print the errors as ratios to Huber's loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=4800)
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    events = options.events
    for lags in (0, 24):
        ratios = []
        for seed in range(1, options.seeds + 1):
            huber, ours = (error(model, demand(events, seed, lags)) for model in both())
            found = {name: error(model, demand(events, seed, lags)) for name, model in peers().items()}
            name, best = min(found.items(), key=lambda pair: pair[1])
            ratios.append(ours / huber)
            print(
                f"{lags:2d} lags, seed {seed}: no arguments {ours / huber:.2f}, loss='huber' 1.00 (error {huber:.2f}), "
                f"River's best, {name}, {best / huber:.2f}"
            )
        print(f"{lags:2d} lags, mean of {len(ratios)} seeds: {np.mean(ratios):.2f}")
    for kind in KINDS:
        ratios = []
        for seed in range(1, options.seeds + 1):
            huber, ours = (error(model, corrupt(plain(2000, seed), seed, kind)) for model in both())
            ratios.append(ours / huber)
        every = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"second stream, {kind}: no arguments {np.mean(ratios):.2f} ({every}), loss='huber' 1.00")


if __name__ == "__main__":
    main()
