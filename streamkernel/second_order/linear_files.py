"""Linear functions and recent examples in files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.example_tensors import pack_weights, unpack_weights
from streamkernel.features.rows import F32, F64
from streamkernel.second_order.linear import FORGETTING
from streamkernel.second_order.linear_state import (
    BOUND,
    DENSE,
    LARGEST_INPUT,
    MOST,
    NEAR,
    PLACES,
    REMEMBERED,
    STORED,
    VALUES,
    Linear,
    new_linear,
    with_index,
    with_more_room,
)

NAMES = "linear.names"
POINTS, ANSWERS, COUNT = "neighbours.points", "neighbours.targets", "neighbours.count"
WEIGHTS = "neighbours.weights"
BOUND_OF_SCORES = "linear.bound"


def count(tensors: Mapping[str, Any]) -> int:
    """Return the number of linear functions in a file."""
    return len(tensors["linear.w"]) if "linear.w" in tensors else 0


def bound(tensors: Mapping[str, Any]) -> int:
    """Return the bound of saturated scores of linear functions, 0 if scores are not saturated."""
    if not count(tensors) or BOUND_OF_SCORES not in tensors:
        return 0
    (found,) = tensor_file.require_tensor(tensors, BOUND_OF_SCORES, np.int64, (1,)).tolist()
    if found not in (2, 4):
        raise ValueError(f"expected 2 or 4 as {BOUND_OF_SCORES}, got {found}")
    return int(found)


def window(tensors: Mapping[str, Any]) -> int:
    """Return the capacity of a function's recent examples in a file, 0 for files without them."""
    return STORED if ANSWERS in tensors else 0


def pack(linear: Linear) -> dict[str, Any]:
    """Return the state as arrays, without unused places."""
    n, dense = int(linear.counts[PLACES]), min(int(linear.counts[PLACES]), linear.factor.shape[1])
    ring = linear.points[:n], linear.answers, linear.weights
    near = recent(*ring, int(linear.counts[REMEMBERED])) if len(linear.weights) else {}
    bounded = {BOUND_OF_SCORES: linear.counts[[BOUND]]} if linear.counts[BOUND] else {}
    return (
        near
        | bounded
        | {
            NAMES: linear.names[:n].view(np.int64).copy(),
            "linear.scales": linear.scales[:n].copy(),
            "linear.w": linear.w[:, :, :n].copy(),
            "linear.factor": linear.factor[:, *np.triu_indices(dense)],
            "linear.diagonal": linear.diagonal[:, dense:n].copy(),
            "linear.errors": linear.errors.copy(),
        }
    )


def recent(points: F32, answers: F64, weights: F64, remembered: int) -> dict[str, Any]:
    """Return stored examples as arrays, in the order of their ring, and how many were remembered in all; weights only
    where one is not 1.
    """
    filled, window = min(remembered, len(weights)), len(weights)
    own, targets = pack_weights(WEIGHTS, weights[:filled].copy()), len(answers) // max(window, 1)
    own[ANSWERS] = answers.reshape(targets, window)[:, :filled].ravel()
    return own | {POINTS: points[:, :filled].copy(), COUNT: np.array([remembered])}


def unpack(tensors: Mapping[str, Any], columns: int, classes: int | None, targets: int = 1) -> Linear:
    """Return the functions whose arrays :func:`pack` returned.

    Parameters
    ----------
    tensors
        The tensors of a file.
    columns
        Outputs of f.
    classes
        The number of classes if targets are class numbers; ``None`` if they are real numbers.
    targets
        The number of targets.

    Raises
    ------
    ValueError
        If a tensor is missing, does not fit, or holds what no function learns.
    """
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
        "errors": (functions * targets,),
    }
    parts = {
        name: tensor_file.require_tensor(tensors, f"linear.{name}", np.float64, shape) for name, shape in shapes.items()
    }
    linear = new_linear(functions, columns, 0.0, window=window(tensors), targets=targets, bound=bound(tensors))
    while linear.w.shape[2] < n:
        linear = with_more_room(linear)
    linear.counts[PLACES], linear.names[:n] = n, names.view(np.uint64)
    linear.scales[:n], linear.w[:, :, :n], linear.errors[:] = parts["scales"], parts["w"], parts["errors"]
    linear.factor[:, *np.triu_indices(dense)], linear.diagonal[:, dense:n] = parts["factor"], parts["diagonal"]
    own = np.arange(dense)
    usable = (
        (linear.factor[:, own, own] > 0.0).all()
        and (parts["diagonal"] > 0.0).all()
        and (parts["errors"] >= 0.0).all()
        and (np.abs(parts["scales"][1:, 1]) > 0.0).all()
    )
    if not usable:
        raise ValueError("expected factors and scales of linear functions as linear.*, got other numbers")
    linear.counts[VALUES] = (parts["scales"][:NEAR, 1] < 0.0).sum()
    if len(linear.weights):
        _restore_recent(linear, tensors, classes, targets)
    return with_index(linear)


def _restore_recent(linear: Linear, tensors: Mapping[str, Any], classes: int | None, targets: int) -> None:
    """Restore the recent examples of a file."""
    (remembered,) = tensor_file.require_tensor(tensors, COUNT, np.int64, (1,)).tolist()
    filled, places = min(remembered, len(linear.weights)), min(int(linear.counts[PLACES]), NEAR)
    if not 0 <= remembered < 1 << 62:
        raise ValueError(f"expected how many examples were remembered as {COUNT}, got {remembered}")
    answers = tensor_file.require_tensor(tensors, ANSWERS, np.float64, (targets * filled,))
    if classes is not None and not np.isin(answers, range(classes)).all():
        raise ValueError(f"expected the numbers of {classes} classes as {ANSWERS}, got others")
    points = tensor_file.require_tensor(tensors, POINTS, np.float32, (places, filled))
    if np.abs(points).max(initial=0.0) > LARGEST_INPUT:
        raise ValueError(f"expected inputs of up to {LARGEST_INPUT:g} as {POINTS}, got {np.abs(points).max():g}")
    linear.points[:places, :filled] = points
    linear.weights[:filled] = unpack_weights(WEIGHTS, tensors, filled)
    linear.answers.reshape(targets, -1)[:, :filled] = answers.reshape(targets, filled)
    linear.counts[REMEMBERED] = remembered
