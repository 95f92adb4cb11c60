"""The table of names, their moments and the scales that follow from them, compiled: rows update it and are scaled."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types

from streamkernel.features.compiled_kernel import LARGEST_VALUE
from streamkernel.features.rows import F64, ROWS, U64
from streamkernel.jit import compiled, inlined, unit

FIRST = 256
"""Examples after which a scale in use is kept until it is off."""
MOST_NAMES = 65_536
"""The most names that have a scale; their table takes 14 MB."""
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
        ("divisor", "f8"),  # of scaled values: 1, or the common unit over the spread
        ("present", "f8"),  # values in the moments, with zeros
        ("far", "f8"),  # outliers
        ("moved", "f8"),  # values that differed from the previous one
        ("last", "f8"),  # the last value
    ]
)
"""A name with its moments and its scale."""
COUNTS = np.dtype([("n", "i8"), ("names", "i8"), ("weight", "f8"), ("taken", "f8"), ("common", "f8")])
"""Examples observed, names in the table, examples in the moments, now and when the scales were taken, and the common
unit of all names, 0 if each has its own."""
HORIZON = 16_384
"""Number of examples after which the earlier ones count half."""
NEAR = 2.0
"""A scale in use is kept while it scales the values to a deviation within this factor of 1.

A change makes stale what was learned, while kernels do not depend on the centre, and bandwidths and metrics compete.
"""
FAR = 6.0
"""Units of a name from its centre beyond which a value is far out."""
RARE = 0.1
"""Up to this share of a name's values, those far out are outliers and excluded from its moments, unless at most this
share differs from the previous value: the only variation of a name is not an outlier."""
FURTHEST = 10.0
"""Units at which a value that is far out counts at most, or √n of the n examples so far if that is more.

