"""Importances and contributions on functions that are known, beside permutation importance, and what they cost.

*Importances*: shares of the inputs in what is known of the function, the total effects of Sobol' (half the mean square
of what f changes by when one input is drawn again). The distance is half the sum of absolute differences: 0 to 1.

* ``feature_importances_`` of the model, made of gradients that it gathers while it learns.
* mean squares of ``explain_one(x, method="sampling")`` over some of the last rows.
* scikit-learn's ``permutation_importance`` of the same model on rows held out, five permutations.
* incremental permutation importance (Fumagalli et al. 2023), plainly and by the authors' package ixai where that is
  installed: `benchmarks/incremental_permutation.py`.

Costs are processor time over that of learning the same events in the same run.

*Contributions*: Shapley values of the known function with the mean as background, all sets of inputs, against those
that ``explain_one`` says of the model. What is not explained is their squared difference over their squares, summed
over all inputs and rows; the model's own error is in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.inspection import permutation_importance

from benchmarks.common import arguments, seconds, show
from benchmarks.incremental_permutation import PEERS
from streamkernel import KernelClassifier, KernelRegressor

EFFECTS = np.array([-1.5, -0.5, 0.0, 0.5, 1.5])


class Known(NamedTuple):
    """A function, how its inputs are drawn, and whether what is observed is a class of these log odds or a number."""

    function: Callable[[Any], Any]
    draw: Callable[[Any, int], Any]
    is_class: bool = False
    strings: tuple[int, ...] = ()


def _normal(width: int) -> Callable[[Any, int], Any]:
    return lambda generator, n: generator.normal(size=(n, width))


def _with_strings(generator: Any, n: int) -> Any:
    X = generator.normal(size=(n, 6))
    X[:, 4:] = EFFECTS[generator.integers(0, len(EFFECTS), (n, 2))]
    return X


def _friedman(X: Any) -> Any:
    return 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


FUNCTIONS = {
    "3x₀ + x₁ of 10 normal inputs": Known(lambda X: 3 * X[:, 0] + X[:, 1], _normal(10)),
    "Friedman's, 5 of 10 inputs": Known(_friedman, lambda generator, n: generator.uniform(size=(n, 10))),
    "tanh(3x₀x₁) of 12 normal inputs": Known(lambda X: np.tanh(3 * X[:, 0] * X[:, 1]), _normal(12)),
    "classes: 2 sin(2x₀)x₁ + x₂ of 6": Known(lambda X: 2 * np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2], _normal(6), True),
    "x₀ + x₁x₂ + a string, one more": Known(
        lambda X: X[:, 0] + X[:, 1] * X[:, 2] + X[:, 4], _with_strings, False, (5, 4)
    ),
}


def total_effects(known: Known, X: Any, generator: Any) -> Any:
    """Return the shares of the inputs in the total effects."""
    f, other = known.function(X), known.draw(generator, len(X))
    found = []
    for j in range(X.shape[1]):
        changed = X.copy()
        changed[:, j] = other[:, j]
        found.append(np.square(known.function(changed) - f).mean())
    return np.array(found) / sum(found)


def shapley(known: Known, X: Any, mean: Any) -> Any:
    """Return the Shapley values of the function at rows, with the mean as background."""
    k = X.shape[1]
    sets = (np.arange(1 << k)[:, None] >> np.arange(k)) & 1 == 1
    size, found = sets.sum(axis=1), np.zeros_like(X)
    weight = np.array([1.0 / (k * math.comb(k - 1, s)) for s in range(k)])
    for i, x in enumerate(X):
        values = known.function(np.where(sets, x, mean))
        for j in range(k):
            without = np.flatnonzero(~sets[:, j])
            found[i, j] = (weight[size[without]] * (values[without | 1 << j] - values[without])).sum()
    return found


def as_examples(known: Known, X: Any) -> list[dict[str, Any]]:
    """Return rows as examples: some inputs are strings."""
    columns = [
        [f"value {v}" for v in column] if j in known.strings else column for j, column in enumerate(X.T.tolist())
    ]
    names = [f"x{j}" for j in range(X.shape[1])]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


class Fitted:
    """A model as scikit-learn's functions take it."""

    def __init__(self, model: Any, is_class: bool) -> None:
        self.model, self.is_class = model, is_class

    def fit(self, X: Any, y: Any) -> Fitted:
        """Do nothing: it has learned."""
        return self

    def score(self, X: Any, y: Any) -> float:
        """Return minus the mean loss."""
        if self.is_class:
            found = self.model.predict_proba_many(X)
            chances = np.where(y, found[True], found[False])
            return float(np.log(np.maximum(chances, 1e-9)).mean())
        return -float(np.square(np.asarray(self.model.predict_many(X)) - y).mean())


