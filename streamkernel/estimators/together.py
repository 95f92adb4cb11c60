"""Examples that a model predicts and then learns, one after the other, in one compiled call where that is possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.targets import (
    LARGEST_TARGET,
    Label,
    label_of,
    of_two_labels,
    probabilities,
    probabilities_of,
)
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
    """Return `read_probabilities` of each; faster if the deferred ones are of one model of two labels."""
    deferred = [one for one in several if isinstance(one, tuple)]
    labels = deferred[0][1] if deferred else ()
    if len(labels) != 3 or not all(names is labels and type(score) is float for _, names, score in deferred):
        return [read_probabilities(one) for one in several]
    read = iter(of_two_labels(labels[:-1], [score for _, _, score in deferred]))
    return [next(read) if isinstance(one, tuple) else one for one in several]


AT_ONCE = 16
"""Examples that a second-order function learns in a compiled call, at most: other threads wait for it."""


def predict_and_learn(
    model: KernelModel, xs: list[dict[Any, Any]], ys: Sequence[Any], largest: float
) -> tuple[F64, F64]:
    """Score and learn the first examples, as far as compiled calls of several are enough for nearly all of them.

    The bits are as by `predict_one` and `learn_one` for one example after the other. An example that needs more, as one
    with a new label, a new name or a string, ends it before it. The examples have a name each at least, and labels or
    targets that are strings or numbers of Python; a value beyond ±`largest` ends it, too. The scores before each
    example was learned have the shape (learned, columns), the values of the features (learned, names).
    """
    found, targets = model._state, []
    if found.is_plain and not (isinstance(model, KernelClassifier) and model._has_class_weights):
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
    xs, y = xs[: len(targets)], np.array(targets, np.float64)
    if found.learner.order == "first" or not isinstance(model, KernelClassifier):
        return found.learner.learn_events(xs, y, largest)
    return _learn_in_calls(model, xs, ys, y, largest)


def _learn_in_calls(
    model: KernelClassifier, xs: list[dict[Any, Any]], ys: Sequence[Any], y: F64, largest: float
) -> tuple[F64, F64]:
    """Score and learn examples in one compiled call after the other; one that other changes follow is learned alone."""
    found = model._state
    directions = found.learner.directions
    rows, values = directions.first_rows(xs, largest)
    scores, done = np.empty((len(values), found.learner.columns)), 0
    while done < len(values):
        last = min(done + AT_ONCE, len(values))
        part, said = rows.part(done, last), scores[done:last]
        done += model._model.learn_alone(part, y[done:last], directions, found.numeric, said)
        if done < last:
            try:
                scores[done], _ = model._model.score(xs[done])
                model.learn_one(xs[done], ys[done])
            except MemoryError:
                raise
            except Exception:  # who predicts and learns it alone will see the error
                break
            done += 1
    return scores[:done], values[:done]


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
