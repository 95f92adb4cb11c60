"""Random features of a row, compiled: the output of each part of a kernel for the row and its random directions.

A feature is a complex number z_f(x), kept as its real and imaginary part (only the real one where the other is 0 for
all parts of a kernel), with

    k(x, x') = E[Re z_f(x) · conj z_f(x')].

So a product of kernels is a product of independent complex numbers, and a sum of kernels concatenates their features.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from streamkernel.features.compiled_kernel import (
    ENTRIES,
    KERNEL,
    LARGEST_FEATURE,
    LARGEST_VALUE,
    LOG,
    PHASE,
    ROOM,
    ROOT,
    SPAN,
    VECTORS,
)
from streamkernel.features.feature_maps import form, project, set_phases
from streamkernel.features.rows import ROWS
from streamkernel.jit import Family, inlined, unit


@unit(types.boolean(KERNEL, ROWS, types.int64, ENTRIES), allocates=False, error_model="numpy")
def prepare(kernel, rows, i, row):  # type: ignore[no-untyped-def]
    """Fill `row` with the values that each part reads from row i: its non-zero entries, transformed, in float32.

    Return whether all are finite, of usable size and in the kernel's domain.
    """
    for p in range(len(kernel.parts)):
        part = kernel.parts[p]
        scale, transform, least, own = part.scale, part.transform, part.least, part.unit
        n = 0
        for j in range(rows.start[i], rows.start[i + 1]):
            if not (rows.readers[j] >> p) & 1:
                continue
            v = rows.values[j]
            if not (abs(v) * own <= LARGEST_VALUE and v >= least):  # NaN fails too
                return False
            if v == 0.0:
                continue
            if transform == ROOT:
                v = math.sqrt(v)
            elif transform == LOG:
                v = math.log1p(v / part.shift)
            row.slots[p, n], row.hashes[p, n], row.values[p, n] = rows.slots[j], rows.hashes[j], np.float32(v * scale)
            n += 1
        row.counts[p] = n
    return True


combine = Family("combine", types.void(KERNEL, ENTRIES, SPAN, VECTORS, VECTORS))
"""``combine(0, kernel, row, span, phi, room)`` is :func:`features` of several parts."""


@combine.member(0, error_model="numpy")
def _combine(kernel, row, span, phi, room):  # type: ignore[no-untyped-def]
    """Set `phi` to √F φ of a sum of products of several parts: term t, Σ_t w_t ∏ k_part, has √w_t ∏ z_part."""
    parts, first, last = len(kernel.parts), span.first, span.last
    width = last - first
    for p in range(parts):
        re, im = room[ROOM + 2 * p][:width], room[ROOM + 2 * p + 1][:width]
        if not form(kernel.parts[p].form, kernel, p, row, span, re, im, room):
            im[:] = np.float32(0.0)
    terms = len(kernel.weights)
    per_term = len(phi) // terms
    for t in range(terms):
        a, b = phi[t * per_term, first:last], room[0][:width]
        if per_term == 2:
            b = phi[t * per_term + 1, first:last]
        a[:] = np.float32(kernel.weights[t])
        b[:] = np.float32(0.0)
        for p in range(parts):
            if kernel.terms[t, p]:
                re, im = room[ROOM + 2 * p], room[ROOM + 2 * p + 1]
                for f in range(width):
                    a[f], b[f] = a[f] * re[f] - b[f] * im[f], a[f] * im[f] + b[f] * re[f]


@unit(types.void(KERNEL, ENTRIES, SPAN, VECTORS, VECTORS), allocates=False, error_model="numpy")
def features(kernel, row, span, phi, room):  # type: ignore[no-untyped-def]
    """Set `phi`, shape (components, ≥ last), to √F φ of the features of a span."""
    if len(kernel.parts) > 1:
        combine(0, kernel, row, span, phi, room)
        return
    first, last = span.first, span.last
    re, im, number = phi[0, first:last], phi[len(phi) - 1, first:last], kernel.parts[0].form
    if number == PHASE:  # most models
        s = room[1][: last - first]
        project(kernel, np.int64(0), row, span, s, room[0])
        set_phases(s, re, im)
    else:
        form(number, kernel, np.int64(0), row, span, re, im, room)
    weight = np.float32(kernel.weights[0])
    if weight != np.float32(1.0):
        for i in range(len(phi)):
            for f in range(first, last):
                phi[i, f] *= weight


@inlined(allocates=False, error_model="numpy")
def power(phi, first, last):  # type: ignore[no-untyped-def]
    r"""Return the means of \|z\|² and \|z\|⁴ over features, or -1 for both if one of them is too large."""
    square, fourth, usable = 0.0, 0.0, True
    for f in range(first, last):
        total = 0.0
        for i in range(len(phi)):
            usable &= abs(phi[i, f]) <= LARGEST_FEATURE
            total += phi[i, f] * phi[i, f]
        square += total
        fourth += total * total
    if not usable:
        return -1.0, -1.0
    return square / (last - first), fourth / (last - first)
