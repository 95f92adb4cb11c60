"""A cache of the entries of directions and of the records of sets of names."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from streamkernel.features.dictionaries import NameRecord
from streamkernel.features.feature_maps import draw_block
from streamkernel.features.rows import F32
from streamkernel.jit import compiled
from streamkernel.locking import OwnedLock

RECORD_BYTES = 1 << 24
"""Bytes for cached sets of names; sets that do not fit are computed again at every use."""


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
