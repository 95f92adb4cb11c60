"""The threshold of a conformal set, a quantile of recent scores at an adaptive level, and the models that it wraps."""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Self, TypeVar

import numpy as np
from river import base

from streamkernel.conformal.adaptive_level import AdaptiveLevel
from streamkernel.estimators.targets import as_weight

Prediction = TypeVar("Prediction")


LARGEST_RATIO = 1e6
"""A score that is larger than all others counts as at most this many times as large as the largest of them."""


class RollingScores:
    """A threshold on scores that the requested share of them does not exceed, from a rolling window.

    `coverage` is the share of scores within the threshold, between 0 and 1.

    Examples
    --------
    >>> scores = RollingScores(0.5, window=100)
    >>> scores.threshold()
    inf
    >>> for score in (3.0, 1.0, 2.0):
    ...     scores.update(score)
    >>> scores.threshold()
    2.0
    """

    def __init__(self, coverage: float, window: int) -> None:
        self._level = AdaptiveLevel(1.0 - coverage)
        self._recent: deque[float] = deque(maxlen=window)
        self._sorted: list[float] = []

    def threshold(self) -> float:
        """Return the largest score inside the set: ∞ if every score is inside, -∞ if none is.

        It is number ⌈(1 - α_t)(n + 1)⌉ of the n scores in the window in ascending order. A level below 1/(n + 1) asks
        for more than the largest score s: then it is (1 + (1/(n + 1) - α_t)/α)s. It is ∞ before the first 1/α scores.
        """
        ordered, level, n = self._sorted, self._level.get(), len(self._sorted)
        if self._is_short():
            return math.inf
        rank = math.ceil((1.0 - level) * (n + 1))
        if rank < 1:
            return -math.inf
        if rank <= n:
            return ordered[rank - 1]
        return ordered[-1] * (1.0 + (1.0 / (n + 1) - level) / self._level.alpha)

    def update(self, score: float) -> None:
        """Add the score of a target."""
        level, recent, ordered = copy.copy(self._level), self._recent.copy(), self._sorted.copy()
        n = len(ordered)
        if not self._is_short():
            level.update(self._lowest_level_without(score))
        if n == recent.maxlen:
            del ordered[bisect_left(ordered, recent[0])]
        recent.append(score)
        insort(ordered, score)
        # in one operation, so that an interruption leaves the scores before or after
        vars(self).update(_level=level, _recent=recent, _sorted=ordered)

    def _is_short(self) -> bool:
        """Return whether any score is inside, because there are too few."""
        return round((len(self._sorted) + 1) * self._level.alpha, 6) < 1.0

    def _lowest_level_without(self, score: float) -> float:
        """Return the smallest level whose threshold is below a score, where `threshold` is inverted."""
        ordered, n = self._sorted, len(self._sorted)
        if score <= ordered[-1]:
            return 1.0 - bisect_left(ordered, score) / (n + 1)
        ratio = score / ordered[-1] if ordered[-1] > 0.0 else math.inf
        return 1.0 / (n + 1) - self._level.alpha * (min(ratio, LARGEST_RATIO) - 1.0)

    def after(self, score: float) -> Self:
        """Return the scores with the score of one more target; these do not change."""
        twin = copy.copy(self)
        twin.update(score)  # which replaces what the twin shares
        return twin

    def state(self) -> dict[str, Any]:
        """Return the state as arrays."""
        level = self._level
        return {
            "recent": np.array(self._recent, np.float64),
            "levels": np.array(level.levels),
            "weights": np.array(level.weights),
            "offset": level.offset,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`; later thresholds have the same bits."""
        level = self._level
        self._recent = deque(state["recent"].tolist(), maxlen=self._recent.maxlen)
        self._sorted = sorted(self._recent)
        level.levels, level.weights = state["levels"].tolist(), state["weights"].tolist()
        level.offset = float(state["offset"])


def check_options(coverage: float, window: int) -> None:
    """Raise a ValueError for a coverage or a window that is out of range."""
    if isinstance(coverage, bool) or not isinstance(coverage, (int, float)) or not 0.0 < coverage < 1.0:
        raise ValueError(f"Expected 0 < coverage < 1, got {coverage!r}")
    least = math.ceil(round(1.0 / (1.0 - coverage), 6))
    if isinstance(window, bool) or not isinstance(window, int) or window < least:
        raise ValueError(f"Expected a window of at least {least} scores for coverage={coverage}, got {window!r}")


CONFORMAL = """
Parameters
----------
coverage : float, default 0.9
    The share of targets inside their intervals or sets, between 0 and 1.
window : int, default 250
    The number of recent examples whose scores are kept, in about 16 bytes each.

Raises
------
ValueError
    If `coverage` or `window` is out of its range, or `model` is of another kind.

References
----------
Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
Gibbs and Candès, "Conformal inference for online prediction with arbitrary distribution shifts", JMLR 2024.
"""
"""Parts of docstrings that the wrappers have in common."""


class ConformalWrapper(base.Wrapper[Any]):
    """A River model with the scores of its recent predictions."""

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
            prediction = predict(x)
            if self._scores is scores:  # else another thread has learned an example
                return prediction, scores.threshold()

    def _distance(self, x: Mapping[Hashable, Any], y: Any) -> float:
        """Return the distance of a target from the prediction."""
        raise NotImplementedError

    def _score(self, x: Mapping[Hashable, Any], distance: float) -> float:
        """Return the score of a distance: the same, unless distances have a scale."""
        return distance

    def predict_one(self, x: Mapping[Hashable, Any], **others: Any) -> Any:
        """Return the model's prediction for one example.

        Parameters
        ----------
        x : dict
            The features by name, as for the model.
        **others : object
            Further arguments, which are passed to the model.
        """
        return self.model.predict_one(x, **others)

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
        distance = self._distance(x, y)
        self.model.learn_one(x, y, **(others if w == 1.0 else {"w": w, **others}))
        self._scores = self._scores.after(self._score(x, distance))
