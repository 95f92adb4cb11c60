"""Intervals and sets of labels around the predictions of a run, and the share of labels that are inside."""

from __future__ import annotations

import copy
import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from streamkernel.conformal.classifier import improbability, labels_within
from streamkernel.conformal.error_scale import ErrorScale
from streamkernel.conformal.regressor import absolute_error, interval_around
from streamkernel.conformal.rolling_scores import RollingScores, check_options
from streamkernel.engine.pipelines import Answer
from streamkernel.engine.telemetry.quality import WINDOW
from streamkernel.estimators.internals import take_texts

SCORES = 250
"""Number of recent scores that determine the width of intervals: the default of the library's wrappers."""


Judgement = tuple[bool, float, float, bool]
"""Whether a label was inside, the size of its interval or set, its distance from the prediction, and whether it was a
set."""

Threshold = float | dict[str, float]
"""The largest distance of a label inside, or by name for several targets."""

Features = Mapping[str, Any]
"""The features of a record by name."""


class CoverageSnapshot(NamedTuple):
    """Coverage at one moment, which any thread may read.

    `target` is the requested share of labels inside. `since_start` and `recent` are the actual shares, the latter of
    the last `WINDOW` labels; NaN before the first label. `width` is the median width of the last `WINDOW` intervals,
    which may be infinite; NaN for a classifier. `labels` is the mean number of labels in the last `WINDOW` sets; NaN
    for a regressor. `by_target` is the coverage of each target, if there are several; each share is then the lowest of
    them, and the other figures are NaN.
    """

    target: float
    since_start: float
    recent: float
    width: float
    labels: float
    by_target: Mapping[str, CoverageSnapshot] = {}


class Coverage:
    """Keeps the share of labels inside at a target by adaptive conformal inference, without a change of the model.

    The width of an interval or set is the threshold at the time of the prediction. A label is compared with the
    interval of its prediction, and its distance from the prediction is the next score. So delayed labels update the
    threshold when they arrive. Distances of numbers are divided by their expected size over the mean, which is learned
    from the features `x`; these are ``None`` on a cluster, whose intervals are equally wide for all features. `target`
    is the requested share of labels inside, between 0 and 1. `judged` and `inside` is the number of labels compared
    with their intervals, and of labels inside.

    References
    ----------
    Gibbs and Candès, "Conformal inference for online prediction with arbitrary distribution shifts", JMLR 2024.

    Examples
    --------
    >>> coverage = Coverage(0.5)
    >>> for error in (1.0, 3.0, 2.0):
    ...     coverage.judge(None, error, (0.0, None, coverage.threshold(None)))
    >>> region((10.0, None), coverage.threshold(None))
    {'lower': 8.0, 'upper': 12.0}
    >>> coverage.snapshot().since_start
    0.666...
    """

    def __init__(self, target: float, *, first_order: bool = False) -> None:
        check_options(target, SCORES)
        self.target, self._first_order = target, first_order
        self.judged = self.inside = 0
        self._scale: ErrorScale | None = None
        self._scores = RollingScores(target, SCORES)
        self._recent: deque[tuple[bool, float]] = deque(maxlen=WINDOW)  # whether it was inside, and the size
        self._is_of_labels = False

    def threshold(self, x: Features | None) -> Any:
        """Return the largest distance of a label inside the interval or set of a current answer."""
        return self._scores.threshold() * (1.0 if x is None or self._scale is None else self._scale.at(x))

    def to_predict(self) -> Coverage:
        """Return a copy with the same thresholds, which any number of threads may ask."""
        twin = copy.copy(self)
        scale = None if self._scale is None else self._scale.to_predict()
        vars(twin).update(_scores=copy.copy(self._scores), _scale=scale)
        return twin

    def judge(self, x: Features, y: Any, answer: Answer) -> None:
        """Update with a label and the answer for it.

        `answer` is the prediction, the probabilities of a classifier, and the threshold. An answer without a threshold,
        from before coverage was configured, has no effect.
        """
        judged = judgement(y, answer)
        if judged is not None:
            self.add(x, judged)

    def add(self, x: Features | None, judged: Judgement) -> None:
        """Learn from a label that was compared with its answer."""
        is_inside, size, distance, self._is_of_labels = judged
        self.judged += 1
        self.inside += is_inside
        self._recent.append((is_inside, size))
        if x is not None and not self._is_of_labels:
            self._scale = self._scale or ErrorScale(first_order=self._first_order)
            take_texts(self._scale.log_ratio, x)
            distance = self._scale.learn(x, distance)
        self._scores.update(distance)

    def snapshot(self) -> CoverageSnapshot:
        """Return the current figures."""
        nan, recent, sizes = math.nan, [hit for hit, _ in self._recent], [size for _, size in self._recent]
        if not recent:
            return CoverageSnapshot(self.target, nan, nan, nan, nan)
        return CoverageSnapshot(
            self.target,
            self.inside / self.judged,
            sum(recent) / len(recent),
            nan if self._is_of_labels else statistics.median(sizes),
            statistics.fmean(sizes) if self._is_of_labels else nan,
        )

    def state(self) -> dict[str, Any]:
        """Return the state as plain values and arrays."""
        return {
            "target": self.target,
            "judged": self.judged,
            "inside": self.inside,
            "is_of_labels": self._is_of_labels,
            "recent_inside": np.array([hit for hit, _ in self._recent], np.float64),
            "recent_sizes": np.array([size for _, size in self._recent], np.float64),
            "scores": self._scores.state(),
            "scale": self._scale,
        }

    def restored(self, state: Mapping[str, Any] | None) -> Coverage:
        """Return coverage restored from the result of `state`, or a new one if that had another target."""
        restored = Coverage(self.target, first_order=self._first_order)
        if state is None or state["target"] != self.target:
            return restored
        restored.judged, restored.inside = state["judged"], state["inside"]
        restored._is_of_labels = state["is_of_labels"]
        hits, sizes = map(bool, state["recent_inside"].tolist()), state["recent_sizes"].tolist()
        restored._recent.extend(zip(hits, sizes, strict=True))
        restored._scores.restore(state["scores"])
        restored._scale = state.get("scale")
        return restored


