"""The learned function: what must not change it, and that functions of one seed add up."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st

from streamkernel import InputError, losses, rules, step_sizes
from streamkernel.features.directions import Directions
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Gaussian
from streamkernel.kernels.program import KernelProgram

names = st.one_of(st.text(max_size=5), st.integers(-5, 5), st.tuples(st.text(max_size=2), st.integers(0, 3)))
inputs = st.dictionaries(names, st.floats(-100, 100, width=32), min_size=1, max_size=12)
RULES = [rules.DSG(), rules.UDSG(2, 3), rules.CDSG(math.inf), rules.CDSG()]


def function(rule=RULES[0], block_size=32, max_features=None, step=0.5, loss=losses.Square(), **options):  # noqa: B008
    return FirstOrderLearner(
        Gaussian(2.0),
        loss,
        rule,
        step_sizes.Constant(step),
        block_size=block_size,
        max_features=max_features,
        **options,
    )


def stream(n, seed=1, width=6):
    """Yield inputs whose names come and go, with targets."""
    generator = np.random.default_rng(seed)
    for i in range(n):
        x = {f"x{j}": float(v) for j, v in enumerate(generator.normal(size=width)) if (i + j) % 3 and j <= i}
        yield x or {"x0": 1.0}, float(generator.normal())


def learnt(f, n=40, **options):
    for x, y in stream(n, **options):
        f.learn_one(f.row(x), y)
    return f


def score(f, x):
    return f.scores(f.row(x))[0]


def same_bits(a, b):
    """Say whether everything that two functions have learned is equal, bit for bit."""
    return all(np.array_equal(tensor, b.tensors()[name]) for name, tensor in a.tensors().items())


@given(inputs, st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_nothing(x, random):
    f = learnt(function())
    shuffled = list(x.items())
    random.shuffle(shuffled)
    assert np.array_equal(score(f, x), score(f, dict(shuffled)))
    twin = learnt(function())
    f.learn_one(f.row(x), 1.0)
    twin.learn_one(twin.row(dict(shuffled)), 1.0)
    assert same_bits(f, twin)


@given(inputs, names, st.sampled_from([0.0, -0.0]))
def test_zero_and_missing_values_are_equivalent(x, name, zero):
    f = learnt(function())
    with_zero = {name: zero} | {other: value for other, value in x.items() if other != name}
    without = {other: value for other, value in with_zero.items() if other != name} or {"none": 0.0}
    assert np.array_equal(score(f, with_zero), score(f, without))


@pytest.mark.parametrize("cache_bytes", [0, 5_000, 1 << 22])
def test_a_new_name_does_not_affect_others(cache_bytes):
    f, twin = (learnt(function(cache_bytes=cache_bytes)) for _ in range(2))
    for i in range(30):
        score(f, {f"late {i}": 1.0})  # takes places in the cache, or finds none
    assert same_bits(learnt(f, seed=2), learnt(twin, seed=2))
    x = {"x1": 0.3, "x4": -0.7}
    assert np.array_equal(score(f, x), score(twin, x))


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("block_size", [5, 32, 512, 700])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_cached_and_regenerated_directions_learn_the_same_bits(rule, block_size, batch):
    """With no cache, with room for some names of some panels, and with room for all."""
    options = {
        "rule": rule,
        "block_size": block_size,
        "max_features": 9 * block_size,
        "batch_size": batch,
        "average": True,
    }
    full = learnt(function(cache_bytes=1 << 24, **options), 300, width=11)
    for cache_bytes in (0, 15_000, 60_000):
        f = learnt(function(cache_bytes=cache_bytes, **options), 300, width=11)
        assert f.directions.cached_bytes <= cache_bytes
        assert same_bits(f, full)
        for x, _ in stream(5, seed=9, width=11):
            assert np.array_equal(score(f, x), score(full, x))


@pytest.mark.parametrize("block_size", [5, 32, 256, 512])
def test_a_model_within_its_budget_caches_every_direction(block_size):
    f = learnt(function(rules.CDSG(math.inf), block_size, max_features=9 * block_size, cache_bytes=1 << 24))
    panels = -(-f.n_blocks * block_size // f.directions.width)
    assert f.directions.cached_bytes >= 4 * panels * f.directions.width * 6
    twin = function(rules.CDSG(math.inf), block_size, max_features=9 * block_size, cache_bytes=1 << 24)
    twin.restore(f.tensors())
    score(twin, {f"x{i}": 1.0 for i in range(6)})
    assert twin.directions.cached_bytes >= 4 * panels * f.directions.width * 6


@given(st.lists(inputs, min_size=1, max_size=6), st.integers(0, 60_000), st.integers(1, 600), st.integers(0, 40))
def test_no_cache_holds_more_than_its_bytes(rows, cache_bytes, block_size, blocks):
    directions = Directions(KernelProgram(Gaussian(1.0), 0), block_size, cache_bytes)
    for i, x in enumerate(rows):
        directions.row(x)
        directions.reserve(blocks * i)
        assert directions.cached_bytes <= cache_bytes


@max_examples(20)
@given(st.lists(inputs, min_size=1, max_size=8))
def test_scores_of_tables_match_single_rows(rows):
    f = learnt(function(average=True))
    stacked = type(f.row({"a": 1.0})).stack([f.row(x) for x in rows])
    assert np.array_equal(f.scores(stacked), [score(f, x) for x in rows])


@pytest.mark.parametrize("block_size", [3, 100, 512, 513])
def test_functions_of_one_seed_are_added_by_adding_their_coefficients(block_size):
    a, b, total = (function(block_size=block_size, seed=4, step=0.1) for _ in range(3))
    learnt(a, 12, seed=1)
    learnt(b, 12, seed=2)
    learnt(total, 12, seed=3)
    total.coef[:] = a.coef + b.coef
    other = learnt(function(block_size=block_size, seed=5, step=0.1), 12, seed=2)
    for x, _ in stream(20, seed=6):
        f, g, h, o = (score(e, x)[0] for e in (a, b, total, other))
        assert h == pytest.approx(f + g, abs=1e-12)
        assert g != pytest.approx(o, abs=1e-6)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_no_rule_exceeds_the_cap(rule, batch):
    f = function(rule, 8, max_features=47, batch_size=batch, l2=0.01, step=0.1)
    blocks = []
    for i in range(120):
        learnt(f, batch, seed=i)
        blocks.append(f.n_blocks)
    assert max(blocks) <= 5
    assert blocks == sorted(blocks)
    assert f.numbers["blocks"] + f.numbers["reused_steps"] == 120
    assert blocks[-1] == 5
    assert len(f.coef) == 1


def test_udsg_grows_and_reuses_in_turn():
    f = function(rules.UDSG(grow=3, reuse=2), 8)
    blocks = [0] + [learnt(f, 1, seed=i).n_blocks for i in range(20)]
    assert [b - a for a, b in itertools.pairwise(blocks)] == [1, 1, 1, 0, 0] * 4


def test_a_third_class_keeps_the_binary_function():
    """The margin splits into -½f and ½f for softmax, into -f and f for each class against the rest."""
    for loss, part in [(losses.Logistic(), 0.5), (losses.Hinge(), 1.0), (losses.SquaredHinge(), 1.0)]:
        for average in (False, True):
            f = function(loss=loss, average=average, l2=0.01)
            for x, y in stream(30):
                f.learn_one(f.row(x), float(y > 0.0))
            xs = [x for x, _ in stream(10, seed=2)]
            before = np.array([score(f, x)[0] for x in xs])
            f = f.with_column()
            after = np.array([score(f, x) for x in xs])
            assert np.allclose(after, np.outer(before, [-part, part, 0.0]), rtol=1e-12, atol=1e-14)
            assert f.beta.shape[1] == 3
            f = f.with_column()
            assert np.allclose([score(f, x) for x in xs], np.c_[after, np.zeros(10)], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), 1e39])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_rejected_row_changes_nothing(value, batch):
    f, twin = (learnt(function(batch_size=batch), 40) for _ in range(2))
    with pytest.raises(InputError):
        f.learn_one(f.row({"x0": 1.0, "x1": value}), 1.0)
    with pytest.raises(InputError):
        score(f, {"x1": value})
    assert same_bits(f, twin)
    assert same_bits(learnt(f, seed=5), learnt(twin, seed=5))


@pytest.mark.parametrize("rule", [rules.DSG(), rules.UDSG(2, 3), rules.CDSG()], ids=repr)
def test_regularisation_without_gradients_shrinks_to_zero_in_finite_numbers(rule):
    """The lazy scale is folded in long before it could underflow, and the average survives it."""
    options = {"l2": 0.9, "average": True, "max_features": 64, "step": 1.0, "loss": losses.Hinge()}
    f = learnt(function(rule, 32, **options), 400)
    assert all(np.isfinite(tensor).all() for tensor in f.tensors().values())
    assert abs(f.numbers["scale"]) >= 1e-12
    assert np.isfinite([score(f, x) for x, _ in stream(5)]).all()
