"""The size of errors as a function of the features, in proportion to which intervals are wide."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from streamkernel import learners
from streamkernel.errors import InputError
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.internals import last_step, prediction_copy
from streamkernel.estimators.regressor import KernelRegressor

FEATURES = 64
"""Random features of a new second-order model; it grows as others do."""

SPAN = 1000
"""Recent errors whose mean is the unit of errors."""

LEAST = 0.1
"""An error counts as at least this part of the mean, so that errors of 0 do not end in intervals of width 0."""

MOST = 4.0
"""The largest step of log ρ, so that a single outlier widens few intervals."""

RANGE = 3.0
"""The largest absolute value of log ρ."""


class ErrorScale:
    """The expected absolute error over the mean error, ρ(x): a Gamma regression with a logarithmic link.

    For ρ = exp(f(x)) and the mean m of recent errors, the negative log-likelihood of an error e is log ρ + e/mρ. Its
    gradient in f is 1 - e/mρ, and its Fisher information is 1, so that a step of iteratively reweighted least squares
    has the target f + e/mρ - 1. A regressor f learns these targets. ρ is 1 for features that the regressor refuses.

    A score is e/ρ(x), which has the unit of the errors: if all errors grow, only the threshold follows. f takes
    second-order steps, or with `first_order` shorter ones, beside a model whose steps are as short.

    References
    ----------
    McCullagh and Nelder, "Generalized linear models", 1989, sections 2.5 and 8.
    Papadopoulos, Gammerman and Vovk, "Normalized nonconformity measures for regression conformal prediction", 2008.

    Examples
    --------
    >>> scale = ErrorScale()
    >>> for i in range(400):
    ...     score = scale.learn({"hour": i % 2}, error=9.0 if i % 2 else 1.0)
    >>> round(scale.at({"hour": 1}), 1), round(scale.at({"hour": 0}), 1), round(score)
    (1.8, 0.2, 5)
    """

    def __init__(self, *, first_order: bool = False) -> None:
        self.n, self.mean = 0, 0.0
        self.log_ratio = KernelRegressor(learner="dsg") if first_order else KernelRegressor(max_features=FEATURES)

    def at(self, x: Mapping[Any, Any]) -> float:
        """Return ρ(x)."""
        try:
            logarithm = float(self.log_ratio.predict_one(x))
        except (InputError, TypeError):  # the model may read other features, and others than dictionaries
            return 1.0
        return math.exp(min(max(logarithm, -RANGE), RANGE))

    def learn(self, x: Mapping[Any, Any], error: float) -> float:
        """Return the score e/ρ(x) of an absolute error, and learn the error if it is finite."""
        if not math.isfinite(error):
            return error
        self.n += 1
        self.mean += (error - self.mean) / min(self.n, SPAN)
        ratio = self.at(x)
        if self.mean > 0.0:
            excess = max(error / self.mean, LEAST) / ratio - 1.0
            with suppress(InputError, TypeError):
                self.log_ratio.learn_one(x, math.log(ratio) + min(excess, MOST))
        return error / ratio

    def to_predict(self) -> ErrorScale:
        """Return a copy that does not learn, which any number of threads may ask."""
        twin = copy.copy(self)
        twin.log_ratio = prediction_copy(self.log_ratio)
        return twin


def takes_first_order_steps(model: Any) -> bool:
    """Return whether a model, or the last step of a pipeline, is a kernel model with first-order steps.

    Examples
    --------
    >>> takes_first_order_steps(KernelRegressor(learner="dsg")), takes_first_order_steps(KernelRegressor())
    (True, False)
    """
    last = last_step(model)
    return isinstance(last, KernelModel) and isinstance(last.learner_, learners.DSG)
