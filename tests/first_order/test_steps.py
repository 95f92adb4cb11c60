"""Step sizes are values of one formula each."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkernel import step_sizes

STEPS = [
    step_sizes.Constant(0.5),
    step_sizes.InverseTime(2.0),
    step_sizes.PowerDecay(0.7),
    step_sizes.PowerDecay(0.7, c=0.1, power=0.5),
]
FORMULAS = [
    lambda t: 0.5,
    lambda t: 2.0 / t,
    lambda t: 0.7 / (1.0 + 1e-4 * t),
    lambda t: 0.7 / (1.0 + 0.1 * t) ** 0.5,
]


@pytest.mark.parametrize(("step", "formula"), list(zip(STEPS, FORMULAS, strict=True)), ids=map(repr, STEPS))
def test_step_sizes_match_their_formulas(step, formula):
    for t in (1, 2, 7, 1000, 10**7):
        assert step(t) == pytest.approx(formula(t), rel=1e-12)


@pytest.mark.parametrize("step", STEPS, ids=repr)
@given(first=st.integers(1, 10**9), n=st.integers(1, 50))
def test_one_number_and_an_array_give_the_same_bits(step, first, n):
    t = np.arange(first, first + n)
    assert np.array_equal(step(t.astype(float)), [step(int(one)) for one in t])


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_a_step_is_positive_and_never_grows(step):
    gammas = step(np.arange(1.0, 1e5))
    assert (gammas > 0.0).all()
    assert (np.diff(gammas) <= 0.0).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_non_positive_parameters_are_rejected(bad):
    for make, name in [
        (lambda: step_sizes.Constant(bad), "gamma"),
        (lambda: step_sizes.InverseTime(bad), "theta"),
        (lambda: step_sizes.PowerDecay(bad), "gamma"),
        (lambda: step_sizes.PowerDecay(1.0, c=bad), "c"),
        (lambda: step_sizes.PowerDecay(1.0, power=bad), "power"),
    ]:
        with pytest.raises(ValueError, match=f"Expected {name} > 0"):
            make()


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_a_step_is_a_value(step):
    twin = pickle.loads(pickle.dumps(step))
    assert twin == step
    assert hash(twin) == hash(step)
    with pytest.raises(AttributeError):
        step.gamma = 1.0
