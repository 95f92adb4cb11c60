"""The coordinate rules: which block a step takes and how far it goes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamkernel import rules
from streamkernel.features.counter_rng import domain_key
from streamkernel.first_order import step_choices
from streamkernel.learners import state

KEY = domain_key(3, "rule")
RULES = [
    rules.DSG(),
    rules.UDSG(),
    rules.UDSG(3, 2),
    rules.CDSG(math.inf),
    rules.CDSG(),
    rules.CDSG(max_step_ratio=2.5),
]
number = st.floats(-10, 10).map(lambda value: 0.0 if abs(value) < 1e-3 else value)


@st.composite
def situations(draw, most=6):
    """Draw β, its scale, ḡ, γ and the noise (Mσ/B)²."""
    columns = draw(st.integers(1, 3))
    rows = st.lists(number, min_size=columns, max_size=columns)
    beta = np.array(draw(st.lists(rows, max_size=most))).reshape(-1, columns)
    scale = draw(st.sampled_from([1.0, 0.5, -0.3, 1e-9]))
    return beta, scale, np.array(draw(rows)), draw(st.floats(0.01, 5)), draw(st.floats(0, 2))


def excess(beta, g, gamma, noise, eta):
    """Return how far inequality (9) is violated by a step: its left side less its right side."""
    after = beta - eta * g
    return 2.0 * (after @ after) + 2.0 * eta**2 * noise - (beta @ beta) - gamma**2 * (g @ g)


def is_forced(rule, beta, room, t=0):
    """Say whether a rule is forced to take an old block."""
    return chosen(KEY, rule, beta, (1.0,), 0.5, 0.1, t, room, 1.0)[2]


def choose(rule, beta, g=(1.0,), gamma=0.5, noise=0.1, t=0, room=True, scale=1.0):
    return chosen(KEY, rule, beta, g, gamma, noise, t, room, scale)[:2]


def chosen(key, rule, beta, g, gamma, noise, t, room, scale):
    """Return what a rule chooses in step t of a function with some blocks."""
    numbers = np.zeros(1, state.NUMBERS)
    code, n_new, n_reused, ratio = rule.parameters
    values = {"rule": code, "n_new": n_new, "n_reused": n_reused, "max_step_ratio": ratio, "scale": scale, "steps": t}
    values |= {"rule_key": np.uint64(key).view(np.int64), "blocks": len(beta), "most_blocks": len(beta) + room}
    for name, value in values.items():
        numbers[name] = value
    return step_choices.choose(numbers, np.ascontiguousarray(beta), np.array(g, np.float64), gamma, noise)


@max_examples(200)
@given(situations())
def test_the_checked_step_is_the_longest_that_keeps_the_inequality(situation):
    beta, scale, g, gamma, noise = situation
    k, eta = step_choices.longest_checked_step(beta, scale, g, gamma, noise)
    true = scale * beta
    size = (true**2).sum() + ((gamma**2 + 1.0 + eta**2) * (g @ g)) + eta**2 * noise + 1e-12
    if k >= 0:
        assert eta > 0.0
        assert abs(excess(true[k], g, gamma, noise, eta)) < 1e-9 * size
    for block in true:
        for longer in eta + gamma * np.geomspace(1e-3, 1e4, 30):
            assert excess(block, g, gamma, noise, longer) > -1e-9 * (size + longer**2 * (g @ g + noise))


@given(situations())
def test_without_a_passing_block_there_is_no_checked_step(situation):
    beta, scale, g, gamma, noise = situation
    k, eta = step_choices.longest_checked_step(beta, scale, g, gamma, noise)
    if k < 0:
        assert eta == 0.0
        for block in scale * beta:
            for step in np.geomspace(1e-3, 1e3, 50):
                assert excess(block, g, gamma, noise, step) > -1e-9


def test_the_check_prefers_blocks_aligned_with_the_gradient():
    """β = ηḡ of an earlier step with the opposite gradient: going back is worth more than going on."""
    beta = np.array([[0.5], [-0.5], [0.2]])
    k, eta = step_choices.longest_checked_step(beta, 1.0, np.array([1.0]), 0.5, 0.0)
    assert (k, eta) == (0, pytest.approx(1.0))  # 2(½ - η)² = ½
    k, eta = step_choices.longest_checked_step(beta, 1.0, np.array([-1.0]), 0.5, 0.0)
    assert (k, eta) == (1, pytest.approx(1.0))
    k, eta = step_choices.longest_checked_step(beta, -1.0, np.array([-1.0]), 0.5, 0.0)
    assert (k, eta) == (0, pytest.approx(1.0))


@given(situations(), st.sampled_from(RULES), st.booleans(), st.integers(0, 10**9))
def test_choices_are_valid_blocks(situation, rule, room, t):
    beta, scale, g, gamma, noise = situation
    if not len(beta) and not room:
        return
    k, eta = choose(rule, beta, g, gamma, noise, t, room, scale)
    assert 0 <= k <= len(beta) - (not room)
    assert eta > 0.0
    if k == len(beta) or not isinstance(rule, rules.CDSG):
        assert eta == gamma
    elif room:
        assert gamma <= eta <= rule.max_step_ratio * gamma
    else:
        assert eta <= max(1.0, rule.max_step_ratio) * gamma


@given(situations(), st.floats(1.0, 3.0))
def test_cdsg_takes_an_old_block_where_its_checked_step_is_longer(situation, longest):
    beta, scale, g, gamma, noise = situation
    best, checked = step_choices.longest_checked_step(beta, scale, g, gamma, noise)
    k, eta = choose(rules.CDSG(longest), beta, g, gamma, noise, scale=scale)
    assert (k, eta) == ((best, min(checked, longest * gamma)) if checked > gamma else (len(beta), gamma))
    if len(beta):
        k, eta = choose(rules.CDSG(longest), beta, g, gamma, noise, scale=scale, room=False)
        if checked > 0.0:
            assert (k, eta) == (best, min(checked, longest * gamma))


def test_dsg_always_takes_a_new_block():
    assert all(choose(rules.DSG(), np.zeros((n, 1)), t=n) == (n, 0.5) for n in range(50))


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
def test_udsg_alternates_new_and_old_blocks(grow, reuse, n):
    pattern = [choose(rules.UDSG(grow, reuse), np.zeros((n, 1)), t=t)[0] == n for t in range(3 * (grow + reuse))]
    assert pattern == ([True] * grow + [False] * reuse) * 3


def test_a_step_is_forced_if_a_new_block_has_no_room():
    away, back = np.full((2, 1), -1e3), np.array([[0.5], [-0.5]])  # the check fails; it holds
    for beta in (away, back):
        assert is_forced(rules.DSG(), beta, room=False)
        assert [is_forced(rules.UDSG(2, 1), beta, room=False, t=t) for t in range(3)] == [True, True, False]
        for rule in RULES:
            assert not is_forced(rule, beta, room=True)
    assert is_forced(rules.CDSG(), away, room=False)
    assert not is_forced(rules.CDSG(), back, room=False)


def test_the_first_block_is_always_new():
    for rule in RULES:
        for t in range(6):
            assert choose(rule, np.zeros((0, 1)), t=t)[0] == 0


@pytest.mark.parametrize("n", [2, 7, 100])
@pytest.mark.parametrize("rule", [rules.DSG(), rules.UDSG(2, 2), rules.CDSG(math.inf)], ids=repr)
def test_old_blocks_are_drawn_uniformly(rule, n):
    """χ² of 20,000 draws, and of pairs of draws that follow each other; at the cap, no block passing the check."""
    beta = np.full((n, 1), -1e3)  # all far from 0, on the side that ḡ leads further away
    draws = np.array([choose(rule, beta, t=t, room=False)[0] for t in range(20_000)])
    assert stats.chisquare(np.bincount(draws, minlength=n)).pvalue > 1e-6
    pairs = draws[0::2] % 7 * 7 + draws[1::2] % 7
    if n == 7:
        assert stats.chisquare(np.bincount(pairs, minlength=49)).pvalue > 1e-6
    other = [chosen(domain_key(4, "rule"), rule, beta, np.ones(1), 0.5, 0.1, t, False, 1.0)[0] for t in range(1000)]
    agree = np.mean(draws[:1000] == other)
    assert abs(agree - 1.0 / n) < 6.0 * math.sqrt(1.0 / n / 1000.0)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: rules.UDSG(grow=0), "grow"),
        (lambda: rules.UDSG(reuse=0), "reuse"),
        (lambda: rules.CDSG(max_step_ratio=0.99), "max_step_ratio"),
        (lambda: rules.CDSG(max_step_ratio=float("nan")), "max_step_ratio"),
    ],
)
def test_parameters_out_of_range_are_refused(make, name):
    with pytest.raises(ValueError, match=f"Expected .*{name} >= 1"):
        make()
