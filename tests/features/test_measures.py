"""The measures of random directions: their distributions, and bits that never change."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from scipy import integrate, stats

from streamkernel.features import counter_rng, distributions
from streamkernel.features.counter_rng import domain_key, hash64
from streamkernel.features.distributions import draw

KEY = domain_key(42, "features")
SHAPE = 0.8
KOLMOGOROV = 3.0  # P[√n D > 3] < 4e-8


def drawn(measure, n, block=0, name="x", shape=SHAPE, key=KEY):
    out = np.empty(n, np.float32)
    draw(measure, shape, key, block, np.uint64(hash64(name)), out)
    return out


def jensen_shannon(omega):
    """Return the distribution function of the density ∝ sech(πω)/(1 + 4ω²)."""
    grid = np.linspace(-12.0, 12.0, 48_001)
    density = 1.0 / np.cosh(np.pi * grid) / (1.0 + 4.0 * grid**2)
    total = integrate.cumulative_trapezoid(density, grid, initial=0.0)
    return np.interp(omega, grid, total / total[-1])


CONTINUOUS = {
    distributions.NORMAL: stats.norm.cdf,
    distributions.CAUCHY: stats.cauchy.cdf,
    distributions.LAPLACE: stats.laplace.cdf,
    distributions.SECH: lambda omega: stats.hypsecant.cdf(np.pi * omega),
    distributions.JENSEN_SHANNON: jensen_shannon,
    distributions.STUDENT: stats.t(2.0 * SHAPE).cdf,
    distributions.EXPONENTIAL: stats.expon.cdf,
    distributions.LEVY: stats.levy(scale=0.5).cdf,
}


@pytest.mark.parametrize("measure", CONTINUOUS)
def test_entries_have_their_distribution(measure):
    found = np.sort(np.concatenate([drawn(measure, 1001, block) for block in range(150)]).astype(float))
    n = len(found)
    assert np.isfinite(found).all()
    assert np.abs(CONTINUOUS[measure](found) - (np.arange(n) + 0.5) / n).max() * math.sqrt(n) < KOLMOGOROV


@pytest.mark.parametrize("nu", [0.2, 0.5, 1.0, 1.5, 4.3, 100.0])
def test_the_entries_of_a_feature_share_one_gamma_variable(nu):
    """Two names' entries are normals times one factor √(ν/G): the ratio is Cauchy, the norm's is an F distribution."""
    a, b = (np.concatenate([drawn(distributions.STUDENT, 500, k, name, nu) for k in range(40)]) for name in "ab")
    n = len(a)
    ratios = np.sort(a.astype(float) / b)
    assert np.abs(stats.cauchy.cdf(ratios) - (np.arange(n) + 0.5) / n).max() * math.sqrt(n) < KOLMOGOROV
    halves = np.sort(0.5 * (a.astype(float) ** 2 + b.astype(float) ** 2))
    assert np.abs(stats.f(2, 2.0 * nu).cdf(halves) - (np.arange(n) + 0.5) / n).max() * math.sqrt(n) < KOLMOGOROV


def test_signs_are_fair_and_independent():
    words = np.concatenate([drawn(distributions.SIGNS, 1000, block).view(np.uint32) for block in range(50)])
    signs = 2.0 * ((words[:, None] >> np.arange(32, dtype=np.uint32)) & 1) - 1.0
    correlation = signs.T @ signs / len(signs) - np.eye(32)
    assert np.abs(correlation).max() < 6.0 / math.sqrt(len(signs))
    assert np.abs(signs.mean(axis=0)).max() < 6.0 / math.sqrt(len(signs))
    ones = np.concatenate([drawn(distributions.RADEMACHER, 1000, block) for block in range(50)])
    assert set(ones.tolist()) == {-1.0, 1.0}
    assert abs(ones.mean()) < 6.0 / math.sqrt(len(ones))


@pytest.mark.parametrize("measure", [*CONTINUOUS, distributions.RADEMACHER])
def test_sizes_and_signs_and_places_are_independent(measure):
    """Signs of a feature with its size, of two names, of two blocks, of two seeds, and of neighbours."""
    a = drawn(measure, 4000)
    others = [drawn(measure, 4000, name="y"), drawn(measure, 4000, 1), np.roll(a, 1)]
    others += [
        drawn(measure, 4000, key=domain_key(43, "features")),
        drawn(measure, 4000, key=domain_key(42, "features/1")),
    ]
    above = a > np.median(np.abs(a)) if measure in (distributions.EXPONENTIAL, distributions.LEVY) else a > 0.0
    for other in others:
        alike = above == (other > np.median(np.abs(other)) if other.min() > 0.0 else other > 0.0)
        assert abs(alike.mean() - 0.5) < 6.0 * 0.5 / math.sqrt(4000)
    if a.min() < 0.0 and measure != distributions.RADEMACHER:
        large = np.abs(a) > np.median(np.abs(a))
        assert abs((large == (a > 0.0)).mean() - 0.5) < 6.0 * 0.5 / math.sqrt(4000)


@given(
    st.sampled_from([*CONTINUOUS, distributions.RADEMACHER]),
    st.integers(0, 2**40),
    st.integers(1, 64),
    st.integers(1, 64),
)
def test_an_entry_depends_only_on_its_position(measure, block, n, m):
    a, b = drawn(measure, n, block), drawn(measure, m, block)
    assert np.array_equal(a[: min(n, m)], b[: min(n, m)])


@pytest.mark.parametrize(
    ("measure", "bits"),
    [
        (distributions.NORMAL, "3fd86a2a bea42ce5 bf189173 beba57a9"),
        (distributions.CAUCHY, "40b133bf 3f350317 40a9d83f 3f9c56a7"),
        (distributions.LAPLACE, "3fbd87eb 3e79abd2 3fb838f7 3e0a7802"),
        (distributions.SECH, "3f0b7855 3de1f4fe 3f0803b4 3d826013"),
        (distributions.JENSEN_SHANNON, "bd9dcde2 3f05760b be9a3811 3e71cb4e"),
        (distributions.STUDENT, "40675144 be8737b1 bef07e06 bf83efc1"),
        (distributions.EXPONENTIAL, "3fbd87eb 3e79abd2 3fb838f7 3e0a7802"),
        (distributions.LEVY, "3e331bcb 3fb430ca 3e4265f6 409bebfb"),
        (distributions.RADEMACHER, "bf800000 3f800000 bf800000 3f800000"),
        (distributions.SIGNS, "3a3bde83 c89be9ba 3cb320e7 df9f0de5"),
    ],
)
def test_entries_never_change_their_bits(measure, bits):
    assert " ".join(f"{word:08x}" for word in drawn(measure, 4, 7).view(np.uint32)) == bits


@njit
def logarithm(u):
    return counter_rng.log_unit(u)


@njit
def exponential(x):
    return counter_rng.exp_negative(x)


@given(st.floats(2.0**-25, 1.0, width=32))
def test_logarithms_are_exact_to_float32(u):
    assert logarithm(np.float32(u)) == pytest.approx(math.log(u), rel=3e-7, abs=1e-7)


@given(st.floats(-87.0, 0.0, width=32))
def test_exponentials_are_exact_to_float32(x):
    assert exponential(np.float32(x)) == pytest.approx(math.exp(x), rel=4e-7)


@given(st.floats(-(2.0**127), -104.0, width=32))
def test_exponentials_of_very_negative_numbers_are_zero(x):
    assert 0.0 <= exponential(np.float32(x)) < 1e-37
