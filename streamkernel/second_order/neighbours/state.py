"""The recent examples that functions of the nearest neighbours use: their arrays, their part of files and of merges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel import tensor_file
from streamkernel.features.example_tensors import pack_weights, unpack_weights
from streamkernel.features.rows import F32, F64, I64, U64
from streamkernel.jit import inlined, work_array
from streamkernel.second_order.linear.state import FIRST, LARGEST_INPUT, NEAR, PLACES, Linear

WINDOWS, NEIGHBOURS = (500, 2000, 8192), 8
"""Numbers of the last examples that functions of the nearest neighbours use, and of the nearest ones among these."""

STORED = WINDOWS[-1]
"""Number of stored examples."""

POINTS, ANSWERS, COUNT, WEIGHTS = (f"neighbours.{name}" for name in ("points", "targets", "count", "weights"))
"""Their names in files."""


class Neighbours(NamedTuple):
    """The stored examples, one after the other in a ring.

    Attributes
    ----------
    remembered
        The number of examples remembered so far, shape (1,).
    points
        Their inputs at the first places of the linear function, shape (places, n).
    answers
        Their targets, the first target's before the others', shape (targets × n,).
    weights
        Their weights, shape (n,); n is 0 where none are remembered.
    """

    remembered: I64
    points: F32
    answers: F64
    weights: F64


class NeighboursRoom(NamedTuple):
    """Work arrays for an example: its inputs as a point, how much each counts in d², and d² of all remembered examples;
    d² of its neighbours, and their positions in the ring.
    """

    point: F32
    influence: F32
    squares: F32
    nearest: F32
    which: I64


_SINGLES, _VECTOR, _INTS = types.float32[::1], types.float64[::1], types.int64[::1]
NEIGHBOURS_TYPE = types.NamedTuple([_INTS, types.float32[:, ::1], _VECTOR, _VECTOR], Neighbours)
NEIGHBOURS_ROOM = types.NamedTuple([_SINGLES, _SINGLES, _SINGLES, _SINGLES, _INTS], NeighboursRoom)


def neighbour_functions(stored: int) -> int:
    """Return the number of functions of the nearest neighbours for a number of stored examples.

    Examples
    --------
    >>> [neighbour_functions(stored) for stored in (0, STORED)]
    [0, 3]
    """
    return len(WINDOWS) if stored else 0


def new_neighbours(stored: int, targets: int, places: int = FIRST) -> Neighbours:
    """Return room for a number of examples, with inputs at a number of places of the linear function."""
    points = np.zeros((min(places, NEAR), stored), np.float32)
    return Neighbours(np.zeros(1, np.int64), points, np.zeros(targets * stored), np.zeros(stored))


def with_places(old: Neighbours, linear: Linear) -> Neighbours:
    """Return the same examples with room for inputs at the places that the linear function has room for."""
    points = np.zeros((min(len(linear.names), NEAR), len(old.weights)), np.float32)
    filled = slice(int(old.remembered[0]))
    points[: len(old.points), filled] = old.points[:, filled]
    return old._replace(points=points)


def copied(near: Neighbours) -> Neighbours:
    """Return a copy of the examples."""
    return Neighbours(near.remembered.copy(), near.points.copy(), near.answers.copy(), near.weights.copy())


compiled_copied: Any = inlined(copied)
"""The same for compiled code."""


@inlined(allocates=None)
def neighbours_room(memory, near):  # type: ignore[no-untyped-def]
    """Return work arrays for an example."""
    stored = len(near.weights)
    return NeighboursRoom(
        point=work_array(memory, len(near.points), np.float32),
        influence=work_array(memory, len(near.points), np.float32),
        squares=work_array(memory, stored, np.float32),
        nearest=work_array(memory, min(NEIGHBOURS, stored), np.float32),
        which=work_array(memory, min(NEIGHBOURS, stored), np.int64),
    )


def stored(tensors: Mapping[str, Any]) -> int:
    """Return the number of examples that the functions in a file store, 0 if there are none."""
    return STORED if ANSWERS in tensors else 0


def pack(near: Neighbours, linear: Linear) -> dict[str, Any]:
    """Return the stored examples as arrays, without unused places."""
    return _packed(near._replace(points=near.points[: linear.counts[PLACES]])) if len(near.weights) else {}


def _packed(near: Neighbours) -> dict[str, Any]:
    """Return examples as arrays, in the order of their ring; weights only where one is not 1."""
    (remembered,), window = near.remembered.tolist(), len(near.weights)
    filled, targets = min(remembered, window), len(near.answers) // window
    answers = near.answers.reshape(targets, window)[:, :filled].ravel()
    points = near.points[:, :filled].copy()
    packed = {ANSWERS: answers, POINTS: points, COUNT: near.remembered.copy()}
    return pack_weights(WEIGHTS, near.weights[:filled].copy()) | packed


def unpack(tensors: Mapping[str, Any], linear: Linear, classes: int | None, targets: int = 1) -> Neighbours:
    """Return the examples whose arrays :func:`pack` returned, beside the linear function in the same file.

    `classes` is ``None`` if targets are real numbers and not the numbers of classes. Raise a ValueError if a tensor is
    missing, does not fit, or holds what no function learns.
    """
    near = new_neighbours(stored(tensors), targets, len(linear.names))
    if not len(near.weights):
        return near
    (remembered,) = tensor_file.require_tensor(tensors, COUNT, np.int64, (1,)).tolist()
    filled, places = min(remembered, STORED), min(int(linear.counts[PLACES]), NEAR)
    if not 0 <= remembered < 1 << 62:
        raise ValueError(f"expected how many examples were remembered as {COUNT}, got {remembered}")
    answers = tensor_file.require_tensor(tensors, ANSWERS, np.float64, (targets * filled,))
    if classes is not None and not np.isin(answers, range(classes)).all():
        raise ValueError(f"expected the numbers of {classes} classes as {ANSWERS}, got others")
    points = tensor_file.require_tensor(tensors, POINTS, np.float32, (places, filled))
    if np.abs(points).max(initial=0.0) > LARGEST_INPUT:
        raise ValueError(f"expected inputs of up to {LARGEST_INPUT:g} as {POINTS}, got {np.abs(points).max():g}")
    near.points[:places, :filled] = points
    near.weights[:filled] = unpack_weights(WEIGHTS, tensors, filled)
    near.answers.reshape(targets, -1)[:, :filled] = answers.reshape(targets, filled)
    near.remembered[0] = remembered
    return near


@dataclass(frozen=True)
class NeighboursSummary:
    """The stored examples for merging: copies of their arrays, the oldest first.

    Attributes
    ----------
    names
        The name of each place.
    points, answers, weights
        Inputs, shape (places, n), targets, shape (targets, n), and weights.
    remembered
        The number of examples remembered so far.
    capacity
        The largest number of stored examples, 0 for a function that stores none.
    """

    names: U64
    points: F32
    answers: F64
    weights: F64
    remembered: int
    capacity: int = STORED

    def in_order(self, order: I64) -> NeighboursSummary:
        """Return a summary with the targets in another order."""
        return replace(self, answers=self.answers[order]) if self.capacity else self

    def with_columns(self, columns: F64) -> NeighboursSummary:
        """Return a summary of a function whose columns are sums of this one's; targets are numbers of classes."""
        of_classes = columns
        if columns.shape[1] == 1 and (len(columns) == 1 or columns.min() < 0.0):  # the margin of two classes
            of_classes = np.concatenate([-columns, columns], axis=1)
        if len(columns) == 1:
            of_classes = np.concatenate([-of_classes, of_classes])
        classes = of_classes.argmax(axis=0).astype(np.float64)
        return replace(self, answers=classes[self.answers.astype(np.int64)])


