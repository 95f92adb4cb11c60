"""One scale for a stream's inputs: centred, divided by their spread, and bent where they are far out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types

from streamkernel.estimators import model_file
from streamkernel.features.compiled_kernel import LARGEST_VALUE
from streamkernel.features.rows import ROWS, Rows
from streamkernel.jit import compiled, inlined, unit

FIRST = 256
"""Examples after which a scale in use is kept until it is off."""

HORIZON = 16_384
"""Examples after which those so far count half."""

MOST_NAMES = 65_536
"""The most names that have a scale; their table takes 8 MB."""

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

SCALE = np.dtype(
    [
        ("key", "u8"),  # the hash of the name, 0 for an empty row
        ("count", "f8"),  # presences
        ("mean", "f8"),
        ("squares", "f8"),  # the sum of squared deviations from the mean
        ("centre", "f8"),  # the scale in use
        ("spread", "f8"),
        ("unit", "f8"),  # what values are divided by
        ("shift", "f8"),  # q(-c/s)
    ]
)
"""What is known of a name."""

COUNTS = np.dtype([("n", "i8"), ("names", "i8"), ("weight", "f8"), ("taken", "f8")])
"""Examples observed, names in the table, and examples in the moments, now and when the scales were taken."""


class ScalesState(NamedTuple):
    """The counts, and a table of names that are found by their hashes; a row for each of none where nothing is
    scaled."""

    counts: Any
    table: Any


SCALES = types.NamedTuple(
    [types.Array(from_dtype(COUNTS), 1, "C"), types.Array(from_dtype(SCALE), 1, "C")], ScalesState
)


@inlined(error_model="numpy")
def _bent(z):  # type: ignore[no-untyped-def]
    """Return q(z)."""
    size = abs(z)
    return z if size <= EDGE else math.copysign(EDGE * (1.0 + math.log(size / EDGE)), z)


@inlined(error_model="numpy")
def _place(table, key):  # type: ignore[no-untyped-def]
    """Return the row of a name, or the empty one where it would be; at most half of them are taken, so there is one."""
    last = np.uint64(len(table) - 1)
    row = key & last
    while table[row].key != key and table[row].key != np.uint64(0):
        row = (row + np.uint64(1)) & last
    return row


@unit(types.int64(SCALES, ROWS, types.int64, types.float64[::1]), error_model="numpy")
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
        own = table[_place(table, key)]
        if own.key == key:
            out[j] = _bent((v - own.centre) / own.unit) - own.shift
        else:
            out[j] = _bent(v)
            new += 1
    return new


@inlined(error_model="numpy")
def has_room(scales, new):  # type: ignore[no-untyped-def]
    """Return whether the table has room for a number of new names."""
    names = scales.counts[0].names
    return len(scales.table) == 0 or names == MOST_NAMES or 2 * min(names + new, MOST_NAMES) <= len(scales.table)


@unit(types.void(SCALES, ROWS, types.int64), error_model="numpy")
def observe_row(scales, rows, i):  # type: ignore[no-untyped-def]
    """Count row i in the moments; the table has room for its names."""
    table, counts = scales.table, scales.counts[0]
    furthest = max(FURTHEST, math.sqrt(counts.taken))
    for j in range(rows.start[i], rows.start[i + 1]):
        v = rows.values[j]
        if not abs(v) <= LARGEST_VALUE:  # NaN too
            continue
        key = max(rows.hashes[j], np.uint64(1))
        own = table[_place(table, key)]
        if own.key != key:
            if counts.names == MOST_NAMES:
                continue
            counts.names += 1
            own.key, own.unit = key, 1.0
        if own.spread > 0.0:
            v = min(max(v, own.centre - furthest * own.spread), own.centre + furthest * own.spread)
        own.count += 1.0
        off = v - own.mean
        own.mean += off / own.count
        own.squares += off * (v - own.mean)
    counts.n += 1
    counts.weight += 1.0


@inlined(error_model="numpy")
def _unit(c, s):  # type: ignore[no-untyped-def]
    """Return what values are divided by."""
    if s > 0.0:
        return s
    return abs(c) if abs(c) >= LEAST_SPREAD else 1.0


@inlined(error_model="numpy")
def _use(own, c, s):  # type: ignore[no-untyped-def]
    """Put a scale in use."""
    own.centre, own.spread, own.unit = c, s, _unit(c, s)
    own.shift = _bent((0.0 - c) / own.unit)


@unit(types.boolean(SCALES), error_model="numpy")
def take(scales):  # type: ignore[no-untyped-def]
    """Put the scales of the moments in use, all of them or those that are off; return whether any has changed.

    With k presences of mean m and sum of squares M in n examples, absences being 0: c = km/n, s² = (M + km²(1 -
    k/n))/n.
    """
    table, counts, changed = scales.table, scales.counts[0], False
    n, early, halve = counts.weight, counts.n <= FIRST, counts.weight >= HORIZON
    if n == 0.0:
        return False
    for i in range(len(table)):
        own = table[i]
        if own.key == np.uint64(0):
            continue
        share = own.count / n
        c = share * own.mean
        s = math.sqrt(max(own.squares / n + c * own.mean * (1.0 - share), 0.0))
        s = s if s >= LEAST_SPREAD else 0.0
        ratio = _unit(c, s) / own.unit
        off = not 1.0 / NEAR <= ratio <= NEAR or abs(c - own.centre) > SHIFTED * own.unit
        first = own.spread == 0.0 and s > 0.0
        if off or first or (early and (c != own.centre or s != own.spread)):
            changed = True
            _use(own, c, s)
        if halve:
            own.count *= 0.5
            own.squares *= 0.5
    counts.taken = n
    if halve:
        counts.weight *= 0.5
    return changed


@compiled(error_model="numpy")
def _rehash(old, new):  # type: ignore[no-untyped-def]
    """Fill an empty table with the rows of another one."""
    for i in range(len(old)):
        if old[i].key != np.uint64(0):
            new[_place(new, old[i].key)] = old[i]


@compiled(error_model="numpy")
def _rescale(table):  # type: ignore[no-untyped-def]
    """Set what follows from the scales in use."""
    for i in range(len(table)):
        if table[i].key != np.uint64(0):
            _use(table[i], table[i].centre, table[i].spread)


@compiled(error_model="numpy")
def _scale_rows(scales, rows, out):  # type: ignore[no-untyped-def]
    for i in range(len(rows.start) - 1):
        scale_row(scales, rows, i, out)


@compiled(error_model="numpy")
def _observe_rows(scales, rows, first):  # type: ignore[no-untyped-def]
    """Count rows from the first on; return how many of all are counted, which is less where the table is full."""
    out = np.empty(len(rows.values))
    for i in range(first, len(rows.start) - 1):
        if not has_room(scales, scale_row(scales, rows, i, out)):
            return i
        observe_row(scales, rows, i)
    return len(rows.start) - 1


class Scales:
    """The scales of a stream's inputs by name, from running moments: what is large and what is small needs no unit.

    A value v of a name whose scale is (c, s), its mean and standard deviation, becomes

        t(v) = q((v - c)/s) - q(-c/s),   q(z) = z for \\|z\\| ≤ √3, else sign(z) √3 (1 + log(\\|z\\|/√3)).

    A missing name counts as 0, here as everywhere, and t(0) = 0: what is missing takes no part. √3, because a uniform
    variable is only shifted and divided; beyond it spikes and outliers neither blow up nor vanish.

    Moments are those of the whole stream, and from 16,384 examples on mostly of the last 8,192 to 16,384. What is in
    use changes only when :meth:`take` is called, which `learners.schedule` says when to do: during the first 256
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
    >>> from streamkernel.features.directions import Directions
    >>> from streamkernel.kernels.plan import Plan
    >>> directions = Directions(Plan(kernels.Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
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
        self.state = ScalesState(np.zeros(1, COUNTS), np.zeros(16, SCALE))

    @property
    def n(self) -> int:
        """Examples observed."""
        return int(self.state.counts["n"][0])

    @property
    def n_names(self) -> int:
        """Names that have a scale."""
        return int(self.state.counts["names"][0])

    def copy(self) -> Scales:
        """Return scales that share nothing with these."""
        twin = Scales()
        twin.state = ScalesState(*(part.copy() for part in self.state))
        return twin

    def grow(self) -> None:
        """Make room for as many more names."""
        table = np.zeros(2 * len(self.state.table), SCALE)
        _rehash(self.state.table, table)
        self.state = self.state._replace(table=table)

    def observe(self, rows: Rows) -> None:
        """Count examples in the moments; values that are not finite or of usable size do not count.

        Parameters
        ----------
        rows
            The examples.
        """
        done, n = 0, len(rows.start) - 1
        while done < n:
            done = int(_observe_rows(self.state, rows, done))
            if done < n:
                self.grow()

    def __call__(self, rows: Rows) -> Rows:
        """Return examples with the scales in use; values that are not finite or of usable size stay as they are."""
        values = np.empty_like(rows.values)
        _scale_rows(self.state, rows, values)
        return rows._replace(values=values)

    def take(self) -> bool:
        """Put the scales of the moments in use, and return whether one of them has changed."""
        return bool(take(self.state))

    def tensors(self) -> model_file.Tensors:
        """Return all of this as arrays, names in the order of their hashes."""
        counts, table = self.state.counts[0], self.state.table
        known = np.sort(table[table["key"] > 0], order="key")
        return {
            "scales.n": np.array([counts["n"]]),
            "scales.weights": np.array([counts["weight"], counts["taken"]]),
            "scales.names": known["key"].view(np.int64),
            "scales.moments": np.stack([known[name] for name in ("count", "mean", "squares")], axis=1),
            "scales.in_use": np.stack([known[name] for name in ("centre", "spread")], axis=1),
        }

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Take over what :meth:`tensors` returned.

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
        known = np.zeros(len(hashes), SCALE)
        known["key"] = hashes
        known["count"], known["mean"], known["squares"] = moments.T
        known["centre"], known["spread"] = in_use.T
        _rescale(known)
        counts, table = np.zeros(1, COUNTS), np.zeros(max(16, 2 << (len(hashes) - 1).bit_length()), SCALE)
        counts[0] = n, len(hashes), *weights.tolist()
        _rehash(known, table)
        self.state = ScalesState(counts, table)
