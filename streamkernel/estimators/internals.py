"""Internal parts of a kernel model, and a copy that only predicts, for the engine, the cluster and exports."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from river import compose

from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.model import Model
from streamkernel.features.counter_rng import hash64
from streamkernel.features.numeric_names import MOST_COUNTED, SETTLES, Count, NumericNames
from streamkernel.features.scaling import Scales
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.losses import Loss
from streamkernel.second_order.mixture import SecondOrderLearner

BOTH = Count(MOST_COUNTED // 2, MOST_COUNTED // 2)
"""The counts of a name that accepts numbers and strings from now on."""


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
        if isinstance(model, compose.Pipeline):
            model = list(model.steps.values())[-1]
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
