"""Internal parts of a kernel model, and a copy that only predicts, for the engine, the cluster and exports."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from river import compose

from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.model import Model
from streamkernel.estimators.targets import (
    LARGEST_TARGET,
    Label,
    label_of,
    of_two_labels,
    probabilities,
    probabilities_of,
)
from streamkernel.features.counter_rng import hash64
from streamkernel.features.numeric_names import MOST_COUNTED, SETTLES, Count, NumericNames
from streamkernel.features.rows import F64
from streamkernel.features.scaling import Scales
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.losses import Loss
from streamkernel.second_order.mixture import SecondOrderLearner

BOTH = Count(MOST_COUNTED // 2, MOST_COUNTED // 2)
"""The counts of a name that accepts numbers and strings from now on."""
Deferred = tuple[Loss, tuple[Any, ...], Any]
"""The loss, the labels and ``None``, and the score or the scores of an example, from which its probabilities follow."""
AT_ONCE = 16
"""Examples that a second-order function learns in a compiled call, at most: other threads wait for it."""


def model_of(estimator: KernelModel) -> Model:
    """Return the model that an estimator owns."""
    return estimator._model


def learner_of(model: KernelModel) -> FirstOrderLearner | SecondOrderLearner:
    """Return the learner of a model."""
    return model._learner


def loss_of(model: KernelModel) -> Loss:
    """Return the loss of a model."""
    return model._loss


def names_learned_by(model: KernelModel) -> NumericNames:
    """Return the names that a model has learned."""
    return model._state.numeric


def scales_of(model: KernelModel) -> Scales | None:
    """Return the scales of a model's inputs, or ``None`` if it does not scale them."""
    return model._state.scales


def check_label(model: KernelClassifier, label: Any) -> None:
    """Raise an InputError for a label that a classifier cannot learn."""
    model._model.outputs.check(model.labels, (label,))


def check_task(model: KernelModel, task: Any) -> None:
    """Raise a ValueError if a task can never be applied to a model."""
    model._model.check_task(task)


def check_example(model: KernelModel, x: Mapping[Any, Any], y: Any) -> None:
    """Raise an InputError for an example that a model cannot learn, without learning it."""
    model._model.number(y)
    model._model.score(x)


def is_young(model: KernelModel) -> bool:
    """Return whether the model is still collecting the examples that decide bandwidths and scales."""
    return model._model.is_young


def flush(model: KernelModel) -> None:
    """Learn the buffered examples."""
    model._model.settle()


def restructure(model: KernelModel, before: int) -> None:
    """Make the changes of a replica that became due after its first `before` examples."""
    model._model.settle()
    model._model.restructure(before)


def become_replica(model: KernelModel, number: int, replicas: int) -> None:
    """Make a model one of several replicas, which learn separately and restructure themselves only when merged."""
    model._model.divide(number, replicas)


def prediction_copy(model: Any) -> Any:
    """Return a copy of a model, or of a pipeline that ends in one, that predicts with the same bits.

    The factors of second-order steps, which are nearly all of a large model, are left out: the copy cannot learn. It
    shares nothing with the model that learning changes, and any number of threads may use it.

    Examples
    --------
    >>> from streamkernel import KernelRegressor
    >>> model = KernelRegressor()
    >>> for i in range(500):
    ...     model.learn_one({"x": i % 10}, float(i % 10))
    >>> twin = prediction_copy(model)
    >>> before = twin.predict_one({"x": 3})
    >>> model.learn_one({"x": 3}, 30.0)
    >>> before == twin.predict_one({"x": 3}) != model.predict_one({"x": 3})
    True
    """
    if isinstance(model, compose.Pipeline):
        return compose.Pipeline(*((name, prediction_copy(step)) for name, step in model.steps.items()))
    if not isinstance(model, KernelModel):
        return copy.deepcopy(model)
    return model._twin(_model=model._model.to_predict())


