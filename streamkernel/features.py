"""Random directions that are never stored: any entry is regenerated from (seed, block, feature, name).

The direction of feature `f` of block `b` along the input called `name` is a pure function of
``(seed, b, f, hash64(name))``. It is computed by a counter-based generator with no state, in plain IEEE arithmetic
(no fused or reordered operations), so that every machine and thread draws the same bits in any order.
What is kept in memory is a cache of these bits: its size never changes a result.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from streamkernel.errors import InputError

LANES = 512
"""Features handled at once; a panel is the whole number of blocks next to it."""

LARGEST_VALUE = 1e30
"""Inputs beyond this (in units of the kernel's length) would overflow float32 on the way to a feature."""

_U64 = np.uint64
_GOLDEN = _U64(0x9E3779B97F4A7C15)
_TWO_POW_MINUS_24 = np.float32(2.0**-24)

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


_make_rows: Any = tuple.__new__  # half the time of the class's own constructor


@functools.lru_cache(maxsize=1 << 16)
def hash64(name: Hashable) -> int:
    """Return the stable 64-bit hash of a feature's name; it is the same in every process and on every machine.

    Parameters
    ----------
    name
        A string, a number, or a tuple of these, as River uses them for names. Names that are equal as
        dictionary keys (``1``, ``1.0`` and ``True``) have one hash.

    Raises
    ------
    InputError
        If the name is of another type.

    Examples
    --------
    >>> hash64("age") == hash64("age"), hash64("age") == hash64("agE"), hash64(1) == hash64("1")
    (True, False, False)
    """
    return int.from_bytes(blake2b(_name_bytes(name), digest_size=8).digest(), "little")


def _name_bytes(name: Hashable) -> bytes:
    if isinstance(name, str):
        return b"s" + name.encode("utf-8", "surrogatepass")
    if isinstance(name, tuple):
        parts = [_name_bytes(part) for part in name]
        return b"t" + b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    if isinstance(name, (int, float, np.number, np.bool_)):
        number = float(name)
        return b"n" + (str(int(name)) if number.is_integer() else repr(number)).encode()
    raise InputError(
        f"Expected a feature name that is a string, a number or a tuple of these, got {type(name).__name__} {name!r}"
    )


@njit(inline="always")
def mix(z):  # type: ignore[no-untyped-def]
    """Return the 64 bits of `z` well mixed (the finaliser of SplitMix64, Steele et al. 2014)."""
    z = (z ^ (z >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> _U64(27))) * _U64(0x94D049BB133111EB)
    return z ^ (z >> _U64(31))


@njit(inline="always")
def counter_bits(key, counter):  # type: ignore[no-untyped-def]
    """Return 64 random bits, a pure function of `key` and `counter`."""
    return mix(_U64(key) + (_U64(counter) + _U64(1)) * _GOLDEN)


def domain_key(seed: int, domain: str) -> np.uint64:
    """Return the key of one use of a seed.

    A domain tag keeps the streams of different uses apart, so a feature seed that equals the seed of the data
    can never make a direction equal to the data.

    Examples
    --------
    >>> int(domain_key(7, "features")) == int(domain_key(7, "rule"))
    False
    """
    tag = f"streamkernel/{domain}/{int(seed)}".encode()
    return _U64(int.from_bytes(blake2b(tag, digest_size=8).digest(), "little"))


@njit(inline="always")
def cos_sin_turns(z):  # type: ignore[no-untyped-def]
    """Return float32 cos(2πz), sin(2πz), within 3e-7, with one range reduction and no branch."""
    big = np.float32(12582912.0)  # 1.5·2²³: adding it rounds to an integer
    r = z - ((z + big) - big)
    r = min(max(r, np.float32(-0.5)), np.float32(0.5))
    a = abs(r)
    flip = a > np.float32(0.25)
    t = np.float32(0.5) - a if flip else a
    q = t * t
    c = np.float32(56.24238010007914)
    c = c * q + np.float32(-85.24033027713756)
    c = c * q + np.float32(64.93459062500318)
    c = c * q + np.float32(-19.73917143468023)
    c = c * q + np.float32(1.0)
    s = np.float32(39.76161689420046)
    s = s * q + np.float32(-76.58139639733676)
    s = s * q + np.float32(81.60248511075326)
    s = s * q + np.float32(-41.34168072264701)
    s = s * q + np.float32(6.283185280367972)
    s = s * t
    return (-c if flip else c), (-s if r < np.float32(0.0) else s)


@njit(inline="always")
def _normal_pair(bits):  # type: ignore[no-untyped-def]
    """Return two independent N(0, 1) in float32 by Box and Muller's transform of 48 random bits."""
    u = (np.float32(np.int32(bits >> _U64(40))) + np.float32(0.5)) * _TWO_POW_MINUS_24
    angle = np.float32(np.int32(bits & _U64(0xFFFFFF))) * _TWO_POW_MINUS_24
    i = np.float32(u).view(np.int32)
    e = (i - np.int32(0x3F3504F3)) >> np.int32(23)  # u = (1 + r)·2ᵉ with 1 + r in [√½, √2)
    r = np.int32(i - (e << np.int32(23))).view(np.float32) - np.float32(1.0)
    log = np.float32(-0.14482171045852762) + np.float32(0.08959878884664619) * r
    log = np.float32(0.14917382795353612) + log * r
    log = np.float32(-0.1654374035281781) + log * r
    log = np.float32(0.1995841682689948) + log * r
    log = np.float32(-0.25002945991728465) + log * r
    log = np.float32(0.33334160461123113) + log * r
    log = np.float32(-0.4999997774254988) + log * r
    log = np.float32(0.999999975045402) + log * r
    log = np.float32(e) * np.float32(0.6931471805599453) + log * r
    radius = np.sqrt(max(np.float32(-2.0) * log, np.float32(0.0)))
    c, s = cos_sin_turns(angle)
    return radius * c, radius * s


@njit(cache=True)
def draw_normals(key, block, name_hash, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the N(0, 1) entries of one block's features along one name."""
    stream = mix(counter_bits(key, block) ^ mix(_U64(name_hash)))
    pairs = len(out) // 2
    for i in range(pairs):
        out[2 * i], out[2 * i + 1] = _normal_pair(counter_bits(stream, i))
    if len(out) % 2:
        out[len(out) - 1] = _normal_pair(counter_bits(stream, pairs))[0]


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
    >>> row = directions.row({"b": 2.0, "a": 1.0})
    >>> row == directions.row({"a": 1.0, "b": 2.0}), len(row.values)
    (False, 2)
    """

    def __init__(self, seed: int, per_block: int, cache_bytes: int) -> None:
        self.key = domain_key(seed, "features")
        self.per_block = per_block
        self.width = per_block * max(1, LANES // per_block)
        self._budget = cache_bytes // (4 * self.width)  # in (panel, name) pairs
        self._slot_of: dict[int, int] = {}
        self._hashes = np.zeros(0, np.uint64)
        self._schemas: dict[tuple[Hashable, ...], tuple[Any, I64, I64, U64]] = {}
        self.cache: F32 = np.zeros((0, 0, self.width), np.float32)

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
        names = tuple(x)
        schema = self._schemas.get(names)
        if schema is None:
            schema = self._learn_schema(names)
        get, start, slots, hashes = schema
        try:
            values = array("d", get(x))
        except TypeError:
            raise _not_a_number(x) from None
        return _make_rows(Rows, (start, slots, hashes, np.frombuffer(values)))

    def rows(self, names: Sequence[Hashable], values: F64) -> Rows:
        """Return the rows of a table: `values` has shape (examples, names)."""
        get, _, slots, hashes = self._learn_schema(tuple(names))
        order = np.array(get({name: i for i, name in enumerate(names)}), np.int64)
        n, d = values.shape
        return Rows(
            np.arange(0, n * d + 1, d),
            np.tile(slots, n),
            np.tile(hashes, n),
            np.ascontiguousarray(values[:, order]).ravel(),
        )

    def restored(self, start: I64, hashes: U64, values: F64) -> Rows:
        """Return rows that were saved without their places in this cache."""
        slots = np.array([self._slot(int(h)) for h in hashes], np.int64)
        return Rows(start, slots, hashes, values)

    def reserve(self, blocks: int) -> None:
        """Cache the panels of the first `blocks` blocks as far as the budget goes."""
        panels, names, _ = self.cache.shape
        wanted = -(-blocks * self.per_block // self.width)
        if wanted > panels and names:
            self._resize(min(max(wanted, 2 * panels), self._budget // names), names)

    def _learn_schema(self, names: tuple[Hashable, ...]) -> tuple[Any, I64, I64, U64]:
        if not names:
            raise InputError("Expected at least one feature, got an empty x")
        ordered = sorted(names, key=hash64)
        hashes = np.array([hash64(name) for name in ordered], np.uint64)
        slots = np.array([self._slot(int(h)) for h in hashes], np.int64)
        get = itemgetter(*ordered) if len(ordered) > 1 else _Single(ordered[0])
        schema = (get, np.array([0, len(names)]), slots, hashes)
        if len(self._schemas) >= 256:
            self._schemas.clear()
        self._schemas[names] = schema
        return schema

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
            self._resize(panels, grown)
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


class _Single:
    """An itemgetter of one key that returns a tuple like the others."""

    def __init__(self, name: Hashable) -> None:
        self._name = name

    def __call__(self, x: Mapping[Hashable, Any]) -> tuple[Any]:
        return (x[self._name],)


def _not_a_number(x: Mapping[Hashable, Any]) -> InputError:
    for name, value in x.items():
        try:
            array("d", (value,))
        except TypeError:
            return InputError(f"Expected a number, got {type(value).__name__} {value!r} - at x[{name!r}]")
    return InputError("Expected numbers in x")


def check_values(x: Mapping[Hashable, Any], scale: float) -> None:
    """Raise the error that names the first value of `x` that is not finite or too large.

    Raises
    ------
    InputError
        If there is such a value.
    """
    for name, value in x.items():
        if hasattr(value, "__abs__") and not abs(value) * scale <= LARGEST_VALUE:
            raise InputError(f"Expected a finite number of usable size, got {value!r} - at x[{name!r}]")
