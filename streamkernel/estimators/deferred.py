"""Predictions whose probabilities are computed when they are read, because those of most events never are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.targets import Label, label_of, of_two_labels, probabilities_of
from streamkernel.estimators.together import answers_of
from streamkernel.features.rows import F64
from streamkernel.losses import Loss

Deferred = tuple[Loss, tuple[Any, ...], Any]
"""The loss, the labels and ``None``, and the score or the scores of an example, from which its probabilities follow."""


def predict_deferred(model: KernelClassifier, x: dict[Any, Any]) -> tuple[Label | None, Deferred]:
    """Return the result of `predict_one`, with probabilities that are computed later.

    Examples
    --------
    >>> model = KernelClassifier(max_features=64)
    >>> for i in range(100):
    ...     model.learn_one({"a": i / 100}, i > 50)
    >>> label, deferred = predict_deferred(model, {"a": 0.9})
    >>> label, read_probabilities(deferred) == model.predict_proba_one({"a": 0.9})
    (True, True)
    """
    score, found = model._model.score(x)
    return label_of(found.names, score), (model._loss, found.names, score)


def deferred_answers(model: KernelClassifier, scores: F64) -> list[tuple[Label | None, Deferred]]:
    """Return the results of `predict_deferred` for examples with these scores, shape (examples, columns)."""
    loss, names = model._loss, model._state.names
    own: list[Any] = scores[:, 0].tolist() if scores.shape[1] == 1 else list(scores)
    answers = answers_of(model, scores, with_probabilities=False)
    return [(label, (loss, names, score)) for (label, _), score in zip(answers, own, strict=True)]


def read_probabilities(probabilities: Mapping[Label, float] | Deferred | None) -> Mapping[Label, float] | None:
    """Return the probabilities of an answer, which are computed if they were deferred."""
    if isinstance(probabilities, tuple):
        loss, names, score = probabilities
        return probabilities_of(loss, names[:-1], score)
    return probabilities


def read_several(several: Sequence[Mapping[Label, float] | Deferred | None]) -> list[Mapping[Label, float] | None]:
    """Return `read_probabilities` of each; faster if those that were deferred are of one model of two labels."""
    deferred = [one for one in several if isinstance(one, tuple)]
    labels = deferred[0][1] if deferred else ()
    if len(labels) != 3 or not all(names is labels and type(score) is float for _, names, score in deferred):
        return [read_probabilities(one) for one in several]
    read = iter(of_two_labels(labels[:-1], [score for _, _, score in deferred]))
    return [next(read) if isinstance(one, tuple) else one for one in several]
