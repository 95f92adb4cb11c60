"""One scale for a stream's inputs: centred, divided by their spread, and bent where they are far out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from streamkernel import model_file
from streamkernel.forms import LARGEST_VALUE
from streamkernel.rows import F64, Rows

FIRST = 256
"""Examples after which a scale in use is kept until it is off."""

HORIZON = 16_384
"""Examples after which those so far count half."""

MOST_NAMES = 65_536
"""Names that have a scale; the table of so many takes 8 MB."""

NEAR = 1.25
"""A scale in use is kept while it is off by no more than this factor, and its centre by no more than SHIFTED of it."""

SHIFTED = 0.25

FURTHEST = 10.0
"""Standard deviations at which a value counts in the moments at most, or √n of the n examples so far if that is more.

No value of n is further than √(n - 1) standard deviations from their mean (Samuelson 1968). So an outlier at most
doubles a variance of many examples, and spikes that the moments know of, however rare, count in full.
"""

EDGE = math.sqrt(3.0)
"""A uniform variable is never further out, in standard deviations."""

LEAST_SPREAD = 1e-200
"""Below this a standard deviation counts as 0, and LARGEST_VALUE divided by it is still finite."""

# Places in a name's row of the table: its hash; presences, their mean and sum of squares; the scale in use.
KEY, COUNT, MEAN, SQUARES, CENTRE, SPREAD, UNIT, SHIFT = range(8)


@njit(inline="always", error_model="numpy")
def _bent(z):  # type: ignore[no-untyped-def]
    """Return q(z)."""
    size = abs(z)
    return z if size <= EDGE else math.copysign(EDGE * (1.0 + math.log(size / EDGE)), z)


@njit(inline="always", error_model="numpy")
def _place(keys, key):  # type: ignore[no-untyped-def]
    """Return the row of a name, or the empty one where it would be; at most half of them are taken, so there is one."""
    last = np.uint64(len(keys) - 1)
    row = key & last
    while keys[row, KEY] != key and keys[row, KEY] != np.uint64(0):
        row = (row + np.uint64(1)) & last
    return row


@njit(cache=True, error_model="numpy")
def _grown(table, rows):  # type: ignore[no-untyped-def]
    """Return the table with so many rows, a power of 2."""
    grown = np.zeros((rows, table.shape[1]))
    old, new = table.view(np.uint64), grown.view(np.uint64)
    for i in range(len(old)):
        if old[i, KEY] != np.uint64(0):
            new[_place(new, old[i, KEY])] = old[i]
    return grown


@njit(cache=True, error_model="numpy")
def _observe(table, names, furthest, hashes, values, first):  # type: ignore[no-untyped-def]
    """Count the entries from `first` on; return the number of names, or ``~i`` where the table is full at entry i."""
    keys = table.view(np.uint64)
    for i in range(first, len(values)):
        v = values[i]
        if not abs(v) <= LARGEST_VALUE:  # NaN too
            continue
        key = max(hashes[i], np.uint64(1))  # 0 is an empty row
        row = _place(keys, key)
        if keys[row, KEY] != key:
            if names == MOST_NAMES:
                continue
            if 2 * names == len(table):
                return ~i
            names += 1
            keys[row, KEY], table[row, UNIT] = key, 1.0
        c, s = table[row, CENTRE], table[row, SPREAD]
        if s > 0.0:
            v = min(max(v, c - furthest * s), c + furthest * s)
        table[row, COUNT] += 1.0
        off = v - table[row, MEAN]
        table[row, MEAN] += off / table[row, COUNT]
        table[row, SQUARES] += off * (v - table[row, MEAN])
    return names


@njit(cache=True, error_model="numpy")
def _scaled(table, hashes, values):  # type: ignore[no-untyped-def]
    """Return t(v) of all entries."""
    keys, out = table.view(np.uint64), np.empty_like(values)
    for i in range(len(values)):
        v = values[i]
        if not abs(v) <= LARGEST_VALUE:
            out[i] = v
            continue
        key = max(hashes[i], np.uint64(1))
        row = _place(keys, key)
        if keys[row, KEY] == key:
            out[i] = _bent((v - table[row, CENTRE]) / table[row, UNIT]) - table[row, SHIFT]
        else:
            out[i] = _bent(v)
    return out


@njit(inline="always", error_model="numpy")
def _unit(c, s):  # type: ignore[no-untyped-def]
    """Return what is divided by: the standard deviation, and what is said of constants where it is 0."""
    if s > 0.0:
        return s
    return abs(c) if abs(c) >= LEAST_SPREAD else 1.0


@njit(inline="always", error_model="numpy")
def _use(row, c, s):  # type: ignore[no-untyped-def]
    """Put a scale in use."""
    row[CENTRE], row[SPREAD], row[UNIT] = c, s, _unit(c, s)
    row[SHIFT] = _bent((0.0 - c) / row[UNIT])


@njit(cache=True, error_model="numpy")
def _take(table, n, early, halve):  # type: ignore[no-untyped-def]
    """Put the scales that moments of n examples say in use, all of them or those that are off; return if any changed.

    With k presences of mean m and sum of squares M, absences being 0: c = km/n, s² = (M + km²(1 - k/n))/n.
    """
    changed = False
    for i in range(len(table)):
        row = table[i]
        if row[UNIT] == 0.0:
            continue
        share = row[COUNT] / n
        c = share * row[MEAN]
        s = math.sqrt(max(row[SQUARES] / n + c * row[MEAN] * (1.0 - share), 0.0))
        s = s if s >= LEAST_SPREAD else 0.0
        ratio = _unit(c, s) / row[UNIT]
        off = not 1.0 / NEAR <= ratio <= NEAR or abs(c - row[CENTRE]) > SHIFTED * row[UNIT]
        first = row[SPREAD] == 0.0 and s > 0.0
        if off or first or (early and (c != row[CENTRE] or s != row[SPREAD])):
            changed = True
            _use(row, c, s)
        if halve:
            row[COUNT] *= 0.5
            row[SQUARES] *= 0.5
    return changed


@njit(cache=True, error_model="numpy")
def _restored(table, hashes, moments, scales):  # type: ignore[no-untyped-def]
    """Fill an empty table that has room."""
    keys = table.view(np.uint64)
    for i in range(len(hashes)):
        row = table[_place(keys, hashes[i])]
        row.view(np.uint64)[KEY] = hashes[i]
        row[COUNT : SQUARES + 1] = moments[i]
        _use(row, scales[i, 0], scales[i, 1])


class Scales:
    """The scales of a stream's inputs by name, from running moments: what is large and what is small needs no unit.

    A value v of a name whose scale is (c, s), its mean and standard deviation, becomes

        t(v) = q((v - c)/s) - q(-c/s),   q(z) = z for \\|z\\| ≤ √3, else sign(z) √3 (1 + log(\\|z\\|/√3)).

    A missing name counts as 0, here as everywhere, and t(0) = 0: what is missing takes no part. √3, because a uniform
    variable is only shifted and divided; beyond it spikes and outliers neither blow up nor vanish.

    Moments are those of the whole stream, and from 16,384 examples on mostly of the last 8,192 to 16,384. What is in
    use changes only when :meth:`take` is called, which `streamkernel.schedule` says when to do: during the first 256
    examples to what the moments say, later only where s is off by a quarter, or c by a quarter of s. So inputs that
    stand still keep their values bit for bit, and inputs that move are followed. A value counts in the moments for at
    most 10 s, or √n s for n examples, from c: one outlier hides nothing.

    A name that has been constant has s = \\|c\\|, or 1 if it has been 0. A name without a scale, because it is new or
    because 65,536 others have one, has c = 0 and s = 1: it is left as it is up to √3, and is not shifted.

    Attributes
    ----------
    n : int
        Examples observed.

    References
    ----------
    Welford, "Note on a Method for Calculating Corrected Sums of Squares and Products", Technometrics 1962.
    Samuelson, "How Deviant Can You Be?", Journal of the American Statistical Association 1968.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.features import Directions
    >>> from streamkernel.kernels.plan import Plan
    >>> directions = Directions(Plan(kernels.Gaussian(1.0), seed=0), per_block=1, cache_bytes=0)
    >>> scales = Scales()
    >>> for i in range(4):
    ...     scales.observe(directions.row({"second": 1.7e9 + i, "share": 0.01 * i}))
    >>> scales.take()
    True
    >>> a, b = (scales(directions.row({"second": 1.7e9 + i, "share": 0.01 * i})) for i in (1, 2))
    >>> (b.values - a.values).round(3).tolist()
    [0.894, 0.894]
    """

    def __init__(self) -> None:
        self.n = 0
        self._weight = self._taken = 0.0  # examples in the moments, now and when they were taken
        self._names = 0
        self._table: F64 = np.zeros((16, SHIFT + 1))

    def observe(self, rows: Rows) -> None:
        """Count examples in the moments; values that are not finite or of usable size do not count.

        Parameters
        ----------
        rows
            The examples.
        """
        first, furthest = 0, max(FURTHEST, math.sqrt(self._taken))
        while True:
            found = _observe(self._table, self._names, furthest, rows.hashes, rows.values, first)
            if found >= 0:
                break
            first, self._names = ~found, len(self._table) // 2
            self._table = _grown(self._table, 2 * len(self._table))
        self._names = found
        examples = len(rows.start) - 1
        self.n += examples
        self._weight += examples

    def __call__(self, rows: Rows) -> Rows:
        """Return examples with the scales in use; values that are not finite or of usable size stay as they are."""
        return Rows(rows.start, rows.slots, rows.hashes, rows.readers, _scaled(self._table, rows.hashes, rows.values))

    def take(self) -> bool:
        """Put the scales that the moments say in use, and return whether one of them has changed."""
        if not self._weight:
            return False
        halve = self._weight >= HORIZON
        changed = bool(_take(self._table, self._weight, self.n <= FIRST, halve))
        self._taken = self._weight
        self._weight *= 0.5 if halve else 1.0
        return changed

    def tensors(self) -> model_file.Tensors:
        """Return all of this as arrays, names in the order of their hashes."""
        known = self._table[self._table[:, UNIT] > 0.0]
        hashes = known.view(np.uint64)[:, KEY]
        order = np.argsort(hashes)
        return {
            "scales.n": np.array([self.n]),
            "scales.weights": np.array([self._weight, self._taken]),
            "scales.names": hashes[order].view(np.int64),
            "scales.moments": known[order, COUNT : SQUARES + 1],
            "scales.in_use": known[order, CENTRE : SPREAD + 1],
        }

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Take over what :meth:`tensors` told.

        Raises
        ------
        ValueError
            If the tensors do not fit together.
        """
        (n,) = model_file.taken(tensors, "scales.n", np.int64, (1,)).tolist()
        weights = model_file.taken(tensors, "scales.weights", np.float64, (2,))
        names = model_file.taken(tensors, "scales.names", np.int64, (None,))
        moments = model_file.taken(tensors, "scales.moments", np.float64, (len(names), 3))
        in_use = model_file.taken(tensors, "scales.in_use", np.float64, (len(names), 2))
        hashes = np.ascontiguousarray(names).view(np.uint64)
        if len(hashes) > MOST_NAMES or (hashes == 0).any() or (hashes[1:] <= hashes[:-1]).any():
            raise ValueError(f"expected up to {MOST_NAMES} sorted hashes as scales.names, got {len(hashes)} others")
        usable = (
            n >= weights.max()
            and weights.min() >= 0.0
            and (moments[:, 0] <= weights[0]).all()
            and (moments[:, [0, 2]] >= 0.0).all()
            and (moments <= LARGEST_VALUE**2 * HORIZON).all()
            and (np.abs(np.c_[moments[:, 1], in_use]) <= 2.0 * LARGEST_VALUE).all()
            and ((in_use[:, 1] == 0.0) | (in_use[:, 1] >= LEAST_SPREAD)).all()
        )
        if not usable:
            raise ValueError("expected moments and scales of examples as scales.*, got other numbers")
        table = np.zeros((max(16, 2 << (len(hashes) - 1).bit_length()), SHIFT + 1))
        _restored(table, hashes, moments, in_use)
        self.n, self._names, self._table = n, len(hashes), table
        self._weight, self._taken = weights.tolist()
