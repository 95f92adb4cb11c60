"""Random directions that are never stored: any entry is regenerated from (seed, block, feature, name).

The direction of feature `f` of block `b` along the input called `name` is a pure function of
``(seed, b, f, hash64(name))``. It is computed by a counter-based generator with no state, in plain IEEE arithmetic
(no fused or reordered operations), so that every machine and thread draws the same bits in any order.
What is kept in memory is a cache of these bits: its size never changes a result.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from streamkernel.errors import InputError
from streamkernel.generator import cos_sin_turns, counter_bits, domain_key, draw_normals, hash64
from streamkernel.places import Names, address_of

__all__ = [
    "Directions",
    "Rows",
    "check_values",
    "cos_sin_turns",
    "counter_bits",
    "domain_key",
    "draw_normals",
    "hash64",
    "prepare",
    "project",
]

LANES = 512
"""Features handled at once; a panel is the whole number of blocks next to it."""

LARGEST_VALUE = 1e30
"""Inputs beyond this (in units of the kernel's length) would overflow float32 on the way to a feature."""

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


class Rows(NamedTuple):
    """Examples in compressed rows: the entries of row i are ``[start[i]:start[i + 1]]``.

    Entries of a row stand in the order of their names' hashes, so sums do not depend on the order of keys.
    """

    start: I64
    slots: I64
    hashes: U64
    values: F64

    @classmethod
    def stack(cls, rows: Sequence[Rows]) -> Rows:
        """Return the rows of all of `rows`, one below the other."""
        lengths = np.concatenate([np.diff(row.start) for row in rows])
        return cls(
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.concatenate([row.slots for row in rows]),
            np.concatenate([row.hashes for row in rows]),
            np.concatenate([row.values for row in rows]),
        )

    def part(self, first: int, last: int) -> Rows:
        """Return the rows ``first <= i < last``."""
        a, b = self.start[first], self.start[last]
        start = self.start[first : last + 1] - a
        return Rows(start, self.slots[a:b], self.hashes[a:b], self.values[a:b])


@njit(cache=True)
def _fill(key, hashes, per_block, cache, first_panel, first_name):  # type: ignore[no-untyped-def]
    """Fill `cache`, shape (panels, names, features), from the given panel and name on."""
    blocks = cache.shape[2] // per_block
    for p in range(first_panel, cache.shape[0]):
        for s in range(first_name, len(hashes)):
            for b in range(blocks):
                row = cache[p, s, b * per_block : (b + 1) * per_block]
                draw_normals(key, p * blocks + b, hashes[s], row)


@njit
def prepare(slots, hashes, values, scale, row):  # type: ignore[no-untyped-def]
    """Fill the buffers `row` with an example's non-zero entries, times `scale`, in float32.

    Return how many they are, or -1 if one is not finite or too large.
    """
    n = 0
    for j in range(len(values)):
        if not abs(values[j]) * scale <= LARGEST_VALUE:  # NaN fails too
            return -1
        if values[j] != 0.0:
            row[0][n], row[1][n], row[2][n] = slots[j], hashes[j], np.float32(values[j] * scale)
            n += 1
    return n


@njit
def project(key, cache, per_block, row, n, panel, first, last, out, scratch):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to ⟨ω, x⟩ for the features ``first <= i < last`` of a panel.

    `row` holds the `n` entries that :func:`prepare` made. Directions that are not cached are regenerated into
    `scratch`. The sum is taken entry by entry, so it has the same bits however the entries are grouped.
    """
    slots, hashes, values = row
    blocks = cache.shape[2] // per_block
    width = last - first
    out[:width] = np.float32(0.0)
    j = 0
    while j < n:
        cached = panel < cache.shape[0] and slots[j] >= 0
        if cached and j + 3 < n and min(slots[j + 1], slots[j + 2], slots[j + 3]) >= 0:
            a, b, c, d = values[j], values[j + 1], values[j + 2], values[j + 3]
            u, v = cache[panel, slots[j], first:last], cache[panel, slots[j + 1], first:last]
            w, x = cache[panel, slots[j + 2], first:last], cache[panel, slots[j + 3], first:last]
            for f in range(width):
                out[f] = (((out[f] + a * u[f]) + b * v[f]) + c * w[f]) + d * x[f]
            j += 4
            continue
        if cached:
            u = cache[panel, slots[j], first:last]
        else:
            for b in range(first // per_block, last // per_block):
                piece = scratch[b * per_block - first : (b + 1) * per_block - first]
                draw_normals(key, panel * blocks + b, hashes[j], piece)
            u = scratch[:width]
        for f in range(width):
            out[f] += values[j] * u[f]
        j += 1


class Directions:
    """The directions of all blocks of a model, and the cache of those that fit a byte budget.

    Parameters
    ----------
    seed
        The model's seed.
    per_block
        Features in one block.
    cache_bytes
        Memory for cached directions. 0 regenerates every direction at every use; predictions are the same.

    Examples
    --------
    >>> directions = Directions(seed=1, per_block=4, cache_bytes=0)
    >>> row, same = directions.row({"b": 2.0, "a": 1.0}), directions.row({"a": 1.0, "b": 2.0})
    >>> (row.values == same.values).all(), (row.hashes == same.hashes).all()
    (np.True_, np.True_)
    """

    def __init__(self, seed: int, per_block: int, cache_bytes: int) -> None:
        self.key = domain_key(seed, "features")
        self.per_block = per_block
        self.width = per_block * max(1, LANES // per_block)
        self._budget = cache_bytes // (4 * self.width)  # in (panel, name) pairs
        self._slot_of: dict[int, int] = {}
        self._hashes = np.zeros(0, np.uint64)
        self._known: dict[tuple[Hashable, ...], Names] = {}
        self._wanted = 0  # panels to cache
        self.cache: F32 = np.zeros((0, 0, self.width), np.float32)
        self.place = np.zeros(3, np.int64)  # of the cache: its address, panels and names

    @property
    def cached_bytes(self) -> int:
        """Bytes held by the cache."""
        return int(self.cache.nbytes)

    def row(self, x: Mapping[Hashable, Any]) -> Rows:
        """Return one example in the order of its names' hashes.

        Raises
        ------
        InputError
            If `x` is empty, or a value is no number.
        """
        names = self._names(tuple(x))
        try:
            values = np.array(array("d", names.get(x)))
        except (TypeError, OverflowError):
            raise _not_a_number(x) from None
        return Rows(names.start, names.slots, names.hashes, values)

    def example(self, x: Mapping[Hashable, Any]) -> int:
        """Return the address of the record of one example; it holds until the next call.

        Raises
        ------
        InputError
            If `x` is empty, or a value is no number.
        """
        names = tuple(x)
        record = self._known.get(names) or self._names(names)
        try:
            record.put(x.values())
        except (struct.error, TypeError, OverflowError):
            raise _not_a_number(x) from None
        return record.address

    def rows(self, names: Sequence[Hashable], values: F64) -> Rows:
        """Return the rows of a table: `values` has shape (examples, names)."""
        record = self._names(tuple(names))
        order = np.array(record.get({name: i for i, name in enumerate(names)}), np.int64)
        n, d = values.shape
        return Rows(
            np.arange(0, n * d + 1, d),
            np.tile(record.slots, n),
            np.tile(record.hashes, n),
            np.ascontiguousarray(values[:, order]).ravel(),
        )

    def restored(self, start: I64, hashes: U64, values: F64) -> Rows:
        """Return rows that were saved without their places in this cache."""
        slots = np.array([self._slot(int(h)) for h in hashes], np.int64)
        return Rows(start, slots, hashes, values)

    def reserve(self, blocks: int) -> None:
        """Cache the panels of the first `blocks` blocks as far as the budget goes."""
        panels, names, _ = self.cache.shape
        self._wanted = -(-blocks * self.per_block // self.width)
        if self._wanted > panels and names:
            self._resize(min(max(self._wanted, 2 * panels), self._budget // names), names)

    def _names(self, names: tuple[Hashable, ...]) -> Names:
        """Return what is known of the names of an example, or learn it."""
        known = self._known.get(names)
        if known is None:
            if not names:
                raise InputError("Expected at least one feature, got an empty x")
            hashes = {name: hash64(name) for name in sorted(names, key=hash64)}
            known = Names(names, hashes, [self._slot(h) for h in hashes.values()])
            if len(self._known) >= 256:
                self._known.clear()
            self._known[names] = known
        return known

    def _slot(self, name_hash: int) -> int:
        """Return the name's place in the cache, -1 where the budget has none left."""
        slot = self._slot_of.get(name_hash)
        if slot is not None:
            return slot
        panels, names, _ = self.cache.shape
        slot = len(self._slot_of)
        if slot == names:
            grown = min(max(8, 2 * names), self._budget // max(1, panels))
            if grown <= slot:
                return -1
            self._hashes = np.concatenate([self._hashes, np.zeros(grown - names, np.uint64)])
            self._resize(max(panels, min(self._wanted, self._budget // grown)), grown)
        self._slot_of[name_hash] = slot
        self._hashes[slot] = name_hash
        _fill(self.key, self._hashes[: slot + 1], self.per_block, self.cache, 0, slot)
        return slot

    def _resize(self, panels: int, names: int) -> None:
        old = self.cache
        self.cache = np.empty((panels, names, self.width), np.float32)
        self.cache[: len(old), : old.shape[1]] = old
        used = self._hashes[: len(self._slot_of)]
        _fill(self.key, used, self.per_block, self.cache, len(old), 0)
        self.place[:] = address_of(self.cache), panels, names


def number(value: Any, where: str) -> float:
    """Return `value` as a float.

    Raises
    ------
    InputError
        If it is no number; names the place.
    """
    try:
        return float(array("d", (value,))[0])
    except TypeError:
        raise InputError(f"Expected a number, got {type(value).__name__} {value!r} - at {where}") from None
    except OverflowError:
        raise InputError(
            f"Expected a number of usable size, got an integer of {len(str(value))} digits - at {where}"
        ) from None


def _not_a_number(x: Mapping[Hashable, Any]) -> InputError:
    try:
        for name, value in x.items():
            number(value, f"x[{name!r}]")
    except InputError as error:
        return error
    return InputError("Expected numbers in x")


def check_values(x: Mapping[Hashable, Any], scale: float) -> None:
    """Raise the error that names the first value of `x` that is no number, not finite or too large.

    Raises
    ------
    InputError
        If there is such a value.
    """
    for name, value in x.items():
        if not abs(number(value, f"x[{name!r}]")) * scale <= LARGEST_VALUE:
            raise InputError(f"Expected a finite number of usable size, got {value!r} - at x[{name!r}]")
