"""Both stochastic forms of the posterior against the printed updates, step by step, and against the closed form."""

from __future__ import annotations

import numpy as np
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from reference import posterior_variance as plain
from sklearn.gaussian_process.kernels import RBF

from streamkernel.kernels import Gaussian
from streamkernel.posterior.posteriors import FeatureMap
from streamkernel.posterior.stochastic_posterior import OperatorVariance, RidgeFunctions


@pytest.mark.parametrize("nu", [0.0, 0.4])
def test_steps_of_the_operator_match_the_paper(nu):
    """One feature a block and one example a step, as they are printed."""
    generator = np.random.default_rng(1)
    phis, phis2 = generator.normal(size=(2, 12, 12))
    gammas = [1.0 / (t + 1) for t in range(12)]
    A = OperatorVariance(width=1)
    for t, theta in enumerate(plain.printed_operator(phis, phis2, gammas, nu)):
        A = A.after_step(phis[t : t + 1], phis2[t : t + 1], t, gammas[t], nu)
        found = np.zeros((12, 12))
        for j, column in enumerate(A.theta):
            found[: len(column), j : j + 1] = column
        assert np.allclose(found, theta, rtol=1e-12)
        assert sum(column.size for column in A.theta) == (t + 1) * (t + 2) / 2  # the upper triangle, nothing else


@max_examples(25)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_the_operator_and_the_functions_match_the_reference(width, size, seed):
    """Blocks and batches, with old blocks moved again."""
    generator = np.random.default_rng(seed)
    A, f = OperatorVariance(width), RidgeFunctions(width, columns=3)
    plain_A, plain_f = plain.Operator(width), plain.Functions(width, 3)
    for block in (0, 1, 0, 2, 3, 1, 3):
        phi, phi2, at, at2 = generator.normal(size=(4, size, 4 * width))
        y, gamma = generator.normal(size=(size, 3)), generator.uniform(0.1, 0.5)
        A = A.after_step(phi, phi2, block, gamma, nu=0.3)
        plain_A.step(phi, phi2, block, gamma, 0.3)
        f = f.after_step(phi, y, block, gamma, nu=0.3)
        plain_f.step(phi, y, block, gamma, 0.3)
        assert np.allclose(A(at, at2), [plain_A.at(*pair) for pair in zip(at, at2, strict=True)], rtol=1e-9)
        assert np.allclose(f(at), [[plain_f.at(row, i) for i in range(3)] for row in at], rtol=1e-9)
    assert A.n_blocks == f.n_blocks == 4


@pytest.fixture(scope="module")
def process():
    """A training set, test points, the closed form (9), and features of two sets whose blocks estimate k."""
    generator = np.random.default_rng(0)
    X, at = generator.uniform(-2.0, 2.0, (200, 2)), generator.uniform(-3.0, 3.0, (40, 2))
    y, noise = np.sin(X[:, 0]) + 0.1 * generator.normal(size=200), 0.5
    kernel = RBF(1.5)
    to, inverse = kernel(at, X), np.linalg.inv(kernel(X) + noise * np.eye(200))
    maps = [FeatureMap(Gaussian(1.5), 512, seed, 1 << 20) for seed in (1, 2)]
    table, test = ([2.0 * phi(phi.directions.rows(["a", "b"], Z)) for phi in maps] for Z in (X, at))
    return (
        (table, np.column_stack([y, to.T])),
        test,
        noise,
        to @ inverse @ y,
        1.0 - np.einsum("ij,jk,ik->i", to, inverse, to),
    )


def test_both_forms_converge_to_the_closed_form(process):
    """Four blocks of 128 features, and old ones again; the regularisation of a set of 200 examples."""
    ((phi, phi2), y), (at, at2), noise, mean, variance = process
    generator = np.random.default_rng(1)
    f, A = RidgeFunctions(256, y.shape[1]), OperatorVariance(256)
    errors = []
    for t in range(400):
        if t in (5, 50):
            errors.append((np.abs(f(at)[:, 0] - mean).mean(), np.abs(1.0 - A(at, at2) - variance).mean()))
        chosen, block = generator.integers(0, 200, 25), t if t < 4 else int(generator.integers(4))
        A = A.after_step(phi[chosen], phi2[chosen], block, 1.0, noise / 200)
        f = f.after_step(phi[chosen], y[chosen], block, 1.0, noise / 200)
    found = f(at)
    errors.append((np.abs(found[:, 0] - mean).mean(), np.abs(1.0 - A(at, at2) - variance).mean()))
    points = 1.0 - np.diagonal(found[:, 1:])
    assert np.abs(points - variance).mean() < 0.05
    assert errors[2] < (0.06, 0.05)
    assert all(late < early for early, late in zip(errors[0], errors[2], strict=True))
    assert variance.max() > 0.5 > 0.05 > variance.min()  # there is something to converge to
