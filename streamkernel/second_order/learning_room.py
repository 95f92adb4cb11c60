"""The options of a mixture's learning, and its work arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel.features.rows import F64
from streamkernel.jit import inlined, work_array
from streamkernel.learners.scoring import longest_row
from streamkernel.second_order.evaluation import ROW_ROOM, RowRoom, row_room
from streamkernel.second_order.gradients import GRADIENT_ROOM, GradientRoom, gradient_room
from streamkernel.second_order.targets import TARGETS_ROOM, TargetsRoom, targets_room


class LearningOptions(NamedTuple):
    """The options of a mixture's learning.

    Attributes
    ----------
    growing
        Number of blocks from the first example on.
    follow
        Step size of the level.
    prior
        λ of linear functions.
    is_new
        Whether the scales and the weights v also learn from the examples.
    may_use_moments
        Whether the scales may change.
    has_metric
        Whether gradients are gathered for the metric of larger groups.
    is_alone
        Whether an example is learned only if neither a Newton step nor a check is due after it.
    """

    growing: int
    follow: float
    prior: float
    is_new: bool
    may_use_moments: bool
    has_metric: bool
    is_alone: bool


class Example(NamedTuple):
    """An example that its functions learn.

    Attributes
    ----------
    i, weight
        Its row, and its weight.
    gamma
        γ of constant steps, in units of 1/k(x, x).
    seen
        Its number, from 1 on.
    k_xx
        k(x, x).
    entries, places
        Its entries for the linear functions, and their places with the names that it brings.
    """

    i: int
    weight: float
    gamma: float
    seen: int
    k_xx: float
    entries: int
    places: int


class LearningRoom(NamedTuple):
    """Work arrays for an example.

    Attributes
    ----------
    g, h
        The first and second derivatives of the loss at the scores of all functions, shape (functions, columns).
    out, said, nothing
        The score of the mixture, the prediction, and zeros, shape (columns,).
    mixing, row, slopes, targets
        Work arrays of the parts.
    """

    g: F64
    h: F64
    out: F64
    said: F64
    nothing: F64
    mixing: F64
    row: RowRoom
    slopes: GradientRoom
    targets: TargetsRoom


_VECTOR, _MATRIX = types.float64[::1], types.float64[:, ::1]
OPTIONS = types.NamedTuple([types.int64] + [types.float64] * 2 + [types.boolean] * 4, LearningOptions)
LEARNING_ROOM = types.NamedTuple(
    [_MATRIX, _MATRIX, _VECTOR, _VECTOR, _VECTOR, _MATRIX, ROW_ROOM, GRADIENT_ROOM, TARGETS_ROOM],
    LearningRoom,
)


@inlined(allocates=False)
def learning_room(memory, state, kernel, rows):  # type: ignore[no-untyped-def]
    """Return work arrays to learn from rows."""
    numbers, targets, (count, columns) = state.numbers[0], len(state.numbers), state.last.f.shape
    return LearningRoom(
        g=work_array(memory, (count, columns), np.float64),
        h=work_array(memory, (count, columns), np.float64),
        out=work_array(memory, columns, np.float64),
        said=work_array(memory, columns, np.float64),
        nothing=work_array(memory, columns, np.float64),
        mixing=work_array(memory, (6, max(columns, count)), np.float64),
        row=row_room(memory, state, kernel, rows),
        slopes=gradient_room(memory, longest_row(rows), numbers.block_size),
        targets=targets_room(memory, targets),
    )
