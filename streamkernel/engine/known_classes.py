"""Labels that a classifier is known to take, and the bound of their number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from river import base

from streamkernel.engine.examples import shorten
from streamkernel.engine.pipelines import kernel_model_of
from streamkernel.errors import TooManyClassesError
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.internals import check_label

MOST_CLASSES = 1000
"""Largest number of labels of other classifiers: River's metrics count pairs of a label and a prediction."""


class KnownClasses:
    """The labels that a model is known to take; none if it is no classifier.

    Parameters
    ----------
    model
        The model.

    Attributes
    ----------
    labels : set
        The labels.

    Examples
    --------
    >>> from river import linear_model
    >>> model = linear_model.LogisticRegression()
    >>> classes = KnownClasses(model)
    >>> classes.check(True, model)
    >>> classes.count([True, True, False])
    2
    """

    def __init__(self, model: base.Estimator) -> None:
        self._has_classes = isinstance(model, base.Classifier)
        self.labels: set[Any] = set()

    def count(self, ys: Sequence[Any]) -> int:
        """Return how many of these labels there are before one that has to be checked first."""
        if not self._has_classes or self.labels.issuperset(ys):
            return len(ys)
        return next(i for i, y in enumerate(ys) if y not in self.labels)

    def check(self, y: Any, model: Any) -> None:
        """Raise an InputError for a label beyond the limit before any preprocessing learns it."""
        if not self._has_classes or y in self.labels:
            return
        last = kernel_model_of(model)
        if isinstance(last, KernelClassifier):
            check_label(last, y)
        elif len(self.labels) >= MOST_CLASSES:
            raise TooManyClassesError(f"Expected at most {MOST_CLASSES:,} labels, got one more, {shorten(y)}")
        self.labels.add(y)

    def replace(self, labels: Iterable[Any]) -> None:
        """Continue with other labels."""
        self.labels = set(labels)
