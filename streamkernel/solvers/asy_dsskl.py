"""AsyDSSKL as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from streamkernel.documentation import SOLVED, documented
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64
from streamkernel.kernels import Gaussian, Kernel, bandwidth
from streamkernel.kernels.program import KernelProgram
from streamkernel.losses import Correntropy, Logistic, Loss, Sigmoid, SmoothHinge, Square
from streamkernel.solvers.progress import progress
from streamkernel.solvers.rounds import ChosenFeatures, RoundOptions, Sparse, learn_in_rounds

_NORMAL = 1.4826
"""The ratio of a normal distribution's standard deviation to its median absolute deviation."""


class Standard(NamedTuple):
    """An offset that is subtracted from numbers, and the unit by which they are divided."""

    center: Any = 0.0
    unit: Any = 1.0

    @classmethod
    def of(cls, values: F64, *, robust: bool = False) -> Standard:
        """Return the scale of mean and deviation, or of median and its deviation; the unit is 1 for a constant."""
        center = np.median(values, axis=0) if robust else values.mean(axis=0)
        unit = _NORMAL * np.median(np.abs(values - center), axis=0) if robust else values.std(axis=0)
        return cls(center, np.where(unit > 1e-12 * np.maximum(np.abs(center), 1e-300), unit, 1.0))

    def __call__(self, values: F64) -> F64:
        """Return the scaled numbers."""
        return np.asarray((values - self.center) / self.unit)


LOSSES: dict[str, Loss] = {
    "logistic": Logistic(),
    "smooth_hinge": SmoothHinge(),
    "sigmoid": Sigmoid(),
    "square": Square(),
    "correntropy": Correntropy(2.0),
}


