"""The rivals of the benchmarks against scikit-learn's solvers, and against their formulas written out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from benchmarks.rivals.norma import Norma
from benchmarks.rivals.parts import FixedFeatures, KernelSum
from benchmarks.rivals.pegasos import Pegasos
from benchmarks.rivals.sdca import FeatureSdca, KernelSdca
from streamkernel import step_sizes

N, SIGMA, L2 = 200, 1.5, 0.01
ALL = slice(0, N)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products do not wait for the threads of others."""
    with threadpool_limits(1):
        yield


@pytest.fixture(name="X")
def inputs() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(N, 3)).astype(np.float32)


@pytest.fixture
def y(X: np.ndarray) -> np.ndarray:
    return np.where(np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] > 0.0, 1.0, -1.0)


def gram(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return rbf_kernel(A.astype(float), B.astype(float), gamma=0.5 / SIGMA**2)


def objective(K: np.ndarray, alpha: np.ndarray, y: np.ndarray, loss: str) -> float:
    """(λ/2)‖f‖² + mean loss of f = Σ α_i k(x_i, ·)."""
    f = K @ alpha
    value = np.maximum(0.0, 1.0 - y * f) if loss == "hinge" else 0.5 * (f - y) ** 2
    return float(0.5 * L2 * alpha @ f + value.mean())


@pytest.mark.parametrize("most", [None, 150])
def test_a_kernel_sum_is_the_exact_kernels(X: np.ndarray, most: int | None) -> None:
    a = np.random.default_rng(2).normal(size=N)
    terms = KernelSum(3, SIGMA, most)
    for i in range(0, N, 32):
        terms.append(X[i : i + 32], a[i : i + 32])
    kept = slice(N - terms.size, N)
    assert terms.size == (most or N)
    many = np.tile(X, (12, 1))  # more than one panel high
    np.testing.assert_allclose(terms(many), np.tile(gram(X, X[kept]) @ a[kept], 12), atol=1e-4)
    np.testing.assert_allclose(terms.matrix(X), gram(X, X), atol=1e-5)


def test_fixed_features_estimate_the_kernel_and_are_kept(X: np.ndarray) -> None:
    features = FixedFeatures(X, SIGMA, 20_000, seed=3)
    np.testing.assert_allclose(features(X) @ features(X).T, gram(X, X), atol=0.04)  # 5 standard errors
    first = features.rows(slice(0, 64)).copy()
    np.testing.assert_array_equal(features.rows(slice(0, 64)), first)
    np.testing.assert_allclose(features.rows(slice(64, N)), features(X[64:]), atol=1e-6)


@pytest.mark.parametrize("loss", ["hinge", "square"])
def test_norma_takes_the_steps_of_its_formula(X: np.ndarray, y: np.ndarray, loss: str) -> None:
    step, batch = step_sizes.InverseTime(5.0), 30
    norma = Norma(X, y, sigma=SIGMA, loss=loss, step=step, l2=L2, batch=batch)
    norma.learn(ALL)
    K, alpha = gram(X, X), np.zeros(N)
    for t, i in enumerate(range(0, N, batch), start=1):
        rows = np.arange(i, min(i + batch, N))
        f = K[rows] @ alpha
        g = np.where(y[rows] * f < 1.0, -y[rows], 0.0) if loss == "hinge" else f - y[rows]
        alpha *= 1.0 - 5.0 / t * L2
        alpha[rows] -= 5.0 / t * g / len(rows)
    np.testing.assert_allclose(norma.scores(X), K @ alpha, atol=1e-4)
    assert norma.size == f"{np.count_nonzero(alpha)} vectors"


def test_norma_with_a_window_drops_the_oldest_terms(X: np.ndarray, y: np.ndarray) -> None:
    norma = Norma(X, y, sigma=SIGMA, loss="square", step=step_sizes.Constant(0.5), l2=L2, batch=1, most=5)
    norma.learn(slice(0, 40))
    K, alpha = gram(X, X), np.zeros(N)
    for i in range(40):
        g = K[i] @ alpha - y[i]
        alpha *= 1.0 - 0.5 * L2
        alpha[i] -= 0.5 * g
        alpha[: max(0, i - 4)] = 0.0
    np.testing.assert_allclose(norma.scores(X), K @ alpha, atol=1e-5)


def test_norma_converges_to_kernel_ridge(X: np.ndarray, y: np.ndarray) -> None:
    norma = Norma(X, y, sigma=SIGMA, loss="square", step=step_sizes.Constant(4.0), l2=L2, batch=N)
    for _ in range(250):
        norma.learn(ALL)
    exact = KernelRidge(alpha=L2 * N, kernel="precomputed").fit(gram(X, X), y)
    np.testing.assert_allclose(norma.scores(X), exact.predict(gram(X, X)), atol=1e-3)


@pytest.mark.parametrize("loss", ["hinge", "square"])
def test_pegasos_converges_to_the_linear_optimum(X: np.ndarray, y: np.ndarray, loss: str) -> None:
    """With its paper's steps 1/(λt), which the square loss takes after the first ones of more than 2."""
    step = step_sizes.InverseTime(1.0 / L2) if loss == "hinge" else step_sizes.PowerDecay(1.0, c=L2, power=1.0)
    features = FixedFeatures(X, SIGMA, 32, seed=4)
    pegasos = Pegasos(features, y, loss=loss, step=step, l2=L2, batch=N)
    for _ in range(3000):
        pegasos.learn(ALL)
    best = optimum(features(X), y, loss)
    np.testing.assert_allclose(pegasos.scores(X), features(X) @ best, atol=0.03)


def test_pegasos_stays_in_the_ball(X: np.ndarray, y: np.ndarray) -> None:
    """A first step of 1/λ would leave the ball."""
    pegasos = Pegasos(
        FixedFeatures(X, SIGMA, 32, 4), y, loss="hinge", step=step_sizes.InverseTime(50.0 / L2), l2=L2, batch=N
    )
    pegasos.learn(ALL)
    assert np.linalg.norm(pegasos.w) == pytest.approx(L2**-0.5, rel=1e-5)


@pytest.mark.parametrize("loss", ["hinge", "square"])
def test_sdca_on_features_converges_to_the_linear_optimum(X: np.ndarray, y: np.ndarray, loss: str) -> None:
    features = FixedFeatures(X, SIGMA, 32, seed=4)
    sdca = FeatureSdca(features, y, loss=loss, l2=L2, batch=32)
    for _ in range(1000):
        sdca.learn(ALL)
    np.testing.assert_allclose(sdca.scores(X), features(X) @ optimum(features(X), y, loss), atol=0.01)


def optimum(phi: np.ndarray, y: np.ndarray, loss: str) -> np.ndarray:
    """Minimise (λ/2)‖w‖² + mean loss by scikit-learn."""
    if loss == "square":
        return Ridge(alpha=L2 * N, fit_intercept=False).fit(phi, y).coef_
    C = 1.0 / (L2 * N)
    return LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-8, max_iter=1_000_000).fit(phi, y).coef_[0]


