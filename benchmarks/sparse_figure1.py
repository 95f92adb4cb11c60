"""Figure 1 of Gu et al. 2018: accuracy and error against training time, and testing time against rows.

AsyDSSKL with 1 to 5 rounds, beside LIBSVM (scikit-learn's SVC and SVR) on more and more of the rows, Double SGD
(ours, one to four passes), and for classes liblinear on fixed features. Data: `sparse_data.py`, classes of the shape of
Covtype, and distances with outliers among those that are learned. The paper has 16 cores, up to five million rows, and
AsyGCD too.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks import race
from benchmarks.common import arguments, seconds, show
from benchmarks.rivals.parts import F64
from benchmarks.sparse_data import arm, forest
from streamkernel import KernelClassifier, KernelRegressor, learners, losses, rules
from streamkernel.kernels import Gaussian
from streamkernel.kernels.program import KernelProgram
from streamkernel.solvers import AsyDSSKL
from streamkernel.solvers.rounds import PER_BLOCK, ChosenFeatures

FEATURES = 256
COLORS = {"AsyDSSKL": "#0b6e99", "LIBSVM": "#b4532a", "Double SGD": "#4c8c4a", "liblinear, fixed features": "#8a5fa8"}
Fitted = tuple[float, Callable[[F64], Any]]
"""Seconds of training, and what predicts."""


def timed(fit: Callable[[], Any]) -> Fitted:
    """Return a model and how long it took."""
    began = time.perf_counter()
    model = fit()
    return time.perf_counter() - began, model.predict


def asy_dsskl(X: F64, y: F64, loss: str) -> Iterator[Fitted]:
    """Fit with more and more rounds."""
    for rounds in (1, 2, 5):
        yield timed(lambda rounds=rounds: AsyDSSKL(loss=loss, rounds=rounds, features_per_round=FEATURES).fit(X, y))


def libsvm(X: F64, y: F64, loss: str) -> Iterator[Fitted]:
    """Fit more and more of the rows."""
    machine = SVC(C=10.0) if loss == "logistic" else SVR(C=10.0)
    for share in (16, 4, 1):
        part = slice(len(y) // share)
        yield timed(lambda part=part: make_pipeline(StandardScaler(), machine).fit(X[part], y[part]))


def double_sgd(X: F64, y: F64, loss: str) -> Iterator[Fitted]:
    """Learn the rows once, twice, and four times; as a stream has them."""
    scale = StandardScaler().fit(X)
    sigma = float(np.sqrt(X.shape[1]))
    given: dict[str, Any] = {"learner": learners.DSG(rule=rules.DSG()), "max_features": 5 * FEATURES}
    if loss == "logistic":
        model: Any = KernelClassifier(Gaussian(sigma), loss=losses.Logistic(), **given)
    else:
        model = KernelRegressor(Gaussian(sigma), loss=losses.Square(), **given)
    names = [str(i) for i in range(X.shape[1])]
    targets = pd.Series(y.astype(int) if loss == "logistic" else y)

    def predict(rows: F64) -> Any:
        return np.asarray(model.predict_many(pd.DataFrame(scale.transform(rows), columns=names)), np.float64)

    took, passes = 0.0, 0
    for wanted in (1, 2, 4):
        while passes < wanted:
            took += seconds(lambda: model.learn_many(pd.DataFrame(scale.transform(X), columns=names), targets))
            passes += 1
        yield took, predict


class Fixed:
    """Fixed features with liblinear on top."""

    def __init__(self, X: F64, y: F64, features: int) -> None:
        places = np.arange(features)
        plan, names = KernelProgram(Gaussian(float(np.sqrt(X.shape[1]))), 0), [str(i) for i in range(X.shape[1])]
        self._scale = StandardScaler().fit(X)
        self._phi = ChosenFeatures(plan, names, np.stack([places // PER_BLOCK, places % PER_BLOCK], axis=1))
        self._model = LogisticRegression(solver="liblinear", C=1.0).fit(self._phi(self._scale.transform(X)), y)

    def predict(self, X: F64) -> Any:
        """Return the classes of rows."""
        return self._model.predict(self._phi(self._scale.transform(X)))


def fixed(X: F64, y: F64, loss: str) -> Iterator[Fitted]:
    """Fit more and more features."""
    for features in (FEATURES // 4, FEATURES):
        yield timed(lambda features=features: Fixed(X, y, features))


def testing(axis: Any, models: dict[str, Callable[[F64], Any]], X: F64) -> None:
    """Print and draw how long predictions for more and more rows take."""
    sizes, table = [len(X) // 4, len(X) // 2, len(X)], []
    for name, predict in models.items():
        times = [min(seconds(lambda n=n, predict=predict: predict(X[:n])) for _ in range(3)) for n in sizes]  # type: ignore[misc]
        axis.plot(sizes, times, label=name, color=COLORS[name], marker=".")
        table.append([name, *(f"{1e3 * took:.1f} ms" for took in times)])
    show("testing time", ["method", *(f"{n:,} rows" for n in sizes)], table)


def main() -> None:
    """Print what was measured and draw the three panels."""
    output = Path("figures/sparse_figure1.png")
    options = arguments(__doc__, rows=16_000, test=4_000, output=output)
    warnings.simplefilter("ignore")
    figure = Figure(figsize=(13, 4), layout="constrained")
    panels = figure.subplots(1, 3)
    for fits in (asy_dsskl, double_sgd):  # compiles
        list(fits(*forest(500, 0, 2), "logistic"))
    methods: dict[str, Any] = {"AsyDSSKL": asy_dsskl, "LIBSVM": libsvm, "Double SGD": double_sgd}
    tasks = [("accuracy", "logistic", forest(options.rows + options.test, 0, 2))]
    tasks.append(("mean squared error", "correntropy", arm(options.rows + options.test, 0)))
    for axis, (measure, loss, (X, y)) in zip(panels[:2], tasks, strict=True):
        (X, X_test), (y, y_test) = np.split(X, [options.rows]), np.split(y, [options.rows])
        given = methods | ({"liblinear, fixed features": fixed} if loss == "logistic" else {})
        cells, last = [], {}
        for name, fits in given.items():
            points = []
            for took, predict in fits(X, y, loss):
                found = predict(X_test)
                value = float(np.mean(found == y_test) if loss == "logistic" else np.mean((found - y_test) ** 2))
                points.append((took, value))
                cells.append([name, f"{took:.2f} s", f"{value:.4f}"])
                last[name] = predict
            axis.plot(*zip(*points, strict=True), label=name, color=COLORS[name], marker=".")
        show(f"{measure}, {options.rows:,} rows", ["method", "training", measure], cells)
        axis.set(xlabel="seconds of training", ylabel=measure, xscale="log")
        if loss == "logistic":
            testing(panels[2], last, X_test)
    panels[1].set(yscale="log")
    panels[2].set(xlabel="rows", ylabel="seconds of testing", yscale="log")
    for axis in panels:
        axis.legend(fontsize=8, frameon=False)
        axis.grid(alpha=0.3)
    race.save(figure, options.output)


if __name__ == "__main__":
    main()
