"""A copy of a model that only predicts, made in a millisecond or a few, however much the model keeps to learn with."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from river import compose

from streamkernel.estimator import KernelModel
from streamkernel.mixture import Mixture


def frozen(model: Any) -> Any:
    """Return a copy of a model, or of a pipeline that ends in one, that predicts with the same bits.

    The factors of second-order steps, which are nearly all of a large model, are left out: the copy cannot learn. It
    shares nothing with the model that learning changes, so that one thread can ask it while another one learns.

    Parameters
    ----------
    model
        A River estimator.

    Examples
    --------
    >>> from streamkernel import KernelRegressor
    >>> model = KernelRegressor()
    >>> for i in range(500):
    ...     model.learn_one({"x": i % 10}, float(i % 10))
    >>> asked = frozen(model)
    >>> before = asked.predict_one({"x": 3})
    >>> model.learn_one({"x": 3}, 30.0)
    >>> before == asked.predict_one({"x": 3}) != model.predict_one({"x": 3})
    True
    """
    if isinstance(model, compose.Pipeline):
        return compose.Pipeline(*((name, frozen(step)) for name, step in model.steps.items()))
    if not isinstance(model, KernelModel):
        return copy.deepcopy(model)
    twin = _shallow(model)
    twin._upkeep = None
    if not isinstance(model._learner, Mixture):
        return copy.deepcopy(twin)
    twin._learner, twin._scales = _of_mixture(model._learner), copy.deepcopy(model._scales)
    if hasattr(twin, "labels"):
        twin.labels = dict(twin.labels)
    return twin


def _of_mixture(function: Mixture) -> Mixture:
    twin: Mixture = _shallow(function)
    twin.ints, twin.reals = function.ints.copy(), function.reals.copy()
    twin.level, twin.weights = function.level.copy(), function.weights.copy()
    twin.groups = _shallow(function.groups)
    flat = function.groups.flat
    none: dict[str, Any] = {
        name: np.broadcast_to(np.float32(0.0), getattr(flat, name).shape) for name in ("factor", "rows")
    }
    twin.groups.flat = flat._replace(**none, newton=flat.newton.copy(), steady=flat.steady.copy())
    twin.directions = function.directions.anew()
    twin._phi = function._phi.copy()
    return twin


def _shallow(thing: Any) -> Any:
    twin = object.__new__(type(thing))
    twin.__dict__.update(thing.__dict__)
    return twin
