"""DSPDC as a scikit-learn estimator."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from streamkernel.documentation import SOLVED, documented
from streamkernel.errors import InputError
from streamkernel.solvers.progress import progress
from streamkernel.solvers.saddle_point import Factorised, Method, Solution, minimise
from streamkernel.solvers.saddle_problem import F64, LOSSES

_NO_EPOCHS = 1e-12


@documented("", SOLVED)
class DSPDC(BaseEstimator):
    """A linear model with an L2 and an optional L1 penalty, to a certified distance from the optimum.

    It minimises

        P(w, c) = (1/n) Σᵢ φᵢ(wᵀxᵢ + c) + (l2/2)‖w‖² + l1‖w‖₁

    by the doubly stochastic primal-dual coordinate method, and reports P and the primal-dual gap: the minimum of P is
    at least ``objective_`` - ``gap_``. The intercept is not penalised. With the square loss it is a regressor,
    otherwise a classifier; more than two classes are learned one against the rest.

    Parameters
    ----------
    loss : {"square", "logistic", "smooth_hinge"}, default "square"
        ``"square"``, ½(f - y)²; ``"logistic"``, log(1 + exp(-yf)); or ``"smooth_hinge"``, 0 where yf ≥ 1, ½ - yf where
        yf ≤ 0, and ½(1 - yf)² between.
    l2 : float, default 0.001
        The weight of ½‖w‖², greater than 0. scikit-learn's parameters are ``C = 1/(n l2)``, and for an elastic net
        ``alpha = l1 + l2`` and ``l1_ratio = l1/(l1 + l2)``.
    l1 : float, default 0.0
        The weight of ‖w‖₁.
    tol : float, default 1e-06
        The gap at which the solver stops, as a fraction of the loss at w = 0: log 2, ½, or half the mean square of y,
        which is half its variance if there is an intercept.
    fit_intercept : bool, default True
        Whether to fit the intercept c.
    method : {"auto", "formed", "factorised"}, default "auto"
        Whether to form the product of an X that is :class:`Factorised`.
    m : int or None, default None
        The number of examples in a step; by default the one with the lowest cost in theory.
    q : int or None, default None
        The number of coefficients in a step; by default the one with the lowest cost in theory.
    max_epochs : float, default 1000.0
        The maximum number of passes over the examples or the coefficients.
    seed : int, default 0
        The seed of the random blocks.
    verbose : bool, default False
        Whether to show a progress line on standard error. Ctrl-C ends the fit with the best result so far.

    Attributes
    ----------
    coef_ : ndarray of shape (p,), (1, p) or (n_classes, p)
        The coefficients: of a regressor, of two classes, or of more.
    intercept_ : float or ndarray of shape (1,) or (n_classes,)
        The intercept.
    objective_, gap_ : float
        P and the primal-dual gap; with more than two classes, their sums over the classes.
    n_iter_ : int
        The number of steps, the maximum over the classes.
    method_ : str
        A description of the method in use.
    classes_ : ndarray of shape (n_classes,)
        The classes, for a classifier.
    n_features_in_ : int
        The number of inputs p.
    feature_names_in_ : ndarray of shape (p,)
        The names of the inputs, if X is a data frame.

    Raises
    ------
    InputError
        If a parameter or a factorised X is invalid.

    References
    ----------
    Yu, Lin and Yang, "Doubly Stochastic Primal-Dual Coordinate Method for Bilinear Saddle-Point Problem", Algorithms 1
    and 2.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = DSPDC("logistic", l2=1e-3, l1=1e-2).fit(scale(X), y)
    >>> round(model.score(scale(X), y), 3), int((model.coef_ != 0).sum())
    (0.977, 12)
    >>> model.gap_ < 1e-6
    True
    """

    def __init__(
        self,
        loss: str = "square",
        *,
        l2: float = 1e-3,
        l1: float = 0.0,
        tol: float = 1e-6,
        fit_intercept: bool = True,
        method: Method = "auto",
        m: int | None = None,
        q: int | None = None,
        max_epochs: float = 1000.0,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.loss = loss
        self.l2 = l2
        self.l1 = l1
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.method = method
        self.m = m
        self.q = q
        self.max_epochs = max_epochs
        self.seed = seed
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        """Return the kind of estimator: a regressor for the square loss, otherwise a classifier."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        if self.loss == "square":
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags

    def fit(self, X: Any, y: npt.ArrayLike) -> DSPDC:
        """Fit the coefficients.

        Parameters
        ----------
        X : array_like, sparse matrix or Factorised of shape (n, p)
            The inputs.
        y : array_like of shape (n,)
            The targets: numbers for the square loss, otherwise two or more classes.
        """
        X, targets = self._check_input(X, y)
        solutions: list[Solution] = []
        with progress("Fitting", show=self.verbose) as tell:
            for i, b in enumerate(targets):

                def part(done: float, text: str, i: int = i) -> None:
                    tell((i + done) / len(targets), text)

                ended = bool(solutions and solutions[-1].interrupted)
                solutions.append(
                    minimise(
                        X,
                        b,
                        self.loss,
                        l2=self.l2,
                        l1=self.l1,
                        tol=self._tol(b),
                        intercept=self.fit_intercept,
                        method=self.method,
                        m=self.m,
                        q=self.q,
                        max_epochs=_NO_EPOCHS if ended else self.max_epochs,
                        seed=self.seed,
                        tell=part,
                    )
                )
        if len(solutions) < len(targets):
            raise KeyboardInterrupt
        flat = self.loss == "square"
        self.coef_ = solutions[0].coef if flat else np.stack([one.coef for one in solutions])
        self.intercept_ = solutions[0].intercept if flat else np.array([one.intercept for one in solutions])
        self.objective_, self.gap_ = sum(one.objective for one in solutions), sum(one.gap for one in solutions)
        self.n_iter_, self.method_ = max(one.n_iterations for one in solutions), solutions[0].method
        late = [one.gap for one, b in zip(solutions, targets, strict=True) if one.gap > self._tol(b)]
        if late:
            warnings.warn(
                f"DSPDC ended at a gap of {max(late):.1e}, above tol: a larger max_epochs or l2, or inputs on one "
                "scale, would help",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the number, or the most likely class, of each row of X."""
        f = self._scores(X)
        if self.loss == "square":
            return f
        return np.asarray(self.classes_[(f > 0.0).astype(int) if f.ndim == 1 else f.argmax(axis=1)])

    @available_if(lambda self: self.loss != "square")
    def decision_function(self, X: Any) -> F64:
        """Return f, shape (n,), or with more than two classes (n, classes)."""
        return self._scores(X)

    @available_if(lambda self: self.loss == "logistic")
    def predict_proba(self, X: Any) -> F64:
        """Return the probability of each class, shape (n, classes); more than two are scaled to a sum of 1."""
        up = expit(self._scores(X))
        if up.ndim == 1:
            return np.column_stack([1.0 - up, up])
        return np.asarray(up / up.sum(axis=1, keepdims=True))

    def score(self, X: Any, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return R², or the accuracy of a classifier."""
        measure = r2_score if self.loss == "square" else accuracy_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    def _check_input(self, X: Any, y: npt.ArrayLike) -> tuple[Any, list[F64]]:
        """Return X, and the targets of each problem."""
        if self.loss not in LOSSES:
            raise InputError(f"Expected loss to be one of {', '.join(LOSSES)}, got {self.loss!r}")
        square = self.loss == "square"
        if isinstance(X, Factorised):
            y = column_or_1d(y, warn=True)
            self.n_features_in_ = int(np.shape(X.V)[-1])
        else:
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=square)
        if square:
            return X, [np.asarray(y, np.float64)]
        check_classification_targets(y)
        self.classes_, places = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"Expected at least two classes in y, got one class: {self.classes_[0]!r}")
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return X, [np.where(places == k, 1.0, -1.0) for k in positive]

    def _tol(self, b: F64) -> float:
        """Return the gap at which to stop; float64 cannot represent one below the second value."""
        first = {"logistic": math.log(2.0), "smooth_hinge": 0.5}.get(self.loss, 0.0)
        if self.loss == "square":
            first = 0.5 * float(np.mean((b - (b.mean() if self.fit_intercept else 0.0)) ** 2))
        return max(self.tol * first, float(np.finfo(float).eps * np.mean(b**2)))

    def _scores(self, X: Any) -> F64:
        check_is_fitted(self)
        if isinstance(X, Factorised):
            f = safe_sparse_dot(X.U, safe_sparse_dot(X.V, self.coef_.T))
        else:
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
            f = safe_sparse_dot(X, self.coef_.T)
        f = np.asarray(f) + self.intercept_
        return f[:, 0] if f.ndim == 2 and f.shape[1] == 1 else f
