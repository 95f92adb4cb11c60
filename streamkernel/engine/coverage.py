"""Intervals and sets of labels around the predictions of a run, and the share of labels that are inside."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from streamkernel.conformal.classifier import improbability, labels_within
from streamkernel.conformal.regressor import absolute_error, interval_around
from streamkernel.conformal.rolling_scores import RollingScores, check_options
from streamkernel.engine.pipelines import Answer
from streamkernel.engine.telemetry.quality import WINDOW

SCORES = 250
"""Scores of recent predictions that decide how wide intervals are: the default of the wrappers of the library."""


Judgement = tuple[bool, float, float, bool]
"""Whether a label was inside, the size of its interval or set, its score, and whether it was a set."""


class CoverageSnapshot(NamedTuple):
    """Coverage at one moment, which any thread may read.

    Parameters
    ----------
    target
        The share of labels that is to be inside.
    since_start, recent
        The share that was inside: since the start, and of the last `WINDOW`; not a number before the first label.
    width
        The median width of the last `WINDOW` intervals, which may be infinite; not a number for a classifier.
    labels
        The mean number of labels in the last `WINDOW` sets; not a number for a regressor.
    """

    target: float
    since_start: float
    recent: float
    width: float
    labels: float

    def rows(self) -> dict[str, float]:
        """Return the finite figures of recent predictions, by name."""
        named = {
            "coverage": self.recent,
            "coverage target": self.target,
            "median width": self.width,
            "mean labels": self.labels,
        }
        return {name: value for name, value in named.items() if math.isfinite(value)}


class Coverage:
    """Keeps the share of labels inside at a target by adaptive conformal inference, without a change of the model.

    An interval or a set is around the answer of a model, as wide as the threshold that was there when the answer was
    given. When the label is known, it is judged by this interval, and the distance of the label from the answer is
    the next score: labels that come late teach the threshold when they come.

    Parameters
    ----------
    target
        The share of labels that is to be inside, between 0 and 1.

    Attributes
    ----------
    judged, inside : int
        Labels that were judged, and those of them that were inside.

    References
    ----------
    Gibbs and Candès, "Conformal inference for online prediction with arbitrary distribution shifts", JMLR 2024.

    Examples
    --------
    >>> coverage = Coverage(0.5)
    >>> for error in (1.0, 3.0, 2.0):
    ...     coverage.judge(error, (0.0, None, coverage.threshold()))
    >>> region((10.0, None), coverage.threshold())
    {'lower': 8.0, 'upper': 12.0}
    >>> coverage.snapshot().since_start
    0.666...
    """

    def __init__(self, target: float) -> None:
        check_options(target, SCORES)
        self.target = target
        self.judged = self.inside = 0
        self._scores = RollingScores(target, SCORES)
        self._recent: deque[tuple[bool, float]] = deque(maxlen=WINDOW)  # whether it was inside, and the size
        self._is_of_labels = False

    def threshold(self) -> float:
        """Return the largest score of a label inside the interval or set of a current answer."""
        return self._scores.threshold()

    def judge(self, y: Any, answer: Answer) -> None:
        """Update with a label and the answer that was given for it.

        Parameters
        ----------
        y
            The label.
        answer
            The prediction, the probabilities of a classifier, and the threshold. Nothing is learned from an answer
            without a threshold: it was given before coverage was asked for.
        """
        found = judgement(y, answer)
        if found is not None:
            self.add(found)

    def add(self, found: Judgement) -> None:
        """Learn from a label that was compared with its answer."""
        is_inside, size, score, self._is_of_labels = found
        self.judged += 1
        self.inside += is_inside
        self._recent.append((is_inside, size))
        self._scores.update(score)

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
        """Return all there is to remember, as plain values and arrays."""
        return {
            "target": self.target,
            "judged": self.judged,
            "inside": self.inside,
            "is_of_labels": self._is_of_labels,
            "recent_inside": np.array([hit for hit, _ in self._recent], np.float64),
            "recent_sizes": np.array([size for _, size in self._recent], np.float64),
            "scores": self._scores.state(),
        }

    @classmethod
    def of_state(cls, target: float, state: Mapping[str, Any] | None) -> Self:
        """Return one that continues from what `state` returned, or starts again if that had another target."""
        found = cls(target)
        if state is None or state["target"] != target:
            return found
        found.judged, found.inside, found._is_of_labels = state["judged"], state["inside"], state["is_of_labels"]
        hits, sizes = map(bool, state["recent_inside"].tolist()), state["recent_sizes"].tolist()
        found._recent.extend(zip(hits, sizes, strict=True))
        found._scores.restore(state["scores"])
        return found


class RoundCoverage(Coverage):
    """The threshold of a worker, which is that of the run when the round began; the run learns when the round ends.

    Parameters
    ----------
    target
        The share of labels that is to be inside.
    threshold
        The threshold.
    judgements
        Where that is added which the run is to learn.
    """

    def __init__(self, target: float, threshold: float, judgements: list[Judgement]) -> None:
        super().__init__(target)
        self._threshold, self._judgements = threshold, judgements

    def threshold(self) -> float:
        """Return the threshold of the round."""
        return self._threshold

    def add(self, found: Judgement) -> None:
        """Keep what the run is to learn."""
        self._judgements.append(found)


def judgement(y: Any, answer: Answer) -> Judgement | None:
    """Compare a label with an answer and its threshold; return ``None`` if there is no threshold."""
    prediction, probabilities, threshold, *_ = (*answer, None)
    if threshold is None:
        return None
    if probabilities is None:
        interval = interval_around(prediction, threshold)
        return y in interval, interval.width, absolute_error(float(y), prediction), False
    labels = labels_within(probabilities, threshold)
    return y in labels, float(len(labels)), improbability(y, probabilities), True


def region(answer: Answer, threshold: float) -> dict[str, Any]:
    """Return the fields of a prediction that say where its label is: an interval, or the likely labels first.

    Examples
    --------
    >>> region((1.0, None), math.inf)
    {'lower': -inf, 'upper': inf}
    >>> region(("a", {"b": 0.3, "a": 0.6, "c": 0.1}), 0.7)
    {'set': ['a', 'b']}
    """
    prediction, probabilities, *_ = answer
    if probabilities is None:
        return interval_around(prediction, threshold)._asdict()
    labels = labels_within(probabilities, threshold)
    return {"set": [label for label in sorted(probabilities, key=lambda one: -probabilities[one]) if label in labels]}