class CoverageByTarget:
    """The coverage of each of several targets, by name; the answers are dictionaries, and so are the intervals.

    `target` is the requested share of labels of each target inside, between 0 and 1.

    Examples
    --------
    >>> coverage = CoverageByTarget(0.5, ["a", "b"])
    >>> for error in (1.0, 3.0, 2.0):
    ...     coverage.judge(None, {"a": error, "b": 0.0}, ({"a": 0.0, "b": 0.0}, None, coverage.threshold(None)))
    >>> region(({"a": 10.0, "b": 5.0}, None), coverage.threshold(None))
    {'lower': {'a': 8.0, 'b': 5.0}, 'upper': {'a': 12.0, 'b': 5.0}}
    """

    def __init__(self, target: float, names: Iterable[str], *, first_order: bool = False) -> None:
        self.target = target
        self._own = {name: Coverage(target, first_order=first_order) for name in names}

    def threshold(self, x: Features | None) -> dict[str, float]:
        """Return the threshold of each target."""
        return {name: coverage.threshold(x) for name, coverage in self._own.items()}

    def to_predict(self) -> CoverageByTarget:
        """Return a copy with the same thresholds, which any number of threads may ask."""
        twin = copy.copy(self)
        vars(twin).update(_own={name: coverage.to_predict() for name, coverage in self._own.items()})
        return twin

    def judge(self, x: Features, y: Any, answer: Answer) -> None:
        """Update with the label of each target and the answer for all."""
        judged = judgement(y, answer)
        if judged is not None:
            self.add(x, judged)

    def add(self, x: Features | None, judged: dict[str, Judgement]) -> None:
        """Learn from labels that were compared with their answers."""
        for name, of_target in judged.items():
            self._own[name].add(x, of_target)

    def snapshot(self) -> CoverageSnapshot:
        """Return the current figures of each target, and the lowest shares."""
        by_target = {name: coverage.snapshot() for name, coverage in self._own.items()}
        since_start, recent = (
            min(getattr(coverage, share) for coverage in by_target.values()) for share in ("since_start", "recent")
        )
        return CoverageSnapshot(self.target, since_start, recent, math.nan, math.nan, by_target)

    def state(self) -> dict[str, Any]:
        """Return the state as plain values and arrays."""
        return {"target": self.target, "by_target": {name: coverage.state() for name, coverage in self._own.items()}}

    def restored(self, state: Mapping[str, Any] | None) -> CoverageByTarget:
        """Return coverage restored from the result of `state`, or a new one if that had another target."""
        restored, saved = CoverageByTarget(self.target, self._own), {} if state is None else state["by_target"]
        restored._own = {name: coverage.restored(saved.get(name)) for name, coverage in self._own.items()}
        return restored


