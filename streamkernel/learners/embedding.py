"""The features of all blocks of a model for a row, as one vector: compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from streamkernel.features.directions import Directions
from streamkernel.features.evaluate import ENTRIES, KERNEL, VECTOR, VECTORS, features, power, prepare
from streamkernel.features.rows import F32, ROWS, Rows
from streamkernel.jit import compiled, inlined, unit
from streamkernel.learners.scoring import entries_room, longest_row, part_room
from streamkernel.learners.state import NUMBERS_TYPE


@inlined
def scaled(to, values, scale):  # type: ignore[no-untyped-def]
    """Set `to` to ``scale * values``."""
    for j in range(len(to)):
        to[j] = scale * values[j]


@unit(
    types.boolean(NUMBERS_TYPE, KERNEL, ROWS, types.int64, types.int64, VECTORS, VECTOR, ENTRIES, VECTORS),
    error_model="numpy",
)
def embed(state, kernel, rows, i, blocks, phi, z, row, room):  # type: ignore[no-untyped-def]
    """Set `z` to the features of all blocks for row i, 0 beyond the given blocks; return if the row is usable.

    They are in the order of blocks, components and features. `phi` has room for a panel, `row` and `room` for a row.
    """
    if not prepare(kernel, rows, i, row):
        return False
    numbers = state[0]
    size, components, width = numbers.block_size, numbers.components, phi.shape[1]
    per_panel = width // size
    for j in range(blocks * components * size, len(z)):
        z[j] = np.float32(0.0)
    normaliser = np.float32(1.0 / math.sqrt(size))
    for p in range((blocks + per_panel - 1) // per_panel):
        last = min(per_panel, blocks - p * per_panel)
        features(kernel, size, row, p, 0, last * size, phi, room)
        if numbers.k_xx == 0.0 and power(phi, 0, last * size)[0] < 0.0:
            return False
        for b in range(last):
            for o in range(components):
                first = ((p * per_panel + b) * components + o) * size
                scaled(z[first : first + size], phi[o, b * size : (b + 1) * size], normaliser)
    return True


@compiled(nogil=True)
def _embed_rows(state, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to the features of the first blocks, as many as fit, for row i; 0 if it is unusable."""
    numbers, parts, width = state[0], len(kernel.parts), kernel.cache.shape[3]
    row, room = entries_room(parts, longest_row(rows)), part_room(parts, width)
    phi = np.empty((numbers.components, width), np.float32)
    blocks = out.shape[1] // (numbers.components * numbers.block_size)
    for i in range(len(rows.start) - 1):
        if not embed(state, kernel, rows, i, blocks, phi, out[i], row, room):
            out[i] = np.float32(0.0)


def embedded(numbers: Any, directions: Directions, rows: Rows, blocks: int) -> F32:
    """Return the features of the first blocks for each of `rows`, shape (rows, components × features).

    They are in the order of blocks, components and features; 0 for a row that is unusable.
    """
    width = blocks * directions.block_size * directions.plan.outputs
    out = np.empty((len(rows.start) - 1, width), np.float32)
    _embed_rows(np.array([numbers]), directions.kernel, rows, out)
    return out
