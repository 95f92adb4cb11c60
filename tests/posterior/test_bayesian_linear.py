"""The recursion against linear algebra on all examples at once, and the likelihood against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkernel.kernels import Gaussian
from streamkernel.posterior.bayesian_linear import BayesianLinear, Recursive
from streamkernel.posterior.posteriors import USUAL, FeatureMap, most_likely


def batch(phi, y, ratio):
    """Return mean and covariance in units of σ² of the weights: the textbook's formulas, solved at once."""
    precision = phi.T @ phi + ratio * np.eye(phi.shape[1])
    return np.linalg.solve(precision, phi.T @ y), np.linalg.inv(precision)


@given(st.integers(1, 12), st.integers(0, 30), st.floats(1e-6, 1e3), st.integers(0, 99))
def test_the_recursion_is_the_batch_solution(d, n, ratio, seed):
    generator = np.random.default_rng(seed)
    phi, y, at = generator.normal(size=(n, d)), generator.normal(size=n), generator.normal(size=(4, d))
    phi[generator.random((n, d)) < 0.2] = 0.0
    model = BayesianLinear(d, ratio)
    for i in range(n):
        model.learn(phi[i : i + 1].copy(), y[i : i + 1])
    w, covariance = batch(phi, y, ratio)
    assert np.allclose(model.mean(at), at @ w, atol=1e-6)
    assert np.allclose(model.spread(at.copy()), np.einsum("ij,jk,ik->i", at, covariance, at), rtol=1e-6)
    assert np.isclose(model.totals[0], y @ y - y @ phi @ w, atol=1e-8)  # yᵀ(I + ΦΦᵀ/λ)⁻¹y


def test_squares_are_those_of_the_predictions_in_units_of_their_deviations():
    generator = np.random.default_rng(0)
    phi, y = generator.normal(size=(40, 6)), generator.normal(size=40)
    model, total = BayesianLinear(6, 0.7), 0.0
    for i in range(40):
        row = phi[i : i + 1]
        total += float((y[i] - model.mean(row)[0]) ** 2 / (1.0 + model.spread(row.copy())[0]))
        model.learn(row.copy(), y[i : i + 1])
        assert model.totals[0] == pytest.approx(total)


@pytest.mark.parametrize("n", [2, 3, 40])
def test_the_noise_is_unbiased_if_the_mean_of_the_targets_is_unknown(n):
    """σ² = yᵀ(I + ΦΦᵀ/λ)⁻¹y/(n - 1), where Φ has a column of ones."""
    generator = np.random.default_rng(1)
    phi = FeatureMap(Gaussian(1.5), 6, seed=0, cache_bytes=0)
    rows, y = phi.directions.rows(["a", "b"], generator.normal(size=(n, 2))), 3.0 + generator.normal(size=n)
    posterior = Recursive(phi, None, 0.3)
    posterior.learn(rows, y)
    table = np.column_stack([phi(rows), np.ones(n)])
    squares = y @ np.linalg.solve(np.eye(n) + table @ table.T / 0.3, y)
    assert posterior.noise == pytest.approx(squares / (n - 1))


def test_the_recursion_stays_the_batch_solution_over_a_long_stream():
    """Features of a wide kernel, nearly dependent (condition 10¹¹), a tiny ratio, and 60,000 examples."""
    generator = np.random.default_rng(0)
    rows = generator.uniform(-1.0, 1.0, (60_000, 2))
    phi = FeatureMap(Gaussian(1.5), 20, seed=0, cache_bytes=0)
    table = phi(phi.directions.rows(["a", "b"], rows))
    y = np.sin(3.0 * rows[:, 0]) * rows[:, 1] + 0.1 * generator.normal(size=len(rows))
    at = phi(phi.directions.rows(["a", "b"], generator.uniform(-1.2, 1.2, (200, 2))))
    model = BayesianLinear(phi.n_outputs, 1e-6)
    for first, last in [(0, 100), (100, 10_000), (10_000, 60_000)]:
        model.learn(table[first:last].copy(), y[first:last])
        # The reference is solved by the singular values, whose error grows with the condition's root only.
        padded = np.concatenate([table[:last], 1e-3 * np.eye(phi.n_outputs)])
        U, s, Vt = np.linalg.svd(padded, full_matrices=False)
        mean = at @ (Vt.T @ ((U[:last].T @ y[:last]) / s))
        spread = np.square(at @ Vt.T / s).sum(axis=1)
        assert np.linalg.cond(padded) > 1e3
        assert np.abs(model.mean(at) - mean).max() < 1e-8
        assert np.allclose(model.spread(at.copy()), spread, rtol=1e-7, atol=0.0)


def test_the_likelihood_is_that_of_the_normal_distribution():
    """Up to a constant and the prior, and its maximum over s² is there."""
    generator = np.random.default_rng(0)
    phi = generator.normal(size=(50, 8))
    y = phi @ generator.normal(size=8) + 0.5 * generator.normal(size=50)
    best, ratio = most_likely(phi @ phi.T, y)

    def log_likelihood(s2, r):
        covariance = s2 * (phi @ phi.T + r * np.eye(50))
        _, logarithm = np.linalg.slogdet(covariance)
        return -0.5 * (y @ np.linalg.solve(covariance, y) + logarithm) - 0.5 * np.log10(r / USUAL) ** 2

    scale = y @ np.linalg.solve(phi @ phi.T + ratio * np.eye(50), y) / 50
    there = log_likelihood(scale, ratio)
    # The largest target is the unit, which adds n log(unit).
    assert there == pytest.approx(best - 25.0 - 50.0 * np.log(np.abs(y).max()))
    for s2 in (0.9, 1.1):
        for r in (0.8, 1.0, 1.25):
            assert log_likelihood(s2 * scale, r * ratio) < there
