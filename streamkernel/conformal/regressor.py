"""A regressor with intervals around its predictions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from river import base

from streamkernel.conformal.error_scale import ErrorScale, takes_first_order_steps
from streamkernel.conformal.rolling_scores import CONFORMAL, ConformalWrapper
from streamkernel.documentation import documented
from streamkernel.estimators.targets import as_target


class Interval(NamedTuple):
    """A closed interval from `lower` to `upper`."""

    lower: float
    upper: float

    @property
    def width(self) -> float:
        """The width; ∞ for an unbounded interval."""
        return self.upper - self.lower

    def __contains__(self, y: object) -> bool:
        return self.lower <= y <= self.upper  # type: ignore[operator]


@documented(CONFORMAL, {})
class ConformalRegressor(ConformalWrapper, base.Regressor):
    """Intervals around a regressor's predictions that hold a share of the targets, also where the stream drifts.

    The interval is the prediction ± qρ(x). ρ(x) is the expected absolute error over the mean of recent ones, which a
    kernel regressor learns as a function of the features, so that intervals are wide where errors are large. q is a
    quantile of recent errors, each divided by its ρ(x); both were made before the example was learned. The quantile's
    level adapts: intervals grow after a miss and shrink after a hit, by a step size that is chosen among eight from
    recent examples (DtACI). So the requested share is reached in the long run without any assumption about the stream.

    Parameters
    ----------
    model : river.base.Regressor
        A River regressor, or a pipeline that ends in one. It may also be the last step of a pipeline itself.

    Examples
    --------
    >>> from river import stats
    >>> from river.datasets import synth
    >>> from streamkernel import ConformalRegressor, KernelRegressor

    >>> model, inside = ConformalRegressor(KernelRegressor(), coverage=0.9), stats.Mean()
    >>> for x, y in synth.Friedman(seed=1).take(2000):
    ...     inside.update(y in model.predict_interval_one(x))
    ...     model.learn_one(x, y)
    >>> round(inside.get(), 2)
    0.9
    >>> model.predict_interval_one(x)
    Interval(lower=..., upper=...)
    """

    _kind = base.Regressor
    _scale: ErrorScale | None = None
    """``None`` in a model from a file from before there was a scale."""

    def __init__(self, model: base.Regressor, coverage: float = 0.9, window: int = 250) -> None:
        super().__init__(model, coverage, window)
        self._scale = ErrorScale(first_order=takes_first_order_steps(model))

    def predict_interval_one(self, x: Mapping[Hashable, Any]) -> Interval:
        """Return the interval for one example, around the model's prediction.

        It is (-∞, ∞) before the first 1/(1 - coverage) examples. Its width is 0 if far more than the share `coverage`
        of targets were inside.

        Parameters
        ----------
        x : dict
            The features by name, as for the model.
        """
        scale = self._scale
        (prediction, ratio), threshold = self._with_threshold(
            lambda x: (self.model.predict_one(x), 1.0 if scale is None else scale.at(x)), x
        )
        return interval_around(prediction, ratio * threshold)

    def _distance(self, x: Mapping[Hashable, Any], y: Any) -> float:
        return absolute_error(as_target(y), self.model.predict_one(x))

    def _score(self, x: Mapping[Hashable, Any], distance: float) -> float:
        if self._scale is None:
            self._scale = ErrorScale(first_order=takes_first_order_steps(self.model))
        return self._scale.learn(x, distance)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model, preprocessing

        yield {"model": preprocessing.StandardScaler() | linear_model.LinearRegression()}


def absolute_error(y: float, prediction: float) -> float:
    """Return the absolute error of a prediction; ∞ if the prediction is not finite."""
    error = float(abs(y - prediction))
    return error if math.isfinite(error) else math.inf


def interval_around(prediction: float, threshold: float) -> Interval:
    """Return the interval of the numbers within a threshold of a prediction."""
    if not (math.isfinite(prediction) and threshold < math.inf):
        return Interval(-math.inf, math.inf)
    reach = max(0.0, threshold)
    return Interval(prediction - reach, prediction + reach)
