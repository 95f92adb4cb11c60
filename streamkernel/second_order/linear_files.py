"""What a file has of linear functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.second_order.linear import FORGETTING
from streamkernel.second_order.linear_state import DENSE, MOST, Linear, grown, indexed, new_linear

NAMES = "linear.names"


def has_linear(tensors: Mapping[str, Any]) -> bool:
    """Return whether a file knows of linear functions, if only that there are none; those of 0.1 do not."""
    return NAMES in tensors


def count(tensors: Mapping[str, Any]) -> int:
    """Return how many functions a file has."""
    return len(tensors["linear.w"]) if has_linear(tensors) and "linear.w" in tensors else 0


def pack(linear: Linear) -> dict[str, Any]:
    """Return everything as arrays, of the places in use."""
    n, dense = int(linear.counts[0]), min(int(linear.counts[0]), linear.factor.shape[1])
    return {
        NAMES: linear.names[:n].view(np.int64).copy(),
        "linear.scales": linear.scales[:n].copy(),
        "linear.w": linear.w[:, :, :n].copy(),
        "linear.factor": linear.factor[:, *np.triu_indices(dense)],
        "linear.diagonal": linear.diagonal[:, dense:n].copy(),
        "linear.errors": linear.errors.copy(),
    }


def unpack(tensors: Mapping[str, Any], columns: int) -> Linear:
    """Return the functions that :func:`pack` returned as arrays; none of a file of 0.1.

    Raises
    ------
    ValueError
        If a tensor is missing, does not fit, or holds what no function learns.
    """
    if not has_linear(tensors):
        return new_linear(0, columns, 0.0)
    names = tensor_file.require_tensor(tensors, NAMES, np.int64, (None,))
    n, functions = len(names), count(tensors)
    dense = min(n, DENSE)
    if not 0 < n <= MOST or names[0] or not names[1:].all() or len(set(names.tolist())) < n:
        raise ValueError(f"expected up to {MOST} hashes of names, after the constant, as {NAMES}, got {n} others")
    if functions not in (0, len(FORGETTING)):
        raise ValueError(f"expected {len(FORGETTING)} functions or none as linear.w, got {functions}")
    shapes = {
        "scales": (n, 2),
        "w": (functions, columns, n),
        "factor": (functions, dense * (dense + 1) // 2),
        "diagonal": (functions, n - dense),
        "errors": (functions,),
    }
    parts = {
        name: tensor_file.require_tensor(tensors, f"linear.{name}", np.float64, shape) for name, shape in shapes.items()
    }
    linear = new_linear(functions, columns, 0.0)
    while linear.w.shape[2] < n:
        linear = grown(linear)
    linear.counts[0], linear.names[:n] = n, names.view(np.uint64)
    linear.scales[:n], linear.w[:, :, :n], linear.errors[:] = parts["scales"], parts["w"], parts["errors"]
    linear.factor[:, *np.triu_indices(dense)], linear.diagonal[:, dense:n] = parts["factor"], parts["diagonal"]
    own = np.arange(dense)
    usable = (
        (linear.factor[:, own, own] > 0.0).all()
        and (parts["diagonal"] > 0.0).all()
        and (parts["errors"] >= 0.0).all()
        and (parts["scales"][1:, 1] > 0.0).all()
    )
    if not usable:
        raise ValueError("expected factors and scales of linear functions as linear.*, got other numbers")
    return indexed(linear)
