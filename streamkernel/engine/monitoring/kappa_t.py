"""Kappa-T: the improvement of a classifier over predicting the previous label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import eq
from typing import Any

from river.metrics.base import ClassificationMetric


class KappaT(ClassificationMetric):
    """The accuracy of a classifier relative to predicting the previous label.

    With the accuracies p of the classifier and q of the previous label, κ = (p - q) / (1 - q): 1 for a classifier that
    is always correct, 0 for one that is as good as the previous label, below 0 for a worse one. If labels come in long
    runs, a high accuracy can be worthless, and κ shows this. `cm` is the confusion matrix, which may be shared with
    other metrics of River.

    References
    ----------
    Žliobaitė et al., "Evaluation methods and decision theory for classification of streaming data with temporal
    dependence", Machine Learning 98, 2015, equation 7.

    Examples
    --------
    >>> metric = KappaT()
    >>> for y, prediction in [("a", "b"), ("a", "a"), ("b", "b"), ("b", "b"), ("a", "a")]:
    ...     metric.update(y, prediction)
    >>> round(metric.get(), 2)  # accuracy 0.8; the previous label is correct for 2 of 5 labels, as the first has none
    0.67
    """

    _fmt = ""

    _last: tuple[Any, ...] = ()
    _repeated = 0.0

    def update(self, y_true: Any, y_pred: Any, w: float = 1.0) -> None:
        """Update with a label and the prediction made before it."""
        if self._last == (y_true,):
            self._repeated += w
        self._last = (y_true,)
        super().update(y_true, y_pred, w)

    def update_many(self, pairs: Sequence[tuple[Any, Any]], counts: Counter[tuple[Any, Any]] | None = None) -> None:
        """Update with labels and predictions in order, and their counts if known; equivalent to `update` with each."""
        labels = [*self._last, *[y for y, prediction in pairs if prediction is not None]]
        self._repeated += sum(map(eq, labels[1:], labels))
        self._last = tuple(labels[-1:])
        for (y, prediction), n in (Counter(pairs) if counts is None else counts).items():
            if prediction is None:
                continue
            self.cm.update(y, prediction, float(n))
            self.cm.n_samples += n - 1  # River counts updates there, not their weights

    def get(self) -> float:
        """Return κ; 0 before the first label, and if the previous label was always correct."""
        total = self.cm.total_weight
        if not total or self._repeated == total:
            return 0.0
        return float((self.cm.total_true_positives - self._repeated) / (total - self._repeated))
