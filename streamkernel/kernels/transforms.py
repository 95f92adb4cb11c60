"""Transforms ψ(x) for kernels, by name: ``kernel.of("unit")``. Inputs that they do not use are unchanged."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

from streamkernel.errors import InputError
from streamkernel.features.rows import numbers

__all__ = ["absolute", "log1p", "simplex", "unit"]

X = Mapping[Hashable, Any]


def unit(x: X) -> X:
    """Return x/‖x‖: only the direction counts. Zero stays zero.

    Examples
    --------
    >>> unit({"a": 3.0, "b": 4.0})
    {'a': 0.6, 'b': 0.8}
    """
    values = numbers(x)
    norm = math.hypot(*values.values())
    return {name: value / norm for name, value in values.items()} if norm > 0.0 else values


def simplex(x: X) -> X:
    """Return x/Σᵢ xᵢ: counts become shares. Zero stays zero.

    Raise an InputError if a value is negative.

    Examples
    --------
    >>> simplex({"a": 3.0, "b": 1.0})
    {'a': 0.75, 'b': 0.25}
    """
    values = numbers(x)
    _at_least_zero(values, "shares")
    total = math.fsum(values.values())
    return {name: value / total for name, value in values.items()} if total > 0.0 else values


def log1p(x: X) -> X:
    """Return log(1 + xᵢ) of each feature.

    Raise an InputError if a value is negative.

    Examples
    --------
    >>> log1p({"a": 0.0})
    {'a': 0.0}
    """
    values = numbers(x)
    _at_least_zero(values, "logarithms")
    return {name: math.log1p(value) for name, value in values.items()}


def absolute(x: X) -> X:
    """Return the absolute value of each feature.

    Examples
    --------
    >>> absolute({"a": -2.0})
    {'a': 2.0}
    """
    return {name: abs(value) for name, value in numbers(x).items()}


def _at_least_zero(x: Mapping[Hashable, float], purpose: str) -> None:
    for name, value in x.items():
        if value < 0.0:
            raise InputError(f"Expected a number of at least 0 to take {purpose} of, got {value!r} - at x[{name!r}]")
