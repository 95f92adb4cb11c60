"""Random directions that are not stored: each entry is generated from (seed, block, feature, name).

The direction of feature `f` of block `b` along the input called `name` is a pure function of
``(seed, b, f, hash64(name))``. It is computed by a counter-based generator with no state, in plain IEEE arithmetic
(no fused or reordered operations), so that every machine and thread draws the same bits in any order.
Memory holds a cache of these bits, whose size never changes a result.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamkernel.features import numeric_names
from streamkernel.features.compiled_kernel import CompiledKernel
from streamkernel.features.counter_rng import hash64
from streamkernel.features.dictionaries import FAST, NameRecord, read_list, read_values
from streamkernel.features.feature_maps import draw_block
from streamkernel.features.numeric_names import NumericNames
from streamkernel.features.rows import F32, F64, I64, Rows, check_dictionary, is_missing
from streamkernel.jit import compiled
from streamkernel.jit.calls import aligned_zeros
from streamkernel.locking import OwnedLock, locked

if TYPE_CHECKING:
    from streamkernel.kernels.program import KernelProgram

RECORD_BYTES = 1 << 24
"""Bytes for cached sets of names; sets that do not fit are computed again at every use."""
LANES = 1024
"""Features handled at once; a panel is the whole number of blocks next to it."""
MOST_VALUES = 1 << 16
"""Values of examples that are read at once, at most: each takes some 50 bytes."""
_ONE = np.ones(1)
"""The weight of a single example, which nothing writes to."""


@compiled
def fill(kernel, block_size, hashes, first_panel, first_name):  # type: ignore[no-untyped-def]
    """Fill the cache, shape (panels, names, parts, features), from a given panel and name on."""
    cache = kernel.cache
    for p in range(first_panel, cache.shape[0]):
        for s in range(first_name, len(hashes)):
            for part in range(len(kernel.parts)):
                for b in range(cache.shape[3] // block_size):
                    row = cache[p, s, part, b * block_size : (b + 1) * block_size]
                    block = p * (cache.shape[3] // block_size) + b
                    draw_block(kernel, part, block_size, block, hashes[s], row)


class Store:
    """A cache of the entries of directions and of the records of sets of names; threads may share it.

    Entries are only ever added: the ones of a name are drawn first, and then the name gets its index. A larger table is
    filled separately and replaces the old one in one assignment. So a thread that reads the index of a name and then
    the table finds the name's entries there; a thread with an older table finds that the index is beyond its end.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.table: F32 = np.zeros(shape, np.float32)
        self.places: dict[int, int] = {}
        self.hashes = np.zeros(0, np.uint64)
        self.wanted = 0  # panels to cache
        self.records: dict[tuple[Hashable, ...], NameRecord] = {}
        self.record_bytes = 0
        self.lock = OwnedLock()

    def keep(self, names: tuple[Hashable, ...], record: NameRecord) -> NameRecord:
        """Keep the record of names, within the budget."""
        if self.record_bytes + record.nbytes > RECORD_BYTES:
            self.records.clear()
            self.record_bytes = 0
        if record.nbytes <= RECORD_BYTES:
            self.records[names] = record
            self.record_bytes += record.nbytes
        return record


def _later(method: Any, directions: Directions, *arguments: Any) -> int:
    """Return the index of no place: inside a change of the cache, a handler in the same thread does without."""
    return -1


