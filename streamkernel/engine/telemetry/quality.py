"""Quality of predictions, since the start and recent, beside a baseline, and River's metrics that measure it.

An event only adds a pair, its label and the prediction, to a list. Many pairs are judged together periodically, and
recent quality is computed when it is read.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from river.metrics import ROCAUC
from river.metrics.base import BinaryMetric, ClassificationMetric, Metric, RegressionMetric
from river.metrics.multioutput import MacroAverage
from river.metrics.multioutput.base import MultiOutputMetric

from streamkernel.engine.delayed_labels import plain

Pair = tuple[Any, Any]
"""A label, and the prediction or the probabilities made before it; ``None`` if there were none."""

WINDOW = 1000
"""The number of recent events."""

SAMPLED = 8
"""The baseline of the last value is evaluated since the start on one event of this many, because a metric that takes
events one by one costs as much as the model. Recent quality takes all events."""


def update_roc_auc(metric: ROCAUC, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Update the metric with labels and probabilities, or their dictionaries; equivalent to `update` with each.

    It depends only on how many of them are between two thresholds, for either label, and sums of whole numbers are
    exact.

    Examples
    --------
    >>> metric = ROCAUC()
    >>> update_roc_auc(metric, [(False, 0.1), (False, {True: 0.4}), (True, 0.35), (True, 0.8)])
    >>> metric
    ROCAUC: 87.50%
    """
    thresholds, pos_val = metric.thresholds, metric.pos_val
    read = [(y == pos_val, answer.get(True, 0.0) if isinstance(answer, dict) else answer) for y, answer in pairs]
    counts = Counter([(label, bisect_left(thresholds, probability)) for label, probability in read])
    for place, matrix in enumerate(metric.cms):
        cells: dict[tuple[bool, bool], int] = {}  # in the order in which River would meet them
        for (label, above), n in counts.items():
            cell = label, place < above
            cells[cell] = cells.get(cell, 0) + n
        for (label, is_above), n in cells.items():
            matrix.update(label, is_above, float(n))
            matrix.n_samples += n - 1  # River counts updates there, not their weights


def update_metric(metric: Metric, pairs: Iterable[Pair] | Counter[Pair]) -> Metric:
    """Update a metric with pairs and return it; a metric that only counts pairs gets the counts.

    The grouping of pairs changes no bit, because sums of whole numbers are exact.

    Examples
    --------
    >>> from river import metrics
    >>> update_metric(metrics.Accuracy(), [("a", "a"), ("b", "a"), ("b", None)])
    Accuracy: 50.00%
    """
    if counts_pairs(metric):
        for (y, answer), n in (pairs if isinstance(pairs, Counter) else Counter(pairs)).items():
            if answer is not None:
                _update_once(metric, y, answer, n)
        return metric
    answered = ((y, answer) for y, answer in pairs if answer is not None and answer != {})
    if type(metric) is ROCAUC:
        update_roc_auc(metric, answered)
        return metric
    for y, answer in answered:
        metric.update(y, answer)
    return metric


def of_majority(metric: Metric, labels: Mapping[Any, int]) -> float:
    """Return the value of an empty metric after the most frequent label; of probabilities, the frequencies of labels.

    Examples
    --------
    >>> from river import metrics
    >>> of_majority(metrics.Accuracy(), {"a": 3, "b": 1})
    0.75
    >>> round(of_majority(metrics.CrossEntropy(), {"a": 2, "b": 2}), 4)  # log 2
    0.6931
    """
    fresh, total = deepcopy(metric), sum(labels.values())  # a clone takes five times as long
    if not total:
        return math.nan
    answer: Any = max(labels, key=lambda label: labels[label])
    if not takes_labels(metric):
        answer = {label: n / total for label, n in labels.items()}
    try:
        for y, n in labels.items():
            _update_once(fresh, y, answer, n)
    except TypeError:  # it takes no weights
        return math.nan
    return value(fresh)


def value(metric: Metric) -> float:
    """Return a metric's value; NaN if it has none."""
    try:
        return float(metric.get())
    except (ArithmeticError, ValueError):
        return math.nan


def counts_pairs(metric: Metric) -> bool:
    """Return whether a metric depends only on the number of each pair."""
    update: Any = type(metric).update
    return update in (ClassificationMetric.update, BinaryMetric.update) and takes_labels(metric)


