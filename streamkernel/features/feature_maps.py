"""Feature maps: the output of one part of a kernel for a row and its random directions, by the form of z; compiled.

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
    ADDITIVE,
    ARC_COSINE,
    BLOCK,
    BY_FEATURES,
    ENTRIES,
    EXPONENTIAL,
    KERNEL,
    LARGEST_FEATURE,
    LARGEST_VALUE,
    LINEAR,
    LOG,
    MOST_DEGREE,
    MULTI_SCALE,
    PHASE,
    PLACE,
    ROOM,
    ROOT,
    RUNG,
    SHARED,
    SIGN_PRODUCTS,
    SKETCH,
    SMALLEST,
    SPAN,
    VECTOR,
    VECTORS,
)
from streamkernel.features.counter_rng import cos_sin_turns, counter_bits, exp_negative, stream_of
from streamkernel.features.distributions import draw, draw_some, shared_stream
from streamkernel.features.rows import ROWS
from streamkernel.jit import Family, inlined, unit

form = Family("form", types.boolean(KERNEL, types.int64, ENTRIES, SPAN, VECTOR, VECTOR, VECTORS))
"""``form(number, kernel, part, row, span, re, im, room)`` sets z of one part for the features of a span, and returns
whether `im` is used."""
combine = Family("combine", types.void(KERNEL, ENTRIES, SPAN, VECTORS, VECTORS))
"""``combine(0, kernel, row, span, phi, room)`` is :func:`features` of several parts."""


@unit(
    types.void(KERNEL, types.int64, types.int64, types.int64, types.uint64, VECTOR),
    allocates=False,
    error_model="numpy",
)
def draw_block(kernel, part, block_size, block, name_hash, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the entries along one name of the features of the block at a position."""
    parameters, kept = kernel.parts[part], kernel.kept
    first = block * block_size
    if first < len(kept) - 1:
        draw_some(
            parameters.distribution, parameters.shape, parameters.key, kept[first : first + block_size], name_hash, out
        )
    else:
        number = block + kept[-1, BLOCK]
        if parameters.form == MULTI_SCALE and parameters.shift == SHARED:
            number //= parameters.order
        draw(parameters.distribution, parameters.shape, parameters.key, number, name_hash, out)


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


@inlined(allocates=False, error_model="numpy")
def set_phases(s, re, im):  # type: ignore[no-untyped-def]
    """Set z to exp(2πis), in a separate function, which the compiler vectorises."""
    for f in range(len(s)):
        re[f], im[f] = cos_sin_turns(s[f])


@form.member(PHASE, allocates=False, error_model="numpy")
def phases(kernel, part, row, span, re, im, work):  # type: ignore[no-untyped-def]
    s = work[1][: span.last - span.first]
    project(kernel, part, row, span, s, work[0])
    set_phases(s, re, im)
    return True


