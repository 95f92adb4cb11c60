"""The table of names and their scales, compiled: rows are scaled by it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types

from streamkernel.features.compiled_kernel import LARGEST_VALUE
from streamkernel.features.rows import ROWS
from streamkernel.jit import compiled, inlined, unit

FIRST = 256
"""Examples after which a scale in use is kept until it is off."""

MOST_NAMES = 65_536
"""The most names that have a scale; their table takes 13 MB."""

LIGHT = 0.6
"""A rare value of size 1 is scaled to at most p^¼/LIGHT, where p is the share of examples that have it: a word in one
of 1,000 examples to 0.3. Each of five equally frequent values of a string is scaled to 1.1, so two of them are 1.6
apart, while two random numbers are 1.4 apart."""

EDGE = math.sqrt(3.0)
"""A uniform variable is never further out, in standard deviations."""

LEAST_SPREAD = 1e-200
"""Below this a standard deviation counts as 0, and LARGEST_VALUE divided by it is still finite."""

SCALE = np.dtype(
    [
        ("key", "u8"),  # the hash of the name, 0 for an empty row
        ("count", "f8"),  # values other than 0 in the moments
        ("mean", "f8"),
        ("squares", "f8"),  # the sum of squared deviations from the mean
        ("centre", "f8"),  # the scale in use
        ("spread", "f8"),
        ("unit", "f8"),  # the divisor of values
        ("shift", "f8"),  # subtracted, so that 0 stays 0 where it must
        ("present", "f8"),  # values in the moments, with zeros
        ("far", "f8"),  # outliers
        ("moved", "f8"),  # values that differed from the previous one
        ("last", "f8"),  # the last value
    ]
)
"""A name with its moments and its scale."""

COUNTS = np.dtype([("n", "i8"), ("names", "i8"), ("weight", "f8"), ("taken", "f8")])
"""Examples observed, names in the table, and examples in the moments, now and when the scales were taken."""


class ScalesState(NamedTuple):
    """The counts, and a hash table of names and their scales; both are minimal if nothing is scaled."""

    counts: Any
    table: Any


SCALES = types.NamedTuple(
    [types.Array(from_dtype(COUNTS), 1, "C"), types.Array(from_dtype(SCALE), 1, "C")], ScalesState
)


@inlined(allocates=False, error_model="numpy")
def _bend(z):  # type: ignore[no-untyped-def]
    """Return q(z)."""
    size = abs(z)
    return z if size <= EDGE else math.copysign(EDGE * (1.0 + math.log(size / EDGE)), z)


@inlined(allocates=False, error_model="numpy")
def place_of(table, key):  # type: ignore[no-untyped-def]
    """Return the row of a name, or an empty row for it; at most half of the rows are occupied, so there is one."""
    last = np.uint64(len(table) - 1)
    row = key & last
    while table[row].key != key and table[row].key != np.uint64(0):
        row = (row + np.uint64(1)) & last
    return row


@inlined(allocates=False, error_model="numpy")
def _newness(counts):  # type: ignore[no-untyped-def]
    """Return the divisor of a name without a scale, as of a name in a single example.

    The number of examples is that when the scales were taken, so models that continue from one divide by the same.
    """
    return max(1.0, LIGHT * math.sqrt(math.sqrt(counts.taken)))


@unit(types.int64(SCALES, ROWS, types.int64, types.float64[::1]), allocates=False, error_model="numpy")
def scale_row(scales, rows, i, out):  # type: ignore[no-untyped-def]
    """Set the entries of row i in `out`, which is as long as all values, to t(v); return how many names are new.

    Where nothing is scaled, `out` may be the values themselves.
    """
    table, new = scales.table, 0
    for j in range(rows.start[i], rows.start[i + 1]):
        v = rows.values[j]
        if not abs(v) <= LARGEST_VALUE or len(table) == 0:  # NaN too
            out[j] = v
            continue
        key = max(rows.hashes[j], np.uint64(1))  # 0 is an empty row
        own = table[place_of(table, key)]
        if own.spread > 0.0 or own.centre != 0.0:
            out[j] = _bend((v - own.centre) / own.unit) - own.shift
        else:
            out[j] = _bend(v) / _newness(scales.counts[0])
            new += own.key != key
    return new


@inlined(allocates=False, error_model="numpy")
def has_room(scales, new):  # type: ignore[no-untyped-def]
    """Return whether the table has space for a number of new names."""
    names = scales.counts[0].names
    return len(scales.table) == 0 or names == MOST_NAMES or 2 * min(names + new, MOST_NAMES) <= len(scales.table)


@inlined(allocates=False, error_model="numpy")
def unit_of(c, s):  # type: ignore[no-untyped-def]
    """Return the divisor of values."""
    if s > 0.0:
        return s
    return abs(c) if abs(c) >= LEAST_SPREAD else 1.0


@inlined(allocates=False, error_model="numpy")
def use_scale(own, c, s):  # type: ignore[no-untyped-def]
    """Use a scale; a missing name counts as its centre if it has varied, otherwise as 0."""
    own.centre, own.spread, own.unit = c, s, unit_of(c, s)
    own.shift = 0.0 if s > 0.0 else _bend((0.0 - c) / own.unit)


@compiled(error_model="numpy")
def rehash(old, new):  # type: ignore[no-untyped-def]
    """Fill an empty table with the rows of another one."""
    for i in range(len(old)):
        if old[i].key != np.uint64(0):
            new[place_of(new, old[i].key)] = old[i]


@compiled(error_model="numpy")
def rescale(table):  # type: ignore[no-untyped-def]
    """Compute the divisors and shifts that follow from the scales in use."""
    for i in range(len(table)):
        if table[i].key != np.uint64(0):
            use_scale(table[i], table[i].centre, table[i].spread)


@compiled(error_model="numpy")
def scale_rows(scales, rows, out):  # type: ignore[no-untyped-def]
    """Set `out` to the values of rows with the scales in use."""
    for i in range(len(rows.start) - 1):
        scale_row(scales, rows, i, out)


@inlined(allocates=False, error_model="numpy")
def centre_and_unit(scales, key):  # type: ignore[no-untyped-def]
    """Return a and b for which t(v) without its bend is (v - a)/b: b is 0 if the name has no scale, or does not vary.

    `scales` has a table, `key` is the hash of a name.
    """
    own = scales.table[place_of(scales.table, key)]
    if own.key != key or not own.spread > 0.0:
        return 0.0, 0.0
    return own.centre + own.shift * own.unit, own.unit


@inlined(allocates=False, error_model="numpy")
def unit_and_slope(scales, key, t):  # type: ignore[no-untyped-def]
    """Return the divisor of a name's values, and the derivative of the bend at the scaled value t.

    Both are 1 where nothing is scaled, and 0 where the name has no scale or does not vary.
    """
    if len(scales.table) == 0:
        return 1.0, 1.0
    own = scales.table[place_of(scales.table, key)]
    if own.key != key or not own.spread > 0.0:
        return 0.0, 0.0
    size = abs(t + own.shift)
    return own.unit, 1.0 if size <= EDGE else math.exp(1.0 - size / EDGE)
