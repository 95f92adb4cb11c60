"""What is made of a row and the random directions: the features z of every part of a kernel, compiled.

A feature is a complex number z_f(x), told as its real and imaginary part (only the real one where the other is 0 for
all of a kernel's parts), with

    k(x, x') = E[Re z_f(x) · conj z_f(x')].

So a product of kernels is a product of complex numbers drawn independently, and a sum puts them side by side.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamkernel.generator import cos_sin_turns, counter_bits, exp_negative, stream_of
from streamkernel.measures import draw, draw_some, shared_stream

PHASE, LINEAR, ADDITIVE, EXPONENTIAL, ARC_COSINE, SIGN_PRODUCTS, SKETCH, LADDER = range(8)
"""Forms, with s = Σ ω_i v_i over the transformed inputs: exp(2πis); s; Σ √v_i sign(ω_i) exp(2πi|ω_i| log v_i);
exp(-s); √2 sⁿ for s > 0; products of as many s as are drawn; circular convolutions of count sketches; exp(2πis r) with
factors r of the table in turns."""

IDENTITY, ROOT, LOG = range(3)
"""Transforms of an input x: x, √x, log(1 + x/c). All are 0 at 0, so what is missing takes no part."""

# Places in a part's row of `program`: codes, the order n or degree, the key of its directions; then whether it is a
# factor of each of the kernel's terms. Places in its row of `constants`; the last row has the square roots of the
# terms' weights.
MEASURE, FORM, TRANSFORM, ORDER, KEY, TERMS = range(6)
SCALE, SHAPE, SHIFT, LEAST, UNIT, TABLE = range(6)
MOST_DEGREE = 31
N_CONSTANTS = TABLE + 2 * (MOST_DEGREE + 1)
"""The table of a power series: cumulative probabilities of its degrees, and √(aₙ/P[n]). That of a ladder: factors, as
many as its order; its shift says whether they take turns by blocks or by features."""

BLOCK, PLACE, RUNG = range(3)
"""What `kept` says of each of the first features of a model that was made smaller: where it was drawn, and its factor
of a ladder, of as many as there are in turns. One row more says by how much the numbers of all later blocks are ahead
of their positions, and how many blocks there may be in all from then on."""

LARGEST_VALUE = 1e30
"""Inputs beyond this (in units of the kernel's length) would overflow float32 on the way to a feature."""

LARGEST_FEATURE = np.float32(1e15)
"""Features beyond this are refused: their squares would not be exact enough to learn from."""

SMALLEST = np.float32(1.2e-38)
"""The least normal float32."""

ROOM = 3
"""Vectors of a panel's width that one part needs to work in; with several parts each keeps two more."""


@njit
def prepare(kernel, readers, slots, hashes, values, row):  # type: ignore[no-untyped-def]
    """Fill the buffers `row` with what each part reads of an example: its non-zero entries, transformed, in float32.

    Return whether all are finite, of usable size and in the kernel's domain.
    """
    program, constants, _, _ = kernel
    for part in range(len(program)):
        least, unit = constants[part, LEAST], constants[part, UNIT]
        scale, transform = constants[part, SCALE], program[part, TRANSFORM]
        n = 0
        for j in range(len(values)):
            if not (readers[j] >> part) & 1:
                continue
            v = values[j]
            if not (abs(v) * unit <= LARGEST_VALUE and v >= least):  # NaN fails too
                return False
            if v == 0.0:
                continue
            if transform == ROOT:
                v = math.sqrt(v)
            elif transform == LOG:
                v = math.log1p(v / constants[part, SHIFT])
            row[0][part, n], row[1][part, n], row[2][part, n] = slots[j], hashes[j], np.float32(v * scale)
            n += 1
        row[3][part] = n
    return True


@njit
def draw_block(program, constants, kept, part, per_block, block, name_hash, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the entries along one name of the features of the block at a position."""
    measure, key, shape = program[part, MEASURE], np.uint64(program[part, KEY]), constants[part, SHAPE]
    first = block * per_block
    if first < len(kept) - 1:
        draw_some(measure, shape, key, kept[first : first + per_block], name_hash, out)
    else:
        draw(measure, shape, key, block + kept[-1, BLOCK], name_hash, out)


@njit
def _entries(kernel, per_block, part, row, j, panel, first, last, scratch):  # type: ignore[no-untyped-def]
    """Return the entries of the features ``first <= i < last`` of a panel along the name of entry j of the row.

    What is not cached is regenerated into `scratch`.
    """
    program, constants, cache, kept = kernel
    slot = row[0][part, j]
    if panel < cache.shape[0] and slot >= 0:
        return cache[panel, slot, part, first:last]
    blocks = cache.shape[3] // per_block
    for b in range(first // per_block, last // per_block):
        piece = scratch[b * per_block - first : (b + 1) * per_block - first]
        draw_block(program, constants, kept, part, per_block, panel * blocks + b, row[1][part, j], piece)
    return scratch[: last - first]


@njit
def _add(out, omega, value):  # type: ignore[no-untyped-def]
    """Add ``value * omega``; called where the cache is told from regenerated entries, or it does not vectorise."""
    for f in range(len(omega)):
        out[f] += value * omega[f]


@njit
def project(kernel, per_block, part, row, panel, first, last, out, scratch):  # type: ignore[no-untyped-def]
    """Set ``out[i]`` to ⟨ω, v⟩ for the features ``first <= i < last`` of a panel.

    The sum is taken entry by entry, so it has the same bits however the entries are grouped.
    """
    cache = kernel[2]
    slots, values, n = row[0][part], row[2][part], row[3][part]
    width = last - first
    out[:width] = np.float32(0.0)
    j = 0
    while j < n:
        cached = panel < cache.shape[0] and slots[j] >= 0
        if cached and j + 3 < n and min(slots[j + 1], slots[j + 2], slots[j + 3]) >= 0:
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
            _add(out, _entries(kernel, per_block, part, row, j, panel, first, last, scratch), values[j])
        j += 1


@njit
def _phases(s, re, im):  # type: ignore[no-untyped-def]
    """Set z to exp(2πis); apart, so that it vectorises."""
    for f in range(len(s)):
        re[f], im[f] = cos_sin_turns(s[f])


@njit
def _climb(constants, order, kept, s, first, run):  # type: ignore[no-untyped-def]
    """Multiply the sums of the features from `first` on by the factors, each `run` times in turn after the kept."""
    packed = min(max(len(kept) - 1 - first, 0), len(s))
    for i in range(packed):
        s[i] *= np.float32(constants[TABLE + kept[first + i, RUNG] % order])
    for i in range(packed, len(s), run):
        factor = np.float32(constants[TABLE + (first + i) // run % order])
        for f in range(i, min(i + run, len(s))):
            s[f] *= factor


@njit
def _additive(kernel, per_block, part, row, panel, first, last, re, im, room):  # type: ignore[no-untyped-def]
    """Set z to Σ √v sign(ω) exp(2πi|ω| log v): signs are independent, so products of two names vanish in the mean."""
    re[:] = np.float32(0.0)
    im[:] = np.float32(0.0)
    scale = kernel[1][part, SHAPE]
    for j in range(row[3][part]):
        omega = _entries(kernel, per_block, part, row, j, panel, first, last, room[0])
        root = np.float32(math.sqrt(row[2][part, j]))
        turns = np.float32(math.log(max(row[2][part, j], SMALLEST)) * scale)  # what was rounded to 0 has no root
        for f in range(last - first):
            c, s = cos_sin_turns(abs(omega[f]) * turns)
            signed = root if omega[f] > np.float32(0.0) else -root
            re[f] += signed * c
            im[f] += signed * s


@njit
def _sign_products(kernel, per_block, part, row, panel, first, last, re, room):  # type: ignore[no-untyped-def]
    """Set z to √(a_N/P[N]) ∏_{i≤N} ω_iᵀv with Rademacher ω_i and N drawn for each feature (Kar and Karnick 2012)."""
    program, constants, cache, kept = kernel
    table, n = constants[part, TABLE:], row[3][part]
    width, most = last - first, 0
    degrees, total = room[1], room[2]
    for f in range(width):
        position = panel * cache.shape[3] + first + f
        block, place = position // per_block + kept[-1, BLOCK], position % per_block
        if position < len(kept) - 1:
            block, place = kept[position, BLOCK], kept[position, PLACE]
        shared = shared_stream(np.uint64(program[part, KEY]), block)
        chance = (counter_bits(shared, place) >> np.uint64(11)) * 2.0**-53
        degree = 0
        while chance >= table[degree] and degree < program[part, ORDER]:
            degree += 1
        re[f], degrees[f] = np.float32(table[MOST_DEGREE + 1 + degree]), np.float32(degree)
        most = max(most, degree)
    for i in range(most):
        total[:width] = np.float32(0.0)
        for j in range(n):
            words = _entries(kernel, per_block, part, row, j, panel, first, last, room[0]).view(np.uint32)
            value = row[2][part, j]
            for f in range(width):
                total[f] += value if (words[f] >> np.uint32(i)) & np.uint32(1) else -value
        for f in range(width):
            if degrees[f] > i:
                re[f] *= total[f]


@njit
def _sketch(kernel, per_block, part, row, panel, first, last, re, room):  # type: ignore[no-untyped-def]
    """Set z to √F times the circular convolution of p count sketches of (v, √c) (TensorSketch, Pham and Pagh 2013).

    A sketch has as few entries as the row, so shifting and adding convolves as fast as a projection, without FFT.
    """
    program, constants, cache, kept = kernel
    key, blocks = np.uint64(program[part, KEY]), cache.shape[3] // per_block
    n = row[3][part]
    constant = np.float32(constants[part, SHAPE])
    for b in range(first // per_block, last // per_block):
        out, other = re[b * per_block - first : (b + 1) * per_block - first], room[0][:per_block]
        out[:] = np.float32(0.0)
        out[0] = np.float32(math.sqrt(per_block))
        block = panel * blocks + b + kept[-1, BLOCK]
        for factor in range(program[part, ORDER]):
            other[:] = out
            out[:] = np.float32(0.0)
            for j in range(n + 1):
                value = constant if j == n else row[2][part, j]
                stream = shared_stream(key, block) if j == n else stream_of(key, block, row[1][part, j])
                bits = counter_bits(stream, factor)
                if bits & np.uint64(1):
                    value = -value
                h = np.int64((bits >> np.uint64(1)) % np.uint64(per_block))
                ahead, behind = out[h:], out[:h]
                for i in range(per_block - h):
                    ahead[i] += value * other[i]
                for i in range(h):
                    behind[i] += value * other[per_block - h + i]


@njit
def _part(kernel, per_block, part, row, panel, first, last, re, im, room):  # type: ignore[no-untyped-def]
    """Set z of one part for the features ``first <= i < last`` of a panel; return whether `im` is more than 0."""
    form, order = kernel[0][part, FORM], kernel[0][part, ORDER]
    width = last - first
    if form == ADDITIVE:
        _additive(kernel, per_block, part, row, panel, first, last, re, im, room)
        return True
    if form == SIGN_PRODUCTS:
        _sign_products(kernel, per_block, part, row, panel, first, last, re, room)
        return False
    if form == SKETCH:
        _sketch(kernel, per_block, part, row, panel, first, last, re, room)
        return False
    s = room[1][:width]
    project(kernel, per_block, part, row, panel, first, last, s, room[0])
    if form == LADDER:
        run = per_block if kernel[1][part, SHIFT] else 1
        _climb(kernel[1][part], order, kernel[3], s, panel * kernel[2].shape[3] + first, run)
    if form in (PHASE, LADDER):
        _phases(s, re, im)
        return True
    if form == LINEAR:
        re[:] = s
    elif form == EXPONENTIAL:
        for f in range(width):
            re[f] = exp_negative(-s[f])
    elif form == ARC_COSINE:
        for f in range(width):
            on = max(s[f], np.float32(0.0))
            if order == 0:
                on = np.float32(1.0) if on > np.float32(0.0) else np.float32(0.0)
            elif order == 2:
                on *= on
            re[f] = np.float32(math.sqrt(2.0)) * on
    return False


@njit
def features(kernel, per_block, row, panel, first, last, phi, room):  # type: ignore[no-untyped-def]
    """Set `phi`, shape (outputs, ≥ last), to √F φ of the features ``first <= i < last`` of a panel.

    Term t of the kernel, Σ_t w_t ∏ k_part, has √w_t ∏ z_part.
    """
    if kernel[0].shape[0] == 1 and kernel[0][0, FORM] == PHASE and kernel[1][1, 0] == 1.0:  # what most models have
        s = room[1, : last - first]
        project(kernel, per_block, np.int64(0), row, panel, first, last, s, room[0])
        _phases(s, phi[0, first:last], phi[1, first:last])
        return
    program, constants, _, _ = kernel
    parts = len(program)
    width = last - first
    if parts == 1:
        re, im = phi[0, first:last], phi[len(phi) - 1, first:last]
        _part(kernel, per_block, np.int64(0), row, panel, first, last, re, im, room)  # typed, or it is compiled twice
        weight = np.float32(constants[1, 0])
        if weight != np.float32(1.0):
            for i in range(len(phi)):
                for f in range(first, last):
                    phi[i, f] *= weight
        return
    for part in range(parts):
        re, im = room[ROOM + 2 * part][:width], room[ROOM + 2 * part + 1][:width]
        if not _part(kernel, per_block, part, row, panel, first, last, re, im, room):
            im[:] = np.float32(0.0)
    terms = program.shape[1] - TERMS
    per_term = len(phi) // terms
    for t in range(terms):
        a, b = phi[t * per_term, first:last], room[0][:width]
        if per_term == 2:
            b = phi[t * per_term + 1, first:last]
        a[:] = np.float32(constants[parts, t])
        b[:] = np.float32(0.0)
        for part in range(parts):
            if program[part, TERMS + t]:
                re, im = room[ROOM + 2 * part], room[ROOM + 2 * part + 1]
                for f in range(width):
                    a[f], b[f] = a[f] * re[f] - b[f] * im[f], a[f] * im[f] + b[f] * re[f]


@njit
def power(phi, first, last):  # type: ignore[no-untyped-def]
    """Return the means of \\|z\\|² and \\|z\\|⁴ over features, -1 for both if one of them is too large to use."""
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
