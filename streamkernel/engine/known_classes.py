"""The labels that the model of a run takes, each in the form in which it came first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamkernel.engine.examples import shorten
from streamkernel.engine.pipelines import kernel_model_of
from streamkernel.errors import TooManyClassesError
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.internals import check_label
from streamkernel.estimators.label_forms import LabelForms

MOST_CLASSES = 1000
"""Largest number of labels of other classifiers: River's metrics count pairs of a label and a prediction."""


class KnownClasses(LabelForms):
    """The labels that have been learned or that a model brings, and the check of a new one.

    Parameters
    ----------
    model
        A classifier, or a pipeline that ends in one.
    labels
        Labels in the order in which they came; by default those of a kernel classifier.

    Examples
    --------
    >>> from river import naive_bayes
    >>> classes = KnownClasses(naive_bayes.GaussianNB())
    >>> classes.check("1")
    >>> classes.of(1)
    '1'
    """

    def __init__(self, model: Any, labels: Iterable[Any] | None = None) -> None:
        last = kernel_model_of(model)
        self._model = last if isinstance(last, KernelClassifier) else None
        super().__init__(labels if labels is not None else () if self._model is None else self._model.labels)

    def check(self, label: Any) -> None:
        """Add a label, unless it is known.

        Raises
        ------
        InputError
            If the model cannot learn it; a label must be refused before any preprocessing learns its example.
        """
        if label in self:
            return
        if self._model is not None:
            check_label(self._model, label)
        elif len(self) >= MOST_CLASSES:
            raise TooManyClassesError(f"Expected at most {MOST_CLASSES:,} labels, got one more, {shorten(label)}")
        self.add(label)