def coverage_of(
    target: float, label: str | tuple[str, ...], *, first_order: bool = False
) -> Coverage | CoverageByTarget:
    """Return the coverage of one label, or of several, beside a model whose steps are of first or second order."""
    if isinstance(label, str):
        return Coverage(target, first_order=first_order)
    return CoverageByTarget(target, label, first_order=first_order)


class RoundCoverage(Coverage):
    """The threshold of a worker, which it takes from the run when the round begins; the run learns when the round ends.

    `target` is the requested share of labels inside. `judgements` is the list to which judgements for the run are
    added.
    """

    def __init__(self, target: float, threshold: Threshold, judgements: list[Any]) -> None:
        super().__init__(target)
        self._threshold, self._judgements = threshold, judgements

    def threshold(self, x: Features | None) -> Any:
        """Return the threshold of the round."""
        return self._threshold

    def add(self, x: Features | None, judged: Any) -> None:
        """Store the judgement for the run."""
        self._judgements.append(judged)


def judgement(y: Any, answer: Answer) -> Any:
    """Compare a label with an answer and its threshold; return ``None`` if there is no threshold.

    For several targets it is a dictionary of the targets with a prediction: none before the first example.

    Examples
    --------
    >>> judgement(3.0, (2.0, None, 1.5))
    (True, 3.0, 1.0, False)
    >>> judgement({"a": 3.0}, ({"a": 2.0}, None, {"a": 0.5}))
    {'a': (False, 1.0, 1.0, False)}
    """
    prediction, probabilities, threshold, *_ = (*answer, None)
    if threshold is None:
        return None
    if isinstance(threshold, Mapping):
        answers = _by_target(answer)
        return {
            name: judgement(y[name], (*answers[name], level)) for name, level in threshold.items() if name in answers
        }
    if probabilities is None:
        interval = interval_around(prediction, threshold)
        return y in interval, interval.width, absolute_error(float(y), prediction), False
    labels = labels_within(probabilities, threshold)
    return y in labels, float(len(labels)), improbability(y, probabilities), True


def region(answer: Answer, threshold: Threshold) -> dict[str, Any]:
    """Return the fields of a prediction with its interval, or with its set of labels, the most likely first.

    For several targets each field is a dictionary by target.

    Examples
    --------
    >>> region((1.0, None), math.inf)
    {'lower': -inf, 'upper': inf}
    >>> region(("a", {"b": 0.3, "a": 0.6, "c": 0.1}), 0.7)
    {'set': ['a', 'b']}
    """
    prediction, probabilities, *_ = answer
    if isinstance(threshold, Mapping):
        parts = {name: region(of_target, threshold[name]) for name, of_target in _by_target(answer).items()}
        fields = ("lower", "upper") if probabilities is None else ("set",)
        return {field: {name: part[field] for name, part in parts.items()} for field in fields}
    if probabilities is None:
        return interval_around(prediction, threshold)._asdict()
    labels = labels_within(probabilities, threshold)
    return {"set": [label for label in sorted(probabilities, key=lambda one: -probabilities[one]) if label in labels]}


def _by_target(answer: Answer) -> dict[str, Answer]:
    prediction, probabilities, *_ = answer
    return {name: (value, None if probabilities is None else probabilities[name]) for name, value in prediction.items()}