@form.member(MULTI_SCALE, allocates=False, error_model="numpy")
def multi_scale(kernel, part, row, span, re, im, work):  # type: ignore[no-untyped-def]
    """Set z to exp(2πisr): the factors r alternate, each for `run` features, after the kept features."""
    parameters, s = kernel.parts[part], work[1][: span.last - span.first]
    project(kernel, part, row, span, s, work[0])
    run = 1 if parameters.shift == BY_FEATURES else span.block_size
    position = span.panel * kernel.cache.shape[3] + span.first
    packed = min(max(len(kernel.kept) - 1 - position, 0), len(s))
    for i in range(packed):
        s[i] *= np.float32(parameters.table[kernel.kept[position + i, RUNG] % parameters.order])
    for i in range(packed, len(s), run):
        factor = np.float32(parameters.table[(position + i) // run % parameters.order])
        for f in range(i, min(i + run, len(s))):
            s[f] *= factor
    set_phases(s, re, im)
    return True


@form.member(LINEAR, allocates=False, error_model="numpy")
def linear(kernel, part, row, span, re, im, work):  # type: ignore[no-untyped-def]
    project(kernel, part, row, span, re, work[0])
    return False


@form.member(EXPONENTIAL, allocates=False, error_model="numpy")
def exponential(kernel, part, row, span, re, im, work):  # type: ignore[no-untyped-def]
    project(kernel, part, row, span, re, work[0])
    for f in range(span.last - span.first):
        re[f] = exp_negative(-re[f])
    return False


@form.member(ARC_COSINE, allocates=False, error_model="numpy")
def arc_cosine(kernel, part, row, span, re, im, work):  # type: ignore[no-untyped-def]
    project(kernel, part, row, span, re, work[0])
    order = kernel.parts[part].order
    for f in range(span.last - span.first):
        on = max(re[f], np.float32(0.0))
        if order == 0:
            on = np.float32(1.0) if on > np.float32(0.0) else np.float32(0.0)
        elif order == 2:
            on *= on
        re[f] = np.float32(math.sqrt(2.0)) * on
    return False


@form.member(ADDITIVE, error_model="numpy")
def additive(kernel, part, row, span, re, im, work):  # type: ignore[no-untyped-def]
    """Set z to Σ √v sign(ω) exp(2πi|ω| log v): signs are independent, so products of two names vanish on average."""
    for f in range(span.last - span.first):
        re[f] = im[f] = np.float32(0.0)
    scale = kernel.parts[part].shape
    for j in range(row.counts[part]):
        omega = entries_along(kernel, part, row, j, span, work[0])
        root = np.float32(math.sqrt(row.values[part, j]))
        turns = np.float32(math.log(max(row.values[part, j], SMALLEST)) * scale)  # 0 has no logarithm
        for f in range(span.last - span.first):
            c, s = cos_sin_turns(abs(omega[f]) * turns)
            signed = root if omega[f] > np.float32(0.0) else -root
            re[f] += signed * c
            im[f] += signed * s
    return True


@form.member(SIGN_PRODUCTS, error_model="numpy")
def sign_products(kernel, part, row, span, re, im, work):  # type: ignore[no-untyped-def]
    """Set z to √(a_N/P[N]) ∏_{i≤N} ω_iᵀv with Rademacher ω_i and N drawn for each feature (Kar and Karnick 2012)."""
    parameters, kept, n = kernel.parts[part], kernel.kept, row.counts[part]
    block_size, width, most = span.block_size, span.last - span.first, 0
    degrees, total = work[1], work[2]
    for f in range(width):
        position = span.panel * kernel.cache.shape[3] + span.first + f
        block, place = position // block_size + kept[-1, BLOCK], position % block_size
        if position < len(kept) - 1:
            block, place = kept[position, BLOCK], kept[position, PLACE]
        chance = (counter_bits(shared_stream(parameters.key, block), place) >> np.uint64(11)) * 2.0**-53
        degree = 0
        while chance >= parameters.table[degree] and degree < parameters.order:
            degree += 1
        re[f], degrees[f] = np.float32(parameters.table[MOST_DEGREE + 1 + degree]), np.float32(degree)
        most = max(most, degree)
    for i in range(most):
        total[:width] = np.float32(0.0)
        for j in range(n):
            words = entries_along(kernel, part, row, j, span, work[0]).view(np.uint32)
            value = row.values[part, j]
            for f in range(width):
                total[f] += value if (words[f] >> np.uint32(i)) & np.uint32(1) else -value
        for f in range(width):
            if degrees[f] > i:
                re[f] *= total[f]
    return False


@form.member(SKETCH, error_model="numpy")
def sketch(kernel, part, row, span, re, im, work):  # type: ignore[no-untyped-def]
    """Set z to √F times the circular convolution of p count sketches of (v, √c) (TensorSketch, Pham and Pagh 2013).

    A sketch has as few entries as the row, so shifting and adding convolves as fast as a projection, without FFT.
    """
    parameters, n, block_size, first = kernel.parts[part], row.counts[part], span.block_size, span.first
    blocks, constant = kernel.cache.shape[3] // block_size, np.float32(parameters.shape)
    for b in range(first // block_size, span.last // block_size):
        out, other = re[b * block_size - first : (b + 1) * block_size - first], work[0][:block_size]
        out[:] = np.float32(0.0)
        out[0] = np.float32(math.sqrt(block_size))
        block = span.panel * blocks + b + kernel.kept[-1, BLOCK]
        for factor in range(parameters.order):
            other[:] = out
            out[:] = np.float32(0.0)
            for j in range(n + 1):
                value = constant if j == n else row.values[part, j]
                stream = (
                    shared_stream(parameters.key, block)
                    if j == n
                    else stream_of(parameters.key, block, row.hashes[part, j])
                )
                bits = counter_bits(stream, factor)
                if bits & np.uint64(1):
                    value = -value
                h = np.int64((bits >> np.uint64(1)) % np.uint64(block_size))
                ahead, behind = out[h:], out[:h]
                for i in range(block_size - h):
                    ahead[i] += value * other[i]
                for i in range(h):
                    behind[i] += value * other[block_size - h + i]
    return False


@unit(types.boolean(KERNEL, ROWS, types.int64, ENTRIES), allocates=False, error_model="numpy")
def prepare(kernel, rows, i, row):  # type: ignore[no-untyped-def]
    """Fill `row` with the values that each part reads from row i: its non-zero entries, transformed, in float32.

    Return whether all are finite, of usable size and in the kernel's domain.
    """
    for p in range(len(kernel.parts)):
        part = kernel.parts[p]
        scale, transform, least, factor = part.scale, part.transform, part.least, part.unit
        n = 0
        for j in range(rows.start[i], rows.start[i + 1]):
            if not (rows.readers[j] >> p) & 1:
                continue
            v = rows.values[j]
            if not (abs(v) * factor <= LARGEST_VALUE and v >= least):  # NaN fails too
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


@combine.member(0, error_model="numpy")
def _combine(kernel, row, span, phi, work):  # type: ignore[no-untyped-def]
    """Set `phi` to √F φ of a sum of products of several parts: term t, Σ_t w_t ∏ k_part, has √w_t ∏ z_part."""
    parts, first, last = len(kernel.parts), span.first, span.last
    width = last - first
    for p in range(parts):
        re, im = work[ROOM + 2 * p][:width], work[ROOM + 2 * p + 1][:width]
        if not form(kernel.parts[p].form, kernel, p, row, span, re, im, work):
            im[:] = np.float32(0.0)
    terms = len(kernel.weights)
    per_term = len(phi) // terms
    for t in range(terms):
        a, b = phi[t * per_term, first:last], work[0][:width]
        if per_term == 2:
            b = phi[t * per_term + 1, first:last]
        a[:] = np.float32(kernel.weights[t])
        b[:] = np.float32(0.0)
        for p in range(parts):
            if kernel.terms[t, p]:
                re, im = work[ROOM + 2 * p], work[ROOM + 2 * p + 1]
                for f in range(width):
                    a[f], b[f] = a[f] * re[f] - b[f] * im[f], a[f] * im[f] + b[f] * re[f]


@unit(types.void(KERNEL, ENTRIES, SPAN, VECTORS, VECTORS), allocates=False, error_model="numpy")
def features(kernel, row, span, phi, work):  # type: ignore[no-untyped-def]
    """Set `phi`, shape (components, ≥ last), to √F φ of the features of a span."""
    if len(kernel.parts) > 1:
        combine(0, kernel, row, span, phi, work)
        return
    first, last = span.first, span.last
    re, im, number = phi[0, first:last], phi[len(phi) - 1, first:last], kernel.parts[0].form
    if number == PHASE:  # most models
        s = work[1][: last - first]
        project(kernel, np.int64(0), row, span, s, work[0])
        set_phases(s, re, im)
    else:
        form(number, kernel, np.int64(0), row, span, re, im, work)
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
