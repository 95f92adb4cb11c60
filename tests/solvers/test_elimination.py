"""Features that are left out one after another, beside the closed form and all that could have been left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkernel.features.rows import F64
from streamkernel.solvers.rounds import eliminate


def problem(seed: int, groups: int, group: int, columns: int) -> tuple[F64, F64]:
    """A curvature and a minimum, of groups and one output more."""
    rng = np.random.default_rng(seed)
    outputs = groups * group + 1
    A = rng.standard_normal((2 * outputs, outputs)) @ rng.standard_normal((outputs, outputs))
    return A.T @ A / outputs**2 + 0.01 * np.eye(outputs), rng.standard_normal((outputs, columns))


def least(H: F64, w: F64, stays: F64) -> tuple[float, F64]:
    """The least value of ½ tr (v - w)ᵀH(v - w) where v is 0 but for what stays, and that v."""
    v = np.zeros_like(w)
    v[stays] = np.linalg.solve(H[np.ix_(stays, stays)], (H @ w)[stays])
    return 0.5 * float(np.trace((v - w).T @ H @ (v - w))), v


@given(seed=st.integers(0, 10_000), group=st.integers(1, 3), columns=st.integers(1, 3), most=st.integers(0, 6))
def test_remaining_coefficients_are_adjusted(seed: int, group: int, columns: int, most: int) -> None:
    H, w = problem(seed, 6, group, columns)
    found = eliminate(H, w, group, most)
    stays = np.flatnonzero(found.any(axis=1))
    assert len(stays) == most * group + 1
    np.testing.assert_allclose(found, least(H, w, stays)[1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_the_least_important_group_is_dropped_each_time(seed: int) -> None:
    H, w = problem(seed, 6, 2, 2)
    stays = np.arange(len(w))
    for most in range(5, 0, -1):
        ways = [np.setdiff1d(stays, [h, h + 1]) for h in stays[:-1:2]]
        stays = min(ways, key=lambda way: least(H, w, way)[0])
        assert np.flatnonzero(eliminate(H, w, 2, most).any(axis=1)).tolist() == stays.tolist()


def test_a_small_number_of_groups_is_unchanged() -> None:
    H, w = problem(0, 3, 2, 1)
    before = w.copy()
    assert eliminate(H, w, 2, 3).tobytes() == w.tobytes() == before.tobytes()
    eliminate(H, w, 2, 1)
    assert w.tobytes() == before.tobytes()
