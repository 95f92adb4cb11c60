"""Many pairs for River's ROCAUC, whose update with one pair takes as long as an event of a fast model."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any

from river.metrics import ROCAUC


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
