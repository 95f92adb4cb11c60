"""a9a (Adult), hinge loss, batches of 64, 32 features a seed, one pass: CDSG against DSG.

Dai et al. 2014 report 15.3 % test error for DSG and 15 % for the exact kernel machine.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_svmlight_file

from benchmarks.common import arguments, interleaved, ratio, seconds, show
from streamkernel import KernelClassifier, kernels, losses, rules, steps

D = 123


def table(path: Path, order: np.ndarray | None = None) -> tuple[pd.DataFrame, pd.Series]:
    """Return one of the files as a data frame and labels."""
    X, y = load_svmlight_file(str(path), n_features=D)
    dense = X.toarray()
    if order is not None:
        dense, y = dense[order], y[order]
    return pd.DataFrame(dense, columns=[str(i) for i in range(D)]), pd.Series(y.astype(int))


def main() -> None:
    """Print test error, objective, features and time of both rules."""
    options = arguments(__doc__, data=True, runs=5)
    X, y = table(options.data / "a9a.svm.gz", np.random.default_rng(0).permutation(32_560))
    X_test, y_test = table(options.data / "a9a.test.svm.gz")
    l2 = 1.0 / (100 * len(y))
    models: dict[str, KernelClassifier] = {}

    def fit(name: str, rule: rules.Rule, cap: int | None) -> float:
        models[name] = KernelClassifier(
            kernels.Gaussian("median"),
            loss="hinge",
            rule=rule,
            features_per_seed=32,
            batch_size=64,
            max_features=cap,
            l2=l2,
            step=steps.Constant(1.0),
        )
        return seconds(lambda: models[name].learn_many(X, y))

    times = interleaved(options.runs, lambda: fit("CDSG", rules.CDSG(), 4096), lambda: fit("DSG", rules.DSG(), None))
    rows = []
    for (name, model), took in zip(models.items(), times, strict=True):
        error = float(np.mean(model.predict_many(X_test).to_numpy() != y_test.to_numpy()))
        objective = training_objective(model, X, y)
        rows.append(
            [
                name,
                f"{100 * error:.2f} %",
                f"{objective:.4f}",
                f"{model.n_features:,}",
                f"{statistics.median(took):.2f} s",
            ]
        )
    features = models["DSG"].n_features / models["CDSG"].n_features
    rows.append(["DSG / CDSG", "", "", f"{features:.1f}", f"{ratio(times[1], times[0]):.1f}"])
    show("a9a, one pass", ["rule", "test error", "training objective", "features", "time to learn"], rows)


def training_objective(model: KernelClassifier, X: pd.DataFrame, y: pd.Series) -> float:
    """Return the regularised loss of `model` over the training data."""
    scores = model._expansion.scores(model._table(X))[:, 0]
    signs = np.where(y == list(model.labels)[1], 1.0, -1.0)
    loss = np.mean([losses.Hinge().value(f, s) for f, s in zip(scores, signs, strict=True)])
    return float(loss + model._expansion.penalty)


if __name__ == "__main__":
    main()
