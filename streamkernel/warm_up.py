"""Compilation before the first event, for images and new machines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from river import base

from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.regressor import KernelRegressor
from streamkernel.learners.options import resolve_learner
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

    Parameters
    ----------
    model
        A classifier or a regressor; it stays as it is.
    explains
        Whether to compile what explanations need, too.
    """
    classes, model = isinstance(model, base.Classifier), _small(model)
    with _quiet():
        for i in range(growth.FROM):  # the second decides scales and bandwidth, the last begins a larger group
            x, n_classes = {"a": i % 7 / 7.0, "b": i % 5 / 5.0}, 2 if i < growth.FROM // 2 else 3
            with suppress(ValueError):  # it is not for these examples, or diverges: its run will say so
                model.learn_one(x, i % n_classes if classes else i % 7 / 7.0)
                model.predict_one(x)
        with suppress(ValueError):
            model.predict_many(np.ones((_ROWS, 2)))
            model.learn_many(np.ones((_ROWS, 2)), np.zeros(_ROWS, int) if classes else np.zeros(_ROWS))
        with suppress(ValueError, AttributeError):  # not every model can
            if explains:
                model.explain_one({"a": 0.5, "b": 0.5})


def _small(model: Any) -> Any:
    """Return a new model with the same parameters but few features, for which the compiled code is the same."""
    if not hasattr(model, "learner_"):
        return model.clone()
    try:
        return model.clone({"learner": replace(resolve_learner(model.learner), features_per_seed=1), "max_features": 6})
    except (TypeError, ValueError):  # it has no such parameters, or others exclude these
        return model.clone()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress log lines below warnings: the bandwidth of synthetic examples is of no interest."""
    log = logging.getLogger("streamkernel")
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)
