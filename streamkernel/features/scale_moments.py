"""The moments of names and the scales that follow from them, compiled: rows update the moments."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel.features.compiled_kernel import LARGEST_VALUE
from streamkernel.features.rows import F64, ROWS, U64
from streamkernel.features.scale_table import (
    EDGE,
    FIRST,
    LEAST_SPREAD,
    LIGHT,
    MOST_NAMES,
    SCALE,
    SCALES,
    ScalesState,
    has_room,
    place_of,
    scale_row,
    unit_of,
    use_scale,
)
from streamkernel.jit import compiled, inlined, unit

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
        own = table[place_of(table, key)]
        if own.key != key:
            if counts.names == MOST_NAMES:
                continue
            counts.names += 1
            own.key, own.unit = key, 1.0
        own.moved += v != own.last
        own.last = v
        if own.spread > 0.0:
            if abs(v - own.centre) > FAR * own.spread:
                own.far += 1.0
                if own.far <= RARE * own.present < own.moved:
                    continue
            v = min(max(v, own.centre - furthest * own.spread), own.centre + furthest * own.spread)
        own.present += 1.0
        if v == 0.0:
            continue
        own.count += 1.0
        off = v - own.mean
        own.mean += off / own.count
        own.squares += off * (v - own.mean)
    counts.n += 1
    counts.weight += 1.0


@inlined(allocates=False, error_model="numpy")
def _moments(count, mean, squares, of):  # type: ignore[no-untyped-def]
    """Return mean and deviation of `of` values: `count` of them with these moments, and zeros."""
    share = count / of
    c = share * mean
    return c, math.sqrt(max(squares / of + c * mean * (1.0 - share), 0.0))


@inlined(allocates=False, error_model="numpy")
def _scale(own, n):  # type: ignore[no-untyped-def]
    """Return centre and spread of a name by its moments in n examples."""
    is_usual = own.present >= n * (RATHER_NOT if own.spread > 0.0 and own.centre != 0.0 else HALF)
    of = own.present if is_usual else n
    if of == 0.0:
        return own.centre, own.spread
    c, s = _moments(own.count, own.mean, own.squares, of)
    if s > 0.0:
        share = own.count / of
        size = max(abs(own.mean), 0.5 * math.sqrt(own.squares / own.count + own.mean**2))
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
        own = table[i]
        if own.key == np.uint64(0):
            continue
        c, s = _scale(own, n)
        s = s if s >= LEAST_SPREAD else 0.0
        ratio = unit_of(c, s) / own.unit
        if s > 0.0:
            ratio /= max(1.0, abs(c - own.centre) / (EDGE * own.unit))  # the slope of the bend there
        off = not 1.0 / NEAR <= ratio <= NEAR or (c == 0.0) != (own.centre == 0.0)
        first = own.spread == 0.0 and s > 0.0
        if off or first or (early and (c != own.centre or s != own.spread)):
            changed = True
            use_scale(own, c, s)
        if halve:
            own.count *= 0.5
            own.squares *= 0.5
            own.present *= 0.5
            own.far *= 0.5
            own.moved *= 0.5
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
    return np.asarray(EDGE / np.maximum(size, EDGE) / np.where(is_scaled, unit, newness))


def _rows_of(table: Any, hashes: U64) -> Any:
    """Return the rows of names in the table of scales, zeros for unknown names."""
    keys, last, found = table["key"], len(table) - 1, np.zeros(len(hashes), SCALE)
    for j, key in enumerate(np.maximum(hashes, 1).tolist()):
        i = key & last
        while keys[i] != key and keys[i]:
            i = (i + 1) & last
        found[j] = table[i]
    return found
