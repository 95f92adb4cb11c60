"""The common part of both conformal wrappers: they score each prediction before the model learns the example."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from river import base

from streamkernel.conformal.rolling_scores import RollingScores, check_options
from streamkernel.estimators.weighting import as_weight

Prediction = TypeVar("Prediction")


class ConformalWrapper(base.Wrapper[Any]):
    """A River model with the scores of its recent predictions.

    Parameters
    ----------
    model
        The model.
    coverage
        The share of targets inside their intervals or sets, between 0 and 1.
    window
        The number of recent examples whose scores are kept.
    """

    _kind: type
    """The River class of models that can be wrapped."""

    def __init__(self, model: Any, coverage: float, window: int) -> None:
        check_options(coverage, window)
        if not isinstance(model, self._kind):
            got = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
            raise ValueError(f"Expected a River {self._kind.__name__.lower()} of one target as model, got {got}")
        self.model: Any = model
        self.coverage = coverage
        self.window = window
        self._scores = RollingScores(coverage, window)

    @property
    def _wrapped_model(self) -> Any:
        return self.model

    def _with_threshold(self, predict: Callable[[Any], Prediction], x: Any) -> tuple[Prediction, float]:
        """Return a prediction, and the threshold after the same examples."""
        while True:
            scores = self._scores
            found = predict(x)
            if self._scores is scores:  # else another thread has learned an example
                return found, scores.threshold()

    def _score(self, x: Mapping[Hashable, Any], y: Any) -> float:
        """Return the distance of a target from the prediction."""
        raise NotImplementedError

    def learn_one(self, x: Mapping[Hashable, Any], y: Any, w: float = 1.0, **others: Any) -> None:
        """Score the prediction for one example, and let the model learn it.

        Parameters
        ----------
        x : dict
            The features by name.
        y : float or label
            The target.
        w : float, default 1.0
            The weight that the model learns it with. Coverage counts each example once, and one of weight 0 not at all.
        **others
            Further arguments of the model.

        Raises
        ------
        InputError
            If the target or the weight is unusable; nothing has changed then. Errors of the model are passed on.
        """
        w = as_weight(w)
        if w == 0.0:
            return
        score = self._score(x, y)
        self.model.learn_one(x, y, **(others if w == 1.0 else {"w": w, **others}))
        self._scores = self._scores.after(score)
