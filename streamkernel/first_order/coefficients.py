"""The coefficients of first order, in the layout of compiled code and as a matrix of features by functions.

The functions are the columns of f and, if there is an average, the columns of the average. Compiled code keeps α
without its scale in panels, ``coef[panel, column, component, feature]``, and after the columns of f the running
sums for the average.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkernel.features.rows import F64
from streamkernel.learners import averaging


def _total_weight(numbers: Any) -> float:
    return averaging.total_weight(int(numbers["averaging"]), max(1, int(numbers["steps"])))


def predicting(numbers: Any, functions: F64) -> F64:
    """Return the functions that predict, from the current functions beside their averages."""
    if numbers["averaging"] == averaging.LAST:
        return functions
    now, average = np.split(functions, 2, axis=-1)
    return np.asarray(now + averaging.share(int(numbers["averaging"]), float(numbers["log_odds"])) * (average - now))


def to_matrix(numbers: Any, coef: F64) -> F64:
    """Return the functions, shape (blocks × components × features, functions), from the record and its panels."""
    columns, block_size, functions = int(numbers["columns"]), int(numbers["block_size"]), coef.shape[1]
    flat = coef.reshape(len(coef), functions, coef.shape[2], -1, block_size)
    flat = flat.transpose(0, 3, 2, 4, 1).reshape(-1, functions)
    flat = flat[: int(numbers["blocks"]) * block_size * coef.shape[2]]
    now, sums = flat[:, :columns], flat[:, columns:]
    if functions == columns:
        return np.asarray(float(numbers["scale"]) * now)
    average = (numbers["scale_sum"] * now - sums) / _total_weight(numbers)
    return np.concatenate([numbers["scale"] * now, average], axis=1)


def to_panels(numbers: Any, matrix: F64, width: int) -> F64:
    """Return panels of `width` features with the functions of a matrix, whose scale is 1 and whose sum of scales 0."""
    columns, size, components = int(numbers["columns"]), int(numbers["block_size"]), int(numbers["components"])
    functions, per_panel = matrix.shape[1], width // size
    blocks = len(matrix) // (components * size)
    flat = matrix.copy()
    flat[:, columns:] *= -_total_weight(numbers)
    coef = np.zeros((-(-blocks // per_panel) * per_panel, components, size, functions))
    coef[:blocks] = flat.reshape(blocks, components, size, functions)
    coef = coef.reshape(-1, per_panel, *coef.shape[1:]).transpose(0, 4, 2, 1, 3)
    return np.ascontiguousarray(coef.reshape(len(coef), functions, components, width))


def with_column(coef: F64, beta: F64, split: F64 | None) -> tuple[F64, F64]:
    """Return panels and β with one more column of zeros, or with one column split into as many as `split` has."""
    parts = np.split(coef, coef.shape[1] // beta.shape[1], axis=1)
    if split is not None:
        coef = np.concatenate([split[None, :, None, None] * part for part in parts], axis=1)
        return coef, beta * split
    zeros = np.zeros_like(coef[:, :1])
    coef = np.concatenate([column for part in parts for column in (part, zeros)], axis=1)
    return coef, np.concatenate([beta, np.zeros((len(beta), 1))], axis=1)
