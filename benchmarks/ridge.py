"""Kernel ridge regression on the 2-D synthetic data of Dai et al. 2014 (section 7.1): the error falls like 1/t.

y = cos(½π‖x‖) exp(-0.1π‖x‖) + 0.1 e with x uniform on [-5, 5]² and e normal; DSG with a Gaussian kernel of 0.1 times
the median distance, λ = 10⁻⁶, and steps θ/(t + 30) with θ = 100. The error is measured on 1,000 points without noise,
where the exact ridge solution differs from the function by 10⁻⁷. The whole run takes about ten minutes.
"""

from __future__ import annotations

import numpy as np
from rich.progress import track

from benchmarks.common import arguments, show
from streamkernel import kernels, losses, rules, steps
from streamkernel.expansion import Expansion

THETA, LATER = 100.0, 30.0


def target(X: np.ndarray) -> np.ndarray:
    """Return the function without noise at X, shape (points, 2)."""
    r = np.linalg.norm(X, axis=1)
    return np.asarray(np.cos(0.5 * np.pi * r) * np.exp(-0.1 * np.pi * r))


def main() -> None:
    """Print the error against the number of steps, and the slope over the last decade."""
    options = arguments(__doc__, steps=1024, batch=1024, block=1024, seed=1)
    rng = np.random.default_rng(options.seed)
    X_test = rng.uniform(-5, 5, (1000, 2))
    median = np.median(np.linalg.norm(X_test[:500, None] - X_test[None, 500:], axis=-1))
    f = Expansion(
        kernels.Gaussian(0.1 * float(median)),
        losses.Square(),
        rules.DSG(),
        steps.PowerDecay(THETA / LATER, c=1.0 / LATER, power=1.0),
        per_block=options.block,
        max_features=None,
        batch=options.batch,
        l2=1e-6,
    )
    names = ["x1", "x2"]
    test = f.directions.rows(names, X_test)
    marks = {int(t) for t in np.geomspace(10, options.steps, 16)}
    errors: dict[int, float] = {}
    for t in track(range(1, options.steps + 1), description="steps"):
        X = rng.uniform(-5, 5, (options.batch, 2))
        f.learn(f.directions.rows(names, X), target(X) + 0.1 * rng.standard_normal(options.batch))
        if t in marks:
            errors[t] = float(np.mean((f.scores(test)[:, 0] - target(X_test)) ** 2))
    show("2-D ridge", ["step t", "mean squared error"], [[f"{t:,}", f"{error:.2e}"] for t, error in errors.items()])
    last = [t for t in errors if t >= options.steps / 10]
    slope = np.polyfit(np.log(last), np.log([errors[t] for t in last]), 1)[0]
    print(f"slope over the last decade: {slope:.2f}   (1/t is -1)")


if __name__ == "__main__":
    main()
