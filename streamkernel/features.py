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
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from streamkernel.errors import InputError
from streamkernel.forms import draw_block
from streamkernel.generator import hash64
from streamkernel.places import Names, address_of, aligned
from streamkernel.rows import F32, F64, I64, Rows

if TYPE_CHECKING:
    from streamkernel.kernels.plan import Plan

LANES = 1024
"""Features handled at once; a panel is the whole number of blocks next to it."""


@njit(cache=True)
def _fill(program, constants, kept, hashes, per_block, cache, first_panel, first_name):  # type: ignore[no-untyped-def]
    """Fill `cache`, shape (panels, names, parts, features), from the given panel and name on."""
    blocks = cache.shape[3] // per_block
    for p in range(first_panel, cache.shape[0]):
        for s in range(first_name, len(hashes)):
            for part in range(len(program)):
                for b in range(blocks):
                    row = cache[p, s, part, b * per_block : (b + 1) * per_block]
                    draw_block(program, constants, kept, part, per_block, p * blocks + b, hashes[s], row)


class Directions:
    """The directions of all blocks of a model, and the cache of those that fit a byte budget.

    Parameters
    ----------
    plan
        The kernel's parts, with the keys of their directions.
    per_block
        Features in one block.
    cache_bytes
        Memory for cached directions. 0 regenerates every direction at every use; predictions are the same.
    kept
        Where the first features were drawn, as :mod:`streamkernel.forms` says; ``None`` if all are where they were.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.kernels.plan import Plan
    >>> directions = Directions(Plan(kernels.Gaussian(1.0), seed=1), per_block=4, cache_bytes=0)
    >>> row, same = directions.row({"b": 2.0, "a": 1.0}), directions.row({"a": 1.0, "b": 2.0})
    >>> (row.values == same.values).all(), (row.hashes == same.hashes).all()
    (np.True_, np.True_)
    """

    def __init__(self, plan: Plan, per_block: int, cache_bytes: int, kept: I64 | None = None) -> None:
        self.plan = plan
        self.kept: I64 = np.zeros((1, 3), np.int64) if kept is None else np.ascontiguousarray(kept, np.int64)
        self._plain = not plan.transforms
        self.per_block = per_block
        self.width = per_block * max(1, LANES // per_block)
        self.cache_bytes = cache_bytes
        self._budget = cache_bytes // (4 * self.width * len(plan.program))  # in (panel, name) pairs
        self._slot_of: dict[int, int] = {}
        self._hashes = np.zeros(0, np.uint64)
        self._known: dict[tuple[Hashable, ...], Names] = {}
        self._last: Names | None = None
        self.last = 0  # the address of the record that :meth:`example` returned last, if no transform comes before it
        self._wanted = 0  # panels to cache
        self.cache: F32 = np.zeros((0, 0, len(plan.program), self.width), np.float32)
        self.place = np.zeros(3, np.int64)  # of the cache: its address, panels and names

    @property
    def cached_bytes(self) -> int:
        """Bytes held by the cache."""
        return int(self.cache.nbytes)

    @property
    def kernel(self) -> tuple[I64, F64, F32, I64]:
        """What compiled code is told: the program of the kernel's parts, their constants, the cache, what was kept."""
        return self.plan.program, self.plan.constants, self.cache, self.kept

    def anew(self) -> Directions:
        """Return the same directions, with names and a cache of their own, for use in another thread."""
        twin = Directions(self.plan, self.per_block, self.cache_bytes, self.kept)
        twin._wanted = self._wanted
        return twin

    def row(self, x: Mapping[Hashable, Any]) -> Rows:
        """Return one example in the order of its names' hashes.

        Raises
        ------
        InputError
            If `x` is empty, or a value is neither a number nor a string.
        """
        if x and not self._plain:
            x = self.plan.expanded(x)
        names = self._names(tuple(x))
        try:
            values = np.array(array("d", names.get(x)))
        except (TypeError, OverflowError):  # strings, or what the error is about
            return self.row(self.plan.expanded(x))
        return Rows(names.start, names.slots, names.hashes, names.readers, values)

    def example(self, x: Mapping[Hashable, Any]) -> int:
        """Return the address of the record of one example; it holds until the next call.

        Raises
        ------
        InputError
            If `x` is empty, or a value is neither a number nor a string.
        """
        if x and not self._plain:
            x = self.plan.expanded(x)
        names = tuple(x)
        record = self._known.get(names) or self._names(names)
        try:
            record.put(x.values())
        except (struct.error, TypeError, OverflowError):  # strings, or what the error is about
            return self.example(self.plan.expanded(x))
        if self._plain:
            record.saw(names)
            self._last, self.last = record, record.address
        return record.address

    def rows(self, names: Sequence[Hashable], values: F64) -> Rows:
        """Return the rows of a table of numbers, shape (examples, names), for a kernel without transforms."""
        record = self._names(tuple(names))
        order = np.array(record.get({name: i for i, name in enumerate(names)}), np.int64)
        n, d = values.shape
        return Rows(
            np.arange(0, n * d + 1, d),
            np.tile(record.slots, n),
            np.tile(record.hashes, n),
            np.tile(record.readers, n),
            np.ascontiguousarray(values[:, order]).ravel(),
        )

    def restored(self, start: I64, hashes: Any, readers: I64, values: F64) -> Rows:
        """Return rows that were saved without their places in this cache."""
        slots = np.array([self._slot(int(h)) for h in hashes], np.int64)
        return Rows(start, slots, hashes, readers, values)

    def own(self, rows: Rows) -> Rows:
        """Return rows that other directions made, as these read them."""
        return self.restored(rows.start, *rows[2:])

    def reserve(self, blocks: int) -> None:
        """Cache the panels of the first `blocks` blocks as far as the budget goes."""
        panels, names = self.cache.shape[:2]
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
            slots = [self._slot(h) for h in hashes.values()]
            known = Names(names, hashes, slots, self.plan.readers(list(hashes)), len(self.plan.program))
            if len(self._known) >= 256:
                self._known.clear()
            self._known[names] = known
        return known

    def _slot(self, name_hash: int) -> int:
        """Return the name's place in the cache, -1 where the budget has none left."""
        slot = self._slot_of.get(name_hash)
        if slot is not None:
            return slot
        panels, names = self.cache.shape[:2]
        slot = len(self._slot_of)
        if slot == names:
            grown = min(max(8, 2 * names), self._budget // max(1, panels))
            if grown <= slot:
                return -1
            self._hashes = np.concatenate([self._hashes, np.zeros(grown - names, np.uint64)])
            self._resize(max(panels, min(self._wanted, self._budget // grown)), grown)
        self._slot_of[name_hash] = slot
        self._hashes[slot] = name_hash
        self._fill(slot + 1, 0, slot)
        return slot

    def _resize(self, panels: int, names: int) -> None:
        old = self.cache
        self.cache = aligned((panels, names, *old.shape[2:]), np.float32)
        self.cache[: len(old), : old.shape[1]] = old
        self._fill(len(self._slot_of), len(old), 0)
        self.place[:] = address_of(self.cache), panels, names

    def _fill(self, names: int, first_panel: int, first_name: int) -> None:
        told = self._hashes[:names], self.per_block, self.cache, first_panel, first_name
        _fill(self.plan.program, self.plan.constants, self.kept, *told)
