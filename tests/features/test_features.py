"""Seeded features: the properties on which the rest of the library relies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkernel import InputError, RandomFeatures
from streamkernel.features.counter_rng import _hash, cos_sin_turns, counter_bits, domain_key, hash64
from streamkernel.features.distributions import NORMAL, draw
from streamkernel.kernels import Gaussian

KEY = domain_key(42, "features")

names = st.one_of(st.text(max_size=5), st.integers(-5, 5), st.tuples(st.text(max_size=2), st.integers(0, 3)))
numbers = st.floats(-100, 100, width=32)
inputs = st.dictionaries(names, numbers, min_size=1, max_size=12)


def normals(key, block, name, n):
    out = np.empty(n, np.float32)
    draw(NORMAL, 0.0, key, block, np.uint64(hash64(name)), out)
    return out


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("age", 0xD88C9ED057E00E2F),
        ("", 0xDE6ECFAAC38449E6),
        ("σ", 0xCDA97527A4C82E70),
        (1, 0xFD12CB0B965269C1),
        (1.5, 0x6F56D7B5751564D5),
        (10**20, 0x0F3A60FAE62E4C37),
        (("a", 1), 0xFB6BC26C28A9FF5A),
        (("a", ("b", 2.5)), 0xEA7C9ADC7BD9B83F),
        ((), 0xD6D472E0F5DC73CA),
    ],
)
def test_names_always_hash_the_same(name, expected):
    assert hash64(name) == expected


def test_equal_dictionary_keys_have_equal_hashes():
    ones = [1, 1.0, True, np.int64(1), np.float32(1.0), np.bool_(True)]
    assert {_hash(one) for one in ones} == {hash64(1)}
    assert _hash(-0.0) == _hash(0)
    assert _hash(("a", True)) == _hash(("a", 1.0))
    assert _hash(np.str_("a")) == hash64("a")


def test_different_dictionary_keys_have_different_hashes():
    different = [
        "1",
        1,
        ("1",),
        (1,),
        ((1,),),
        ("a", "b"),
        ("ab",),
        ("a", "b", ""),
        2**53,
        2**53 + 1,
        0.1,
        float("inf"),
    ]
    assert len({hash64(name) for name in different}) == len(different)


@pytest.mark.parametrize("name", [None, b"a", object, ("a", None), frozenset(), pytest.param(10**400, id="huge")])
def test_other_names_are_refused(name):
    with pytest.raises(InputError):
        hash64(name)


@pytest.mark.parametrize(
    ("seed", "block", "name", "bits"),
    [
        (0, 0, "age", "3e5cd158 c040a11f 3f053ee8 3fd2cf95 bed2aa65"),
        (42, 7, "x", "3fd86a2a bea42ce5 bf189173 beba57a9 3fcfbad2"),
        (1, 10**6, ("a", 1), "bdd37c7b bfc6b29c 3f336d34 be887ea3 3f50e967"),
    ],
)
def test_directions_never_change_their_bits(seed, block, name, bits):
    drawn = normals(domain_key(seed, "features"), block, name, 5).view(np.uint32)
    assert " ".join(f"{word:08x}" for word in drawn) == bits


def test_directions_are_splitmix_and_box_muller():
    """The same in Python's own integers and float64."""
    mask = (1 << 64) - 1

    def mix(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    def bits(key, counter):
        return mix(key + (counter + 1) * 0x9E3779B97F4A7C15 & mask)

    stream = mix(bits(int(KEY), 7) ^ mix(hash64("x")))
    expected = []
    for pair in range(500):
        word = bits(stream, pair)
        radius = math.sqrt(-2.0 * math.log(((word >> 40) + 0.5) / 2**24))
        angle = 2.0 * math.pi * (word & 0xFFFFFF) / 2**24
        expected += [radius * math.cos(angle), radius * math.sin(angle)]
    assert np.allclose(normals(KEY, 7, "x", 1000), expected, rtol=1e-5, atol=3e-6)


@given(st.integers(0, 2**40), names, st.integers(1, 64), st.integers(1, 64))
def test_an_entry_depends_only_on_its_position(block, name, n, m):
    a, b = normals(KEY, block, name, n), normals(KEY, block, name, m)
    least = min(n, m)
    assert np.array_equal(a[:least], b[:least])


def test_directions_are_independent_normals():
    """Moments, distribution and all second-order dependences, at thresholds no chance will pass."""
    kolmogorov = 3.0  # P[√n D > 3] < 4e-8
    drawn = np.concatenate([normals(KEY, b, "x", 1001) for b in range(400)]).astype(float)
    n = len(drawn)
    cdf = 0.5 * (1.0 + np.array([math.erf(v / math.sqrt(2.0)) for v in np.sort(drawn)]))
    assert np.abs(cdf - (np.arange(n) + 0.5) / n).max() * math.sqrt(n) < kolmogorov
    for power, moment, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs(np.mean(drawn**power) - moment) < 5.5 * math.sqrt(variance / n)
    assert 4.5 < np.abs(drawn).max() < 6.0

    a = np.stack([normals(KEY, 0, i, 2000) for i in range(20)])  # names
    b = np.stack([normals(KEY, i, 0, 2000) for i in range(1, 21)])  # blocks
    c = np.stack([normals(domain_key(i, "features"), 0, 0, 2000) for i in range(20)])  # seeds
    d = np.concatenate([a[:, 0::2], a[:, 1::2]]), a[:, :1000]  # the two of a pair; features
    for rows in (a, b, c, *d, np.concatenate([a, b, c])):
        for transformed in (rows, rows.astype(float) ** 2, np.sign(rows) * np.roll(np.sign(rows), 1, axis=1)):
            distinct = np.unique(transformed, axis=0)
            correlation = np.corrcoef(distinct) - np.eye(len(distinct))
            assert np.abs(correlation).max() < 6.5 / math.sqrt(distinct.shape[1])


def test_each_use_of_a_seed_has_its_own_domain():
    """A seed of the features that is the seed of the data, or of the rule's draws, gives other numbers."""
    assert domain_key(7, "features") != domain_key(7, "rule")
    for seed in (0, 1, 7, 42, 12345):
        ours = normals(domain_key(seed, "features"), 0, 0, 4000)
        for theirs in (
            np.random.default_rng(seed).normal(size=4000),
            np.random.RandomState(seed).normal(size=4000),
            normals(domain_key(seed, "rule"), 0, 0, 4000),
        ):
            assert abs(np.corrcoef(ours, theirs)[0, 1]) < 0.09


def test_counter_bits_are_uniform():
    words = np.array([counter_bits(KEY, np.uint64(i)) for i in range(4000)], np.uint64)
    ones = (words[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 6.0 * 0.5 / math.sqrt(4000)


def cos_sin(z):
    return np.array([cos_sin_turns(np.float32(value)) for value in z], np.float64).T


def test_cosine_and_sine_are_exact_to_float32():
    generator = np.random.default_rng(0)
    grid = np.arange(-16, 17) / 8.0
    scales = [1e-30, 1e-6, 0.25, 1.0, 30.0, 1e3, 1e5, 2.0**22]
    z = np.concatenate([grid, *(generator.uniform(-scale, scale, 1500) for scale in scales)]).astype(np.float32)
    turns = z.astype(float) % 1.0
    expected = np.cos(2.0 * np.pi * turns), np.sin(2.0 * np.pi * turns)
    assert np.abs(cos_sin(z) - expected).max() < 3e-7


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_cosine_and_sine_are_bounded(z):
    c, s = cos_sin([z])[:, 0]
    assert abs(c) <= 1.0 + 3e-7
    assert abs(s) <= 1.0 + 3e-7
    assert math.hypot(c, s) == pytest.approx(1.0, abs=4e-7)


@pytest.mark.parametrize(
    ("x", "x2"),
    [
        ({"a": 0.3, "b": -0.5, ("c", 1): 1.2}, {"a": -0.6, "b": 0.2, ("c", 1): 1.0}),
        ({"a": 1.0, "b": -0.5}, {"a": 0.0, "b": 0.0}),
        ({"a": 1.0, "b": -0.5}, {"b": 0.5}),
        ({"a": 1.0}, {"b": 1.0}),
        ({i: 0.1 * i for i in range(30)}, {i: 0.1 * (i % 7) for i in range(25)}),
    ],
)
def test_the_mean_of_many_features_is_the_kernel(x, x2):
    """Standardised errors over 60 seeds are N(0, 1): neither too large nor, as of repeated features, correlated."""
    kernel, n = Gaussian(1.3), 400
    k = kernel(x, x2)
    variance = 0.5 * (1.0 + k**4) - k**2  # of cos ωᵀ(x - x'), as E cos² = ½ + ½ k(2x, 2x')
    errors = []
    for seed in range(60):
        features = RandomFeatures(kernel, n_features=n, seed=seed)
        z, z2 = features.transform_one(x), features.transform_one(x2)
        estimate = sum(z[name] * z2[name] for name in z)
        errors.append((estimate - k) / math.sqrt(variance / n))
    assert abs(np.mean(errors)) < 5.5 / math.sqrt(60)
    assert 20.0 < np.sum(np.square(errors)) < 130.0  # of χ² with 60 degrees of freedom


@given(inputs)
def test_an_input_has_norm_one_and_missing_is_zero(x):
    features = RandomFeatures(Gaussian(1.3), n_features=33, seed=3)
    z = features.transform_one(x)
    assert sum(value * value for value in z.values()) == pytest.approx(1.0, abs=1e-6)
    present = {name: value for name, value in x.items() if value != 0.0}
    assert features.transform_one(present or {"none": 0.0}) == z
