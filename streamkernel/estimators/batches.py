"""Scores of the rows of a table as arrays, with the classes in the caller's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.tables import row_scores
from streamkernel.estimators.targets import label_scores, probabilities
from streamkernel.features.rows import F64


def class_probabilities(model: KernelClassifier, X: Any, classes: Sequence[Any]) -> F64:
    """Return the probability of each class for each row of a table, shape (rows, classes).

    A class that the model has not learned has probability 0. The model must have learned at least one class.
    """
    scores, found = row_scores(model._model, X)
    known = probabilities(model._loss, scores, len(found.labels))
    shares = np.zeros((len(scores), len(classes)))
    for i, label in enumerate(classes):
        if label in found.labels:
            shares[:, i] = known[:, found.labels[label]]
    return shares


def class_scores(model: KernelClassifier, X: Any, classes: Sequence[Any]) -> F64:
    """Return the score of the second of two classes, shape (rows,), or of each of more, shape (rows, classes).

    A class that the model has not learned has the lowest score minus 1. The model must have learned at least one class.
    """
    scores, found = row_scores(model._model, X)
    labels = found.labels
    if len(classes) == 2 and len(labels) == 2:
        return label_scores(scores, labels, classes[1], False)
    known = {label: label_scores(scores, labels, label, False) for label in classes if label in labels}
    lower = np.min([*known.values()], axis=0) - 1.0
    own = np.stack([known.get(label, lower) for label in classes], axis=1)
    return own[:, 1] - own[:, 0] if len(classes) == 2 else own
