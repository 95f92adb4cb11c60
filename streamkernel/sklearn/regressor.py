"""The kernel regressor with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d

from streamkernel import learners, losses
from streamkernel.estimators import regressor
from streamkernel.estimators.documentation import documented
from streamkernel.features.rows import F64
from streamkernel.kernels import Kernel
from streamkernel.sklearn.online import ESTIMATOR, METHODS, OnlineEstimator
from streamkernel.upkeep import Pruning, Refit


@documented(ESTIMATOR, METHODS)
class KernelRegressor(RegressorMixin, OnlineEstimator):
    """A kernel machine for numbers, as a scikit-learn estimator.

    `fit` learns the rows in one pass and in bounded memory; `partial_fit` continues. With no arguments
    it needs no scaler, no imputer and no tuning.

    Parameters
    ----------
    loss : str or losses.Loss, default "square"
        As for :class:`streamkernel.KernelRegressor`, like all parameters except `shuffle` and `verbose`.
    tau : float or None, default None
        The quantile that ``loss="quantile"`` learns.

    Attributes
    ----------
    model_ : streamkernel.KernelRegressor
        The online model.
    n_features_in_
    feature_names_in_
    feature_importances_

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from streamkernel.sklearn import KernelRegressor
    >>> X, y = make_friedman1(2000, noise=1.0, random_state=0)
    >>> model = KernelRegressor(max_features=512).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.85)
    True
    """

    _online_class = regressor.KernelRegressor

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        loss: str | losses.Loss = "square",
        tau: float | None = None,
        learner: str | learners.Newton | learners.DSG = "newton",
        max_features: int | str | None = "auto",
        l2: float = 0.0,
        pruning: Pruning | None = None,
        refit: Refit | None = None,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
        shuffle: bool = True,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.loss = loss
        self.tau = tau
        self.learner = learner
        self.max_features = max_features
        self.l2 = l2
        self.pruning = pruning
        self.refit = refit
        self.cache_bytes = cache_bytes
        self.seed = seed
        self.shuffle = shuffle
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rows in one pass, with an untrained model."""
        X, targets, weights = self._checked(X, y, sample_weight, reset=True)
        self.model_ = self._new_model()
        self.model_.learn_many(*self._in_order(X, targets, weights), verbose=self.verbose)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn more rows in their order."""
        is_first = not hasattr(self, "model_")
        X, targets, weights = self._checked(X, y, sample_weight, reset=is_first)
        if is_first:
            self.model_ = self._new_model()
        self.model_.learn_many(X, targets, weights, verbose=self.verbose)
        return self

    def predict(self, X: Any) -> F64:
        """Return the prediction for each row, shape (n_samples,)."""
        X = self._fitted(X)
        return np.asarray(self.model_.predict_many(X), np.float64)

    def _checked(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, F64, F64 | None]:
        """Return checked rows, targets and weights."""
        X = self._read(X, y, reset=reset)
        targets = column_or_1d(y, warn=True).astype(np.float64)
        check_consistent_length(X, targets)
        assert_all_finite(targets, input_name="y")
        return X, targets, self._weights(sample_weight, X)
