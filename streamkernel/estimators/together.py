"""Examples that a model predicts and then learns, one after the other, in one compiled call where that is possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.targets import LARGEST_TARGET, of_two_labels, probabilities
from streamkernel.features.rows import F64


def predict_and_learn(
    model: KernelModel, xs: list[dict[Any, Any]], ys: Sequence[Any], largest: float
) -> tuple[F64, F64]:
    """Score and learn the first examples, as long as one compiled call is all that it takes.

    The bits are those of `predict_one` and `learn_one` for one example after the other. An example that needs more, as
    one with a new label, a new name or a string, ends it before it.

    Parameters
    ----------
    model
        The model.
    xs, ys
        The examples, which have a name each at least, and their labels or targets: strings, or numbers of Python.
    largest
        A larger value ends it, too.

    Returns
    -------
    scores : ndarray of shape (learned, columns)
        The scores of each example before it was learned.
    values : ndarray of shape (learned, names)
        The values of its features.
    """
    found, targets = model._state, []
    if found.is_direct and not (isinstance(model, KernelClassifier) and model._has_class_weights):
        if isinstance(model, KernelClassifier):
            for number in map(found.labels.get, ys):
                if number is None:
                    break
                targets.append(number)
        else:
            for y in ys:
                if isinstance(y, str) or not -LARGEST_TARGET <= y <= LARGEST_TARGET:
                    break
                targets.append(y)
    return found.learner.learn_events(xs[: len(targets)], np.array(targets, np.float64), largest)


def answers_of(model: KernelModel, scores: F64, *, with_probabilities: bool) -> list[tuple[Any, Any]]:
    """Return the prediction for each of these scores, and the probabilities of all labels, or ``None`` without.

    They are what `predict_one` and `predict_proba_one` return; with probabilities, the prediction is the label of the
    largest one.
    """
    if not isinstance(model, KernelClassifier):
        return [(score, None) for score in scores[:, 0].tolist()]
    labels, columns = tuple(model.labels), scores.shape[1]
    if not with_probabilities:
        best = scores.argmax(axis=1) if columns > 1 else (scores[:, 0] > 0.0) & (len(labels) == 2)
        return [(labels[i], None) for i in best.tolist()]
    if columns == 1 and len(labels) == 2:
        first, second = labels
        answers = of_two_labels(labels, scores[:, 0].tolist())
        return [(first if answer[first] >= answer[second] else second, answer) for answer in answers]
    shares = probabilities(model._loss, scores, len(labels))
    answers = [dict(zip(labels, row, strict=True)) for row in shares.tolist()]
    return [(max(answer, key=answer.__getitem__), answer) for answer in answers]
