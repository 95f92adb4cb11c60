"""The labels that the model of a run takes, each in the form in which it came first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from river import base

from streamkernel.engine.pipelines import kernel_model_of
from streamkernel.errors import LabelError, TooManyClassesError, shorten
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.internals import check_label
from streamkernel.estimators.outputs import LabelForms
from streamkernel.estimators.several_targets import KernelMultiLabelClassifier

MOST_CLASSES = 1000
"""Largest number of labels of other classifiers: River's metrics count pairs of a label and a prediction."""


class KnownClasses(LabelForms):
    """The labels that have been learned or that a model brings, and the check of a new one.

    `model` is a classifier, or a pipeline that ends in one. `labels` are labels in the order in which they came; by
    default the labels of a kernel classifier.

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

        Raise `InputError` if the model cannot learn it; a label must be refused before any preprocessing learns its
        example.
        """
        if label in self:
            return
        if self._model is not None:
            check_label(self._model, label)
        elif len(self) >= MOST_CLASSES:
            raise TooManyClassesError(f"Expected at most {MOST_CLASSES:,} labels, got one more, {shorten(label)}")
        self.add(label)


class KnownClassesByField:
    """The labels of each field in the order in which they came, if a model has several at once.

    Examples
    --------
    >>> from streamkernel import KernelMultiLabelClassifier
    >>> classes = KnownClassesByField(KernelMultiLabelClassifier())
    >>> classes.of({"wet": "True", "storm": 0.0})
    {'wet': True, 'storm': False}
    >>> classes.check({"wet": True, "storm": "often"})
    Traceback (most recent call last):
        ...
    streamkernel.errors.LabelError: Expected True or False, got 'often' - at field "storm"
    """

    def __init__(self, model: Any, labels: Mapping[str, Iterable[Any]] | None = None) -> None:
        self._is_binary = isinstance(kernel_model_of(model), KernelMultiLabelClassifier)
        self._fields = {name: self._classes(values) for name, values in (labels or {}).items()}

    @property
    def labels(self) -> dict[str, list[Any]]:
        """The labels of each field in their first forms."""
        return {name: classes.labels for name, classes in self._fields.items()}

    def of(self, label: Mapping[str, Any]) -> dict[str, Any]:
        """Return the first forms of the labels of an example."""
        return {name: self._field(name).of(value) for name, value in label.items()}

    def check(self, label: Mapping[str, Any]) -> None:
        """Add the labels of an example, unless they are known. Raise `InputError` if the model cannot learn one."""
        for name, value in label.items():
            if self._is_binary and value not in (False, True):
                raise LabelError(f'Expected True or False, got {shorten(value)} - at field "{name}"')
            self._field(name).check(value)

    def _field(self, name: str) -> KnownClasses:
        return self._fields.setdefault(name, self._classes(()))

    def _classes(self, labels: Iterable[Any]) -> KnownClasses:
        return KnownClasses(None, (False, True) if self._is_binary else labels)


def known_classes(model: Any, labels: Any = None) -> KnownClasses | KnownClassesByField | None:
    """Return the labels that a model takes, or ``None`` if it is no classifier.

    Examples
    --------
    >>> from river import linear_model
    >>> known_classes(linear_model.LogisticRegression(), ["no", 1]).of("1")
    1
    >>> known_classes(linear_model.LinearRegression())
    """
    if isinstance(model, base.MultiLabelClassifier):
        return KnownClassesByField(model, labels or None)
    return KnownClasses(model, labels) if isinstance(model, base.Classifier) else None
