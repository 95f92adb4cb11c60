"""AsyDSSKL: accuracy and prediction beside all candidates, the L1 optimum beside liblinear, and a second thread.

Data of the shape of Covtype (`sparse_data.py`), 54 inputs. Four tables, each from runs that alternate:

* accuracy of what is left of 5 × 256 candidates (`--keep`, 0 for what the price leaves) beside all 1,280 with a ridge,
  the best of five on a held-out tenth; and the time of a prediction for both;
* time until the L1 objective of 256 features (cosine and sine, each by itself) is within 1e-5 of its minimum, beside
  liblinear on the same features at the loosest of its tolerances that gets there, told beforehand. The minimum is
  that of a long run of ours and of liblinear, whichever is lower;
* passes over the rows by one thread and by two, which takes two idle cores.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.common import arguments, interleaved, ratio, seconds, show
from benchmarks.rivals.parts import F64
from benchmarks.sparse_data import forest
from streamkernel.kernels import Gaussian
from streamkernel.kernels.program import KernelProgram
from streamkernel.losses import Logistic
from streamkernel.solvers import AsyDSSKL
from streamkernel.solvers.rounds import PER_BLOCK, RIDGES, ChosenFeatures
from streamkernel.solvers.sparse import epoch_by_batches, largest_l1, minimise_sparse
from streamkernel.solvers.sparse_problem import SparseProblem, check_problem, pool_of, refit

NEAR = 1e-5
TOLS = 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4


class Dense:
    """All features of an estimator's rounds, with the ridge that is best for a tenth of the rows."""

    def __init__(self, model: AsyDSSKL, X: F64, y: F64) -> None:
        places = np.arange(model.rounds * model.features_per_round)
        plan, names = KernelProgram(model.kernel_, model.seed), [str(i) for i in range(X.shape[1])]
        self._features = ChosenFeatures(plan, names, np.stack([places // PER_BLOCK, places % PER_BLOCK], axis=1))
        self._mean, self._scale = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-12)
        Z, held = self._evaluate(X), len(y) // 10
        penalised = np.arange(Z.shape[1]) < Z.shape[1] - 1
        given: dict[str, Any] = {"penalised": penalised, "tol": 1e-6}
        everything, right = np.ones(Z.shape[1], bool), []
        for l2 in RIDGES:
            coef = refit(Z[held:], y[held:], Logistic(), everything, l2=l2, **given)
            right.append(np.mean((Z[:held] @ coef[:, 0] > 0) == y[:held]))
        self._coef = refit(Z, y, Logistic(), everything, l2=RIDGES[int(np.argmax(right))], **given)[:, 0]

    def _evaluate(self, X: F64) -> Any:
        return np.hstack([self._features((X - self._mean) / self._scale), np.ones((len(X), 1), np.float32)])

    def predict(self, X: F64) -> F64:
        """Return the classes of rows."""
        return (self._evaluate(X) @ self._coef > 0).astype(float)


def accuracy(options: Any) -> None:
    """Print what the features that stayed are worth beside all of them."""
    rows = [accuracy_of(seed, options) for seed in range(options.seeds)]
    columns = ["seed", "AsyDSSKL", "all features", "points", "stayed", "predictions", "fit", "fit of all"]
    show(f"{options.rows:,} rows, 10,000 to test on", columns, rows)


def accuracy_of(seed: int, options: Any) -> list[str]:
    """Return a row of the table."""
    X, y = forest(options.rows + 10_000, seed, options.directions)
    (X, X_test), (y, y_test) = np.split(X, [options.rows]), np.split(y, [options.rows])
    began = time.perf_counter()
    bound = {"max_features": options.keep or None, "l1": options.l1 or None}
    sparse = AsyDSSKL(seed=seed, threads=options.threads, **bound).fit(X, y)
    took, began = time.perf_counter() - began, time.perf_counter()
    dense = Dense(sparse, X, y)
    dense_took = time.perf_counter() - began
    jobs = (lambda: seconds(lambda: sparse.predict(X_test)), lambda: seconds(lambda: dense.predict(X_test)))
    few, many = interleaved(5, *jobs)
    right = [100 * float(np.mean(model.predict(X_test) == y_test)) for model in (sparse, dense)]
    percents = [f"{right[0]:.2f} %", f"{right[1]:.2f} %", f"{right[0] - right[1]:+.2f}"]
    stayed = f"{len(sparse.features_)} of {sparse.rounds * sparse.features_per_round}"
    return [str(seed), *percents, stayed, f"{ratio(many, few):.1f} ×", f"{took:.0f} s", f"{dense_took:.0f} s"]


def features(rows: int) -> tuple[Any, F64]:
    """Return 256 features of rows, and classes."""
    X, y = forest(rows, 0, 6)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    places = np.arange(256)
    plan = KernelProgram(Gaussian(10.0), 0)
    names = [str(i) for i in range(X.shape[1])]
    return ChosenFeatures(plan, names, np.stack([places // PER_BLOCK, places % PER_BLOCK], axis=1))(X), y


def against_liblinear(options: Any) -> None:
    """Print how long it takes until the objective is within 1e-5 of its minimum."""
    warnings.simplefilter("ignore")
    Z, y = features(options.rows)
    minimise_sparse(Z[:500], y[:500], Logistic(), l1=0.01, max_epochs=2)  # compiles
    largest = largest_l1(Z, y, Logistic())
    columns = ["share of the largest l1", "ours", "liblinear", "our gap", "its gap", "faster", "not 0"]
    rows = [[f"{share:g}", *liblinear_at(share * largest, Z, y, options)] for share in (0.03, 0.01)]
    show(f"within {NEAR:g} of the L1 optimum, {options.rows:,} × {Z.shape[1]}", columns, rows)


def liblinear_at(l1: float, Z: Any, y: F64, options: Any) -> list[str]:
    """Return a row of the table."""
    wide = Z.astype(np.float64)

    def value(w: F64) -> float:
        return float(np.logaddexp(0.0, -(2 * y - 1) * (wide @ w)).mean() + l1 * np.abs(w).sum())

    def theirs(tol: float) -> F64:
        given: dict[str, Any] = {"solver": "liblinear", "fit_intercept": False, "max_iter": 1000}
        return np.asarray(LogisticRegression(l1_ratio=1.0, C=1 / (len(y) * l1), tol=tol, **given).fit(wide, y).coef_[0])

    def ours(tol: float) -> F64:
        return minimise_sparse(Z, y, Logistic(), l1=l1, tol=tol, threads=options.threads).coef[:, 0]

    best = min(value(ours(1e-4)), value(theirs(1e-4)))
    tols = [next(tol for tol in TOLS if value(solver(tol)) - best <= NEAR) for solver in (ours, theirs)]
    jobs = lambda: seconds(lambda: ours(tols[0])), lambda: seconds(lambda: theirs(tols[1]))
    times = interleaved(options.repeats, *jobs)
    found = ours(tols[0]), theirs(tols[1])
    cells = [*(f"{np.median(t):.2f} s" for t in times), *(f"{value(w) - best:.1e}" for w in found)]
    return [*cells, f"{ratio(times[1], times[0]):.1f} ×", str(int(np.count_nonzero(found[0])))]


def inner_loop(problem: SparseProblem, n: int) -> float:
    """Return how long one pass of mini-batches over all features takes with `n` threads."""
    with pool_of(n) as pool:
        told = problem._replace(threads=n, pool=pool)
        w = np.full((1, problem.Z.shape[1]), 0.01)
        point, steps = told.at(w), np.full(w.size, 0.1)
        return seconds(lambda: epoch_by_batches(told, point, steps, w, np.random.default_rng(0)))


def threads(options: Any) -> None:
    """Print what a second thread gains: in the inner loop alone, and in as many passes of the whole."""
    Z, y = features(options.rows)
    l1 = 0.01 * largest_l1(Z, y, Logistic())
    columns = ["what", "one thread", "two", "faster", "objective of one", "of two"]
    rows = []
    problem, times = check_problem(Z, y, Logistic(), l1, 1, 1, None), 8 * options.repeats
    one, two = interleaved(times, lambda: inner_loop(problem, 1), lambda: inner_loop(problem, 2))
    rows.append(
        ["inner loop", f"{np.median(one):.3f} s", f"{np.median(two):.3f} s", f"{ratio(one, two):.2f} ×", "", ""]
    )
    for form, epochs in (("minibatch", 10), ("paper", 3)):
        given: dict[str, Any] = {"l1": l1, "form": form, "max_epochs": epochs, "tol": 1e-9}
        found = interleaved(
            2 * options.repeats + 2,
            *(lambda n=n, given=given: minimise_sparse(Z, y, Logistic(), threads=n, **given) for n in (1, 2)),  # type: ignore[misc]
        )
        one, two = ([solution.history[-1].seconds for solution in solutions[1:]] for solutions in found)
        cells = [f"{np.median(one):.3f} s", f"{np.median(two):.3f} s", f"{ratio(one, two):.2f} ×"]
        rows.append([f"{epochs} passes, {form}", *cells, *(f"{solutions[-1].objective:.5f}" for solutions in found)])
    show(f"a second thread, {options.rows:,} × {Z.shape[1]}", columns, rows)


def main() -> None:
    """Print the tables."""
    options = arguments(__doc__, rows=50_000, seeds=1, repeats=3, threads=1, keep=320, l1=0.0, directions=6, only="")
    for table in (against_liblinear, threads, accuracy):
        if options.only in table.__name__:
            table(options)


if __name__ == "__main__":
    main()
