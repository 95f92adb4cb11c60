"""Inputs with few values, whose values get places of their own in the linear function.

Numbers may be codes: 0, 1 and 2 of three kinds of something. A function linear in them has one slope for all. So an
input whose first values are few also has an indicator of each frequent one between the smallest and the largest of
these; with the input itself and the constant, they give every frequent value a level of its own. A value that is rare,
or comes later, has no indicator.

An indicator is divided by its deviation √(p(1 - p)), where p is the share of the first examples with the value. Its
place has a hash of the name and the value as its name, and the value as its centre.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamkernel.features.rows import F64, U64, Rows, in_order
from streamkernel.features.scale_table import ScalesState
from streamkernel.jit import compiled
from streamkernel.learners.scoring import longest_row
from streamkernel.second_order.linear.state import NEAR, PLACES, VALUES, Linear, room_for, with_more_room
from streamkernel.second_order.linear.steps import add_place, admit, read_row
from streamkernel.second_order.name_table import value_key

FREQUENT = 5
"""Smallest number of examples with a frequent value, and smallest mean number of examples per value of an input."""


class FewValues(NamedTuple):
    """Values of inputs: the hash of the name, the value, and the divisor of its indicator, each of shape (values,)."""

    names: U64
    values: F64
    divisors: F64


@compiled
def columns_of_values(names, keys, values):  # type: ignore[no-untyped-def]
    """Return for each place of a value, by its key and the value, the index of the name, -1 for none of these."""
    columns = np.full(len(keys), -1)
    for place in range(len(keys)):
        for j in range(len(names)):
            if value_key(names[j], values[place]) == keys[place]:
                columns[place] = j
    return columns


def find_few_values(rows: Rows) -> FewValues:
    """Return the inner frequent values of the inputs that have few values and are in at least half of the first rows.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.features.directions import Directions
    >>> from streamkernel.kernels.program import KernelProgram
    >>> directions = Directions(KernelProgram(kernels.Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
    >>> rows = Rows.stack([directions.row({"kind": i % 3, "size": i / 7, "flag": i % 2}) for i in range(48)])
    >>> found = find_few_values(rows)
    >>> found.values.tolist(), found.divisors.round(2).tolist()
    ([1.0], [0.47])
    """
    (hashes, of), n = rows.names(), len(rows.weights)
    order = in_order(rows.values, of)
    names, values = np.maximum(hashes, np.uint64(1))[of[order]], rows.values[order]
    is_first = np.ones(len(names), bool)
    is_first[1:] = (names[1:] != names[:-1]) | (values[1:] != values[:-1])
    first = np.flatnonzero(is_first)
    counts, names, values = np.diff(first, append=len(names)), names[first], values[first]
    distinct, begin, kinds = np.unique(names, return_index=True, return_counts=True)
    total = np.add.reduceat(counts, begin) if len(distinct) else kinds
    is_few = (FREQUENT * kinds <= n) & (2 * total >= n)
    frequent = np.repeat(is_few, kinds) & (counts >= FREQUENT)
    names, values, counts = names[frequent], values[frequent], counts[frequent]
    inner = np.zeros(len(names), bool)
    inner[1:-1] = (names[1:-1] == names[:-2]) & (names[1:-1] == names[2:])
    p = counts[inner] / n
    return FewValues(names[inner], values[inner], np.sqrt(p * (1.0 - p)))


def with_few_values(linear: Linear, scales: ScalesState, rows: Rows, least: float) -> Linear:
    """Return an untrained function with places for the names of these first rows, in the order in which they come, and
    after them for few values of some, among the first `NEAR` places; the same function where no input has few values.
    """
    few = find_few_values(rows)
    if not len(few.names) or not len(linear.w):
        return linear
    while (used := int(_admit_rows(linear, scales, rows, least))) + len(few.names) > linear.w.shape[1]:
        linear = with_more_room(linear)
    n = max(0, NEAR - used)
    _admit_values(linear, FewValues(few.names[:n], few.values[:n], few.divisors[:n]), least)
    return linear


@compiled
def _admit_rows(linear, scales, rows, least):  # type: ignore[no-untyped-def]
    """Add the names of rows as learning them would; return the number of places, or more if they have no room."""
    work = room_for(None, linear, longest_row(rows))
    for i in range(len(rows.start) - 1):
        used = read_row(linear, scales, rows, i, work)
        if used > linear.w.shape[1]:
            return used
        admit(linear, scales, rows, i, used, least, work)
    return linear.counts[PLACES]


@compiled
def _admit_values(linear, few, least):  # type: ignore[no-untyped-def]
    """Add places for values, which have room."""
    for i in range(len(few.names)):
        key, place = value_key(few.names[i], few.values[i]), linear.counts[PLACES]
        add_place(linear, key, place, least)
        linear.scales[place, 0], linear.scales[place, 1] = few.values[i], -few.divisors[i]
        linear.counts[PLACES] = place + 1
    linear.counts[VALUES] = len(few.names)
