"""Checks of the parameters that estimators share."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
from river import base

from streamkernel import kernels
from streamkernel.errors import is_count
from streamkernel.kernels import Kernel


def require_at_least(least: int, **values: int) -> None:
    """Raise a ValueError if a parameter is not an integer of at least `least`; names it."""
    for name, value in values.items():
        if not is_count(value, least):
            raise ValueError(f"Expected an integer {name} >= {least}, got {value!r}")


MOST_FEATURES = 1 << 16
"""Features of which each has a name or a row of a matrix."""


def check_size(n_features: Any) -> None:
    """Raise a ValueError if a parameter is not a number of features that are all computed for each example."""
    if not (is_count(n_features, 1) and n_features <= MOST_FEATURES):
        raise ValueError(f"Expected an integer n_features from 1 to {MOST_FEATURES:,}, got {n_features!r}")


def check_shared(kernel: Any, cache_bytes: int, seed: Any) -> None:
    """Raise a ValueError that names the first parameter out of range among the ones that estimators share."""
    if kernel is not None and not isinstance(kernel, Kernel):
        raise ValueError(f"Expected kernel as one of streamkernel.kernels or None, got {kernel!r}{_hint(kernel)}")
    require_at_least(0, cache_bytes=cache_bytes)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ValueError(f"Expected seed to be an integer, got {seed!r}")


class Parameter:
    """A parameter of an estimator, which is set once: what is made from it would not change with it.

    Examples
    --------
    >>> class Model:
    ...     l2 = Parameter("l2")
    ...     def __init__(self, l2):
    ...         self.l2 = l2
    >>> model = Model(0.1)
    >>> model.l2 = 0.2
    Traceback (most recent call last):
    AttributeError: Expected l2 of Model to stay 0.1, got 0.2: model.clone({'l2': ...}) makes another model
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __set__(self, model: Any, value: Any) -> None:
        """Set the parameter, if it has no value yet; a descriptor without ``__get__`` does not slow down reading."""
        if self._name in vars(model):
            raise AttributeError(
                f"Expected {self._name} of {type(model).__name__} to stay {vars(model)[self._name]!r}, got {value!r}: "
                f"model.clone({{{self._name!r}: ...}}) makes another model"
            )
        vars(model)[self._name] = value


_OF_SCIKIT_LEARN = {"rbf": "gaussian", "poly": "polynomial"}


def _hint(kernel: Any) -> str:
    """Return the instance that a class of kernels, its name or scikit-learn's probably stands for."""
    text = kernel if isinstance(kernel, str) else getattr(kernel, "__name__", "")
    name = {name.lower(): name for name in kernels.__all__}.get(_OF_SCIKIT_LEARN.get(text, text).lower())
    return f"; an instance is expected, as kernels.{name}()" if name and name != "Kernel" else ""


def parameters_of(model: Any) -> dict[str, Any]:
    """Return the constructor arguments of one of our models or River's objects, by name.

    An argument that is an object of River is a pair: its class, and its own arguments.
    """
    values = {name: getattr(model, name) for name in signature(type(model)).parameters}
    return {
        name: (type(value), parameters_of(value)) if isinstance(value, base.Base) else value
        for name, value in values.items()
    }
