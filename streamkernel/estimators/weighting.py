"""Weights of examples as they are given, and those of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from streamkernel.errors import InputError
from streamkernel.estimators.targets import Label, as_label
from streamkernel.features.frames import targets_of
from streamkernel.features.rows import F64, Rows, number

LARGEST_WEIGHT = 1e9
"""Weights beyond lose what other examples say to rounding."""

ClassWeight = Mapping[Label, float] | Literal["balanced"] | None
"""What `class_weight` may be."""


def as_weight(w: Any, where: str = "w") -> float:
    """Return the weight of an example as a number.

    Raises
    ------
    InputError
        If it is no number, or out of its range.

    Examples
    --------
    >>> as_weight(2)
    2.0
    """
    found = number(w, where)
    if not 0.0 <= found <= LARGEST_WEIGHT:
        raise InputError(f"Expected a weight from 0 to {LARGEST_WEIGHT:.0e}, got {w!r} - at {where}")
    return found


def with_weights(rows: Rows, w: Any) -> Rows:
    """Return rows with weights: a series of any library, an array or a list; 1 each where it is ``None``.

    Raises
    ------
    InputError
        If a weight is unusable; names the row.
    ValueError
        If there are not as many as rows.
    """
    if w is None:
        return rows
    found = np.array([as_weight(one, f"w, row {i}") for i, one in enumerate(targets_of(w, rows, "weights"))])
    return rows._replace(weights=found)


def check_class_weight(class_weight: Any) -> ClassWeight:
    """Return `class_weight` if it can be used.

    Raises
    ------
    ValueError
        If it cannot.
    """
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


def balanced(y: F64, counts: F64, labels: int) -> F64:
    """Return the weights n/(C n_y) of examples in order, with which all classes weigh the same.

    Parameters
    ----------
    y
        The numbers of their classes.
    counts
        Examples of each class before.
    labels
        C, the number of classes that are known.

    Examples
    --------
    >>> balanced(np.array([0.0, 1.0, 1.0]), np.array([3.0, 0.0]), 2).round(3).tolist()
    [0.5, 2.5, 1.5]
    """
    n_y = np.empty(len(y))
    for number_of_class in range(labels):
        at = np.flatnonzero(y == number_of_class)
        n_y[at] = counts[number_of_class] + np.arange(1, len(at) + 1)
    n: F64 = counts.sum() + np.arange(1, len(y) + 1)
    return n / (labels * n_y)


def class_counts(counts: F64, y: F64, labels: int) -> F64:
    """Return the examples of each class, shape (labels,), after examples with these numbers of classes."""
    found: F64 = np.bincount(y.astype(np.int64), minlength=labels).astype(np.float64)
    found[: len(counts)] += counts
    return found
