"""The compiled heart: f(x) for rows of examples.

Everything is told as arrays, which `streamkernel.expansion` owns (a call with few arguments is a fast call).
A model with n blocks of F features and C columns is

    coef[panel, column, output, feature]    α without its scale; after C columns, the running sum for the average
    beta[block, column]                     β without its scale
    ints[...], reals[...]                   the numbers that `streamkernel.state` names
    phi[panel, output, feature]             the features of the row that was evaluated last, √F φ

A feature has one output or more: the real and imaginary parts of `streamkernel.forms`, a cosine and a sine for a
Gaussian.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel import vectors
from streamkernel.forms import ROOM, features, power, prepare
from streamkernel.state import (
    BATCH,
    BLOCKS,
    COLUMNS,
    OUTPUTS,
    PARTS,
    PER_BLOCK,
    PREDICTED_OFFSET,
    SCALE,
    SCALE_SUM,
    SELF,
    STEPS,
)


@njit(inline="always")
def workspace(ints, start, columns, width):  # type: ignore[no-untyped-def]
    """Return room for a row's entries, a part's features, the sums of f, the gradients, and a block's move."""
    longest = 0
    for i in range(len(start) - 1):
        longest = max(longest, start[i + 1] - start[i])
    parts = ints[PARTS]
    entries = np.empty((parts, longest), np.int64), np.empty((parts, longest), np.uint64)
    row = entries[0], entries[1], np.empty((parts, longest), np.float32), np.empty(parts, np.int64)
    room = np.empty((ROOM + 2 * parts, width), np.float32)
    gradients = np.empty((2, ints[BATCH], ints[COLUMNS]))
    move = np.empty((ints[COLUMNS], ints[OUTPUTS], ints[PER_BLOCK]))
    return row, room, np.empty((columns, width)), gradients, move


@njit(inline="always")
def take(kernel, rows, i, row):  # type: ignore[no-untyped-def]
    start, slots, hashes, readers, values = rows
    a, b = start[i], start[i + 1]
    return prepare(kernel, readers[a:b], slots[a:b], hashes[a:b], values[a:b], row)


@njit
def score(ints, reals, kernel, rows, i, coef, phi, work, out):  # type: ignore[no-untyped-def]
    """Set ``out[0]`` to Σ_b φ_b(x)ᵀ α_b of row i, and ``out[1]`` to the prediction: averaged if asked, with the offset.

    Return whether the row is usable.
    """
    row, room, sums = work[0], work[1], work[2]
    if not take(kernel, rows, i, row):
        return False
    width = coef.shape[3]
    total = ints[BLOCKS] * ints[PER_BLOCK]
    sums[:] = 0.0
    if total == 0 and reals[SELF] == 0.0:
        features(kernel, ints[PER_BLOCK], row, np.int64(0), np.int64(0), ints[PER_BLOCK], phi[0], room)
        if power(phi[0], np.int64(0), ints[PER_BLOCK])[0] < 0.0:
            return False
    for p in range((total + width - 1) // width):
        last = min(width, total - p * width)
        features(kernel, ints[PER_BLOCK], row, p, np.int64(0), last, phi[p], room)
        if reals[SELF] == 0.0 and power(phi[p], np.int64(0), last)[0] < 0.0:
            return False
        for c in range(coef.shape[1]):
            s = sums[c]
            if ints[OUTPUTS] == 2:
                cos, sin, a, b = phi[p, 0], phi[p, 1], coef[p, c, 0], coef[p, c, 1]
                for f in range(last):
                    s[f] += cos[f] * a[f] + sin[f] * b[f]
                continue
            for o in range(ints[OUTPUTS]):
                z, a = phi[p, o], coef[p, c, o]
                for f in range(last):
                    s[f] += z[f] * a[f]
    normaliser = 1.0 / math.sqrt(ints[PER_BLOCK])
    columns = ints[COLUMNS]
    for c in range(columns):
        dot = vectors.tree_sum(sums[c]) * normaliser
        out[0, c] = reals[SCALE] * dot
        out[1, c] = out[0, c]
        if coef.shape[1] > columns and ints[STEPS] > 0:
            out[1, c] = (reals[SCALE_SUM] * dot - vectors.tree_sum(sums[columns + c]) * normaliser) / ints[STEPS]
        out[1, c] += reals[PREDICTED_OFFSET]
    return True


@njit(cache=True, nogil=True)
def evaluate(ints, reals, program, constants, cache, kept, start, slots, hashes, readers, values, coef, phi, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]``, shape (2, columns), to the scores of row i; return the first unusable row, or -1."""
    work = workspace(ints, start, coef.shape[1], coef.shape[3])
    kernel, rows = (program, constants, cache, kept), (start, slots, hashes, readers, values)
    for i in range(len(start) - 1):
        if not score(ints, reals, kernel, rows, i, coef, phi, work, out[i]):
            return i
    return -1


@njit(cache=True)
def transform(ints, program, constants, cache, kept, start, slots, hashes, readers, values, out):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to φ of the first block for row i: the outputs of its first feature, of its second, ...

    Return the first unusable row, or -1.
    """
    kernel, per_block, outputs = (program, constants, cache, kept), ints[PER_BLOCK], ints[OUTPUTS]
    width = cache.shape[3]
    phi = np.empty((outputs, width), np.float32)
    row, room, _, _, _ = workspace(ints, start, 0, width)
    first = np.int64(0)
    scale = 1.0 / math.sqrt(per_block)
    for i in range(len(start) - 1):
        if not take(kernel, (start, slots, hashes, readers, values), i, row):
            return i
        features(kernel, per_block, row, first, first, per_block, phi, room)
        if power(phi, first, per_block)[0] < 0.0:
            return i
        for f in range(per_block):
            for o in range(outputs):
                out[i, outputs * f + o] = scale * phi[o, f]
    return -1
