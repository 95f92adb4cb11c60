"""Columns of models with different labels, or labels in different orders, as columns of one model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkernel.features.rows import F64


def union(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """Return all labels in order of appearance.

    Examples
    --------
    >>> union([["a", "b"], ["c", "b"]])
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys(label for labels in lists for label in labels))


def columns_of(own: Sequence[Any], together: Sequence[Any], is_binary: bool, half: float) -> F64:
    """Return the matrix that maps the columns of a model with the labels `own` to the columns of one with all labels.

    Parameters
    ----------
    own, together
        Labels.
    is_binary
        Whether two labels are one column, which is the margin of the second one.
    half
        The factor of a margin in the columns of its two labels, if there are more than two labels.

    Examples
    --------
    >>> columns_of(["a", "b"], ["b", "a"], True, 0.5)
    array([[-1.]])
    >>> columns_of(["a", "c"], ["a", "b", "c"], True, 0.5)
    array([[-0.5],
           [ 0. ],
           [ 0.5]])
    >>> columns_of(["b", "a"], ["a", "b", "c"], False, 0.5)
    array([[0., 1.],
           [1., 0.],
           [0., 0.]])
    """
    if is_binary and len(together) <= 2:
        return np.array([[1.0 if list(own) == list(together)[: len(own)] else -1.0]])
    places = [list(together).index(label) for label in own]
    if is_binary and len(own) <= 2:
        found = np.zeros((len(together), 1))
        found[places, 0] = (-half, half)[: len(own)]
        return found
    found = np.zeros((max(1, len(together)), max(1, len(own))))
    found[places, range(len(own))] = 1.0
    return found