def last_step(model: Any) -> Any:
    """Return the model at the end of a pipeline."""
    return list(model.steps.values())[-1] if isinstance(model, compose.Pipeline) else model


def take_texts(model: Any, x: Mapping[str, Any]) -> None:
    """Let a model take the texts of an example as categories, also where it has learned numbers.

    Who calls this has found that the field has both. A number there is noticed again. The model may be at the end of a
    pipeline or in a wrapper; others than ours stay as they are.

    Examples
    --------
    >>> from streamkernel import KernelClassifier
    >>> model = KernelClassifier()
    >>> model.learn_one({"plan": 3}, True)
    >>> take_texts(model, {"plan": "basic"})
    >>> model.learn_one({"plan": "basic"}, False)
    """
    while model is not None:
        model = last_step(model)
        if hasattr(getattr(model, "_state", None), "numeric"):
            _take(model, x)
        model = getattr(model, "model", None) or getattr(model, "classifier", None)


def _take(model: KernelModel, x: Mapping[str, Any]) -> None:
    counts, mixed = model._state.numeric.counts, {}
    for name, value in x.items():
        if isinstance(value, str):
            count = counts.get(one := hash64(name))
            if count is not None and count.numbers >= SETTLES and count.is_number:
                mixed[one] = BOTH
    if mixed:
        model._model.count_names(mixed)


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
    score, state = model._model.score(x)
    return label_of(state.names, score), (model._loss, state.names, score)


def deferred_answers(model: KernelClassifier, scores: F64) -> list[tuple[Label | None, Deferred]]:
    """Return the results of `predict_deferred` for examples with these scores, shape (examples, columns)."""
    loss, names = model._loss, model._state.names
    by_example: list[Any] = scores[:, 0].tolist() if scores.shape[1] == 1 else list(scores)
    answers = answers_of(model, scores, with_probabilities=False)
    return [(label, (loss, names, score)) for (label, _), score in zip(answers, by_example, strict=True)]


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


def predict_and_learn(
    model: KernelModel, xs: list[dict[Any, Any]], ys: Sequence[Any], largest: float
) -> tuple[F64, F64]:
    """Score and learn the first examples, as far as compiled calls of several are enough for nearly all of them.

    The bits are as by `predict_one` and `learn_one` for one example after the other. An example that needs more, as one
    with a new label, a new name or a string, ends it before it. The examples have a name each at least, and labels or
    targets that are strings or numbers of Python; a value beyond ±`largest` ends it, too. The scores before each
    example was learned have the shape (learned, columns), the values of the features (learned, names).
    """
    state, targets = model._state, []
    if state.is_plain and not (isinstance(model, KernelClassifier) and model._has_class_weights):
        if isinstance(model, KernelClassifier):
            for number in map(state.labels.get, ys):
                if number is None:
                    break
                targets.append(number)
        else:
            for y in ys:
                if isinstance(y, str) or not -LARGEST_TARGET <= y <= LARGEST_TARGET:
                    break
                targets.append(y)
    xs, y = xs[: len(targets)], np.array(targets, np.float64)
    if state.learner.order == "first" or not isinstance(model, KernelClassifier):
        return state.learner.learn_events(xs, y, largest, state.scales)
    return _learn_in_calls(model, xs, ys, y, largest)


def _learn_in_calls(
    model: KernelClassifier, xs: list[dict[Any, Any]], ys: Sequence[Any], y: F64, largest: float
) -> tuple[F64, F64]:
    """Score and learn examples in one compiled call after the other; one that other changes follow is learned alone."""
    state = model._state
    directions = state.learner.directions
    rows, values = directions.first_rows(xs, largest)
    scores, done = np.empty((len(values), state.learner.columns)), 0
    while done < len(values):
        last = min(done + AT_ONCE, len(values))
        part, scores_before = rows.part(done, last), scores[done:last]
        done += model._model.learn_alone(part, y[done:last], directions, state.numeric, scores_before)
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
