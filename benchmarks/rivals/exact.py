"""Kernel machines that learn a part of the training rows at once and solve for the optimum.

Their parameters are the best on 2,000 of their training rows, which are held out for the choice; the time is that of
the last fit alone. Both have a Gaussian kernel; ridge regression has standardised inputs and targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.metrics import accuracy_score, r2_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

SVM_ROWS, RIDGE_ROWS, TUNED_ON, TUNED_BY = 20_000, 10_000, 4000, 2000
Fit = Callable[[np.ndarray, np.ndarray, Any], Callable[[np.ndarray], np.ndarray]]


def best(
    X: np.ndarray, y: np.ndarray, settings: Iterable[Any], fit: Fit, score: Callable[[np.ndarray, np.ndarray], float]
) -> Any:
    """Return the setting that scores best on the rows after the first."""
    rest = slice(TUNED_ON, TUNED_ON + TUNED_BY)
    return max(settings, key=lambda setting: score(y[rest], fit(X[:TUNED_ON], y[:TUNED_ON], setting)(X[rest])))


def svm(X: np.ndarray, y: np.ndarray) -> Callable[[], Callable[[np.ndarray], np.ndarray]]:
    """Return a function that fits the best of three settings of LIBSVM, and returns its predictor."""

    def fit(X: np.ndarray, y: np.ndarray, setting: tuple[float, float]) -> Callable[[np.ndarray], np.ndarray]:
        C, gamma = setting
        return SVC(C=C, gamma=gamma, cache_size=1000).fit(X, y).predict

    X, y = X[:SVM_ROWS], y[:SVM_ROWS]
    setting = best(X, y, [(1.0, 0.05), (2.0, 0.02), (10.0, 0.005)], fit, accuracy_score)
    return lambda: fit(X, y, setting)


def ridge(X: np.ndarray, y: np.ndarray) -> Callable[[], Callable[[np.ndarray], np.ndarray]]:
    """Return a function that solves kernel ridge regression by Cholesky, and returns its predictor."""
    X, y = X[:RIDGE_ROWS], y[:RIDGE_ROWS]
    mean, spread, middle, scale = X.mean(axis=0), X.std(axis=0), y.mean(), y.std()

    def fit(X: np.ndarray, y: np.ndarray, setting: tuple[float, float]) -> Callable[[np.ndarray], np.ndarray]:
        sigma, l2 = setting
        Z = (X - mean) / spread
        K = rbf_kernel(Z, gamma=0.5 / sigma**2)
        K.flat[:: len(K) + 1] += l2
        a = cho_solve(cho_factor(K, overwrite_a=True), (y - middle) / scale)
        return lambda new: middle + scale * (rbf_kernel((new - mean) / spread, Z, gamma=0.5 / sigma**2) @ a)

    width = X.shape[1] ** 0.5
    settings = [(sigma * width, l2) for sigma in (0.25, 0.5, 0.71, 1.0, 1.41) for l2 in (1e-3, 1e-2, 0.1, 1.0)]
    setting = best(X, y, settings, fit, r2_score)
    return lambda: fit(X, y, setting)


MACHINES = {
    "a9a": (f"LIBSVM, {SVM_ROWS:,} rows at once", SVM_ROWS, svm),
    "kin40k": (f"kernel ridge, {RIDGE_ROWS:,} rows at once", RIDGE_ROWS, ridge),
    "protein": (f"kernel ridge, {RIDGE_ROWS:,} rows at once", RIDGE_ROWS, ridge),
}
