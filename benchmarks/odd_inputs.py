"""First-order learning on inputs as they come: R², with no arguments, behind a scaler, and with the best bandwidth.

The target is the same function of six normal variables in each stream; what is seen of these variables has long tails
(exponentials, hyperbolic sines), other units, gaps, or is a count. "Behind a scaler" has River's `StandardScaler` in
front; "best bandwidth" is the best one of `FACTORS` times the median distance behind that scaler, chosen in hindsight.

    python -m benchmarks.odd_inputs [--events 10000] [--seeds 3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from river import preprocessing

from benchmarks import common
from streamkernel import KernelRegressor, kernels

FACTORS = 0.05, 0.1, 0.2, 0.4, 0.8
UNITS = 10.0 ** np.array([6, -4, 0, 2, 3, -2])
STREAMS: dict[str, Callable[[Any], Any]] = {
    "normal": lambda Z: Z,
    "exponentials": lambda Z: np.exp(2.0 * Z),
    "hyperbolic sines": lambda Z: np.sinh(3.0 * Z),
    "other units": lambda Z: Z * UNITS + np.array([1e7, 0.0, 0.0, 500.0, 0.0, 0.0]),
    "gaps": lambda Z: np.where(np.random.default_rng(0).random(Z.shape) < 0.2, np.nan, Z + 3.0),
    "counts": lambda Z: np.floor(np.exp(1.0 + Z)),
}


def events(name: str, n: int, seed: int) -> Iterator[tuple[dict[str, float], float]]:
    """Yield the examples of a stream; a value that is missing has no name."""
    generator = np.random.default_rng(seed)
    Z = generator.normal(size=(n, 6))
    y = np.sin(2.0 * Z[:, 0]) * Z[:, 1] + np.cos(2.0 * Z[:, 2]) + 0.3 * Z[:, 3] + 0.1 * generator.normal(size=n)
    for row, target in zip(STREAMS[name](Z).tolist(), y.tolist(), strict=True):
        yield {f"x{j}": value for j, value in enumerate(row) if value == value}, target


def r2(model: Any, name: str, n: int, seed: int) -> float:
    """Return R² of predictions that a model makes before it learns each example."""
    errors, targets = [], []
    for x, y in events(name, n, seed):
        errors.append(model.predict_one(x) - y)
        targets.append(y)
        model.learn_one(x, y)
    return 1.0 - float(np.square(errors).mean() / np.var(targets))


def main() -> None:
    """Print the table."""
    options = common.arguments(__doc__, events=10_000, seeds=3)
    rows = []
    for name in STREAMS:

        def mean(make: Callable[[int], Any], name: str = name) -> float:
            return float(np.mean([r2(make(seed), name, options.events, seed) for seed in range(options.seeds)]))

        def behind(kernel: Any, seed: int) -> Any:
            return preprocessing.StandardScaler() | KernelRegressor(kernel, learner="dsg", seed=seed)

        ours = mean(lambda seed: KernelRegressor(learner="dsg", seed=seed))
        scaled = mean(lambda seed: behind(kernels.Gaussian("median", median_factor=0.4), seed))
        bandwidths = {
            f: mean(lambda seed, f=f: behind(kernels.Gaussian("median", median_factor=f), seed)) for f in FACTORS
        }
        best = max(bandwidths, key=bandwidths.__getitem__)
        rows.append([name, f"{ours:.3f}", f"{scaled:.3f}", f"{bandwidths[best]:.3f} ({best})", f"{ours / scaled:.2f}"])
    common.show("R²", ["inputs", "no arguments", "behind a scaler", "best bandwidth", "no arguments / behind"], rows)


if __name__ == "__main__":
    main()
