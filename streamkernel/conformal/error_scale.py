"""The size of errors as a function of the features, in proportion to which intervals are wide."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from streamkernel.errors import InputError
from streamkernel.estimators.internals import prediction_copy
from streamkernel.estimators.regressor import KernelRegressor

FEATURES = 64
"""Random features of a new model; it grows as others do."""

MOST = 4.0
"""The largest step of log σ, so that a single outlier widens few intervals."""


class ErrorScale:
    """The expected absolute error σ(x) of a prediction: a Gamma regression with a logarithmic link.

    For σ = σ₀ exp(f(x)), the negative log-likelihood of an error e is log σ + e/σ. Its gradient in f is 1 - e/σ, and
    its Fisher information is 1, so that a step of iteratively reweighted least squares has the target f + e/σ - 1. A
    regressor learns f from these targets; σ₀ is the first error. σ is σ₀ for features that the regressor refuses.

    References
    ----------
    McCullagh and Nelder, "Generalized linear models", 1989, sections 2.5 and 8.
    Papadopoulos, Gammerman and Vovk, "Normalized nonconformity measures for regression conformal prediction", 2008.

    Examples
    --------
    >>> scale = ErrorScale()
    >>> for i in range(400):
    ...     score = scale.learn({"hour": i % 2}, error=9.0 if i % 2 else 1.0)
    >>> round(scale.at({"hour": 1})), round(scale.at({"hour": 0})), round(score)
    (9, 1, 1)
    """

    def __init__(self) -> None:
        self.log_first: float | None = None
        self.log_ratio = KernelRegressor(max_features=FEATURES)

    def at(self, x: Mapping[Any, Any]) -> float:
        """Return σ(x); 1 before the first error that is not 0."""
        if self.log_first is None:
            return 1.0
        return _exp(self.log_first + self._log_ratio_at(x))

    def learn(self, x: Mapping[Any, Any], error: float) -> float:
        """Return the score e/σ(x) of an absolute error, and learn the error if it is finite."""
        if not math.isfinite(error):
            return error
        if self.log_first is None:
            self.log_first = math.log(error) if error > 0.0 else None
            return float(error > 0.0)
        before = self._log_ratio_at(x)
        score = error / _exp(self.log_first + before)
        with suppress(InputError):
            self.log_ratio.learn_one(x, before + min(score - 1.0, MOST))
        return score

    def to_predict(self) -> ErrorScale:
        """Return a copy that does not learn, which any number of threads may ask."""
        twin = copy.copy(self)
        twin.log_ratio = prediction_copy(self.log_ratio)
        return twin

    def _log_ratio_at(self, x: Mapping[Any, Any]) -> float:
        """Return f(x)."""
        try:
            return float(self.log_ratio.predict_one(x))
        except InputError:
            return 0.0


def _exp(logarithm: float) -> float:
    """Return a finite positive number."""
    return math.exp(min(max(logarithm, -700.0), 700.0))