No value of n is further than √(n - 1) standard deviations from their mean (Samuelson 1968). So such a value at most
doubles a variance of many examples.
"""
HALF = 0.5
"""A name in at least this share of the examples is usually present; where it is absent, it is missing and not zero."""
RATHER_NOT = 0.4
"""A usually present name remains so until its share falls below this, so that none alternates around a half."""


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
        scale = table[place_of(table, key)]
        if scale.spread > 0.0 or scale.centre != 0.0:
            out[j] = _bend((v - scale.centre) / scale.unit) / scale.divisor - scale.shift
        else:
            out[j] = _bend(v) / _newness(scales.counts[0])
            new += scale.key != key
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
def use_scale(scale, c, s, common):  # type: ignore[no-untyped-def]
    """Use a scale; a missing name counts as its centre if it has varied, otherwise as 0."""
    scale.divisor = common / s if common > 0.0 and s > 0.0 and c != 0.0 else 1.0
    scale.centre, scale.spread, scale.unit = c, s, unit_of(c, s)
    scale.shift = 0.0 if s > 0.0 else _bend((0.0 - c) / scale.unit)


@compiled(error_model="numpy")
def rehash(old, new):  # type: ignore[no-untyped-def]
    """Fill an empty table with the rows of another one."""
    for i in range(len(old)):
        if old[i].key != np.uint64(0):
            new[place_of(new, old[i].key)] = old[i]


@compiled(error_model="numpy")
def rescale(table, common):  # type: ignore[no-untyped-def]
    """Compute the divisors and shifts that follow from the scales in use and the common unit."""
    for i in range(len(table)):
        if table[i].key != np.uint64(0):
            use_scale(table[i], table[i].centre, table[i].spread, common)


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
    scale = scales.table[place_of(scales.table, key)]
    if scale.key != key or not scale.spread > 0.0:
        return 0.0, 0.0
    return scale.centre + scale.shift * scale.unit, scale.unit


@inlined(allocates=False, error_model="numpy")
def unit_and_slope(scales, key, t):  # type: ignore[no-untyped-def]
    """Return the divisor of a name's values, and the derivative of the bend at the scaled value t.

    Both are 1 where nothing is scaled, and 0 where the name has no scale or does not vary.
    """
    if len(scales.table) == 0:
        return 1.0, 1.0
    scale = scales.table[place_of(scales.table, key)]
    if scale.key != key or not scale.spread > 0.0:
        return 0.0, 0.0
    size = abs(t + scale.shift) * scale.divisor
    return scale.unit, (1.0 if size <= EDGE else math.exp(1.0 - size / EDGE)) / scale.divisor


@unit(types.void(SCALES, ROWS, types.int64), allocates=False, error_model="numpy")
def observe_row(scales, rows, i):  # type: ignore[no-untyped-def]
    """Add row i to the moments; the table must have space for its names."""
    table, counts = scales.table, scales.counts[0]
    furthest = max(FURTHEST, math.sqrt(counts.taken))
    for j in range(rows.start[i], rows.start[i + 1]):
        v = rows.values[j]
        if not abs(v) <= LARGEST_VALUE:  # NaN too
            continue
        key = max(rows.hashes[j], np.uint64(1))
        scale = table[place_of(table, key)]
        if scale.key != key:
            if counts.names == MOST_NAMES:
                continue
            counts.names += 1
            scale.key, scale.unit, scale.divisor = key, 1.0, 1.0
        scale.moved += v != scale.last
        scale.last = v
        if scale.spread > 0.0:
            if abs(v - scale.centre) > FAR * scale.spread:
                scale.far += 1.0
                if scale.far <= RARE * scale.present < scale.moved:
                    continue
            v = min(max(v, scale.centre - furthest * scale.spread), scale.centre + furthest * scale.spread)
        scale.present += 1.0
        if v == 0.0:
            continue
        scale.count += 1.0
        off = v - scale.mean
        scale.mean += off / scale.count
        scale.squares += off * (v - scale.mean)
    counts.n += 1
    counts.weight += 1.0


@inlined(allocates=False, error_model="numpy")
def _moments(count, mean, squares, of):  # type: ignore[no-untyped-def]
    """Return mean and deviation of `of` values: `count` of them with these moments, and zeros."""
    share = count / of
    c = share * mean
    return c, math.sqrt(max(squares / of + c * mean * (1.0 - share), 0.0))


@inlined(allocates=False, error_model="numpy")
def _scale(scale, n):  # type: ignore[no-untyped-def]
    """Return centre and spread of a name by its moments in n examples."""
    is_usual = scale.present >= n * (RATHER_NOT if scale.spread > 0.0 and scale.centre != 0.0 else HALF)
    of = scale.present if is_usual else n
    if of == 0.0:
        return scale.centre, scale.spread
    c, s = _moments(scale.count, scale.mean, scale.squares, of)
    if s > 0.0:
        share = scale.count / of
        size = max(abs(scale.mean), 0.5 * math.sqrt(scale.squares / scale.count + scale.mean**2))
        rare = LIGHT * size / math.sqrt(math.sqrt(share))
        s = min(max(s, (1.0 - share) * rare if is_usual else rare), LARGEST_VALUE)
    return (c if is_usual else 0.0), s


@unit(types.boolean(SCALES), is_late=True, allocates=False, error_model="numpy")
def use_moments(scales):  # type: ignore[no-untyped-def]
    """Use the scales of the moments, all of them or the ones that differ much; return whether any has changed.

    With k values of mean m and sum of squares M, and zeros, n in all: c = km/n, s² = (M + km²(1 - k/n))/n. For a name
    that is usually present n counts its values; for another, whose centre is 0, all examples. A spread has a lower
    bound for rare values, in proportion to their size m.
    """
    table, counts, changed = scales.table, scales.counts[0], False
    n, early, halve = counts.weight, counts.n <= FIRST, counts.weight >= HORIZON
    if n == 0.0:
        return False
    for i in range(len(table)):
        scale = table[i]
        if scale.key == np.uint64(0):
            continue
        c, s = _scale(scale, n)
        s = s if s >= LEAST_SPREAD else 0.0
        ratio = unit_of(c, s) / scale.unit
        if s > 0.0:
            ratio /= max(1.0, abs(c - scale.centre) / (EDGE * scale.unit))  # the slope of the bend there
        off = not 1.0 / NEAR <= ratio <= NEAR or (c == 0.0) != (scale.centre == 0.0)
        first = scale.spread == 0.0 and s > 0.0
        if off or first or (early and (c != scale.centre or s != scale.spread)):
            changed = True
            use_scale(scale, c, s, counts.common)
        if halve:
            scale.count *= 0.5
            scale.squares *= 0.5
            scale.present *= 0.5
            scale.far *= 0.5
            scale.moved *= 0.5
    counts.taken = n
    if halve:
        counts.weight *= 0.5
    return changed


@compiled(error_model="numpy")
def observe_rows(scales, rows, first):  # type: ignore[no-untyped-def]
    """Add rows to the moments from `first` on; return how many of all rows are added, fewer if the table is full."""
    out = np.empty(len(rows.values))
    for i in range(first, len(rows.start) - 1):
        if not has_room(scales, scale_row(scales, rows, i, out)):
            return i
        observe_row(scales, rows, i)
    return len(rows.start) - 1


class Moments(NamedTuple):
    """For each name: its mean and deviation, whether it is usually present, and its row in the table of scales.

    Absent values of names that are usually absent count as 0. Unknown names have zeros.
    """

    mean: F64
    deviation: F64
    is_usual: Any
    rows: Any


def moments_of(scales: ScalesState, hashes: U64) -> Moments:
    """Return the moments of names, by their hashes."""
    table, counts = scales.table, scales.counts[0]
    rows = _rows_of(table, hashes)
    present = rows["present"]
    least = np.where((rows["spread"] > 0.0) & (rows["centre"] != 0.0), RATHER_NOT, HALF) * counts["weight"]
    is_usual = (present > 0.0) & (present >= least)
    share = rows["count"] / np.maximum(np.where(is_usual, present, counts["weight"]), 1e-300)
    mean = share * rows["mean"]
    squares = share * rows["squares"] / np.maximum(rows["count"], 1e-300) + mean * rows["mean"] * (1.0 - share)
    return Moments(mean, np.sqrt(np.maximum(squares, 0.0)), is_usual, rows)


def slopes_of(scales: ScalesState, moments: Moments, values: F64) -> F64:
    """Return the derivatives of scaled values by values."""
    counts, rows = scales.counts[0], moments.rows
    newness = max(1.0, LIGHT * counts["taken"] ** 0.25)
    is_scaled = (rows["spread"] > 0.0) | (rows["centre"] != 0.0)
    unit = np.where(is_scaled, rows["unit"], 1.0)
    size = np.abs(np.where(is_scaled, (values - rows["centre"]) / unit, values))
    return np.asarray(EDGE / np.maximum(size, EDGE) / np.where(is_scaled, unit * rows["divisor"], newness))


def _rows_of(table: Any, hashes: U64) -> Any:
    """Return the rows of names in the table of scales, zeros for unknown names."""
    keys, last, rows = table["key"], len(table) - 1, np.zeros(len(hashes), SCALE)
    for j, key in enumerate(np.maximum(hashes, 1).tolist()):
        i = key & last
        while keys[i] != key and keys[i]:
            i = (i + 1) & last
        rows[j] = table[i]
    return rows