@pytest.mark.parametrize("loss", ["hinge", "square"])
def test_sdca_with_a_kernel_reaches_the_optimum(X: np.ndarray, y: np.ndarray, loss: str) -> None:
    """The square against the closed form; the hinge by the duality gap, and beside LIBSVM, which has an intercept."""
    sdca = KernelSdca(X, y, sigma=SIGMA, loss=loss, l2=L2, batch=32)
    for _ in range(500):
        sdca.learn(ALL)
    K = gram(X, X)
    if loss == "square":
        np.testing.assert_allclose(sdca.scores(X), K @ np.linalg.solve(K + L2 * N * np.eye(N), y), atol=0.005)
        return
    alpha = np.linalg.solve(K + 1e-9 * np.eye(N), sdca.scores(X))
    dual = y * sdca._alpha  # in [0, 1]; the dual value at any such point is a lower bound of every objective
    assert ((dual >= 0.0) & (dual <= 1.0)).all()
    lower = dual.mean() - 0.5 / L2 / N**2 * sdca._alpha @ K @ sdca._alpha
    assert lower <= objective(K, alpha, y, "hinge") <= lower + 1e-3
    assert np.mean(np.sign(sdca.scores(X)) == SVC(C=1 / (L2 * N), kernel="precomputed").fit(K, y).predict(K)) > 0.95
