"""A copy of a model that only predicts, made in about a millisecond."""

from __future__ import annotations

import copy
from typing import Any

from river import compose

from streamkernel.estimators.base import KernelModel


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
