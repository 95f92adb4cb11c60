"""The last row that was computed, so that learning an example that was predicted does not repeat it; compiled.

It is valid for the same values while nothing that it depends on has changed: until an example is learned or a Newton
step is applied. Both are counted or noted here, and every other change begins new arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel.features.rows import F32, F64, I64, U64
from streamkernel.jit import inlined
from streamkernel.second_order.neighbours.state import NEIGHBOURS, neighbour_functions

MOST_NAMES = 128
"""Rows with more names are computed each time."""

AFTER, BLOCKS, ENTRIES = range(3)
"""Entries of `counts`: the number of the next example when the row was read, 0 if there is no row; the blocks whose
features were computed; and the entries of the row."""


class LastRow(NamedTuple):
    """The last row, its features, and the functions that take most time.

    Attributes
    ----------
    counts
        The conditions under which it is valid.
    hashes, values
        The names of the row, and its values as the features read them.
    z
        Its features.
    f
        The scores of all functions, shape (functions, columns), those of the linear one and of neighbours of any row.
    found, nearest, which
        Of each function of neighbours the number of neighbours, their d², and their positions in the ring.
    """

    counts: I64
    hashes: U64
    values: F64
    z: F32
    f: F64
    found: I64
    nearest: F32
    which: I64


LAST_ROW = types.NamedTuple(
    [
        types.int64[::1], types.uint64[::1], types.float64[::1], types.float32[::1], types.float64[:, ::1],
        types.int64[::1], types.float32[:, ::1], types.int64[:, ::1],
    ],
    LastRow,
)  # fmt: skip


def no_row(outputs: int, functions: int, columns: int, stored: int) -> LastRow:
    """Return the arrays before the first row, for the outputs of all blocks and the examples stored for neighbours."""
    of_neighbours = neighbour_functions(stored), min(NEIGHBOURS, stored)
    return LastRow(
        counts=np.zeros(3, np.int64),
        hashes=np.zeros(MOST_NAMES, np.uint64),
        values=np.zeros(MOST_NAMES),
        z=np.zeros(outputs, np.float32),
        f=np.zeros((functions, columns)),
        found=np.zeros(of_neighbours[0], np.int64),
        nearest=np.zeros(of_neighbours, np.float32),
        which=np.zeros(of_neighbours, np.int64),
    )


@inlined(allocates=False)
def is_last(last, rows, i, seen, blocks):  # type: ignore[no-untyped-def]
    """Return whether row i, of values as the features read them, is the last row, and its results are still valid."""
    counts, first, n = last.counts, rows.start[i], rows.start[i + 1] - rows.start[i]
    if counts[AFTER] != seen + 1 or counts[BLOCKS] != blocks or counts[ENTRIES] != n:
        return False
    same = True
    for j in range(n):
        same &= last.hashes[j] == rows.hashes[first + j] and last.values[j] == rows.values[first + j]
    return same


@inlined(allocates=False)
def note_row(last, rows, i, seen, blocks):  # type: ignore[no-untyped-def]
    """Note that the arrays belong to row i, unless it has too many names."""
    counts, first, n = last.counts, rows.start[i], rows.start[i + 1] - rows.start[i]
    if n > len(last.values):
        return
    for j in range(n):
        last.hashes[j], last.values[j] = rows.hashes[first + j], rows.values[first + j]
    counts[AFTER], counts[BLOCKS], counts[ENTRIES] = seen + 1, blocks, n


@inlined(allocates=False)
def forget_row(last):  # type: ignore[no-untyped-def]
    """Note that the arrays belong to no row."""
    last.counts[AFTER] = 0
