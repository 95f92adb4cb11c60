"""The measures that kernels draw random directions from, each entry a pure function of (seed, block, name, place).

Every measure is drawn in its standard form; a kernel's scale multiplies the input instead. The arithmetic is plain
float32 without fused or reordered operations, so that every machine draws the same bits.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamkernel.generator import (
    cos_sin_turns,
    counter_bits,
    exp_negative,
    log_unit,
    mix,
    normal_pair,
    stream_of,
    unit_interval,
)

(
    NORMAL,  # N(0, 1)
    CAUCHY,  # 1/(π(1 + ω²))
    LAPLACE,  # ½ exp(-|ω|)
    SECH,  # sech(πω)
    JENSEN_SHANNON,  # sech(πω)/(1 + 4ω²), normalised
    STUDENT,  # N(0, 1)·√(ν/G) with one Gamma(ν) variable G for each feature, shared by all names
    EXPONENTIAL,  # exp(-ω) for ω > 0
    LEVY,  # 1/(2z²) with z of N(0, 1), for ω > 0
    RADEMACHER,  # ±1
    SIGNS,  # 32 independent signs, in the bits of one float32
) = range(10)

_SHARED = np.uint64(0x5F3C0B6E2A917D48)
"""Stands where the hash of a name does, for what all names of a feature share."""

_TRIES = 64


@njit(error_model="numpy")
def shared_stream(key, block):  # type: ignore[no-untyped-def]
    """Return the key of the random numbers that all names of a block share."""
    return stream_of(key, block, _SHARED)


@njit(inline="always", error_model="numpy")
def _signed(size, bits):  # type: ignore[no-untyped-def]
    """Return `size` with the sign that the lowest random bit says."""
    return size if bits & np.uint64(1) else -size


@njit(inline="always", error_model="numpy")
def _cauchy(bits):  # type: ignore[no-untyped-def]
    """Return ω of density 1/(π(1 + ω²)): |ω| is tan(¼πu) or its inverse, each half of the time."""
    c, s = cos_sin_turns(np.float32(0.125) * unit_interval(bits))
    return _signed(c / s if bits & np.uint64(2) else s / c, bits)


@njit(inline="always", error_model="numpy")
def _sech(bits):  # type: ignore[no-untyped-def]
    """Return ω of density sech(πω): |ω| = -(1/π) log tan(¼πu)."""
    c, s = cos_sin_turns(np.float32(0.125) * unit_interval(bits))
    return _signed(np.float32(0.3183098861837907) * (log_unit(c) - log_unit(s)), bits)


@njit(error_model="numpy")
def _jensen_shannon(bits):  # type: ignore[no-untyped-def]
    """Return ω of density ∝ sech(πω)/(1 + 4ω²): of sech(πω), accepted with probability 1/(1 + 4ω²)."""
    omega = np.float32(0.0)
    for i in range(_TRIES):
        word = counter_bits(bits, i)
        omega = _sech(word)
        chance = unit_interval(mix(word))
        if chance * (np.float32(1.0) + np.float32(4.0) * omega * omega) <= np.float32(1.0):
            break
    return omega


@njit(error_model="numpy")
def _gamma(shape, bits):  # type: ignore[no-untyped-def]
    """Return a Gamma(shape, 1) variable (Marsaglia and Tsang 2000), by rejection with a counter."""
    boost = np.float32(1.0)
    if shape < 1.0:  # Gamma(a) is Gamma(a + 1)·U^(1/a)
        boost = exp_negative(log_unit(unit_interval(mix(bits))) / np.float32(shape))
        shape += 1.0
    d = np.float32(shape - 1.0 / 3.0)
    c = np.float32(1.0) / np.sqrt(np.float32(9.0) * d)
    v = np.float32(1.0)
    for i in range(_TRIES):
        word = counter_bits(bits, i)
        z = normal_pair(word)[0]
        v = (np.float32(1.0) + c * z) ** 3
        if v > np.float32(0.0):
            log_v = log_unit(v) if v <= np.float32(1.0) else -log_unit(np.float32(1.0) / v)
            log_u = log_unit(unit_interval(mix(word)))
            if log_u < np.float32(0.5) * z * z + d * (np.float32(1.0) - v + log_v):
                break
    return boost * d * v


@njit(inline="always", error_model="numpy")
def _one(measure, bits):  # type: ignore[no-untyped-def]
    """Return one draw of a measure that takes one word of random bits."""
    u = unit_interval(bits)
    if measure == CAUCHY:
        return _cauchy(bits)
    if measure == LAPLACE:
        return _signed(-log_unit(u), bits)
    if measure == SECH:
        return _sech(bits)
    if measure == JENSEN_SHANNON:
        return _jensen_shannon(bits)
    if measure == EXPONENTIAL:
        return -log_unit(u)
    if measure == LEVY:
        z = normal_pair(bits)[0]
        return np.float32(0.5) / max(z * z, np.float32(1e-30))
    return np.float32(1.0) if bits >> np.uint64(63) else np.float32(-1.0)


@njit(cache=True, error_model="numpy")
def draw(measure, shape, key, block, name_hash, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the entries of one block's features along one name.

    `shape` is ν where the measure has one.
    """
    stream = stream_of(key, block, name_hash)
    n = len(out)
    if measure in (NORMAL, STUDENT):
        for i in range(n // 2):
            out[2 * i], out[2 * i + 1] = normal_pair(counter_bits(stream, i))
        if n % 2:
            out[n - 1] = normal_pair(counter_bits(stream, n // 2))[0]
        if measure == STUDENT:
            shared = shared_stream(key, block)
            for f in range(n):
                out[f] *= np.sqrt(np.float32(shape) / max(_gamma(shape, counter_bits(shared, f)), np.float32(1e-30)))
    elif measure == SIGNS:
        words = out.view(np.uint32)
        for f in range(n):
            words[f] = counter_bits(stream, f) >> np.uint64(32)
    else:
        for f in range(n):
            out[f] = _one(measure, counter_bits(stream, f))


@njit(cache=True, error_model="numpy")
def draw_some(measure, shape, key, places, name_hash, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the entries of single features along one name; `places` has the block and the place of each."""
    for i in range(len(out)):
        block, f = places[i, 0], places[i, 1]
        stream = stream_of(key, block, name_hash)
        if measure in (NORMAL, STUDENT):
            even, odd = normal_pair(counter_bits(stream, f // 2))
            out[i] = odd if f % 2 else even
            if measure == STUDENT:
                gamma = _gamma(shape, counter_bits(shared_stream(key, block), f))
                out[i] *= np.sqrt(np.float32(shape) / max(gamma, np.float32(1e-30)))
        elif measure == SIGNS:
            out.view(np.uint32)[i] = counter_bits(stream, f) >> np.uint64(32)
        else:
            out[i] = _one(measure, counter_bits(stream, f))
