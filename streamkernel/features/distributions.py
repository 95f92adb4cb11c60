"""The distributions that kernels draw random directions from, each entry a pure function of (seed, block, name,
position).

Every distribution is drawn in its standard form; a kernel's scale multiplies the input instead. The arithmetic is plain
float32 without fused or reordered operations, so that every machine draws the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from streamkernel.features.counter_rng import (
    cos_sin_turns,
    counter_bits,
    exp_negative,
    log_unit,
    mix,
    normal_pair,
    stream_of,
    unit_interval,
)
from streamkernel.jit import Family, inlined

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
"""Takes the place of the hash of a name, for what all names of a feature share."""

_TRIES = 64

draw = Family("draw", types.void(types.float64, types.uint64, types.int64, types.uint64, types.float32[::1]))
"""``draw(distribution, shape, key, block, name_hash, out)`` fills `out` with the entries of one block's features
along one name; `shape` is ν where the distribution has one."""

draw_some = Family(
    "draw_some", types.void(types.float64, types.uint64, types.int64[:, ::1], types.uint64, types.float32[::1])
)
"""``draw_some(distribution, shape, key, features, name_hash, out)`` does it for single features; a row of `features`
begins with the block and the position in it."""


def require(distribution: int, kept: bool) -> None:
    """Prepare a distribution for compiled code, also for single features if some were `kept`."""
    draw.require(distribution)
    if kept:
        draw_some.require(distribution)


@inlined(error_model="numpy")
def shared_stream(key, block):  # type: ignore[no-untyped-def]
    """Return the key of the random numbers that all names of a block share."""
    return stream_of(key, block, _SHARED)


@draw.member(NORMAL, error_model="numpy")
def draw_normal(shape, key, block, name_hash, out):  # type: ignore[no-untyped-def]
    stream = stream_of(key, block, name_hash)
    n = len(out)
    for i in range(n // 2):
        out[2 * i], out[2 * i + 1] = normal_pair(counter_bits(stream, i))
    if n % 2:
        out[n - 1] = normal_pair(counter_bits(stream, n // 2))[0]


@inlined(error_model="numpy")
def _one_normal(stream, f):  # type: ignore[no-untyped-def]
    even, odd = normal_pair(counter_bits(stream, f // 2))
    return odd if f % 2 else even


@draw_some.member(NORMAL, error_model="numpy")
def draw_some_normal(shape, key, features, name_hash, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        out[i] = _one_normal(stream_of(key, features[i, 0], name_hash), features[i, 1])


@inlined(error_model="numpy")
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


@inlined(error_model="numpy")
def _student_factor(shape, key, block, f):  # type: ignore[no-untyped-def]
    """Return √(ν/G) of a feature."""
    gamma = _gamma(shape, counter_bits(shared_stream(key, block), f))
    return np.sqrt(np.float32(shape) / max(gamma, np.float32(1e-30)))


@draw.member(STUDENT, error_model="numpy")
def draw_student(shape, key, block, name_hash, out):  # type: ignore[no-untyped-def]
    stream = stream_of(key, block, name_hash)
    for f in range(len(out)):
        out[f] = _one_normal(stream, f) * _student_factor(shape, key, block, f)


@draw_some.member(STUDENT, error_model="numpy")
def draw_some_student(shape, key, features, name_hash, out):  # type: ignore[no-untyped-def]
    for i in range(len(out)):
        block, f = features[i, 0], features[i, 1]
        out[i] = _one_normal(stream_of(key, block, name_hash), f) * _student_factor(shape, key, block, f)


@draw.member(SIGNS, error_model="numpy")
def draw_signs(shape, key, block, name_hash, out):  # type: ignore[no-untyped-def]
    stream, words = stream_of(key, block, name_hash), out.view(np.uint32)
    for f in range(len(out)):
        words[f] = counter_bits(stream, f) >> np.uint64(32)


@draw_some.member(SIGNS, error_model="numpy")
def draw_some_signs(shape, key, features, name_hash, out):  # type: ignore[no-untyped-def]
    words = out.view(np.uint32)
    for i in range(len(out)):
        words[i] = counter_bits(stream_of(key, features[i, 0], name_hash), features[i, 1]) >> np.uint64(32)


def of_one_word(distribution: int, one: Any) -> None:
    """Define a distribution by a function of 64 random bits."""

    @draw.member(distribution, error_model="numpy")
    def draw_words(shape, key, block, name_hash, out):  # type: ignore[no-untyped-def]
        stream = stream_of(key, block, name_hash)
        for f in range(len(out)):
            out[f] = one(counter_bits(stream, f))

    @draw_some.member(distribution, error_model="numpy")
    def draw_some_words(shape, key, features, name_hash, out):  # type: ignore[no-untyped-def]
        for i in range(len(out)):
            out[i] = one(counter_bits(stream_of(key, features[i, 0], name_hash), features[i, 1]))


@inlined(error_model="numpy")
def _with_sign(size, bits):  # type: ignore[no-untyped-def]
    """Return `size` with the sign of the lowest random bit."""
    return size if bits & np.uint64(1) else -size


@inlined(error_model="numpy")
def _cauchy(bits):  # type: ignore[no-untyped-def]
    """Return ω of density 1/(π(1 + ω²)): |ω| is tan(¼πu) or its inverse, each half of the time."""
    c, s = cos_sin_turns(np.float32(0.125) * unit_interval(bits))
    return _with_sign(c / s if bits & np.uint64(2) else s / c, bits)


@inlined(error_model="numpy")
def _laplace(bits):  # type: ignore[no-untyped-def]
    return _with_sign(-log_unit(unit_interval(bits)), bits)


@inlined(error_model="numpy")
def _sech(bits):  # type: ignore[no-untyped-def]
    """Return ω of density sech(πω): |ω| = -(1/π) log tan(¼πu)."""
    c, s = cos_sin_turns(np.float32(0.125) * unit_interval(bits))
    return _with_sign(np.float32(0.3183098861837907) * (log_unit(c) - log_unit(s)), bits)


@inlined(error_model="numpy")
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


@inlined(error_model="numpy")
def _exponential(bits):  # type: ignore[no-untyped-def]
    return -log_unit(unit_interval(bits))


@inlined(error_model="numpy")
def _levy(bits):  # type: ignore[no-untyped-def]
    z = normal_pair(bits)[0]
    return np.float32(0.5) / max(z * z, np.float32(1e-30))


@inlined(error_model="numpy")
def _rademacher(bits):  # type: ignore[no-untyped-def]
    return np.float32(1.0) if bits >> np.uint64(63) else np.float32(-1.0)


of_one_word(CAUCHY, _cauchy)
of_one_word(LAPLACE, _laplace)
of_one_word(SECH, _sech)
of_one_word(JENSEN_SHANNON, _jensen_shannon)
of_one_word(EXPONENTIAL, _exponential)
of_one_word(LEVY, _levy)
of_one_word(RADEMACHER, _rademacher)
