"""Random numbers without a state: every one is a pure function of a seed, a block, a name and a counter.

All arithmetic is plain IEEE (no fused or reordered operations), so that every machine and thread draws the same bits
in any order.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable
from hashlib import blake2b

import numpy as np

from streamkernel.errors import InputError, shorten
from streamkernel.jit import inlined

_U64 = np.uint64
_GOLDEN = _U64(0x9E3779B97F4A7C15)
_TWO_POW_MINUS_24 = np.float32(2.0**-24)


LARGEST_CACHED = 512
"""Bytes of a name whose hash is kept, roughly; names of any length would take any amount of memory."""


def hash64(name: Hashable) -> int:
    """Return the stable 64-bit hash of a feature's name; it is the same in every process and on every machine.

    A name is a string, a number, or a tuple of these, as River uses them; raise an InputError if it is of another type.
    Names that are equal as dictionary keys (``1``, ``1.0`` and ``True``) have one hash.

    Examples
    --------
    >>> hash64("age") == hash64("age"), hash64("age") == hash64("agE"), hash64(1) == hash64("1")
    (True, False, False)
    """
    size = len(name) if isinstance(name, str) else size_of(name)
    return _cached_hash(name) if size <= LARGEST_CACHED else _hash(name)


def size_of(name: Hashable) -> int:
    """Return the size of a name in bytes, including the parts of a tuple."""
    return sys.getsizeof(name) + (sum(map(size_of, name)) if isinstance(name, tuple) else 0)


def _hash(name: Hashable) -> int:
    return int.from_bytes(blake2b(_name_bytes(name), digest_size=8).digest(), "little")


_cached_hash = functools.lru_cache(maxsize=1 << 16)(_hash)


def _name_bytes(name: Hashable) -> bytes:
    if isinstance(name, str):
        return b"s" + name.encode("utf-8", "surrogatepass")
    if isinstance(name, tuple):
        parts = [_name_bytes(part) for part in name]
        return b"t" + b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    if isinstance(name, (int, float, np.number, np.bool_)):
        try:
            number = float(name)
        except OverflowError:
            raise InputError("Expected a feature name of usable size, got a huge integer") from None
        return b"n" + (str(int(name)) if number.is_integer() else repr(number)).encode()
    raise InputError(
        "Expected a feature name that is a string, a number or a tuple of these, "
        f"got {type(name).__name__} {shorten(name)}"
    )


@inlined(forceinline=True)
def mix(z):  # type: ignore[no-untyped-def]
    """Return the 64 bits of `z` well mixed (the finaliser of SplitMix64, Steele et al. 2014)."""
    z = (z ^ (z >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> _U64(27))) * _U64(0x94D049BB133111EB)
    return z ^ (z >> _U64(31))


@inlined(forceinline=True)
def counter_bits(key, counter):  # type: ignore[no-untyped-def]
    """Return 64 random bits, a pure function of `key` and `counter`."""
    return mix(_U64(key) + (_U64(counter) + _U64(1)) * _GOLDEN)


def domain_key(seed: int, domain: str) -> np.uint64:
    """Return the key of one use of a seed.

    A domain tag keeps the streams of different uses apart, so a feature seed that equals the seed of the data
    can never make a direction equal to the data.

    Examples
    --------
    >>> int(domain_key(7, "features")) == int(domain_key(7, "rule"))
    False
    """
    tag = f"streamkernel/{domain}/{int(seed)}".encode()
    return _U64(int.from_bytes(blake2b(tag, digest_size=8).digest(), "little"))


@inlined(forceinline=True)
def cos_sin_turns(z):  # type: ignore[no-untyped-def]
    """Return float32 cos(2πz), sin(2πz), within 3e-7, with one range reduction and no branch."""
    big = np.float32(12582912.0)  # 1.5·2²³: adding it rounds to an integer
    r = z - ((z + big) - big)
    r = min(max(r, np.float32(-0.5)), np.float32(0.5))
    a = abs(r)
    flip = a > np.float32(0.25)
    t = np.float32(0.5) - a if flip else a
    q = t * t
    c = np.float32(56.24238010007914)
    c = c * q + np.float32(-85.24033027713756)
    c = c * q + np.float32(64.93459062500318)
    c = c * q + np.float32(-19.73917143468023)
    c = c * q + np.float32(1.0)
    s = np.float32(39.76161689420046)
    s = s * q + np.float32(-76.58139639733676)
    s = s * q + np.float32(81.60248511075326)
    s = s * q + np.float32(-41.34168072264701)
    s = s * q + np.float32(6.283185280367972)
    s = s * t
    return (-c if flip else c), (-s if r < np.float32(0.0) else s)


@inlined(forceinline=True)
def log_unit(u):  # type: ignore[no-untyped-def]
    """Return log u for a float32 in (0, 1], within 2e-7 of its size."""
    i = np.float32(u).view(np.int32)
    e = (i - np.int32(0x3F3504F3)) >> np.int32(23)  # u = (1 + r)·2ᵉ with 1 + r in [√½, √2)
    r = np.int32(i - (e << np.int32(23))).view(np.float32) - np.float32(1.0)
    log = np.float32(-0.14482171045852762) + np.float32(0.08959878884664619) * r
    log = np.float32(0.14917382795353612) + log * r
    log = np.float32(-0.1654374035281781) + log * r
    log = np.float32(0.1995841682689948) + log * r
    log = np.float32(-0.25002945991728465) + log * r
    log = np.float32(0.33334160461123113) + log * r
    log = np.float32(-0.4999997774254988) + log * r
    log = np.float32(0.999999975045402) + log * r
    return np.float32(e) * np.float32(0.6931471805599453) + log * r


@inlined(forceinline=True)
def exp_negative(x):  # type: ignore[no-untyped-def]
    """Return exp(x) for a float32 of at most 0, within 2e-7 of its size; 0 below -87."""
    x = max(x, np.float32(-88.0))
    n = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))  # eˣ = 2ⁿ·eʳ with |r| at most ½ log 2
    r = (x - n * np.float32(0.693359375)) + n * np.float32(2.1219444005469057e-4)
    p = np.float32(1.0 / 720.0)
    p = p * r + np.float32(1.0 / 120.0)
    p = p * r + np.float32(1.0 / 24.0)
    p = p * r + np.float32(1.0 / 6.0)
    p = p * r + np.float32(0.5)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    power = np.int32(np.int32(n) + np.int32(127)) << np.int32(23)
    return p * np.int32(max(power, np.int32(0))).view(np.float32)


@inlined(forceinline=True)
def unit_interval(bits):  # type: ignore[no-untyped-def]
    """Return a float32 in (0, 1] from the upper 24 of 64 random bits."""
    return (np.float32(np.int32(bits >> _U64(40))) + np.float32(0.5)) * _TWO_POW_MINUS_24


@inlined(forceinline=True)
def normal_pair(bits):  # type: ignore[no-untyped-def]
    """Return two independent N(0, 1) in float32 by Box and Muller's transform of 48 random bits."""
    angle = np.float32(np.int32(bits & _U64(0xFFFFFF))) * _TWO_POW_MINUS_24
    radius = np.sqrt(max(np.float32(-2.0) * log_unit(unit_interval(bits)), np.float32(0.0)))
    c, s = cos_sin_turns(angle)
    return radius * c, radius * s


@inlined(forceinline=True)
def stream_of(key, block, name_hash):  # type: ignore[no-untyped-def]
    """Return the key of the random numbers of one block along one name."""
    return mix(counter_bits(key, block) ^ mix(_U64(name_hash)))
