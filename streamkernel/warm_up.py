"""Compilation before the first event, for images and new machines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from river import base

from streamkernel.estimators.base import KernelModel
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.drift import KernelDriftDetector
from streamkernel.estimators.internals import predict_and_learn
from streamkernel.estimators.regressor import KernelRegressor
from streamkernel.estimators.several_targets import SeveralTargetsModel
from streamkernel.kernels import Gaussian
from streamkernel.learners import resolve_learner
from streamkernel.second_order import growth

_ROWS = 8


def default_models() -> dict[str, Any]:
    """Return the default models of second and first order, by description."""
    return {
        "KernelClassifier()": KernelClassifier(),
        "KernelRegressor()": KernelRegressor(),
        "KernelClassifier(learner='dsg')": KernelClassifier(learner="dsg"),
        "KernelRegressor(learner='dsg')": KernelRegressor(learner="dsg"),
    }


def warm_up(model: Any, *, explains: bool = False) -> None:
    """Compile what a model needs, by learning and predicting with it.

    The model, a classifier or a regressor, does not change.
    """
    model = _small(model)
    with quiet():
        for i in range(growth.FROM):  # the second decides scales and bandwidth, the last begins a larger group
            x, n_classes = {"a": i % 7 / 7.0, "b": i % 5 / 5.0}, 2 if i < growth.FROM // 2 else 3
            with suppress(ValueError):  # these examples do not suit it, or it diverges: its run will report that
                model.learn_one(x, _target(model, i, n_classes))
                model.predict_one(x)
        with suppress(ValueError):
            if isinstance(model, KernelModel):
                model.clone(include_attributes=True)  # a checkpoint that is written is read again
                if not isinstance(model, SeveralTargetsModel):  # a run learns several events of one target in one call
                    targets = [_target(model, i, 2) for i in range(2)]
                    predict_and_learn(model, [{"a": 0.5, "b": 0.5}] * 2, targets, np.inf)
        with suppress(ValueError):
            model.predict_many(np.ones((_ROWS, 2)))
            model.learn_many(np.ones((_ROWS, 2)), _targets_of_rows(model))
        with suppress(ValueError, AttributeError):  # not every model can
            if explains:
                model.explain_one({"a": 0.5, "b": 0.5})


def warm_up_detectors() -> None:
    """Compile what drift detection in a run needs."""
    with quiet():
        KernelDriftDetector(Gaussian(1.0), window=2, max_features=16).update_many([{"a": i / 7.0} for i in range(7)])


def _target(model: Any, i: int, n_classes: int) -> Any:
    """Return the target of an example, of the kind that a model learns; more features explain more of it."""
    wave = i % 7 * (i % 5)
    if isinstance(model, base.Classifier):
        return wave % n_classes
    if isinstance(model, base.MultiLabelClassifier):
        return {0: i % 2 == 0, 1: i % 3 == 0}
    return {0: wave % 7 / 7.0, 1: i % 3 / 3.0} if isinstance(model, base.MultiTargetRegressor) else wave % 7 / 7.0


def _targets_of_rows(model: Any) -> Any:
    """Return the targets of some rows."""
    if isinstance(model, (base.MultiLabelClassifier, base.MultiTargetRegressor)):
        return np.zeros((_ROWS, 2))
    return np.zeros(_ROWS, int if isinstance(model, base.Classifier) else float)


def _small(model: Any) -> Any:
    """Return a new model with the same parameters but few features, for which the compiled code is the same."""
    if not hasattr(model, "learner_"):
        return model.clone()
    try:
        return model.clone({"learner": replace(resolve_learner(model.learner), features_per_seed=1), "max_features": 6})
    except (TypeError, ValueError):  # it has no such parameters, or others exclude these
        return model.clone()


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress a model's log lines below warnings, of which the bandwidth of examples soon forgotten is one."""
    log = logging.getLogger("streamkernel.estimators")
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)
