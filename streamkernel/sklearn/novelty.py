"""The kernel novelty detector with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import OutlierMixin

from streamkernel import learners
from streamkernel.estimators import novelty
from streamkernel.estimators.documentation import documented
from streamkernel.estimators.internals import model_of
from streamkernel.estimators.tables import row_scores
from streamkernel.features.rows import F64
from streamkernel.kernels import Kernel
from streamkernel.sklearn.online import ESTIMATOR, METHODS, OnlineEstimator


@documented(ESTIMATOR, METHODS)
class KernelNoveltyDetector(OutlierMixin, OnlineEstimator):
    """A one-class support vector machine, as a scikit-learn outlier detector.

    `fit` learns the rows in one pass and in bounded memory; `partial_fit` continues. It corresponds to
    :class:`sklearn.svm.OneClassSVM`: the function f is `score_samples`, the threshold τ is `offset_`.

    Parameters
    ----------
    kernel : Kernel or None, default None
        One of :mod:`streamkernel.kernels`; by default a Gaussian of 0.4 times the median distance between the first 256
        rows.
    nu : float, default 0.5
        The fraction of the rows to find novel, strictly between 0 and 1.
    learner : "dsg" or learners.DSG or None, default None
        As for :class:`streamkernel.KernelNoveltyDetector`, like all parameters except `shuffle` and `verbose`.
    max_features : int or None, default 1024
        Cap on the number of random features.

    Attributes
    ----------
    model_ : streamkernel.KernelNoveltyDetector
        The online model.
    offset_ : float
        The threshold τ.
    n_features_in_
    feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from streamkernel.sklearn import KernelNoveltyDetector
    >>> angle = np.arange(1000.0)
    >>> detector = KernelNoveltyDetector(nu=0.1).fit(np.c_[np.cos(angle), np.sin(angle)])
    >>> detector.predict([[0.6, 0.8], [3.0, 0.0]]).tolist()
    [1, -1]
    """

    _online_class = novelty.KernelNoveltyDetector

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        nu: float = 0.5,
        learner: str | learners.DSG | None = None,
        max_features: int | None = 1024,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
        shuffle: bool = True,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.nu = nu
        self.learner = learner
        self.max_features = max_features
        self.cache_bytes = cache_bytes
        self.seed = seed
        self.shuffle = shuffle
        self.verbose = verbose

    @property
    def offset_(self) -> float:
        """The threshold τ."""
        return float(self.model_.threshold)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the rows in one pass, with an untrained model.

        Parameters
        ----------
        y : None, default None
            Not used.
        """
        X = self._read(X, reset=True)
        self.model_ = self._new_model()
        self.model_.learn_many(*self._in_order(X), verbose=self.verbose)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn more rows in their order.

        Parameters
        ----------
        y : None, default None
            Not used.
        """
        is_first = not hasattr(self, "model_")
        X = self._read(X, reset=is_first)
        if is_first:
            self.model_ = self._new_model()
        self.model_.learn_many(X, verbose=self.verbose)
        return self

    def score_samples(self, X: Any) -> F64:
        """Return f of each row, shape (n_samples,); larger values are more similar to the learned rows."""
        X = self._fitted(X)
        return row_scores(model_of(self.model_), X)[0][:, 0] + self.offset_

    def decision_function(self, X: Any) -> F64:
        """Return f - τ of each row, shape (n_samples,): negative for what is novel."""
        X = self._fitted(X)
        return row_scores(model_of(self.model_), X)[0][:, 0]

    def predict(self, X: Any) -> Any:
        """Return 1 for a row similar to the learned ones and -1 for a novel one, shape (n_samples,)."""
        return np.where(self.decision_function(X) < 0.0, -1, 1)
