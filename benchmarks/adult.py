"""a9a (Adult), hinge loss, batches of 64, 32 features a seed, one pass: CDSG against DSG, with one step and untuned.

Dai et al. 2014 report 15.3 % test error for DSG and 15 % for the exact kernel machine.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_svmlight_file

from benchmarks.common import arguments, ratio, seconds, show
from streamkernel import KernelClassifier, kernels, learners, losses, rules, step_sizes
from streamkernel.features.frames import table_blocks

D, ROWS, BATCH, CAP = 123, 32_560, 64, 4096
L2 = 1.0 / (100 * ROWS)


def table(path: Path, order: np.ndarray | None = None) -> tuple[pd.DataFrame, pd.Series]:
    """Return one of the files as a data frame and labels."""
    X, y = load_svmlight_file(str(path), n_features=D)
    dense = X.toarray()
    if order is not None:
        dense, y = dense[order], y[order]
    return pd.DataFrame(dense, columns=[str(i) for i in range(D)]), pd.Series(y.astype(int))


def step(gamma: float) -> step_sizes.PowerDecay:
    """Return the steps that begin with `gamma`."""
    return step_sizes.PowerDecay(gamma, c=0.005, power=0.5)


def learner(rule: rules.Rule, cap: int | None, gamma: float | None, seed: int) -> KernelClassifier:
    """Return the model of the paper's experiment, with steps of automatic size where there is no `gamma`."""
    first = "auto" if gamma is None else step(gamma)
    return KernelClassifier(
        kernels.Gaussian("median"),
        learner=learners.DSG(rule=rule, features_per_seed=32, batch_size=BATCH, step_size=first),
        loss="hinge",
        max_features=cap,
        l2=L2,
        seed=seed,
    )


def main() -> None:
    """Print test error, objective, features and time of both rules, medians over the seeds of the features."""
    options = arguments(__doc__, data=True, seeds=6)
    X, y = table(options.data / "a9a.svm.gz", np.random.default_rng(0).permutation(ROWS))
    X_test, y_test = table(options.data / "a9a.test.svm.gz")
    kinds: list[tuple[str, rules.Rule, int | None, float | None]] = [
        ("CDSG", rules.CDSG(math.inf), CAP, 1.5),
        ("DSG", rules.DSG(), None, 1.5),
        ("CDSG, untuned", rules.CDSG(), CAP, None),
        ("DSG, untuned", rules.DSG(), None, None),
    ]
    found: dict[str, list[list[float]]] = {name: [] for name, *_ in kinds}
    for seed in range(options.seeds):
        for name, rule, cap, gamma in kinds:
            model = learner(rule, cap, gamma, seed)
            took = seconds(lambda model=model: model.learn_many(X, y))
            found[name].append([error(model, X_test, y_test), training_objective(model, X, y), model.n_features, took])
    rows = []
    for name, runs in found.items():
        wrong, objective, features, took = (statistics.median(column) for column in zip(*runs, strict=True))
        errors = [run[0] for run in runs]
        spread = f"{wrong:.2f} % ({min(errors):.2f} to {max(errors):.2f})"
        rows.append([name, spread, f"{objective:.4f}", f"{features:,.0f}", f"{took:.2f} s"])
    more, slower = (ratio([run[i] for run in found["DSG"]], [run[i] for run in found["CDSG"]]) for i in (2, 3))
    rows.append(["DSG / CDSG", "", "", f"{more:.1f}", f"{slower:.1f}"])
    show("a9a, one pass", ["rule", "test error", "training objective", "features", "time to learn"], rows)


def error(model: KernelClassifier, X: pd.DataFrame, y: pd.Series) -> float:
    """Return the percentage of wrong predictions."""
    return 100 * float(np.mean(model.predict_many(X).to_numpy() != y.to_numpy()))


def training_objective(model: KernelClassifier, X: pd.DataFrame, y: pd.Series) -> float:
    """Return the regularised loss of `model` over the training data."""
    blocks = table_blocks(model._learner.directions, X, model._state.numeric)
    scores = np.concatenate([model._learner.scores(rows)[:, 0] for rows, _ in blocks])
    signs = np.where(y == list(model.labels)[1], 1.0, -1.0)
    loss = np.mean([losses.Hinge().value(f, s) for f, s in zip(scores, signs, strict=True)])
    return float(loss + model._learner.penalty)


if __name__ == "__main__":
    main()
