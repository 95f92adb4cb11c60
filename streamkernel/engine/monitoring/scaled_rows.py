"""Rows of fields with the means and deviations of the first rows, so that all numbers count alike in a kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

LARGEST = 10.0
"""The largest distance from the mean, in deviations."""

Row = dict[Any, Any]
Scales = dict[str, tuple[float, float] | None]
"""The mean and the deviation of a field; ``None`` for texts."""


def fields_of(rows: Sequence[Mapping[str, Any]], given: Sequence[str] | None, most: int) -> list[str]:
    """Return those of the given fields that are in the rows, or else the first fields of the rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [name for name in given or names[:most] if name in names]


def scales_of(rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> Scales:
    """Return the scales of the fields with these names, as far as the rows have them.

    Examples
    --------
    >>> scales_of([{"a": 1.0, "b": "x"}, {"a": 3.0}, {"a": None}], ["a", "b", "c"])
    {'a': (2.0, 1.0), 'b': None}
    """
    found: Scales = {}
    for name in names:
        values = [value for row in rows if (value := row.get(name)) is not None]
        if any(isinstance(value, str) for value in values):
            found[name] = None
        elif values:
            found[name] = float(np.mean(values)), float(np.std(values)) or 1.0
    return found


def scaled(row: Mapping[str, Any], scales: Scales) -> Row:
    """Return the fields of a row that have scales; a text where numbers were is missing.

    Examples
    --------
    >>> scaled({"a": 4.0, "b": 7, "c": 1.0}, {"a": (2.0, 1.0), "b": None})
    {'a': 2.0, 'b': '7'}
    >>> scaled({"a": 1e9, "b": -1e9}, {"a": (2.0, 1.0), "b": (2, 1)})
    {'a': 10.0, 'b': -10.0}
    """
    found: Row = {}
    for name, scale in scales.items():
        value = row.get(name)
        if scale is None:
            if value is not None:
                found[name] = str(value)
        elif isinstance(value, (float, int)):
            distance = (value - scale[0]) / scale[1]
            found[name] = distance if -LARGEST <= distance <= LARGEST else math.copysign(LARGEST, distance)
    return found
