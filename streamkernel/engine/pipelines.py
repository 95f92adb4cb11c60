"""The steps and the model of a River pipeline, the model's predictions, and explanations of these at a bounded cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from river import base, compose

from streamkernel.errors import InputError, NotFittedError
from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.internals import last_step
from streamkernel.estimators.several_targets import SeveralTargetsModel

Answer = tuple[Any, ...]
"""A prediction, with the probabilities of the labels if they are needed, which may be deferred; a pair is faster than a
class."""

CLASSIFIERS = base.Classifier, base.MultiLabelClassifier
"""Models that have probabilities."""

NO_ANSWER: Answer = (None, None)


def first_steps(model: Any) -> dict[str, Any]:
    """Return the steps of a pipeline before the last one, by name."""
    return dict(list(model.steps.items())[:-1]) if isinstance(model, compose.Pipeline) else {}


def kernel_model_of(model: Any) -> KernelModel | None:
    """Return the kernel model at the end of a pipeline, or ``None`` if the last step is another model."""
    last = last_step(model)
    return last if isinstance(last, KernelModel) else None


def kernel_of(model: Any) -> KernelModel:
    """Return the kernel model at the end of a pipeline that has one."""
    last = kernel_model_of(model)
    assert last is not None
    return last


def counts_of_targets(model: Any) -> tuple[int, int] | None:
    """Return how many predictions the model at the end of a pipeline limited to the range of targets, and how many
    targets were outliers to it; ``None`` if it has no such range.

    Examples
    --------
    >>> from streamkernel import KernelRegressor
    >>> counts_of_targets(KernelRegressor()), counts_of_targets(compose.Select("a"))
    ((0, 0), None)
    """
    last = last_step(model)
    if not hasattr(last, "n_bounded_predictions"):
        return None
    return last.n_bounded_predictions, last.n_outlying_targets


def name_of(model: Any) -> str:
    """Return the class name of a pipeline's last step; for a wrapped classifier, of the inner one."""
    last = last_step(model)
    return type(getattr(last, "classifier", last)).__name__


def most_likely(model: Any, x: dict[str, Any]) -> Answer:
    """Return the most likely class, ``None`` before the first label, and the probabilities of all classes; of several
    labels both by label.
    """
    probabilities = model.predict_proba_one(x)
    if isinstance(last_step(model), base.MultiLabelClassifier):
        return {name: max(shares, key=shares.get) for name, shares in probabilities.items()}, probabilities
    return max(probabilities, key=probabilities.get, default=None), probabilities


MOST_INPUTS = 200
"""Maximum number of inputs of a record to explain, which takes at least twice as many evaluations of the model."""

EVALUATIONS = 400
"""Approximate number of evaluations of the model for an explanation that is requested over HTTP."""

MOST_ORDERS = 32
"""Orders of the inputs at most, the default of `explain_one`."""

SHOWN = 10
"""Importances that are shown."""

Contributions = dict[str, Any]
"""Contributions by input, or by target and input."""


def is_explainable(kind: type) -> bool:
    """Return whether models of a class explain their predictions.

    Examples
    --------
    >>> from streamkernel import GaussianProcessRegressor
    >>> is_explainable(KernelClassifier), is_explainable(GaussianProcessRegressor)
    (True, False)
    """
    return hasattr(kind, "explain_one")


def explain(model: Any, x: Mapping[str, Any], prediction: Any) -> Contributions:
    """Return the contribution of each input to the score of a prediction, compared with the input's mean.

    The inputs are the inputs of a pipeline's last step. The contributions add up to the score of the prediction minus
    the score of the mean: of a regressor in units of the label, of a classifier the log-odds or the log-probability of
    the predicted label. Of several targets there is a dictionary for each. `model` is the pipeline, which ends in a
    model that is explainable. `x` are the features of a record. `prediction` is the model's prediction for it; ``None``
    before the first label, when no input contributes. Raise `InputError` if there are more than `MOST_INPUTS` inputs.

    Examples
    --------
    >>> from streamkernel import KernelRegressor
    >>> model = KernelRegressor()
    >>> for i in range(300):
    ...     model.learn_one({"a": i % 10, "b": i % 7}, 2.0 * (i % 10))
    >>> found = explain(model, {"a": 9, "b": 3}, model.predict_one({"a": 9, "b": 3}))
    >>> round(found["a"]), round(found["b"])
    (9, 0)
    """
    inputs = _inputs(model, x)
    if len(inputs) > MOST_INPUTS:
        raise InputError(f"Expected at most {MOST_INPUTS} inputs to explain, got {len(inputs):,}")
    n_orders = 2 * max(1, EVALUATIONS // 2 // (len(inputs) + 1))
    return _contributions(model, inputs, prediction, min(MOST_ORDERS, n_orders))


def explain_briefly(model: Any, x: Mapping[str, Any], prediction: Any, most: int) -> Contributions | None:
    """Return the largest contributions, of two orders only; ``None`` if there are too many inputs."""
    inputs = _inputs(model, x)
    if len(inputs) > MOST_INPUTS:
        return None
    contributions = _contributions(model, inputs, prediction, 2)
    if isinstance(last_step(model), SeveralTargetsModel):
        return {target: largest(of_target, most) for target, of_target in contributions.items()}
    return largest(contributions, most)


def largest(contributions: Mapping[str, float], most: int) -> dict[str, float]:
    """Return the contributions of largest size, in descending order.

    Examples
    --------
    >>> largest({"a": 0.1, "b": -2.0, "c": 1.0}, 2)
    {'b': -2.0, 'c': 1.0}
    """
    return dict(sorted(contributions.items(), key=lambda item: -abs(item[1]))[:most])


def importances(model: Any) -> dict[str, float]:
    """Return the largest importances of the inputs of a pipeline's last step; none if they do not exist (yet)."""
    try:
        shares = last_step(model).feature_importances_
    except (AttributeError, NotFittedError):
        return {}
    return {str(name): share for name, share in list(shares.items())[:SHOWN]}


def _inputs(model: Any, x: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the input of a pipeline's last step for a record."""
    for step in first_steps(model).values():
        x = step.transform_one(x)
    return x


def _contributions(model: Any, inputs: Mapping[str, Any], prediction: Any, n_orders: int) -> Contributions:
    """Return the contributions to the score of a prediction by the names of the inputs."""
    if prediction is None:
        return dict.fromkeys(inputs, 0.0)
    last = last_step(model)
    label = {"label": prediction} if isinstance(last, KernelClassifier) else {}
    contributions: Contributions = last.explain_one(inputs, method="sampling", n_orders=n_orders, **label)
    if not isinstance(last, SeveralTargetsModel):
        return contributions
    signs = {target: -1.0 if predicted is False else 1.0 for target, predicted in prediction.items()}
    return {
        target: {name: signs[target] * share for name, share in of_target.items()}
        for target, of_target in contributions.items()
    }
