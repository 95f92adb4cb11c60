"""The arrays of the linear function over a growing list of names, its work arrays, and its part of a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel import tensor_file
from streamkernel.features.rows import F64, I64, U64
from streamkernel.jit import inlined, work_array
from streamkernel.losses import Loss
from streamkernel.second_order.name_table import index, places_of_squares

FORGETTING = 0.9995
"""The forgetting factor per example, unless one is given: a linear relation drifts, and so few coefficients need few
examples."""

DENSE = 257
"""Number of places, including the constant, for which A is a full matrix."""

MOST = 65_536
"""Largest number of places; later names have none."""

FIRST = 16
"""Initial capacity in places."""

NEAR = 128
"""Number of places, including the constant, among which values have theirs, and which distances between examples use.
"""

ENTRIES = 2
"""Entries of each name of a row: its input, and the indicator of its value."""

LARGEST_INPUT = 1e9
"""Bound on the absolute value of an input."""

PLACES, BOUND, VALUES = range(3)
"""Entries of `counts`: places in use, the bound of saturated scores, 0 if they are not saturated, and places of values
and squares.
"""

SATURATION = 4
"""Bound of the score of a class. A column that becomes the columns of two classes is halved, and so is its bound."""

PRIOR = 10.0
"""λ: the initial diagonal of A, in units of the input's variance and of the loss's curvature."""

CONSTANT = 0.01
"""Fraction of λ for the constant."""

NAMES, BOUND_OF_SCORES = "linear.names", "linear.bound"
"""Their names in files."""


class Linear(NamedTuple):
    """A linear function over a list of names, with its factor; without columns there is none.

    Attributes
    ----------
    counts
        The number of places in use, the first of which is the constant's; the bound of saturated scores; and the number
        of values and squares among the first `NEAR` places.
    keys, at
        Hashes of names, 0 for none, and their places: a table of twice the capacity.
    squares
        The places of names and of their squares, shape (squares, 2).
    names
        The hash of each place's name.
    scales
        Centre and divisor of the values at each place, shape (room, 2); of a value's place, the value, and the divisor
        of its indicator with a minus; of a square's place, 0 and -1.
    w
        Shape (columns, room).
    factor
        R, upper triangular, for the first places, shape (n, n), n at most `DENSE`.
    diagonal
        The diagonal of A for the places after those, shape (room,).
    errors
        The running mean squared error for each target, shape (targets,).
    """

    counts: I64
    keys: U64
    at: I64
    squares: I64
    names: U64
    scales: F64
    w: F64
    factor: F64
    diagonal: F64
    errors: F64


class LinearRoom(NamedTuple):
    """Work arrays for an example: its entries and their places, -1 for none; the entries by their places, of the first
    ones; two vectors of the same length; and wᵀs, shape (columns,).
    """

    values: F64
    places: I64
    inputs: F64
    gain: F64
    row: F64
    raw: F64


_VECTOR, _INTS, _HASHES = types.float64[::1], types.int64[::1], types.uint64[::1]
_MATRIX, _PLACES = types.float64[:, ::1], types.int64[:, ::1]
LINEAR = types.NamedTuple(
    [_INTS, _HASHES, _INTS, _PLACES, _HASHES, _MATRIX, _MATRIX, _MATRIX, _VECTOR, _VECTOR], Linear
)
ROOM = types.NamedTuple([_VECTOR, _INTS, _VECTOR, _VECTOR, _VECTOR, _VECTOR], LinearRoom)


def prior(loss: Loss) -> float:
    """Return λ for a loss."""
    return PRIOR * loss.curvature


def new_linear(columns: int, least: float, capacity: int = FIRST, targets: int = 1, bound: int = 0) -> Linear:
    """Return a linear function without names: with λ, capacity for names, and a bound of scores."""
    dense = min(capacity, DENSE)
    new = Linear(
        counts=np.array([1, bound, 0], np.int64),
        keys=np.zeros(2 * capacity, np.uint64),
        at=np.zeros(2 * capacity, np.int64),
        squares=np.zeros((0, 2), np.int64),
        names=np.zeros(capacity, np.uint64),
        scales=np.zeros((capacity, 2)),
        w=np.zeros((columns, capacity)),
        factor=np.zeros((dense, dense)),
        diagonal=np.zeros(capacity),
        errors=np.zeros(targets),
    )
    new.factor[0, 0] = math.sqrt(CONSTANT * least)
    return new


def with_more_room(old: Linear) -> Linear:
    """Return the same function with twice the capacity for names."""
    (columns, size), dense = old.w.shape, len(old.factor)
    new = new_linear(columns, 0.0, 2 * size, len(old.errors))
    new.counts[:], new.names[:size], new.scales[:size], new.w[:, :size] = old.counts, old.names, old.scales, old.w
    new.factor[:dense, :dense], new.diagonal[:size], new.errors[:] = old.factor, old.diagonal, old.errors
    return with_index(new)


def with_index(linear: Linear) -> Linear:
    """Return the function with its table of names filled, and with the places of squares."""
    index(linear.keys, linear.at, linear.names, 1, int(linear.counts[PLACES]))
    return linear._replace(squares=places_of_squares(linear.names, min(int(linear.counts[PLACES]), DENSE)))


@inlined
def copied_to_predict(linear):  # type: ignore[no-untyped-def]
    """Return the function with a copy of each array that predictions read; it shares the others."""
    return Linear(
        counts=linear.counts.copy(),
        keys=linear.keys.copy(),
        at=linear.at.copy(),
        squares=linear.squares,
        names=linear.names,
        scales=linear.scales.copy(),
        w=linear.w.copy(),
        factor=linear.factor,
        diagonal=linear.diagonal,
        errors=linear.errors.copy(),
    )


@inlined(allocates=None)
def room_for(memory, linear, longest):  # type: ignore[no-untyped-def]
    """Return work arrays for examples of at most `longest` names."""
    dense = len(linear.factor)
    return LinearRoom(
        values=work_array(memory, ENTRIES * longest, np.float64),
        places=work_array(memory, ENTRIES * longest, np.int64),
        inputs=work_array(memory, dense, np.float64),
        gain=work_array(memory, dense, np.float64),
        row=work_array(memory, dense, np.float64),
        raw=work_array(memory, len(linear.w), np.float64),
    )


def is_stored(tensors: Mapping[str, Any]) -> bool:
    """Return whether there is a linear function in a file."""
    return len(tensors.get("linear.w", ())) > 0


def bound(tensors: Mapping[str, Any]) -> int:
    """Return the bound of saturated scores of the linear function, 0 if they are not saturated."""
    if not is_stored(tensors) or BOUND_OF_SCORES not in tensors:
        return 0
    (most,) = tensor_file.require_tensor(tensors, BOUND_OF_SCORES, np.int64, (1,)).tolist()
    if most not in (2, 4):
        raise ValueError(f"expected 2 or 4 as {BOUND_OF_SCORES}, got {most}")
    return int(most)


def with_column(linear: Linear, split: F64 | None) -> Linear:
    """Return the function with a column for one more class; a thread that still predicts uses the old one.

    `split` are the factors by which the single column of two classes becomes three; ``None`` if each class has one.
    """
    w, counts = linear.w, linear.counts.copy()
    if not len(w):
        return linear
    if split is None:
        return linear._replace(w=np.concatenate([w, np.zeros_like(w[:1])]), counts=counts)
    counts[BOUND] *= split.max()
    return linear._replace(w=split[:, None] * w, counts=counts)


def places_of(linear: Linear, hashes: U64) -> I64:
    """Return the place of each name by its hash, 0 without one."""
    place = {int(name): i for i, name in enumerate(linear.names[: linear.counts[PLACES]]) if i > 0}
    return np.array([place.get(int(one), 0) for one in hashes], np.int64)


def pack(linear: Linear) -> dict[str, Any]:
    """Return the state as arrays, without unused places."""
    n = int(linear.counts[PLACES])
    dense = min(n, len(linear.factor))
    return ({BOUND_OF_SCORES: linear.counts[[BOUND]]} if linear.counts[BOUND] else {}) | {
        NAMES: linear.names[:n].view(np.int64).copy(),
        "linear.scales": linear.scales[:n].copy(),
        "linear.w": linear.w[:, :n].copy(),
        "linear.factor": linear.factor[np.triu_indices(dense)],
        "linear.diagonal": linear.diagonal[dense:n].copy(),
        "linear.errors": linear.errors.copy(),
    }


def unpack(tensors: Mapping[str, Any], columns: int, targets: int = 1) -> Linear:
    """Return the function of these columns and targets whose arrays :func:`pack` returned.

    Raise a ValueError if a tensor is missing, does not fit, or holds what no function learns.
    """
    names = tensor_file.require_tensor(tensors, NAMES, np.int64, (None,))
    n, columns = len(names), columns if is_stored(tensors) else 0
    dense = min(n, DENSE)
    if not 0 < n <= MOST or names[0] or not names[1:].all() or len(set(names.tolist())) < n:
        raise ValueError(f"expected up to {MOST} hashes of names, after the constant, as {NAMES}, got {n} others")
    shapes = {
        "scales": (n, 2),
        "w": (columns, n),
        "factor": (dense * (dense + 1) // 2,),
        "diagonal": (n - dense,),
        "errors": (targets,),
    }
    parts = {
        name: tensor_file.require_tensor(tensors, f"linear.{name}", np.float64, shape) for name, shape in shapes.items()
    }
    linear = new_linear(columns, 0.0, targets=targets, bound=bound(tensors))
    while linear.w.shape[1] < n:
        linear = with_more_room(linear)
    linear.counts[PLACES], linear.names[:n] = n, names.view(np.uint64)
    linear.scales[:n], linear.w[:, :n], linear.errors[:] = parts["scales"], parts["w"], parts["errors"]
    linear.factor[np.triu_indices(dense)], linear.diagonal[dense:n] = parts["factor"], parts["diagonal"]
    usable = (
        (np.diagonal(linear.factor)[:dense] > 0.0).all()
        and (parts["diagonal"] > 0.0).all()
        and (parts["errors"] >= 0.0).all()
        and (np.abs(parts["scales"][1:, 1]) > 0.0).all()
    )
    if not usable:
        raise ValueError("expected factors and scales of a linear function as linear.*, got other numbers")
    linear.counts[VALUES] = (parts["scales"][:NEAR, 1] < 0.0).sum()
    return with_index(linear)
