"""River's metrics: how they are read, and the area under the ROC curve in bounded memory."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from river.metrics import ROCAUC
from river.metrics.base import BinaryMetric, ClassificationMetric, Metric
from river.metrics.multioutput import MacroAverage

Pair = tuple[Any, Any]
"""A label, and the prediction or the probabilities made before it; ``None`` if there were none."""


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
