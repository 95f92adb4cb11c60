"""The kernel classifier, regressor and novelty detector with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, OutlierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from streamkernel import learners, losses
from streamkernel.documentation import documented
from streamkernel.estimators import classifier, densities, regressor
from streamkernel.estimators.base import class_probabilities, class_scores, row_scores
from streamkernel.estimators.internals import model_of
from streamkernel.estimators.targets import ClassWeight
from streamkernel.features.rows import F64
from streamkernel.kernels import Kernel
from streamkernel.sklearn.online import ESTIMATOR, METHODS, OnlineEstimator
from streamkernel.upkeep import Pruning, Refit


def _has_probabilities(model: KernelClassifier) -> bool:
    return isinstance(losses.resolve_loss(model.loss, True), (losses.Logistic, losses.Softmax))


@documented()
@documented(ESTIMATOR, METHODS)
class KernelClassifier(ClassifierMixin, OnlineEstimator):
    """A kernel machine for two or more classes, as a scikit-learn estimator.

    `fit` learns the rows in one pass and in bounded memory; `partial_fit` continues. With no arguments
    it needs no scaler, no imputer and no tuning.

    Parameters
    ----------
    loss : str or losses.Loss, default "logistic"
        As for :class:`streamkernel.KernelClassifier`, like all parameters except `shuffle` and `verbose`.
        With ``"logistic"`` and ``"softmax"`` there is `predict_proba`.
    class_weight : dict or "balanced" or None, default None
        Weights by class; ``"balanced"`` weighs by the examples of each class so far, in the order of the rows.
    max_classes : int, default 100
        Maximum number of classes.

    Attributes
    ----------
    model_ : streamkernel.KernelClassifier
        The online model.
    classes_ : ndarray of shape (n_classes,)
        The classes.
    n_features_in_
    feature_names_in_
    feature_importances_

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.model_selection import cross_val_score
    >>> from streamkernel.sklearn import KernelClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> bool(cross_val_score(KernelClassifier(max_features=512), X, y, cv=3).mean() > 0.95)
    True
    """

    _online_class = classifier.KernelClassifier

    classes_: Any

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        loss: str | losses.Loss = "logistic",
        learner: str | learners.Newton | learners.DSG = "newton",
        max_features: int | str | None = "auto",
        l2: float = 0.0,
        class_weight: ClassWeight = None,
        pruning: Pruning | None = None,
        refit: Refit | None = None,
        cache_bytes: int = 1 << 26,
        seed: int = 0,
        max_classes: int = 100,
        shuffle: bool = True,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rows in one pass, with an untrained model.

        Parameters
        ----------
        y : array_like of shape (n_samples,)
            The classes.

        Raises
        ------
        ValueError
            If there are less than two classes, or something has another shape or value than described.
        """
        X = self._read(X, y, reset=True)
        labels, weights = self._labels(y, X), self._weights(sample_weight, X)
        classes = np.unique(labels if weights is None else labels[weights > 0.0])
        if len(classes) < 2:
            raise ValueError(f"Expected at least two classes in y, got one class: {classes.tolist()}")
        return self._learn_new(X, labels, weights, classes_=classes)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn more rows in their order.

        Parameters
        ----------
        y : array_like of shape (n_samples,)
            The classes.
        classes : array_like of shape (n_classes,) or None, default None
            All classes that will ever come; the first call needs them.

        Raises
        ------
        ValueError
            If the classes are not given in the first call, or others in a later one, or `y` has one that is not among
            them. Nothing is learned then.
        """
        is_first = self._is_new
        announced: Any = None if classes is None else np.unique(column_or_1d(classes))
        if is_first and announced is None:
            raise ValueError("Expected classes, those of all later calls, in the first call of partial_fit")
        if announced is not None and len(announced) < 2:
            raise ValueError(f"Expected at least two classes in classes, got one class: {announced.tolist()}")
        if not is_first and announced is not None and not np.array_equal(announced, self.classes_):
            raise ValueError(f"Expected classes={self.classes_.tolist()} as before, got {announced.tolist()}")
        all_classes = announced if is_first else self.classes_
        X = self._read(X, y, reset=is_first)
        labels, weights = self._labels(y, X), self._weights(sample_weight, X)
        others = np.setdiff1d(labels, all_classes)
        if len(others):
            raise ValueError(f"Expected y with the classes {all_classes.tolist()}, got {others.tolist()} too")
        return self._learn_more(X, labels, weights, classes_=all_classes)

    def predict(self, X: Any) -> Any:
        """Return the class of each row, shape (n_samples,)."""
        X = self._fitted(X)
        return np.asarray(self.model_.predict_many(X)).astype(self.classes_.dtype)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> F64:
        """Return the probability of each class, in the order of `classes_`, shape (n_samples, n_classes)."""
        X = self._fitted(X)
        return class_probabilities(model_of(self.model_), X, self.classes_.tolist())

    def decision_function(self, X: Any) -> F64:
        """Return the score of the second of two classes, shape (n_samples,), or the scores of all if there are more.

        These have the shape (n_samples, n_classes). A class of which no row has been learned has a score of 1 less than
        the lowest.
        """
        X = self._fitted(X)
        return class_scores(model_of(self.model_), X, self.classes_.tolist())

    def _labels(self, y: Any, X: Any) -> Any:
        """Return the classes of rows as an array."""
        labels = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        return labels


@documented()
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
        self._keep(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the rows in one pass, with an untrained model."""
        return self._learn_new(*self._checked(X, y, sample_weight, reset=True))

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn more rows in their order."""
        return self._learn_more(*self._checked(X, y, sample_weight, reset=self._is_new))

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


@documented()
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

    _online_class = densities.KernelNoveltyDetector

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
        self._keep(locals())

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
        return self._learn_new(self._read(X, reset=True))

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn more rows in their order.

        Parameters
        ----------
        y : None, default None
            Not used.
        """
        return self._learn_more(self._read(X, reset=self._is_new))

    def score_samples(self, X: Any) -> F64:
        """Return f of each row, shape (n_samples,); larger values are more similar to the learned rows."""
        return self.decision_function(X) + self.offset_

    def decision_function(self, X: Any) -> F64:
        """Return f - τ of each row, shape (n_samples,): negative for what is novel."""
        X = self._fitted(X)
        return row_scores(model_of(self.model_), X)[0][:, 0]

    def predict(self, X: Any) -> Any:
        """Return 1 for a row similar to the learned ones and -1 for a novel one, shape (n_samples,)."""
        return np.where(self.decision_function(X) < 0.0, -1, 1)
