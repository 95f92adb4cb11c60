"""Projections of a row on random directions, compiled; entries are read from the cache or generated."""

from __future__ import annotations

import numpy as np
from numba import types

from streamkernel.features.compiled_kernel import BLOCK, ENTRIES, KERNEL, SPAN, VECTOR
from streamkernel.features.distributions import draw, draw_some
from streamkernel.jit import inlined, unit


@unit(
    types.void(KERNEL, types.int64, types.int64, types.int64, types.uint64, VECTOR),
    allocates=False,
    error_model="numpy",
)
def draw_block(kernel, part, block_size, block, name_hash, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the entries along one name of the features of the block at a position."""
    own, kept = kernel.parts[part], kernel.kept
    first = block * block_size
    if first < len(kept) - 1:
        draw_some(own.distribution, own.shape, own.key, kept[first : first + block_size], name_hash, out)
    else:
        draw(own.distribution, own.shape, own.key, block + kept[-1, BLOCK], name_hash, out)


@inlined(allocates=False, error_model="numpy")
def _is_cached(cache, panel, slot):  # type: ignore[no-untyped-def]
    """Return whether the cache contains an entry; a row may be newer than a cache."""
    return panel < cache.shape[0] and 0 <= slot < cache.shape[1]


@unit(types.void(KERNEL, types.int64, types.uint64, SPAN, VECTOR), allocates=False, error_model="numpy")
def _regenerate(kernel, part, name_hash, span, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the regenerated entries of a span's features along a name."""
    block_size, first, last = span.block_size, span.first, span.last
    blocks = kernel.cache.shape[3] // block_size
    for b in range(first // block_size, last // block_size):
        piece = out[b * block_size - first : (b + 1) * block_size - first]
        draw_block(kernel, part, block_size, span.panel * blocks + b, name_hash, piece)


@inlined(error_model="numpy")
def entries_along(kernel, part, row, j, span, scratch):  # type: ignore[no-untyped-def]
    """Return the entries of the features of a span along the name of entry j of the row."""
    slot = row.slots[part, j]
    if _is_cached(kernel.cache, span.panel, slot):
        return kernel.cache[span.panel, slot, part, span.first : span.last]
    _regenerate(kernel, part, row.hashes[part, j], span, scratch)
    return scratch[: span.last - span.first]


@inlined(allocates=False, error_model="numpy")
def _add(out, omega, value):  # type: ignore[no-untyped-def]
    """Add ``value * omega``, in a separate function, which the compiler vectorises."""
    for f in range(len(omega)):
        out[f] += value * omega[f]


@unit(types.void(KERNEL, types.int64, ENTRIES, SPAN, VECTOR, VECTOR), allocates=False, error_model="numpy")
def project(kernel, part, row, span, out, scratch):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to ⟨ω, v⟩ for the features of a span.

    The sum is taken entry by entry, so it has the same bits however the entries are grouped.
    """
    cache, slots, values, n = kernel.cache, row.slots[part], row.values[part], row.counts[part]
    panel, first, last = span.panel, span.first, span.last
    width = last - first
    for f in range(width):
        out[f] = np.float32(0.0)
    j = 0
    while j < n:
        cached = _is_cached(cache, panel, slots[j])
        four = cached and j + 3 < n
        for i in range(1, 4 if four else 1):
            four &= _is_cached(cache, panel, slots[j + i])
        if four:
            a, b, c, d = values[j], values[j + 1], values[j + 2], values[j + 3]
            u, v = cache[panel, slots[j], part, first:last], cache[panel, slots[j + 1], part, first:last]
            w, x = cache[panel, slots[j + 2], part, first:last], cache[panel, slots[j + 3], part, first:last]
            for f in range(width):
                out[f] = (((out[f] + a * u[f]) + b * v[f]) + c * w[f]) + d * x[f]
            j += 4
            continue
        if cached:
            _add(out, cache[panel, slots[j], part, first:last], values[j])
        else:
            _regenerate(kernel, part, row.hashes[part, j], span, scratch)
            _add(out, scratch[:width], values[j])
        j += 1
