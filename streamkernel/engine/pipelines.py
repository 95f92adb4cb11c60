"""Access to the steps and the model of a River pipeline."""

from __future__ import annotations

from typing import Any

from river import base, compose

from streamkernel.estimators.base import KernelModel

Answer = tuple[Any, ...]
"""A prediction, with the probabilities of the labels if they are needed, which may be deferred; a pair is faster than a
class."""

CLASSIFIERS = base.Classifier, base.MultiLabelClassifier
"""Models that have probabilities."""

NO_ANSWER: Answer = (None, None)


def last_step(model: Any) -> Any:
    """Return the model at the end of a pipeline."""
    return list(model.steps.values())[-1] if isinstance(model, compose.Pipeline) else model


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
