"""The features of rows as a matrix, and derivatives of a function of random features by its inputs.

Derivatives are for kernels whose features are phases. A feature of ωᵀx turns, with coefficients a of its cosine
and b of its sine, has the derivative

    2π (b cos 2πωᵀx - a sin 2πωᵀx) ω.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from streamkernel.errors import InputError
from streamkernel.features.compiled_kernel import (
    ENTRIES,
    IDENTITY,
    KERNEL,
    MULTI_SCALE,
    RUNG,
    VECTOR,
    VECTORS,
    CompiledKernel,
    Entries,
    Span,
)
from streamkernel.features.directions import Directions
from streamkernel.features.feature_maps import draw_block, features, power, prepare
from streamkernel.features.rows import F32, F64, ROWS, U64, Rows
from streamkernel.jit import compiled, inlined, unit, work_array
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners.scoring import entries_room, longest_row, part_shape
from streamkernel.learners.state import NUMBERS_TYPE


def check_derivatives(plan: KernelProgram) -> None:
    """Raise an InputError for a kernel without known derivatives."""
    if not plan.is_plain or plan.parts_compiled["transform"][0] != IDENTITY:
        raise InputError(
            f'Expected method="sampling" for {plan.kernel!r}, got "gradient"; derivatives are known for Gaussian, '
            "Matern and other stationary kernels of the inputs as they are, and for a MultiScale of one of them"
        )


@compiled
def _draw(kernel, part, block_size, hashes, out):  # type: ignore[no-untyped-def]
    """Set ``out[j]`` to the entries of all directions of a part along name j."""
    for j in range(len(hashes)):
        for block in range(out.shape[1] // block_size):
            here = out[j, block * block_size : (block + 1) * block_size]
            draw_block(kernel, part, block_size, block, hashes[j], here)


def directions_along(kernel: CompiledKernel, block_size: int, hashes: U64, features: int, part: int = 0) -> F32:
    """Return the entries of the first directions of a part along names, shape (names, features)."""
    out = np.empty((len(hashes), features), np.float32)
    _draw(kernel, part, block_size, hashes, out)
    return out


def slopes(kernel: CompiledKernel, block_size: int, z: F32, coefficients: F64) -> F64:
    """Return the derivatives of f with respect to ωᵀr of each feature, for the scaled values r.

    The kernel has one part. The features `z` are in the order of blocks, components and features, as are the
    coefficients, shape (columns, 2 × features). The result has the shape (columns, features).
    """
    part, n = kernel.parts[0], len(z) // 2
    cosine, sine = z.reshape(-1, 2, block_size).astype(np.float64).transpose(1, 0, 2)
    a, b = coefficients.reshape(len(coefficients), -1, 2, block_size).transpose(2, 0, 1, 3)
    derivatives = 2.0 * np.pi * float(part["scale"]) * (b * cosine - a * sine).reshape(len(coefficients), n)
    if part["form"] == MULTI_SCALE:
        derivatives *= rungs(kernel, 0, block_size, n)
    return np.asarray(derivatives)


def rungs(kernel: CompiledKernel, part: int, block_size: int, features: int) -> F64:
    """Return the scale factors of a `MultiScale` for the first features."""
    parameters = kernel.parts[part]
    rung = np.arange(features) // (block_size if parameters["shift"] else 1)
    packed = min(len(kernel.kept) - 1, features)
    rung[:packed] = kernel.kept[:packed, RUNG]
    return np.asarray(parameters["table"][rung % parameters["order"]])


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
def embed_blocks(state, kernel, row, begin, end, z, work):  # type: ignore[no-untyped-def]
    """Set `z` in the blocks ``begin <= b < end`` from the values read from a row; return whether all are usable."""
    numbers, phi = state[0], work.panel
    size, components, width = numbers.block_size, numbers.components, phi.shape[1]
    per_panel = width // size
    normaliser = np.float32(1.0 / math.sqrt(size))
    for p in range(begin // per_panel, (end + per_panel - 1) // per_panel):
        first, last = max(0, begin - p * per_panel), min(per_panel, end - p * per_panel)
        features(kernel, row, Span(size, p, first * size, last * size), phi, work.parts)
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
def embed(state, kernel, rows, i, blocks, z, work):  # type: ignore[no-untyped-def]
    """Set `z` to the features of all blocks for row i, and to 0 beyond; return whether the row is usable.

    They are in the order of blocks, components and features.
    """
    if not prepare(kernel, rows, i, work.row):
        return False
    for j in range(blocks * state[0].components * state[0].block_size, len(z)):
        z[j] = np.float32(0.0)
    return embed_blocks(state, kernel, work.row, 0, blocks, z, work)


@compiled(nogil=True)
def _embed_each(state, kernel, rows, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to the features of the first blocks, as many as fit, for row i; 0 if it is unusable."""
    numbers, work = state[0], embedding_room(None, state, kernel, rows)
    blocks = out.shape[1] // (numbers.components * numbers.block_size)
    for i in range(len(rows.start) - 1):
        if not embed(state, kernel, rows, i, blocks, out[i], work):
            out[i] = np.float32(0.0)


def embed_rows(numbers: Any, directions: Directions, rows: Rows, blocks: int) -> F32:
    """Return the features of the first blocks for each of `rows`, shape (rows, components × features).

    They are in the order of blocks, components and features; 0 for a row that is unusable.
    """
    width = blocks * directions.block_size * directions.plan.outputs
    out = np.empty((len(rows.start) - 1, width), np.float32)
    _embed_each(np.array([numbers]), directions.kernel, rows, out)
    return out