@documented("", SOLVED)
class AsyDSSKL(BaseEstimator):
    """Sparse kernel learning on random features, which are drawn in rounds and dropped if their coefficients are 0.

    min_w (1/n) Σ ℓ(w·z(x_i) + b, y_i) + l1 Σ_h √size_h ‖w(h)‖ over the candidates h, where w(h) are the coefficients
    of the outputs of one feature, a cosine and a sine, for all classes. At the end the remaining features are fitted
    without the penalty. More than two classes are learned by softmax, or one against the rest. A prediction evaluates
    only the remaining features.

    Parameters
    ----------
    kernel : Kernel or None, default None
        The kernel, with the features of online models with the same seed. The default is a Gaussian of the median
        distance of 256 rows, on inputs scaled to mean 0 and deviation 1. A given kernel reads unscaled inputs.
    loss : str or Loss, default "logistic"
        ``"logistic"``, ``"smooth_hinge"`` or ``"sigmoid"`` for classes; ``"square"`` or ``"correntropy"`` for numbers,
        which are scaled to mean 0 and deviation 1 (for correntropy to the median and its deviation, with σ = 2); or a
        loss of `streamkernel.losses`, whose σ is in units of the target.
    rounds : int, default 5
        The number of rounds of candidates.
    features_per_round : int, default 256
        The number of random features that each round adds.
    max_features : int or None, default None
        The largest number of features after a round: of those with non-zero coefficients, the least important one is
        dropped repeatedly. This costs less accuracy than a penalty that leaves as few features.
    l1 : float or None, default None
        The penalty, for the target scaled as above. By default five fractions of the largest useful penalty are tried
        on a held-out tenth, and the highest within one standard error of the best is chosen; with `max_features` the
        best.
    refit : bool, default True
        Whether to fit the remaining features without the penalty, with the best of five ridge penalties on the
        held-out tenth.
    threads : int, default 1
        The number of threads. One thread gives the same bits at every run, several do not.
    max_epochs : int, default 200
        The maximum number of passes over the rows in a round.
    tol : float, default 0.1
        The violation of the optimality conditions, in units of the penalty, at which a round ends. The objective is
        much closer to its minimum.
    seed : int, default 0
        The seed of the features and of all random choices.
    verbose : bool, default False
        Whether to show a progress line on standard error. Ctrl-C ends a fit with the best result so far.

    Attributes
    ----------
    coef_ : array of shape (columns, outputs)
        Coefficients of the outputs of the remaining features: one column for two classes and for numbers.
    intercept_ : array of shape (columns,)
        The intercepts.
    features_ : array of shape (features, 2)
        The block of 64 features, and the index in it, of each remaining feature.
    kernel_ : Kernel
        The kernel in use.
    classes_ : array of shape (classes,)
        The classes, if the loss is for classes.
    l1_, objective_, violation_ : float
        The penalty; the objective and the violation of the optimality conditions in the last round, before features
        are dropped for `max_features`.
    n_iter_ : int
        The number of passes over the rows in all rounds.

    Raises
    ------
    ValueError
        If a parameter or the data is invalid.

    References
    ----------
    Gu, Miao, Huo and Huang, "Asynchronous Doubly Stochastic Sparse Kernel Learning", AAAI 2018, Algorithms 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = AsyDSSKL(rounds=2).fit(X, y)
    >>> model.score(X, y) > 0.97, len(model.features_) < 256
    (True, True)
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        loss: str | Loss = "logistic",
        *,
        rounds: int = 5,
        features_per_round: int = 256,
        max_features: int | None = None,
        l1: float | None = None,
        refit: bool = True,
        threads: int = 1,
        max_epochs: int = 200,
        tol: float = 0.1,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.loss = loss
        self.rounds = rounds
        self.features_per_round = features_per_round
        self.max_features = max_features
        self.l1 = l1
        self.refit = refit
        self.threads = threads
        self.max_epochs = max_epochs
        self.tol = tol
        self.seed = seed
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> AsyDSSKL:
        """Fit the model."""
        loss, options = self._loss(), self._options()
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=not loss.for_classes)
        loss, targets, columns = self._encode_targets(loss, column_or_1d(y, warn=True))
        self._scale = Standard.of(X) if self.kernel is None else Standard()
        inputs = self._scale(X)
        names = [str(name) for name in getattr(self, "feature_names_in_", range(X.shape[1]))]
        plan = self._plan(inputs, names)
        solution: Sparse | None = None
        with progress("AsyDSSKL", show=self.verbose) as tell:
            features = lambda places: ChosenFeatures(plan, names, places)(inputs)  # noqa: E731
            for model in learn_in_rounds(features, targets, loss, columns, plan.outputs, options, tell):
                solution = model
        if solution is None:
            raise KeyboardInterrupt
        self.kernel_, self._features = plan.kernel, None
        if len(solution.places):
            self._features = ChosenFeatures(plan, names, solution.places)
        self.features_, self.coef_, self.intercept_ = solution.places, solution.coef[:-1].T, solution.coef[-1]
        self.l1_, self.objective_, self.violation_, self.n_iter_ = solution[2:]
        if self.max_features is None and not self.violation_ <= self.tol:
            text = f"Stopped with a violation of {self.violation_:.2g} after {self.n_iter_} passes, not {self.tol:g}"
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        return self

    @available_if(lambda self: self._loss().for_classes)
    def decision_function(self, X: Any) -> F64:
        """Return f at each row: shape (rows,) for two classes, (rows, classes) for more."""
        return self._scores(X)

    def _scores(self, X: Any) -> F64:
        """Return f at each row, as a vector if there is one column."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = np.tile(self.intercept_, (len(X), 1))
        if self._features is not None:
            scores += self._features(self._scale(X)) @ self.coef_.T
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Any:
        """Return the class, or the number, of each row."""
        scores = self._scores(X)
        if not self._loss().for_classes:
            return self._target.center + self._target.unit * scores
        return self.classes_[scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0.0).astype(int)]

    @available_if(lambda self: isinstance(self._loss(), Logistic))
    def predict_proba(self, X: Any) -> F64:
        """Return the probability of each class, shape (rows, classes), of the logistic loss."""
        scores = self._scores(X)
        if scores.ndim == 1:
            scores = np.stack([np.zeros(len(scores)), scores], axis=1)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy for classes, and R² for numbers."""
        measure = accuracy_score if self._loss().for_classes else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        """Return the kind of estimator, a classifier or a regressor, which depends on the loss."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self._loss().for_classes:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    def _loss(self) -> Loss:
        """Return the loss for the parameter `loss`."""
        kinds: tuple[type[Loss], ...] = tuple(type(loss) for loss in LOSSES.values())
        loss = self.loss if isinstance(self.loss, kinds) else LOSSES.get(str(self.loss))
        if loss is None:
            raise ValueError(f"Expected a loss of {', '.join(LOSSES)}, got {self.loss!r}")
        return loss

    def _options(self) -> RoundOptions:
        """Return the parameters of the rounds."""
        for name in ("rounds", "features_per_round", "max_features", "threads", "max_epochs"):
            whole = getattr(self, name)
            if name == "max_features" and whole is None:
                continue
            if not isinstance(whole, (int, np.integer)) or whole < 1:
                raise ValueError(f"Expected {name} as an integer of 1 or more, got {whole!r}")
        return RoundOptions(**{name: getattr(self, name) for name in RoundOptions._fields})

    def _encode_targets(self, loss: Loss, y: Any) -> tuple[Loss, F64, int]:
        """Return the loss, the encoded targets and the number of columns."""
        if loss.for_classes:
            check_classification_targets(y)
            self.classes_, codes = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise ValueError(f"Expected y of at least two classes, got one class, {self.classes_[0]!r}")
            return loss, codes.astype(np.float64), 1 if len(self.classes_) == 2 else len(self.classes_)
        self._target = Standard.of(y, robust=isinstance(loss, Correntropy))
        if isinstance(self.loss, Correntropy):
            loss = Correntropy(self.loss.sigma / float(self._target.unit))
        return loss, self._target(y), 1

    def _plan(self, inputs: F64, names: list[str]) -> KernelProgram:
        """Return the kernel's parts, with medians taken from some of the rows."""
        kernel = Gaussian("median") if self.kernel is None else self.kernel
        plan = KernelProgram(kernel, self.seed)
        if not kernel.is_pending:
            return plan
        some = np.random.default_rng(self.seed).permutation(len(inputs))[: bandwidth.FIRST]
        rows = Directions(plan, block_size=1, cache_bytes=0).rows(names, inputs[some])
        return KernelProgram(bandwidth.with_medians(kernel, plan, rows), self.seed)