def name_of_metric(metric: Metric) -> str:
    """Return a metric's name; with several targets, the name of the metric of each target."""
    return type(metric.metric if isinstance(metric, MacroAverage) else metric).__name__


def values_by_target(metric: Metric) -> dict[str, float]:
    """Return the metric of each target, of which a metric of several targets is the mean; nothing for one target.

    Examples
    --------
    >>> from river import metrics
    >>> metric = metrics.multioutput.MacroAverage(metrics.MAE())
    >>> values_by_target(update_metric(metric, [({"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 2.0})]))
    {'a': 0.5, 'b': 0.0}
    """
    return {name: value(one) for name, one in metric.metrics.items()} if isinstance(metric, MacroAverage) else {}


def takes_labels(metric: Metric) -> bool:
    """Return whether a metric compares labels, and not probabilities."""
    return getattr(metric, "requires_labels", True)


def _update_once(metric: Any, y: Any, answer: Any, n: int) -> None:
    metric.update(y, answer, w=float(n))
    if counts_pairs(metric):
        metric.cm.n_samples += n - 1  # River counts updates there, not their weights


@dataclass(frozen=True)
class Scores:
    """Quality at one moment, immutable for any thread.

    `ours` and `theirs` are the metric since the start, NaN before the first evaluated event: of the model, and of the
    baseline. `pairs` are the last `WINDOW` pairs, and the one before them. `baseline_pairs` are the last `WINDOW` pairs
    of a baseline that is a model. `by_target` is the metric of each target since the start, if there are several.
    """

    metric: Metric
    baseline: str | None
    ours: float
    theirs: float
    pairs: tuple[Pair, ...] = ()
    baseline_pairs: tuple[Pair, ...] | None = None
    by_target: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The metric's name; with several targets, the name of the metric of each target."""
        return name_of_metric(self.metric)

    @property
    def bigger_is_better(self) -> bool:
        """Whether a larger value of the metric is better."""
        return bool(self.metric.bigger_is_better)

    @cached_property
    def recent(self) -> tuple[float, float]:
        """The metric over the last `WINDOW` events, of the model and of the baseline; NaN if there are none."""
        metric, pairs = self.metric, self.pairs
        if not pairs:
            return math.nan, math.nan
        last = pairs[-WINDOW:]
        if self.baseline_pairs is not None:
            theirs = value(update_metric(metric.clone(), self.baseline_pairs))
        elif _is_of_last(metric):
            labels = [y for y, _ in pairs]
            theirs = value(update_metric(metric.clone(), zip(labels[1:], labels, strict=False)))
        else:
            theirs = of_majority(metric, Counter(y for y, _ in last))
        return value(update_metric(metric.clone(), last)), theirs if self.baseline else math.nan