class Directions:
    """The directions of all blocks of a model, with a cache within a byte budget.

    `plan` has the kernel's parts with the keys of their directions. With 0 for `cache_bytes` every direction is
    generated again at every use; predictions are the same. `kept` is the origin of the first features, as
    :mod:`streamkernel.features.compiled_kernel` describes; ``None`` if the model was never pruned.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.kernels.program import KernelProgram
    >>> directions = Directions(KernelProgram(kernels.Gaussian(1.0), seed=1), block_size=4, cache_bytes=0)
    >>> row, same = directions.row({"b": 2.0, "a": 1.0}), directions.row({"a": 1.0, "b": 2.0})
    >>> (row.values == same.values).all(), (row.hashes == same.hashes).all()
    (np.True_, np.True_)
    """

    def __init__(self, plan: KernelProgram, block_size: int, cache_bytes: int, kept: I64 | None = None) -> None:
        self.plan, self.block_size, self.cache_bytes = plan, block_size, cache_bytes
        self.kept: I64 = np.zeros((1, 3), np.int64) if kept is None else np.ascontiguousarray(kept, np.int64)
        self.is_packed = len(self.kept) > 1
        plan.load(self.is_packed)
        self.width = block_size * max(1, LANES // block_size)
        self._budget = cache_bytes // (4 * self.width * len(plan.parts))  # in (panel, name) pairs
        self.store = Store((0, 0, len(plan.parts), self.width))
        self.last = NameRecord((), {}, (), np.zeros(0, np.int64), len(plan.parts))  # of the last example

    def with_plan(self, plan: KernelProgram) -> Directions:
        """Return the same directions, with a shared cache, for a kernel with other bandwidths."""
        twin: Directions = object.__new__(Directions)
        vars(twin).update(vars(self), plan=plan)
        plan.load(self.is_packed)
        return twin

    def apart(self) -> Directions:
        """Return the same directions with a separate cache."""
        twin = Directions(self.plan, self.block_size, self.cache_bytes, self.kept)
        twin.store.wanted = self.store.wanted
        return twin

    @property
    def cached_bytes(self) -> int:
        """Size of the cache in bytes."""
        return int(self.store.table.nbytes)

    @property
    def cache(self) -> F32:
        """The cache; read the indices of names before it."""
        return self.store.table

    @property
    def kernel(self) -> CompiledKernel:
        """The compiled kernel with the cache; read the indices of names before it."""
        return CompiledKernel(*self.plan.arrays, self.store.table, self.kept)

    def row(self, x: Mapping[Hashable, Any], numeric: NumericNames | None = None, w: float = 1.0) -> Rows:
        """Return one example of weight w, sorted by the hashes of its names.

        Raise an InputError if a value is neither a number, a string nor missing, or a string where a number was
        learned.
        """
        record = self.last
        values = np.empty(len(record.names))
        if type(x) is not FAST or not record.names or not read_values.call(record.memory, id(x), values):
            record, sorted_values = self._read(x, numeric)
            values = np.array(sorted_values)
        weights = _ONE if w == 1.0 else np.array([w])
        return Rows(record.start, record.slots, record.hashes, record.readers, values, weights)

    def first_rows(self, xs: list[dict[Hashable, Any]], largest: float) -> tuple[Rows, F64]:
        """Return the first examples, and their values as given, shape (examples, names).

        They end before one with other names than the last example that was read, with a value that is not a number or
        is beyond ±`largest`, and where they have too many values in all.
        """
        record, n = self.last, 0
        values = np.empty((min(len(xs), max(1, MOST_VALUES // max(1, len(record.names)))), len(record.names)))
        if record.is_settled and {*map(type, xs)} == {FAST}:
            n = read_list.call(record.memory, id(xs), largest, values)
        return self.rows(record.names, values[:n]), values[:n]

    def learnable_row(
        self, x: Mapping[Hashable, Any], numeric: NumericNames, w: float = 1.0
    ) -> tuple[Rows, NumericNames]:
        """Return one example as :meth:`row` does, and the names that are known with it; `numeric` itself if there is no
        new one.
        """
        record = self.last
        row = self.row(x, numeric, w)
        if record.is_settled and row.hashes is record.hashes:
            return row, numeric
        extended = self.with_numeric(x, numeric)
        if extended is not numeric:
            numeric_names.warn_of_numbers(numeric, extended, x)
        return row, extended

    def example(
        self, x: Mapping[Hashable, Any], numeric: NumericNames | None = None
    ) -> tuple[NameRecord, dict[Hashable, float]]:
        """Return the record of an example's names, and a dictionary of floats that compiled code can read.

        Raise an InputError if a value is neither a number, a string nor missing, or a string where a number was
        learned.
        """
        record, values = self._read(x, numeric)
        in_order = dict(zip(record.ordered, values, strict=True))
        return record, {name: in_order[name] for name in record.names}

    def with_numeric(self, x: Mapping[Hashable, Any], numeric: NumericNames) -> NumericNames:
        """Return the known names with the names of an example added, or `numeric` itself if nothing is new."""
        record, keeps_fields = self.store.records.get(tuple(x)), numeric.fields is not None
        if record is None or not record.is_counted:
            extended = numeric_names.add_names(numeric, x)
        elif record.is_settled and not (keeps_fields and _has_strings(x)):
            return numeric
        else:
            extended = numeric_names.add_fields_of(numeric, x)
        if record is not None and extended is numeric:
            _note(record, x, numeric)
        return extended

    def adds_names(self, x: Mapping[Hashable, Any], numeric: NumericNames) -> bool:
        """Return whether an example adds to the known names, which it does mostly by its first values."""
        if numeric.fields is not None:
            return self.with_numeric(x, numeric) is not numeric
        record = self.store.records.get(tuple(x))
        is_known = record is not None and record.is_counted
        if not is_known and numeric_names.adds_values(numeric, x):
            return True
        if record is not None:
            _note(record, x, numeric)
        return False

    def _read(self, x: Mapping[Hashable, Any], numeric: NumericNames | None) -> tuple[NameRecord, array[float]]:
        """Return the record of an example's names, and its values sorted by their hashes."""
        example = x
        if type(x) is not dict:
            check_dictionary(x)
        if self.plan.transforms:
            x = self.plan.expand(x)
        names = tuple(x)
        record = self._record(names)
        try:
            values = array("d", record.get(x))
            total = sum(values, 0.0)
        except (TypeError, ValueError, OverflowError):  # strings, missing values, or values that raise an error
            total = float("nan")
        if numeric is not None and (total != total or self.plan.transforms):
            numeric_names.check(numeric, example)
        if total != total:  # strings or missing values
            x = self.plan.expand(x)
            record = self._record(tuple(x))
            values = array("d", record.get(x))
        if record.is_placed and not self.plan.transforms:
            self.last = record
        return record, values

    def rows(self, names: Sequence[Hashable], values: F64) -> Rows:
        """Return the rows of a table of numbers, shape (examples, names), for a kernel without transforms.

        A value of NaN is missing.
        """
        record = self._record(tuple(names))
        order = np.array(record.get({name: i for i, name in enumerate(names)}), np.int64)
        n, d = values.shape
        values = np.ascontiguousarray(values[:, order])
        rows = Rows(
            np.arange(0, n * d + 1, d) if d else np.zeros(n + 1, np.int64),
            np.tile(record.slots, n),
            np.tile(record.hashes, n),
            np.tile(record.readers, n),
            values.ravel(),
            np.ones(n),
        )
        missing = np.isnan(values)
        if not missing.any():
            return rows
        start = np.concatenate([[0], np.cumsum(d - missing.sum(axis=1))])
        entries: Any = (column[~missing.ravel()] for column in rows[1:-1])
        return Rows._make((start, *entries, rows.weights))

    def restore_rows(self, start: I64, hashes: Any, readers: I64, values: F64, weights: F64) -> Rows:
        """Return saved rows with their indices in this cache."""
        return Rows(start, self.places_of(hashes), hashes, readers, values, weights)

    def places_of(self, hashes: Any) -> I64:
        """Return the indices of names in the cache, new ones if the cache has space; -1 for names without one."""
        return np.array([self._place(int(h)) for h in hashes], np.int64)

    def adopt_rows(self, rows: Rows) -> Rows:
        """Return the rows of other directions with the indices of this cache."""
        return self.restore_rows(rows.start, *rows[2:])

    def reserve(self, blocks: int) -> None:
        """Cache the panels of the first `blocks` blocks, within the budget."""
        store = self.store
        wanted = -(-blocks * self.block_size // self.width)
        if wanted <= store.wanted:
            return
        self._widen(wanted)

    @locked(inside=_later)
    def _widen(self, wanted: int) -> None:
        """Cache more panels, within the budget."""
        store = self.store
        panels, names = store.table.shape[:2]
        if wanted > panels and names:
            self._resize(min(max(wanted, 2 * panels), self._budget // names), names)
        store.wanted = max(store.wanted, wanted)

    def _record(self, names: tuple[Hashable, ...]) -> NameRecord:
        """Return the record of an example's names, a new one if necessary."""
        record = self.store.records.get(names)
        if record is None:
            hashes = {name: hash64(name) for name in sorted(names, key=hash64)}
            slots = [self._place(h) for h in hashes.values()]
            readers = self.plan.readers(list(hashes))
            record = NameRecord(names, hashes, slots, readers, len(self.plan.parts))
            record.is_placed = -1 not in slots or self._is_full
            if record.is_placed:
                self.store.keep(names, record)
        return record

    def _place(self, name_hash: int) -> int:
        """Return the index of a name in the cache, or -1 if the budget is exhausted."""
        place = self.store.places.get(name_hash)
        if place is None and self._is_full:
            return -1
        return self._new_place(name_hash) if place is None else place

    @locked(inside=_later)
    def _new_place(self, name_hash: int) -> int:
        """Add a name to the cache."""
        store = self.store
        panels, names = store.table.shape[:2]
        place = store.places.get(name_hash, len(store.places))
        if place < len(store.places):  # another thread was faster
            return place
        if place == names:
            grown = min(max(8, 2 * names), self._most_names(panels))
            if grown <= place:
                return -1
            self._resize(max(panels, min(store.wanted, self._budget // grown)), grown)
        store.hashes[place] = name_hash
        fill(self.kernel, self.block_size, store.hashes[: place + 1], 0, place)
        store.places[name_hash] = place
        return place

    @property
    def _lock(self) -> OwnedLock:
        return self.store.lock

    @property
    def _is_full(self) -> bool:
        """Whether the budget is exhausted."""
        panels, names = self.store.table.shape[:2]
        return bool(len(self.store.places) == names == self._most_names(panels))

    def _most_names(self, panels: int) -> int:
        return self._budget // max(1, panels)

    def _resize(self, panels: int, names: int) -> None:
        """Replace the table by a larger one."""
        store = self.store
        old, table = store.table, aligned_zeros((panels, names, *store.table.shape[2:]), np.float32)
        table[: len(old), : old.shape[1]] = old
        hashes = np.zeros(names, np.uint64)
        hashes[: len(store.hashes)] = store.hashes
        fill(
            CompiledKernel(*self.plan.arrays, table, self.kept),
            self.block_size,
            hashes[: len(store.places)],
            len(old),
            0,
        )
        store.hashes = hashes
        store.table = table


def _note(record: NameRecord, x: Mapping[Hashable, Any], numeric: NumericNames) -> None:
    """Note in the record of an example's names, to which it adds nothing, whether a later one may."""
    record.is_counted = record.is_counted or numeric_names.are_final(numeric, x)
    if record.is_counted and not record.is_settled:
        is_plain = not (_has_strings(x) or any(map(is_missing, x.values())))
        record.is_settled = numeric.fields is None or is_plain


def _has_strings(x: Mapping[Hashable, Any]) -> bool:
    return any(isinstance(value, str) for value in x.values())
