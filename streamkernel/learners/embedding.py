"""The features of all blocks of a model for a row, as one vector; compiled."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel.features.compiled_kernel import ENTRIES, KERNEL, VECTOR, VECTORS, Entries, Span
from streamkernel.features.directions import Directions
from streamkernel.features.evaluate import features, power, prepare
from streamkernel.features.rows import F32, ROWS, Rows
from streamkernel.jit import compiled, inlined, unit, work_array
from streamkernel.learners.scoring import entries_room, longest_row, part_shape
from streamkernel.learners.state import NUMBERS_TYPE


class EmbeddingRoom(NamedTuple):
    """Work arrays for the values that the parts read, the features of a panel, and of the parts."""

    row: Entries
    panel: F32
    parts: F32


EMBEDDING_ROOM = types.NamedTuple([ENTRIES, VECTORS, VECTORS], EmbeddingRoom)


@inlined(allocates=None)
def embedding_room(memory, state, kernel, rows):  # type: ignore[no-untyped-def]
    """Return work arrays to embed rows."""
    parts, width = len(kernel.parts), kernel.cache.shape[3]
    return EmbeddingRoom(
        entries_room(memory, parts, longest_row(rows)),
        work_array(memory, (state[0].components, width), np.float32),
        work_array(memory, part_shape(parts, width), np.float32),
    )


@inlined(allocates=False)
def set_scaled(to, values, scale):  # type: ignore[no-untyped-def]
    """Set `to` to ``scale * values``."""
    for j in range(len(to)):
        to[j] = scale * values[j]


@unit(
    types.boolean(NUMBERS_TYPE, KERNEL, ENTRIES, types.int64, types.int64, VECTOR, EMBEDDING_ROOM),
    allocates=False,
    error_model="numpy",
)
def embed_blocks(state, kernel, row, begin, end, z, room):  # type: ignore[no-untyped-def]
    """Set `z` in the blocks ``begin <= b < end`` from the values read from a row; return whether all are usable."""
    numbers, phi = state[0], room.panel
    size, components, width = numbers.block_size, numbers.components, phi.shape[1]
    per_panel = width // size
    normaliser = np.float32(1.0 / math.sqrt(size))
    for p in range(begin // per_panel, (end + per_panel - 1) // per_panel):
        first, last = max(0, begin - p * per_panel), min(per_panel, end - p * per_panel)
        features(kernel, row, Span(size, p, first * size, last * size), phi, room.parts)
        if numbers.k_xx == 0.0 and power(phi, first * size, last * size)[0] < 0.0:
            return False
        for b in range(first, last):
            for o in range(components):
                at = ((p * per_panel + b) * components + o) * size
                set_scaled(z[at : at + size], phi[o, b * size : (b + 1) * size], normaliser)
    return True


@unit(
    types.boolean(NUMBERS_TYPE, KERNEL, ROWS, types.int64, types.int64, VECTOR, EMBEDDING_ROOM),
    allocates=False,
    error_model="numpy",
)
def embed(state, kernel, rows, i, blocks, z, room):  # type: ignore[no-untyped-def]
    """Set `z` to the features of all blocks for row i, and to 0 beyond; return whether the row is usable.

    They are in the order of blocks, components and features.
    """
    if not prepare(kernel, rows, i, room.row):
        return False
    for j in range(blocks * state[0].components * state[0].block_size, len(z)):
        z[j] = np.float32(0.0)
    return embed_blocks(state, kernel, room.row, 0, blocks, z, room)


@compiled(nogil=True)
def _embed_each(state, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to the features of the first blocks, as many as fit, for row i; 0 if it is unusable."""
    numbers, room = state[0], embedding_room(None, state, kernel, rows)
    blocks = out.shape[1] // (numbers.components * numbers.block_size)
    for i in range(len(rows.start) - 1):
        if not embed(state, kernel, rows, i, blocks, out[i], room):
            out[i] = np.float32(0.0)


def embed_rows(numbers: Any, directions: Directions, rows: Rows, blocks: int) -> F32:
    """Return the features of the first blocks for each of `rows`, shape (rows, components × features).

    They are in the order of blocks, components and features; 0 for a row that is unusable.
    """
    width = blocks * directions.block_size * directions.plan.outputs
    out = np.empty((len(rows.start) - 1, width), np.float32)
    _embed_each(np.array([numbers]), directions.kernel, rows, out)
    return out
