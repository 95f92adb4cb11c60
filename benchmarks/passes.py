"""The estimators of streamkernel.sklearn beside SVC or SVR and beside RBFSampler with SGD, and what more passes give.

python -m benchmarks.passes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.common import arguments
from streamkernel.sklearn import KernelClassifier, KernelRegressor

PASSES = (0, 1, 2, 4)
"""Passes in random orders; 0 is one in the order of the rows."""
CLASSES: dict[str, Callable[[], Any]] = {
    "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "moons, noise 0.25": lambda: datasets.make_moons(1000, noise=0.25, random_state=0),
}
NUMBERS: dict[str, Callable[[], Any]] = {
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
    "friedman1, 500 rows": lambda: datasets.make_friedman1(500, noise=1.0, random_state=0),
    "friedman1, 2000 rows": lambda: datasets.make_friedman1(2000, noise=1.0, random_state=0),
}


def learned(model: Any, X: Any, y: Any, passes: int) -> Any:
    """Return a model that has learned the rows in their order, or in so many random ones."""
    if not passes:
        return model.fit(X, y)
    order = np.random.default_rng(0).permutation(len(y))
    model.fit(X[order], y[order])
    for i in range(1, passes):
        order = np.random.default_rng(i).permutation(len(y))
        model.partial_fit(X[order], y[order])
    return model


def scores(X: Any, y: Any, for_classes: bool) -> dict[str, float]:
    """Return the mean accuracy or R² over five folds, by method."""
    folds = (StratifiedKFold if for_classes else KFold)(5, shuffle=True, random_state=0)
    batch, steps, ours = (SVC, SGDClassifier, KernelClassifier) if for_classes else (SVR, SGDRegressor, KernelRegressor)
    found: dict[str, list[float]] = {}
    for train, test in folds.split(X, y):
        gamma = 1.0 / X.shape[1]
        peers = {
            batch.__name__: make_pipeline(StandardScaler(), batch()),
            "RBFSampler, SGD": make_pipeline(
                StandardScaler(), RBFSampler(gamma=gamma, n_components=512, random_state=0), steps(random_state=0)
            ),
        }
        for name, peer in peers.items():
            found.setdefault(name, []).append(peer.fit(X[train], y[train]).score(X[test], y[test]))
        for passes in PASSES:
            model = learned(ours(shuffle=False), X[train], y[train], passes)
            name = f"{passes} shuffled" if passes else "in their order"
            found.setdefault(name, []).append(model.score(X[test], y[test]))
    return {name: float(np.mean(values)) for name, values in found.items()}


def main() -> None:
    """Print a table for classes, and one for numbers."""
    arguments(__doc__)
    for title, data, for_classes in (("accuracy", CLASSES, True), ("R²", NUMBERS, False)):
        for i, (name, load) in enumerate(data.items()):
            found = scores(*load(), for_classes)
            if not i:
                print(f"{title:22}" + "".join(f"{method:>18}" for method in found))
            print(f"{name:22}" + "".join(f"{value:18.3f}" for value in found.values()), flush=True)


if __name__ == "__main__":
    main()
