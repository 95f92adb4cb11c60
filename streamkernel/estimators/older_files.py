"""Model files of format version 3, which 0.1 wrote: their names, and the parameters that a learner has now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkernel import losses
from streamkernel.learners.options import DSG, Newton

_FIELDS = {"multiple": "median_factor", "longest": "max_step_ratio"}
"""Fields of kernels and rules that have another name now."""

_LEARNERS = {
    "rule": "rule",
    "step": "step_size",
    "features_per_seed": "features_per_seed",
    "batch_size": "batch_size",
    "preconditioning": "preconditioner",
    "average": "averaging",
}
"""What was a parameter of an estimator, and is one of a learner now."""

_GAUSSIAN_PROCESS = "GaussianProcessRegressor"
_LARGEST = 1 << 29
"""Numbers in the factors of the first four groups, beyond which version 3 learned by first order."""


def renamed(value: Any) -> Any:
    """Return a description with the names of today.

    Examples
    --------
    >>> renamed({"rule": {"type": "CDSG", "longest": 1.0}})
    {'rule': {'type': 'CDSG', 'max_step_ratio': 1.0}}
    """
    if isinstance(value, list):
        return [renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = _FIELDS if "type" in value else {}
    return {names.get(name, name): renamed(item) for name, item in value.items()}


def with_learner(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an estimator as it takes them today, given those that it took in version 3.

    Parameters
    ----------
    kind
        The name of its class.
    parameters
        Its parameters; those of today stay as they are.

    Examples
    --------
    >>> old = {"loss": "hinge", "rule": None, "average": True, "second_order": "auto", "batch_size": 8}
    >>> with_learner("KernelClassifier", old)["learner"].batch_size
    8
    """
    if kind == _GAUSSIAN_PROCESS:
        step = parameters.get("step", parameters.get("step_size"))
        return {**{name: value for name, value in parameters.items() if name != "step"}, "step_size": step or "auto"}
    if "batch_size" not in parameters:
        return dict(parameters)
    given = dict(parameters)
    order, forgetting = given.pop("second_order", None), given.pop("forgetting", 1.0)
    own = {new: given.pop(old) for old, new in _LEARNERS.items() if old in given}
    own = {name: value for name, value in own.items() if value is not None}
    if kind in ("KernelClassifier", "KernelRegressor") and _is_second_order(kind, order, own, given):
        batch = {"batch_size": own["batch_size"]} if own.get("batch_size", 1) > 1 else {}
        kept = {name: own[name] for name in ("features_per_seed", "step_size") if name in own}
        return {**given, "learner": Newton(joint=order == "full", forgetting=forgetting, **batch, **kept)}
    if kind not in ("KernelClassifier", "KernelRegressor"):
        from streamkernel import rules

        own = {"rule": rules.DSG(), **own}
    return {**given, "learner": DSG(**own)}


def _is_second_order(kind: str, order: str | None, own: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return whether version 3 learned by second order with these parameters."""
    if order != "auto":
        return order is not None
    loss = losses.named(given["loss"], kind == "KernelClassifier")
    first_order = own.keys() & {"rule", "preconditioner", "step_size"} or own.get("averaging")
    too_large = 4 * (2 * own.get("features_per_seed", 256)) ** 2 > _LARGEST
    without = given.get("max_features") is None or given.get("polish") is not None or given.get("l2", 0.0) > 0.0
    return loss.is_curved and not (first_order or too_large or without)