class Quality:
    """Prequential evaluation of the model and of a baseline, each by its own copy of a River metric.

    Without a baseline model, a classifier is compared with the most frequent label, or for a metric of probabilities
    with the frequencies of all labels, as if these had been known in advance; a regressor is compared with the previous
    label. `metric` is the metric of the model since the start. `model` is the name of the baseline if it is a model,
    whose pairs are in `baseline_pairs`.

    The code that predicts appends to `pairs` and `baseline_pairs`, which are not evaluated yet; `judged` is the number
    of evaluated examples. `kind` is the part of an answer that is evaluated: 0 is the prediction, 1 the probabilities.

    Examples
    --------
    >>> from river import metrics
    >>> quality = Quality(metrics.Accuracy())
    >>> quality.pairs += [("a", None), ("a", "a"), ("b", "a"), ("a", "a")]
    >>> scores = quality.scores()
    >>> round(scores.ours, 3), scores.baseline, scores.theirs
    (0.667, 'majority class', 0.75)
    """

    def __init__(self, metric: Metric, model: str | None = None) -> None:
        self.metric, self.baseline_metric = metric, metric.clone()
        self._empty = metric.clone()
        self.kind = 0 if takes_labels(metric) else 1
        self.pairs: list[Pair] = []
        self.baseline_pairs: list[Pair] = []
        self._is_of_last, self._is_model = _is_of_last(metric), model is not None
        self.baseline: str | None = model or ("last value" if self._is_of_last else "majority class")
        self.judged = 0
        self._labels: Counter[Any] = Counter()  # counts of labels, for the majority class
        self._recent: deque[Pair] = deque(maxlen=WINDOW + 1)
        self._baseline_recent: deque[Pair] = deque(maxlen=WINDOW)

    def fold(self) -> None:
        """Evaluate the collected pairs; the grouping into calls does not change the results."""
        pairs, theirs = self.pairs[:], self.baseline_pairs[:]
        if not pairs:
            return
        self.pairs.clear()
        self.baseline_pairs.clear()
        came = Counter(pairs) if counts_pairs(self.metric) else None
        update_metric(self.metric, pairs if came is None else came)
        if self._is_model:
            update_metric(self.baseline_metric, theirs)
            self._baseline_recent.extend(theirs)
        elif self._is_of_last:
            labels = [y for y, _ in (*list(self._recent)[-1:], *pairs)]
            first = -self.judged % SAMPLED or (0 if self.judged else SAMPLED)
            before = len(labels) - len(pairs)
            places = range(first, len(pairs), SAMPLED)
            update_metric(self.baseline_metric, [(labels[i + before], labels[i + before - 1]) for i in places])
        elif came is None:
            self._labels.update([y for y, _ in pairs])
        else:
            for (y, _), n in came.items():
                self._labels[y] += n
        self.judged += len(pairs)
        self._recent.extend(pairs)

    def scores(self) -> Scores:
        """Return the current scores."""
        self.fold()
        if not self.judged:
            return Scores(self._empty, self.baseline, math.nan, math.nan)
        is_judged = self._is_model or self._is_of_last
        theirs = value(self.baseline_metric) if is_judged else of_majority(self._empty, self._labels)
        baseline_pairs = tuple(self._baseline_recent) if self._is_model else None
        ours = value(self.metric)
        by_target = values_by_target(self.metric)
        return Scores(self._empty, self.baseline, ours, theirs, tuple(self._recent), baseline_pairs, by_target)

    def by_name(self) -> dict[str, float]:
        """Return the metric since the start, of the model and of the baseline, by name."""
        scores = self.scores()
        return {scores.name: scores.ours} | ({f"{scores.name} (baseline)": scores.theirs} if scores.baseline else {})

    def drop_baseline(self) -> None:
        """Continue without a baseline."""
        self.fold()
        self.baseline = None

    def state(self) -> dict[str, Any]:
        """Return the state other than the metrics, as plain values."""
        self.fold()
        return {
            "baseline": self.baseline,
            "count": self.judged,
            "labels": dict(self._labels),
            "recent": _flat(self._recent),
            "baseline_recent": _flat(self._baseline_recent),
        }

    def restore(self, metric: Metric, baseline_metric: Metric, state: Mapping[str, Any]) -> None:
        """Restore a state and its metrics; pairs not evaluated yet are dropped."""
        self.metric, self.baseline_metric = metric, baseline_metric
        self.pairs.clear()
        self.baseline_pairs.clear()
        self.baseline, self.judged = state["baseline"], state["count"]
        self._labels = Counter(state["labels"])
        self._recent = deque(_pairs(state["recent"]), maxlen=WINDOW + 1)
        self._baseline_recent = deque(_pairs(state["baseline_recent"]), maxlen=WINDOW)


def stored_scores(state: Mapping[str, Any]) -> Scores:
    """Return the scores in a part of a checkpoint."""
    quality = Quality(state["metric"].clone())
    quality.restore(state["metric"], state["baseline_metric"], state["quality"])
    return quality.scores()


def _is_of_last(metric: Metric) -> bool:
    """Return whether the baseline is the previous label: for numbers, and for several targets."""
    return isinstance(metric, (RegressionMetric, MultiOutputMetric))


def _flat(pairs: Iterable[Pair]) -> list[list[Any]]:
    """Return pairs as two lists of Python's own values, which are smaller and faster in a checkpoint."""
    labels, answers = [], []
    for y, answer in pairs:
        labels.append(plain(y))
        answers.append(plain(answer))
    return [labels, answers]


def _pairs(lists: Sequence[Sequence[Any]]) -> Iterable[Pair]:
    return zip(*lists, strict=True)
