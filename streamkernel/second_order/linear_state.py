"""The arrays of linear functions over a growing list of names, and their work arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel.features.rows import F32, F64, I64, U64
from streamkernel.jit import inlined, work_array
from streamkernel.losses import Loss
from streamkernel.second_order.name_table import index

DENSE = 257
"""Number of places, including the constant, for which A is a full matrix."""

MOST = 65_536
"""Largest number of places; later names have none."""

FIRST = 16
"""Initial capacity in places."""

NEAR = 128
"""Number of places, including the constant, that distances between examples use."""

WINDOWS, NEIGHBOURS = (500, 2000, 8192), 8
"""Numbers of the last examples that functions of the nearest neighbours use, and of the nearest ones among these."""

STORED = WINDOWS[-1]
"""Number of stored examples."""

SEARCHED = 1 << 17
"""Number of inputs that a search for the nearest examples reads at most."""

ENTRIES = 2
"""Entries of each name of a row: its input, and the indicator of its value."""

LARGEST_INPUT = 1e9
"""Bound on the absolute value of an input."""

PLACES, REMEMBERED, BOUND, VALUES = range(4)
"""Entries of `counts`: places in use, examples remembered so far, the bound of saturated scores, and places of values.
"""

SATURATION = 4
"""Bound of the score of a class. A column that becomes those of two classes is halved, and so is its bound."""

PRIOR = 10.0
"""λ: the initial diagonal of A, in units of the input's variance and of the loss's curvature."""

CONSTANT = 0.01
"""Fraction of λ for the constant."""


class Linear(NamedTuple):
    """Linear functions over one list of names, with their factors, and recent examples.

    Attributes
    ----------
    counts
        The number of places in use, the first of which is the constant's, and of examples remembered so far; the bound
        of saturated scores, 0 if they are not saturated; and the number of values among the first `NEAR` places.
    keys, at
        Hashes of names, 0 for none, and their places: a table of twice the capacity.
    names
        The hash of each place's name.
    scales
        Centre and divisor of the values at each place, shape (room, 2); of a value's place, the value, and the divisor
        of its indicator with a minus.
    w
        Shape (functions, columns, room).
    factor
        R of each function, upper triangular, for the first places, shape (functions, n, n), n at most `DENSE`.
    diagonal
        The diagonal of A for the places after those, shape (functions, room).
    errors
        The running mean squared error of each function for each target, shape (functions × targets,).
    points, answers, weights
        The stored examples, one after the other in a ring: their inputs at the first places, shape (places, n), their
        targets, those of the first target before those of others, shape (targets × n,), and their weights, shape (n,);
        n is 0 where none are remembered.
    """

    counts: I64
    keys: U64
    at: I64
    names: U64
    scales: F64
    w: F64
    factor: F64
    diagonal: F64
    errors: F64
    points: F32
    answers: F64
    weights: F64


class LinearRoom(NamedTuple):
    """Work arrays for an example: its entries and their places, -1 for none; the entries by their places, of the first
    ones; two vectors of the same length; wᵀs, shape (functions, columns); its inputs as a point, how much each counts
    in d², and d² of all remembered examples; d² of its neighbours, and their positions in the ring.
    """

    values: F64
    places: I64
    inputs: F64
    gain: F64
    row: F64
    raw: F64
    point: F32
    influence: F32
    squares: F32
    nearest: F32
    which: I64


_VECTOR, _INTS, _HASHES = types.float64[::1], types.int64[::1], types.uint64[::1]
_SINGLES = types.float32[::1]
_MATRIX, _CUBE = types.float64[:, ::1], types.float64[:, :, ::1]
LINEAR = types.NamedTuple(
    [_INTS, _HASHES, _INTS, _HASHES, _MATRIX, _CUBE, _CUBE, _MATRIX, _VECTOR, types.float32[:, ::1], _VECTOR, _VECTOR],
    Linear,
)
ROOM = types.NamedTuple(
    [_VECTOR, _INTS, _VECTOR, _VECTOR, _VECTOR, _MATRIX, _SINGLES, _SINGLES, _SINGLES, _SINGLES, _INTS], LinearRoom
)


def neighbour_functions(stored: int) -> int:
    """Return the number of functions of the nearest neighbours where so many examples are stored.

    Examples
    --------
    >>> [neighbour_functions(stored) for stored in (0, STORED)]
    [0, 3]
    """
    return len(WINDOWS) if stored else 0


def prior(loss: Loss) -> float:
    """Return λ for a loss."""
    return PRIOR * loss.curvature


def new_linear(
    functions: int,
    columns: int,
    least: float,
    room: int = FIRST,
    window: int = 0,
    targets: int = 1,
    bound: int = 0,
) -> Linear:
    """Return linear functions without names: with λ, capacity for names, a window of examples, a bound of scores."""
    dense = min(room, DENSE)
    found = Linear(
        counts=np.array([1, 0, bound, 0], np.int64),
        keys=np.zeros(2 * room, np.uint64),
        at=np.zeros(2 * room, np.int64),
        names=np.zeros(room, np.uint64),
        scales=np.zeros((room, 2)),
        w=np.zeros((functions, columns, room)),
        factor=np.zeros((functions, dense, dense)),
        diagonal=np.zeros((functions, room)),
        errors=np.zeros(functions * targets),
        points=np.zeros((min(room, NEAR), window), np.float32),
        answers=np.zeros(targets * window),
        weights=np.zeros(window),
    )
    found.factor[:, 0, 0] = math.sqrt(CONSTANT * least)
    return found


def with_more_room(old: Linear) -> Linear:
    """Return the same functions with twice the capacity for names."""
    functions, columns, room = old.w.shape
    window, targets = len(old.weights), len(old.errors) // functions if functions else 1
    new = new_linear(functions, columns, 0.0, 2 * room, window, targets)
    dense = old.factor.shape[1]
    new.counts[:], new.points[: len(old.points)] = old.counts, old.points
    new.answers[:], new.weights[:] = old.answers, old.weights
    new.names[:room], new.scales[:room], new.w[:, :, :room] = old.names, old.scales, old.w
    new.factor[:, :dense, :dense], new.diagonal[:, :room], new.errors[:] = old.factor, old.diagonal, old.errors
    return with_index(new)


def with_index(linear: Linear) -> Linear:
    """Return functions with their table of names filled; it must be empty."""
    index(linear.keys, linear.at, linear.names, 1, int(linear.counts[PLACES]))
    return linear


@inlined(allocates=None)
def room_for(memory, linear, longest):  # type: ignore[no-untyped-def]
    """Return work arrays for examples of at most `longest` names."""
    dense, window = linear.factor.shape[1], len(linear.weights)
    return LinearRoom(
        values=work_array(memory, ENTRIES * longest, np.float64),
        places=work_array(memory, ENTRIES * longest, np.int64),
        inputs=work_array(memory, dense, np.float64),
        gain=work_array(memory, dense, np.float64),
        row=work_array(memory, dense, np.float64),
        raw=work_array(memory, linear.w.shape[:2], np.float64),
        point=work_array(memory, len(linear.points), np.float32),
        influence=work_array(memory, len(linear.points), np.float32),
        squares=work_array(memory, window, np.float32),
        nearest=work_array(memory, min(NEIGHBOURS, window), np.float32),
        which=work_array(memory, min(NEIGHBOURS, window), np.int64),
    )
