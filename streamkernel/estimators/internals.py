"""Internal parts of a kernel model that the engine and the cluster use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.model import Model
from streamkernel.features.numeric_names import NumericNames
from streamkernel.features.scaling import Scales
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.losses import Loss
from streamkernel.second_order.mixture import SecondOrderLearner


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
