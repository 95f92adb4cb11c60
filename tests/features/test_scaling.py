"""The scales of inputs: against plain NumPy, in any grouping and order, followed where they move, kept where not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st

from streamkernel.features.counter_rng import hash64
from streamkernel.features.directions import Directions
from streamkernel.features.rows import Rows
from streamkernel.features.scale_table import HORIZON, MOST_NAMES
from streamkernel.features.scaling import Scales
from streamkernel.kernels import Gaussian
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners.schedule import is_due

DIRECTIONS = Directions(KernelProgram(Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
NAMES = ["a", "b", ("c", 1), 7]


def told(xs):
    return Rows.stack([DIRECTIONS.row(x) for x in xs])


def column(values):
    return DIRECTIONS.rows(["a"], np.asarray(values, float)[:, None])


def observed(rows, scales=None):
    """Return scales that saw rows as a model does: together up to where scales are due."""
    scales, first, n = scales or Scales(), 0, len(rows.start) - 1
    for last in range(1, n + 1):
        if last == n or is_due(scales.n + last - first):
            scales.observe(rows.part(first, last))
            first = last
            if is_due(scales.n):
                scales.use_moments()
    return scales


def value(scales, x, name="a"):
    rows = scales(DIRECTIONS.row(x))
    names = [name for name, value in x.items() if not math.isnan(value)]
    return dict(zip(sorted(names, key=hash64), rows.values.tolist(), strict=True))[name]


def expected(v, c, s):
    """t(v) as it is printed."""
    z = (v - c) / s
    return z if abs(z) <= math.sqrt(3.0) else math.copysign(math.sqrt(3.0) * (1.0 + math.log(abs(z / 3**0.5))), z)


def wanted(seen, n):
    """Centre and spread of a name whose values are these in n examples."""
    is_usual = len(seen) >= 0.5 * n
    seen = np.asarray(seen if is_usual else [*seen, *[0.0] * (n - len(seen))])
    share, others = np.mean(seen != 0.0), seen[seen != 0.0]
    rare = 0.6 / share**0.25 * max(abs(others.mean()), 0.5 * math.sqrt(np.mean(others**2)))
    return (seen.mean(), max(seen.std(), (1.0 - share) * rare)) if is_usual else (0.0, max(seen.std(), rare))


def content(scales):
    return {name: (tensor.dtype, tensor.shape, tensor.tobytes()) for name, tensor in scales.tensors().items()}


def in_use(scales):
    return scales.tensors()["scales.in_use"]


sparse = st.lists(st.dictionaries(st.sampled_from(NAMES), st.floats(-1e6, 1e6), min_size=1), min_size=2, max_size=40)


@given(sparse, st.floats(-1e7, 1e7))
def test_values_are_scaled_by_robust_mean_and_deviation(xs, v):
    scales = Scales()
    scales.observe(told(xs))
    scales.use_moments()
    for name in {name for x in xs for name in x}:
        seen = np.array([x[name] for x in xs if name in x])
        if not seen.any():
            continue
        c, s = wanted(seen, len(xs))
        if s < 1e-6 * np.abs(seen).max() or s < 1e-150:
            continue  # NumPy rounds, too; constants have a test of their own
        assert value(scales, {name: v}, name) == pytest.approx(expected(v, c, s), rel=1e-6, abs=1e-6)
        assert value(scales, {name: c}, name) == pytest.approx(0.0, abs=1e-6)


@given(sparse, st.randoms(use_true_random=False))
def test_any_grouping_of_examples_and_order_of_names_has_the_same_bits(xs, random):
    one, many, mixed = Scales(), Scales(), Scales()
    many.observe(told(xs))
    for x in xs:
        one.observe(DIRECTIONS.row(x))
        names = list(x)
        random.shuffle(names)
        mixed.observe(DIRECTIONS.row({name: x[name] for name in names}))
    assert one.use_moments() == many.use_moments() == mixed.use_moments()
    assert content(one) == content(many) == content(mixed)
    together = many(told(xs)).values
    assert np.concatenate([one(DIRECTIONS.row(x)).values for x in xs]).tobytes() == together.tobytes()


def test_only_values_are_replaced():
    rows = told([{"a": 5.0, "b": 1.0}, {"a": 7.0}])
    scales = observed(rows)
    found = scales(rows)
    assert all(a is b for a, b in zip(found[:4], rows[:4], strict=True))
    assert rows.values.tolist() == told([{"a": 5.0, "b": 1.0}, {"a": 7.0}]).values.tolist()


def test_extreme_values_are_compressed():
    """A uniform column stays as it is; beyond √3 t is continuous, increasing and logarithmic."""
    uniform = np.random.default_rng(0).uniform(-3.0, 3.0, 200_001)
    scales = Scales()
    scales.observe(column(uniform))
    scales.use_moments()
    inner = scales(column(np.linspace(-2.98, 2.98, 50))).values
    assert np.allclose(inner, np.linspace(-2.98, 2.98, 50) / math.sqrt(3.0), atol=0.01)
    outer = scales(column(np.geomspace(3.0, 1e29, 50))).values
    assert (np.diff(outer) > 0.0).all()
    assert outer[-1] - outer[0] == pytest.approx(math.sqrt(3.0) * math.log(1e29 / 3.0), rel=1e-3)


def test_timestamps_keep_their_precision():
    times = 1.7e9 + 1e5 * np.random.default_rng(0).normal(size=5000)
    scales = Scales()
    scales.observe(column(times))
    scales.use_moments()
    ((c, s),) = in_use(scales)
    assert c == pytest.approx(times.mean(), abs=1e-5)
    assert s == pytest.approx((times - 1.7e9).std(), rel=1e-9)


def test_constants_and_names_without_a_scale():
    scales = Scales()
    scales.observe(told([{"zero": 0.0, "four": 4.0, "tiny": 1e-300}] * 3))
    scales.use_moments()
    scales.observe(told([{"late": 1e6}]))
    assert value(scales, {"zero": 1.5}, "zero") == 1.5
    assert value(scales, {"four": 4.0}, "four") == 1.0  # (4 - 4)/4 + 4/4
    assert value(scales, {"four": 0.0}, "four") == 0.0
    assert value(scales, {"tiny": 1.0}, "tiny") == 1.0
    for name in ("late", "never"):
        assert value(scales, {name: -1.5}, name) == -1.5
        assert value(scales, {name: 100.0}, name) == expected(100.0, 0.0, 1.0)
    scales.use_moments()
    assert value(scales, {"late": 1e6}, "late") == pytest.approx(expected(1e6, 0.0, 0.6 * 1e6 / 0.25**0.25))


def test_scales_change_only_at_updates():
    scales = Scales()
    assert not scales.use_moments()
    scales.observe(column([1.0, 3.0]))
    assert value(scales, {"a": 1.5}) == 1.5
    assert scales.use_moments()
    assert not scales.use_moments()
    assert value(scales, {"a": 1.5}) == expected(1.5, 2.0, 1.0)


def test_a_stationary_stream_keeps_its_values_bit_for_bit():
    rows = DIRECTIONS.rows(NAMES, np.random.default_rng(1).normal(3.0, 2.0, (100_000, 4)))
    scales = observed(rows.part(0, 512))
    first = in_use(scales).copy()
    observed(rows.part(512, 100_000), scales)
    assert scales.n == 100_000
    assert np.array_equal(in_use(scales), first)


@pytest.mark.parametrize(
    ("shift", "factor", "moves"),
    [(1.5, 1.0, False), (3.0, 1.0, False), (4.0, 1.0, True), (0.0, 1.8, False), (0.0, 2.3, True), (0.0, 0.4, True)],
)
def test_a_scale_changes_only_if_scaled_values_are_twice_as_wide_or_half(shift, factor, moves):
    """A shift alone narrows them, because values far from the centre are compressed."""
    noise = np.random.default_rng(2).normal(size=HORIZON)
    scales = observed(column(noise[:1024]))
    before = in_use(scales).copy()
    for _ in range(6):
        observed(column(noise * factor + shift), scales)
    assert (in_use(scales) != before).any() == moves


def test_values_remain_as_they_are_while_a_shift_enters_the_moments():
    noise = np.random.default_rng(2).normal(size=HORIZON)
    scales = observed(column(noise[:4000]))
    before = in_use(scales).copy()
    observed(column(noise[4000:] + 20.0), scales)
    assert scales.n == HORIZON
    assert np.array_equal(in_use(scales), before)


def test_drift_is_followed_within_the_horizon():
    """Of the mean by 10 and of the deviation by 3, in units of what it was, after 50,000 examples."""
    generator = np.random.default_rng(3)
    scales = observed(column(generator.normal(size=50_000)))
    assert in_use(scales)[0] == pytest.approx([0.0, 1.0], abs=0.1)
    observed(column(generator.normal(10.0, 3.0, 3 * HORIZON)), scales)
    c, s = in_use(scales)[0]
    assert 0.5 < s / 3.0 / max(1.0, abs(c - 10.0) / (math.sqrt(3.0) * s)) < 2.0


def test_a_permanent_jump_of_unit_is_followed():
    scales = observed(column(np.random.default_rng(4).normal(size=40_000)))
    observed(column(1e6 * np.random.default_rng(5).normal(size=100_000)), scales)
    assert 0.5 < in_use(scales)[0, 1] / 1e6 < 2.0


@pytest.mark.parametrize("outlier", [1e3, 1e9, -1e20, 1e30])
def test_one_outlier_does_not_flatten_a_column(outlier):
    values = np.random.default_rng(6).normal(size=20_000)
    before = observed(column(values))
    values[3000] = outlier
    scales = observed(column(values))
    usual = [value(s, {"a": 1.0}) - value(s, {"a": -1.0}) for s in (scales, before)]
    assert 0.6 < usual[0] / usual[1] < 1.1
    assert abs(value(scales, {"a": outlier})) > abs(value(scales, {"a": 30.0 * np.sign(outlier)}))


@pytest.mark.parametrize("explicit", [True, False])
def test_rare_spikes_keep_their_scale(explicit):
    """A flag that is set once in 1,000 examples is 32 standard deviations out, but no outlier, and far from ruling."""
    generator = np.random.default_rng(7)
    flags = (generator.uniform(size=200_000) < 1e-3).astype(float)
    rows = column(flags) if explicit else told([{"a": 1.0} if flag else {"b": 1.0} for flag in flags[:60_000]])
    scales = observed(rows)
    hashes = scales.tensors()["scales.names"].view(np.uint64)
    ((c, s),) = in_use(scales)[hashes == hash64("a")]
    assert 0.5 < s / (0.6 / 1e-3**0.25) < 2.0
    assert c == pytest.approx(1e-3 if explicit else 0.0, abs=1e-3)


@pytest.mark.parametrize("bad", [-9999.0, 1e30, 0.0])
@pytest.mark.parametrize("share", [5e-4, 0.05])
def test_rare_extreme_values_do_not_count(bad, share):
    generator = np.random.default_rng(9)
    values = generator.normal(50.0, 1.0, 30_000)
    values[100:][generator.uniform(size=29_900) < share] = bad
    assert in_use(observed(column(values)))[0] == pytest.approx([50.0, 1.0], abs=0.3)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05])
def test_a_name_that_only_rare_values_move_has_their_spread(share):
    """The other values are constant, without a spread."""
    values = np.where(np.random.default_rng(10).uniform(size=100_000) < share, 7.0, 5.0)
    ((c, s),) = in_use(observed(column(values)))
    assert abs(c - 5.0) < 0.2
    assert s == pytest.approx(2.0 * math.sqrt(share), rel=0.6)


def gaps(share, n=4096):
    generator = np.random.default_rng(11)
    values = generator.normal(100.0, 2.0, n)
    is_there = generator.uniform(size=n) < share
    return told([{"a": values[i], "b": 1.0} if is_there[i] else {"b": 1.0} for i in range(n)])


@pytest.mark.parametrize("share", [1.0, 0.9, 0.55])
def test_a_missing_value_of_a_common_name_counts_as_its_mean(share):
    """Rows have no entry for it then, which is what the mean is brought to."""
    scales = observed(gaps(share))
    assert value(scales, {"a": 100.0}) == pytest.approx(0.0, abs=0.1)
    assert value(scales, {"a": 102.0}) - value(scales, {"a": 100.0}) == pytest.approx(1.0, rel=0.1)


def test_a_missing_value_of_a_rare_name_counts_as_0():
    scales = observed(gaps(0.3))
    assert value(scales, {"a": 0.0}) == 0.0
    assert 1.0 < value(scales, {"a": 100.0}) < 3.0


def test_a_name_present_half_of_the_time_does_not_oscillate():
    scales = observed(gaps(0.6))
    before = in_use(scales)
    observed(gaps(0.4), scales)
    assert scales.n == 8192
    assert np.array_equal(in_use(scales), before)
    observed(gaps(0.0), scales)
    observed(gaps(0.0), scales)
    assert (in_use(scales)[:, 0] != before[:, 0]).any()


def test_an_outlier_at_the_start_is_forgotten():
    values = np.random.default_rng(8).normal(2.0, 1.0, 10_000)
    scales = observed(column([1e6, *values]))
    for _ in range(60):
        observed(column(values), scales)
    assert in_use(scales)[0] == pytest.approx([2.0, 1.0], abs=0.3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e31, -1e300])
def test_unusable_numbers_pass_and_do_not_count(bad):
    scales, twin = Scales(), Scales()
    xs = [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 1.0}]
    scales.observe(told([*xs, {"a": bad}]))
    twin.observe(told([*xs, {"b": 0.0}]))
    assert scales.n == 3
    scales.use_moments()
    twin.use_moments()
    assert value(scales, {"a": 2.0}) == value(twin, {"a": 2.0})
    if not math.isnan(bad):  # which is missing
        found = value(scales, {"a": bad, "b": 1.0})
        assert found == bad
        assert math.isfinite(found) == math.isfinite(bad)
    assert value(scales, {"a": bad, "b": 1.0}, "b") == value(scales, {"b": 1.0}, "b")


@max_examples(20)
@given(st.integers(0, 10**6), st.integers(1, 700), st.integers(1, 700))
def test_scales_that_are_restored_continue_with_the_same_bits(seed, n, more):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n + more, 4)) * [1.0, 1e3, 1e-6, 1.0] + [0.0, 1e9, 0.0, 1.0]
    rows = DIRECTIONS.rows(NAMES, X)
    scales, twin = observed(rows.part(0, n)), Scales()
    twin.restore(scales.tensors())
    assert content(twin) == content(scales)
    assert twin(rows).values.tobytes() == scales(rows).values.tobytes()
    for one in (scales, twin):
        observed(rows.part(n, n + more), one)
    assert content(twin) == content(scales)
    assert twin(rows).values.tobytes() == scales(rows).values.tobytes()


@pytest.mark.parametrize("at", [0, 1, 100])
def test_scales_of_the_first_examples_are_those_without_absurd_values(at):
    values = np.random.default_rng(13).normal(50.0, 2.0, 256)
    values[at] = 1e30
    rows = column(values)
    found = observed(rows).of_first(rows)
    assert found.n == 256
    assert in_use(found)[0] == pytest.approx([50.0, 2.0], abs=0.3)


def test_scales_of_first_examples_that_are_not_absurd_are_their_own():
    rows = column(np.random.default_rng(13).standard_cauchy(256))
    scales = observed(rows)
    before = content(scales)
    found = scales.of_first(rows)
    assert content(scales) == before
    scales.use_moments()
    assert content(found) == content(scales)


def test_the_largest_value_where_it_is_rare_is_restored():
    scales = observed(told([{"a": 1e30}] + [{"b": 1.0}] * 300))
    twin = Scales()
    twin.restore(scales.tensors())
    assert content(twin) == content(scales)


def test_scales_without_examples_are_restored():
    scales = Scales()
    scales.restore(Scales().tensors())
    assert content(scales) == content(Scales())


def hashes_as_rows(hashes):
    n = len(hashes)
    return Rows(np.arange(n + 1), np.full(n, -1), hashes, np.ones(n, np.int64), np.full(n, 5.0), np.ones(n))


def test_memory_is_flat_at_the_most_names():
    generator = np.random.default_rng(9)
    hashes = generator.integers(0, 2**64, 2 * MOST_NAMES, np.uint64)
    scales = Scales()
    scales.observe(hashes_as_rows(hashes[:MOST_NAMES]))
    bytes_before = scales.state.table.nbytes
    scales.observe(hashes_as_rows(hashes))
    scales.use_moments()
    assert scales.state.table.nbytes == bytes_before == 13 * 8 * 2 * MOST_NAMES
    assert len(scales.tensors()["scales.names"]) == MOST_NAMES
    found = scales(hashes_as_rows(hashes)).values
    assert (found[:MOST_NAMES] < 0.2).all()  # rare names do not stand out
    assert found[MOST_NAMES:] == pytest.approx(expected(5.0, 0.0, 1.0) / (0.6 * scales.n**0.25), rel=0.2)
    twin = Scales()
    twin.restore(scales.tensors())
    assert twin(hashes_as_rows(hashes)).values.tobytes() == found.tobytes()


def test_the_hashes_at_both_ends_are_names():
    ends = np.array([0, 2**64 - 1, 2**63, 15, 31], np.uint64)
    scales = Scales()
    scales.observe(hashes_as_rows(ends))
    scales.use_moments()
    assert len(scales.tensors()["scales.names"]) == 5
    assert len(set(scales(hashes_as_rows(ends)).values)) == 1


@pytest.mark.parametrize("name", ["n", "weights", "names", "moments", "in_use"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda tensor: None,
        lambda tensor: tensor[:-1],
        lambda tensor: tensor.astype(np.float32),
        lambda tensor: tensor.astype(np.complex128),
        lambda tensor: tensor[..., None],
        lambda tensor: -tensor - 1,
        lambda tensor: np.full_like(tensor, np.nan) if tensor.dtype == np.float64 else tensor * 0,
        lambda tensor: np.full_like(tensor, 1e300) if tensor.dtype == np.float64 else tensor * 0,
        lambda tensor: np.zeros((1 << 20, *tensor.shape[1:]), tensor.dtype),
    ],
)
def test_crafted_tensors_are_refused(name, spoil):
    scales = observed(DIRECTIONS.rows(NAMES, np.random.default_rng(10).uniform(1.0, 2.0, (50, 4))))
    tensors = scales.tensors()
    tensors[f"scales.{name}"] = spoil(tensors[f"scales.{name}"])
    twin = observed(column([1.0, 2.0]))
    before = content(twin)
    with pytest.raises(ValueError, match=r"expected .* scales\."):
        twin.restore(tensors)
    assert content(twin) == before


def test_duplicate_names_are_rejected():
    scales = observed(DIRECTIONS.rows(NAMES, np.ones((4, 4))))
    tensors = scales.tensors()
    tensors["scales.names"][1] = tensors["scales.names"][0]
    with pytest.raises(ValueError, match="sorted hashes"):
        Scales().restore(tensors)