def summarize(near: Neighbours, linear: Linear) -> NeighboursSummary:
    """Return the summary of stored examples."""
    (remembered,), window, n = near.remembered.tolist(), len(near.weights), int(linear.counts[PLACES])
    ring = np.arange(max(0, remembered - window), remembered) % max(window, 1)
    answers = near.answers.reshape(-1, window or 1)[:, ring]
    names = linear.names[: min(n, len(near.points))].copy()
    return NeighboursSummary(names, near.points[:n, ring], answers, near.weights[ring], remembered, window)


def merge(parts: Sequence[NeighboursSummary], base: NeighboursSummary | None, names: U64) -> dict[str, Any]:
    """Return the tensors of the latest examples of each part, and of the remaining ones of the base.

    The last example of each part comes last, before these the ones before, and so on. `names` are of the merged linear
    function.
    """
    if not parts[0].capacity:
        return {}
    points, answers, weights, ages = [], [], [], []
    before, capacity = 0 if base is None else base.remembered, parts[0].capacity
    added = [(part, max(0, part.remembered - before), 0) for part in parts]
    for part, new, older in [*added, *([] if base is None else [(base, STORED, STORED)])]:
        last = slice(max(0, len(part.weights) - new), None)
        places = {name: i for i, name in enumerate(part.names.tolist())}
        at = np.array([places.get(name, -1) for name in names[:NEAR].tolist()])
        points.append(np.where((at >= 0)[:, None], part.points[at, last], np.float32(0.0)))
        answers.append(part.answers[:, last])
        weights.append(part.weights[last])
        ages.append(older + np.arange(len(weights[-1]))[::-1])
    newest = np.argsort(-np.concatenate(ages), kind="stable")[-capacity:]
    remembered = before + sum(new for _, new, _ in added)
    in_ring = newest if remembered < capacity else np.roll(newest, remembered % capacity)
    return _packed(
        Neighbours(
            np.array([remembered]),
            np.concatenate(points, axis=1)[:, in_ring],
            np.concatenate(answers, axis=1)[:, in_ring].ravel(),
            np.concatenate(weights)[in_ring],
        )
    )
