"""Model files of format version 3, written by 0.1: their names, and the parameters of learners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkernel import losses
from streamkernel.learners.options import DSG, Newton

_NAMES = {
    "multiple": "median_factor",
    "longest": "max_step_ratio",
    "compaction": "pruning",
    "polish": "refit",
}
"""Parameters of kernels, rules and estimators that have another name now."""

TYPES = {"Compaction": "Pruning", "Polish": "Refit", "Ladder": "MultiScale", "On": "OnInputs"}
"""Classes of kernels and tasks that have another name now."""

_LEARNERS = {
    "rule": "rule",
    "step": "step_size",
    "features_per_seed": "features_per_seed",
    "batch_size": "batch_size",
    "preconditioning": "preconditioner",
    "average": "averaging",
}
"""Former parameters of estimators that are now parameters of a learner."""

_GAUSSIAN_PROCESS = "GaussianProcessRegressor"
_LARGEST = 1 << 29
"""Numbers in the factors of the first four groups, beyond which version 3 learned by first order."""


def translate_names(value: Any) -> Any:
    """Return a description with today's names of parameters and classes.

    Examples
    --------
    >>> translate_names({"rule": {"type": "CDSG", "longest": 1.0}})
    {'rule': {'type': 'CDSG', 'max_step_ratio': 1.0}}
    """
    if isinstance(value, list):
        return [translate_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {_NAMES.get(name, name): translate_names(item) for name, item in value.items()}
    return found | {"type": TYPES[found["type"]]} if found.get("type") in TYPES else found


def upgrade(kind: str, parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return today's class and parameters of an estimator of version 3.

    Parameters
    ----------
    kind
        The name of its class.
    parameters
        Its parameters; present names do not change.

    Examples
    --------
    >>> old = {"loss": "hinge", "rule": None, "average": True, "second_order": "auto", "batch_size": 8}
    >>> upgrade("KernelClassifier", old)[1]["learner"].batch_size
    8
    """
    if kind == _GAUSSIAN_PROCESS and "variance" in parameters:
        return _upgrade_process(parameters)
    if kind == "KernelDensityRatio" and "form" in parameters:
        given = dict(parameters)
        given["divergence"] = given.pop("form")
        return upgrade(kind, given)
    if "batch_size" not in parameters or kind == "StochasticGaussianProcessRegressor":
        return kind, dict(parameters)
    given = dict(parameters)
    order, forgetting = given.pop("second_order", None), given.pop("forgetting", 1.0)
    own = {new: given.pop(old) for old, new in _LEARNERS.items() if old in given}
    own = {name: value for name, value in own.items() if value is not None}
    if kind in ("KernelClassifier", "KernelRegressor") and _is_second_order(kind, order, own, given):
        batch = {"batch_size": own["batch_size"]} if own.get("batch_size", 1) > 1 else {}
        kept = {name: own[name] for name in ("features_per_seed", "step_size") if name in own}
        return kind, {**given, "learner": Newton(joint=order == "full", forgetting=forgetting, **batch, **kept)}
    if kind not in ("KernelClassifier", "KernelRegressor"):
        from streamkernel import rules

        own = {"rule": rules.DSG(), **own}
    return kind, {**given, "learner": DSG(**own)}


def _upgrade_process(parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    given = dict(parameters)
    own = {name: given.pop(name) for name in ("variance", "points", "features_per_seed", "batch_size", "step")}
    if own["variance"] == "recursive":
        return _GAUSSIAN_PROCESS, given
    step, block_size = own.pop("step") or "auto", own.pop("features_per_seed") or "auto"
    own |= {"step_size": step, "features_per_seed": block_size}
    return "StochasticGaussianProcessRegressor", {**given, **own}


def with_learner_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration's table of a model in today's form, with its learner and its objects as tables.

    So equal models of 0.1 and of today have equal tables.

    Examples
    --------
    >>> with_learner_table({"type": "KernelClassifier", "step": {"type": "Constant", "gamma": 0.5}})["learner"]
    {'type': 'DSG', 'step_size': 0.5}
    >>> with_learner_table({"type": "KernelClassifier"})["learner"]
    {'type': 'Newton'}
    """
    kind = str(table.get("type"))
    if kind not in ("KernelClassifier", "KernelRegressor"):
        return dict(table)
    given = dict(table)
    order, forgetting = given.pop("second_order", "auto"), given.pop("forgetting", None)
    own = {new: given.pop(old) for old, new in _LEARNERS.items() if old in given}
    learner = given.pop("learner", None)
    if learner is None:
        loss = given.get("loss", "logistic" if kind == "KernelClassifier" else "square")
        loss = getattr(losses, loss["type"])() if isinstance(loss, dict) else loss
        second = _is_second_order(kind, order, own, {"max_features": "auto", **given, "loss": loss})
        learner = {"type": "Newton" if second else "DSG", **own}
        if order == "full":
            learner["joint"] = True
        if forgetting is not None:
            learner["forgetting"] = forgetting
    elif isinstance(learner, str):
        learner = {"type": {"newton": "Newton", "dsg": "DSG"}.get(learner, learner)}
    learner = dict(learner)
    if isinstance(learner.get("rule"), str):
        learner["rule"] = {"type": learner["rule"]}
    step = learner.get("step_size")
    if isinstance(step, dict) and step.get("type") == "Constant":
        learner["step_size"] = step.get("gamma")
    return {**given, "learner": learner}


def _is_second_order(kind: str, order: str | None, own: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return whether version 3 used second-order learning with these parameters."""
    if order != "auto":
        return order is not None
    loss = losses.resolve_loss(given["loss"], kind == "KernelClassifier")
    first_order = own.keys() & {"rule", "preconditioner", "step_size"} or own.get("averaging")
    too_large = 4 * (2 * own.get("features_per_seed", 256)) ** 2 > _LARGEST
    without = given.get("max_features") is None or given.get("refit") is not None or given.get("l2", 0.0) > 0.0
    return loss.is_curved and not (first_order or too_large or without)