def distance(shares: Any, truth: Any) -> str:
    """Return how far shares are from the truth, and what they give to inputs that do not matter."""
    return f"{0.5 * np.abs(shares - truth).sum():.3f} ({shares[truth < 1e-9].sum():.3f})"


def main() -> None:
    """Print both tables."""
    options = arguments(__doc__, events=5000, rows=100)
    importances, contributions = [], []
    for name, known in FUNCTIONS.items():
        generator = np.random.default_rng(0)
        X = known.draw(generator, options.events + 1000)
        f, truth = known.function(X), total_effects(known, known.draw(generator, 100_000), generator)
        noise = generator.logistic(size=len(X)) if known.is_class else 0.1 * f.std() * generator.normal(size=len(X))
        ys: list[Any] = (f + noise > 0.0).tolist() if known.is_class else (f + noise).tolist()
        xs = as_examples(known, X)
        model: Any = KernelClassifier() if known.is_class else KernelRegressor()
        peers = {name: peer(model, list(xs[0]), known.is_class) for name, peer in PEERS.items()}
        learning = 0.0
        for x, y in zip(xs[: options.events], ys, strict=False):
            for peer in peers.values():
                peer.update(x, y)
            began = time.process_time()
            model.learn_one(x, y)
            learning += time.process_time() - began
        model.explain_one(xs[0]), model.explain_one(xs[0], method="sampling")  # compiles
        reading = seconds(lambda model=model: model.feature_importances_)
        ours = np.array([model.feature_importances_[f"x{j}"] for j in range(X.shape[1])])
        rows = range(options.events, options.events + options.rows)
        found, took = {}, {}
        for method, given in (
            ("gradient", {"method": "gradient"}),
            ("sampling", {"method": "sampling"}),
            ("2 orders", {"method": "sampling", "n_orders": 2}),
            ("256 orders", {"method": "sampling", "n_orders": 256}),
        ):
            began = time.process_time()
            found[method] = np.array([[*model.explain_one(xs[i], **given).values()] for i in rows])
            took[method] = (time.process_time() - began) / len(rows)
        squares = np.square(found["sampling"]).mean(axis=0)
        frame, y = pd.DataFrame(xs[options.events :]), np.array(ys[options.events :])
        began = time.process_time()
        permuted = permutation_importance(Fitted(model, known.is_class), frame, y, n_repeats=5, random_state=0)
        permuting, held = time.process_time() - began, np.maximum(permuted.importances_mean, 0.0)
        importances.append(
            [
                name,
                f"{distance(ours, truth)}, {reading / learning:.4f}",
                f"{distance(squares / squares.sum(), truth)}, {took['sampling'] * len(rows) / learning:.2f}",
                f"{distance(held / held.sum(), truth)}, {permuting / learning:.2f}",
                *(f"{distance(peer.shares(), truth)}, {peer.seconds / learning:.2f}" for peer in peers.values()),
                f"{learning:.1f} s",
            ]
        )
        exact = shapley(known, X[list(rows)], X[: options.events].mean(axis=0))
        contributions.append(
            [name]
            + [
                f"{np.square(found[method] - exact).sum() / np.square(exact).sum():.3f}, {1e3 * took[method]:.1f} ms"
                for method in found
            ]
        )
    show(
        f"importances after {options.events} events: distance from total effects (share of inputs without any), "
        "processor time over that of learning",
        ["function", "feature_importances_", "explain_one", "permutation", *PEERS, "learning"],
        importances,
    )
    show(
        f"contributions to {options.rows} predictions: what is not explained of Shapley values, time of one",
        ["function", *found],
        contributions,
    )


if __name__ == "__main__":
    main()
