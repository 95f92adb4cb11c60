"""DSPDC and AsyDSSKL of the papers against plain NumPy, step by step, and their limits against other solvers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from reference import dspdc as plain
from reference import sparse as plain_sparse

from streamkernel import losses, research
from streamkernel.kernels import Gaussian, Laplacian
from streamkernel.solvers.sparse import minimise_sparse

N, P = 23, 11
RNG = np.random.default_rng(0)
A = RNG.normal(size=(N, P))
NUMBERS = RNG.normal(size=N)
CURVATURES = {"square": 1.0, "logistic": 0.25, "smooth_hinge": 1.0}


def targets(loss):
    return NUMBERS if loss == "square" else np.sign(NUMBERS)


@pytest.mark.parametrize(("m", "q"), [(1, 1), (N, P), (5, 3), (N, 1), (1, P)])
@pytest.mark.parametrize("loss", CURVATURES)
def test_dspdc_takes_the_printed_steps(loss, m, q):
    solver = research.DSPDC(A, targets(loss), loss, l1=0.02, l2=0.1, m=m, q=q, seed=4)
    rng = np.random.default_rng(4)
    blocks = [(rng.choice(N, m, replace=False), rng.choice(P, q, replace=False)) for _ in range(60)]
    sizes = solver.theta, solver.tau, solver.sigma
    for x, y in plain.algorithm1(A, targets(loss), loss, 0.02, 0.1, sizes, blocks, N / m):
        solver.run(1)
        np.testing.assert_allclose(solver.x, x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(solver.y, y, rtol=1e-9, atol=1e-12)
    assert np.abs(solver.x).max() > 1e-3


@pytest.mark.parametrize(("m", "q"), [(1, 1), (N, P), (5, 3), (N, 1), (1, P)])
@pytest.mark.parametrize("loss", CURVATURES)
@pytest.mark.parametrize("theorem", [1, 2])
def test_the_parameters_solve_14(theorem, loss, m, q):
    solver = research.DSPDC(A, targets(loss), loss, l2=0.1, m=m, q=q, theorem=theorem)
    gamma, scale = 1.0 / CURVATURES[loss], solver.scale
    k = theorem * (np.sqrt(scale / (0.1 * gamma * N)) * N * P / (m * q) + max(N / m, P / q))
    assert solver.theta == pytest.approx(P / q - P / q / k)
    assert solver.rate == pytest.approx(1.0 - 1.0 / k)
    assert solver.tau * solver.sigma == pytest.approx(N * m * q / (4.0 * P * scale))
    primal = P / (2.0 * q * 0.1 * solver.tau) + P / q
    assert primal == pytest.approx(N**2 / (2.0 * m * gamma * solver.sigma) + N / m)


def test_the_scale_is_the_largest_squared_norm_of_a_block():
    small = A[:6, :5]
    for m, q in itertools.product((1, 2, 6), (1, 3, 5)):
        norms = [
            np.linalg.norm(small[np.ix_(rows, columns)], 2) ** 2
            for rows in itertools.combinations(range(6), m)
            for columns in itertools.combinations(range(5), q)
        ]
        scale = research.DSPDC(small, NUMBERS[:6], l2=0.1, m=m, q=q).scale
        assert scale >= max(norms) * (1.0 - 1e-12)
        if m == 1 or q == 1 or (m, q) == (6, 5):
            assert scale == pytest.approx(max(norms))


def test_dspdc_ends_at_the_ridge_solution():
    solver = research.DSPDC(A, NUMBERS, l2=0.5, m=4, q=3).run(6000)
    ridge = np.linalg.solve(A.T @ A / N + 0.5 * np.eye(P), A.T @ NUMBERS / N)
    np.testing.assert_allclose(solver.x, ridge, atol=1e-8)
    np.testing.assert_allclose(solver.y, A @ ridge - NUMBERS, atol=1e-8)


LOSSES = {
    "logistic": losses.Logistic(), "smooth_hinge": losses.SmoothHinge(), "sigmoid": losses.Sigmoid(),
    "square": losses.Square(), "correntropy": losses.Correntropy(1.0),
}  # fmt: skip


def sparse_problem(loss):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(60, 9)).astype(np.float32)
    y = 2.0 * Z[:, 0] - Z[:, 4] + 0.3 * rng.normal(size=60)
    return Z, y if loss in ("square", "correntropy") else np.sign(y)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("loss", LOSSES)
def test_asy_dsskl_takes_the_printed_steps(loss, batch):
    Z, y = sparse_problem(loss)
    options = {"gamma": 0.3, "outer": 3, "inner": 40, "batch_size": batch}
    model = research.AsyDSSKL(Gaussian(1.0), LOSSES[loss], l1=0.02, **options)
    w = model.solve(Z, y, np.zeros(9), np.random.default_rng(2))
    rng, expected, exact = np.random.default_rng(2), np.zeros(9), Z.astype(float)
    step = 0.3 / (LOSSES[loss].curvature * float((Z**2).max()))
    for _ in range(3):
        objective = plain_sparse.value(loss, exact @ expected, y).mean() + 0.02 * np.abs(expected).sum()
        assert model.objectives.pop(0) == pytest.approx(objective, rel=1e-9)
        samples, drawn = rng.integers(0, 60, (40, batch)), rng.integers(0, 9, 40)
        expected = plain_sparse.outer_iteration(loss, exact, y, expected, samples, drawn, step, 0.02)
    np.testing.assert_allclose(w, expected, rtol=1e-9, atol=1e-12)
    assert np.abs(w).max() > 0.01


def test_no_step_is_undone():
    """With a long step the objective rises, and the last coefficients are kept."""
    Z, y = sparse_problem("logistic")
    model = research.AsyDSSKL(Gaussian(1.0), l1=0.02, gamma=100.0, outer=5)
    model.solve(Z, y, np.zeros(9), np.random.default_rng(0))
    assert model.objectives[-1] > 2.0 * model.objectives[0]


@pytest.mark.parametrize("threads", [1, 2])
def test_asy_dsskl_ends_at_the_optimum(threads):
    Z, y = sparse_problem("square")
    best = minimise_sparse(Z, y, losses.Square(), l1=0.1, tol=1e-8)
    model = research.AsyDSSKL(Gaussian(1.0), losses.Square(), l1=0.1, gamma=0.3, outer=200, threads=threads)
    w = model.solve(Z, y, np.zeros(9), np.random.default_rng(0))
    np.testing.assert_allclose(w, best.coef[:, 0], atol=1e-5)
    assert 0 < np.count_nonzero(best.coef) < 9


def test_rounds_add_candidates_and_drop_what_is_zero():
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    y = np.sign(X[:, 0] * X[:, 1])
    models = [
        research.AsyDSSKL(Laplacian(1.0), l1=0.01, gamma=0.1, rounds=rounds, features_per_round=20, seed=3).fit(X, y)
        for rounds in (1, 2)
    ]
    assert len(models[1].objectives) == 20
    assert models[1].objectives[:10] == models[0].objectives
    after = plain_sparse.value("logistic", models[0].predict(X), y).mean() + 0.01 * np.abs(models[0].w).sum()
    assert models[1].objectives[10] == pytest.approx(after, rel=1e-6)  # the second round begins where the first ends
    assert models[0].features.max() < 40 <= models[1].features.max() < 80
    assert set(models[1].features[models[1].features < 40]) <= set(models[0].features)
    for model in models:
        assert 0 < len(model.features) < 40
        assert (model.w != 0.0).all()
        cosines, sines = (model.features % 2 == part for part in (0, 1))
        assert cosines.any()
        assert sines.any()
    again = research.AsyDSSKL(Laplacian(1.0), l1=0.01, gamma=0.1, rounds=2, features_per_round=20, seed=3).fit(X, y)
    assert again.w.tobytes() == models[1].w.tobytes()
    assert np.mean(np.sign(again.predict(X)) == y) > 0.85


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: research.DSPDC(A, NUMBERS, "hinge", l2=0.1), "a loss of square, logistic, smooth_hinge, got 'hinge'"),
        (lambda: research.DSPDC(A, NUMBERS, l2=0.0), "l2 > 0"),
        (lambda: research.DSPDC(A, NUMBERS, l2=0.1, q=12), "q <= 11"),
        (lambda: research.DSPDC(A, NUMBERS, l2=0.1, theorem=3), "1 or 2, got 3"),
        (lambda: research.AsyDSSKL(Gaussian(1.0), l1=0.0), "l1 > 0"),
        (lambda: research.AsyDSSKL(Gaussian(1.0), l1=0.1, inner=0), "inner >= 1"),
        (lambda: research.AsyDSSKL(Gaussian(1.0), losses.Hinge(), l1=0.1).fit(A, np.sign(NUMBERS)), "got Hinge"),
    ],
)
def test_invalid_parameters_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
