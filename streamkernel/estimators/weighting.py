"""Weights of examples from users, and weights of classes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from streamkernel.errors import InputError, shorten
from streamkernel.estimators.targets import Label, as_label
from streamkernel.features.frames import targets_of
from streamkernel.features.rows import F64, number

LARGEST_WEIGHT = 1e9
"""Weights beyond lose what other examples say to rounding."""

SMALLEST_WEIGHT = sys.float_info.min
"""Weights below have few digits left, and half of one may be 0: they count as 0."""

ClassWeight = Mapping[Label, float] | Literal["balanced"] | None
"""The type of `class_weight`."""


def as_weight(w: Any, where: str = "w") -> float:
    """Return the weight of an example as a number; one too small for all digits of a number is 0.

    Raise an InputError if it is not a number, or out of its range.

    Examples
    --------
    >>> as_weight(2), as_weight(1e-310)
    (2.0, 0.0)
    """
    found = number(w, where)
    if not 0.0 <= found <= LARGEST_WEIGHT:
        raise InputError(f"Expected a weight from 0 to {LARGEST_WEIGHT:.0e}, got {shorten(w)} - at {where}")
    return found if found >= SMALLEST_WEIGHT else 0.0


def weights_of(w: Any, rows: int) -> F64:
    """Return the weights of rows from one number, a series of any library, an array or a list; 1 each for ``None``.

    Raise an InputError that names the row if a weight is unusable, a ValueError if their number differs from the number
    of rows.
    """
    if w is None:
        return np.ones(rows)
    if isinstance(w, (int, float, np.number)):
        return np.full(rows, as_weight(w))
    return np.array([as_weight(one, f"w, row {i}") for i, one in enumerate(targets_of(w, rows, "weights"))], np.float64)


def check_class_weight(class_weight: Any) -> ClassWeight:
    """Return `class_weight`, or raise an error if it is invalid."""
    if class_weight is None or class_weight == "balanced":
        return class_weight  # type: ignore[no-any-return]
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f'Expected class_weight as None, "balanced" or a dictionary of weights by label, got {class_weight!r}'
        )
    for label, w in class_weight.items():
        as_label(label)
        as_weight(w, f"class_weight[{label!r}]")
    return class_weight


def balanced_weights(y: F64, counts: F64) -> F64:
    """Return the weights min n/n_y of examples in order, which give all classes the weight of the rarest.

    `y` are the numbers of their classes, and `counts` the examples of each class before, shape (classes,).

    Examples
    --------
    >>> balanced_weights(np.array([0.0, 1.0, 1.0, 0.0]), np.array([3.0, 0.0])).tolist()
    [1.0, 1.0, 1.0, 0.4]
    """
    known, found = counts.tolist(), []
    for one in y.astype(np.int64).tolist():
        known[one] += 1.0
        found.append(min(filter(None, known)) / known[one])
    return np.array(found)


def class_counts(counts: F64, y: F64, labels: int) -> F64:
    """Return the number of examples of each class, shape (labels,), after examples of these class numbers."""
    found: F64 = np.bincount(y.astype(np.int64), minlength=labels).astype(np.float64)
    found[: len(counts)] += counts
    return found
