"""The triangular factor after rows are added: in float32 and float64, once and ten million times."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases import covering, slow
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from streamkernel import kernels, losses, step_sizes
from streamkernel.jit import compiled
from streamkernel.learners.mixing import rotate_small
from streamkernel.second_order import newton, square_root
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.tiles import EIGHT

PRECISION = {np.float32: 1e-5, np.float64: 1e-13}
"""Of the large factors, and of the small one that is rotated row by row."""


def padded(X):
    """Return rows followed by as many zeros as make them whole eights."""
    return np.concatenate([X, np.zeros((-len(X) % EIGHT, X.shape[1]), X.dtype)])


def rotated(R, X):
    """Return the factor after rows are added."""
    R = R.copy()
    if R.dtype == np.float64:
        for x in X.copy():
            rotate_small(R, x)
        return R
    rows = padded(X)
    square_root.rotate(R, rows)
    return R


def upper(generator, n, dtype):
    """Return a factor that solves well, with something else below its diagonal."""
    R = generator.normal(size=(n, n)) / math.sqrt(n)
    R[np.diag_indices(n)] = generator.uniform(0.5, 2.0, n)
    return R.astype(dtype)


def gram(R, *tables):
    """Return RᵀR + Σ XᵀX of the upper triangle of R, in float64."""
    R = np.triu(R).astype(np.float64)
    return R.T @ R + sum(X.astype(np.float64).T @ X for X in tables)


def check(R, X):
    """Check that rows are added; each entry's error is measured by the sizes of its columns."""
    found, wanted = rotated(R, X), gram(R, X)
    size = np.sqrt(np.diag(wanted)) + 1e-300
    assert (np.diag(found) > 0.0).all()
    assert np.isfinite(found).all()
    assert np.abs((gram(found) - wanted) / size / size[:, None]).max() < PRECISION[R.dtype.type]
    assert np.array_equal(np.tril(found, -1), np.tril(R, -1))  # it is not looked at


@pytest.mark.parametrize(
    ("n", "rows", "dtype"),
    covering(
        itertools.product([1, 2, 7, 8, 9, 24, 61, 256, 300, 530], [0, 1, 8, 13, 64, 72], [np.float32, np.float64])
    ),
)
def test_rows_are_added(n, rows, dtype):
    generator = np.random.default_rng(n + rows)
    check(upper(generator, n, dtype), generator.normal(size=(rows, n)).astype(dtype))


@given(
    st.integers(1, 40),
    st.integers(0, 30),
    st.integers(0, 10**6),
    st.sampled_from([np.float32, np.float64]),
    st.floats(-30.0, 15.0),
    st.floats(0.0, 1.0),
)
def test_rows_of_any_size_with_any_zeros_are_added(n, rows, seed, dtype, exponent, zeros):
    """From sizes whose squares float32 cannot hold to the largest feature."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, n)) * 10.0**exponent
    X[generator.uniform(size=(rows, n)) < zeros] = 0.0
    X[:, generator.uniform(size=n) < zeros] = 0.0
    check(upper(generator, n, dtype), X.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_all_sizes_at_once_are_added(dtype):
    generator = np.random.default_rng(0)
    sizes = 10.0 ** np.arange(-26, 15)
    for _ in range(20):
        X = generator.normal(size=(16, len(sizes)))
        check(upper(generator, len(sizes), dtype), (X * generator.permutation(sizes)).astype(dtype))
        check(upper(generator, len(sizes), dtype), (X * generator.choice(sizes, 16)[:, None]).astype(dtype))


@pytest.mark.parametrize("size", [1e-24, 1e-22, 1e-21, 1e-20, 1e-19, 1e-12])
def test_negligible_rows_change_nothing(size):
    """Sines of inputs near 0 are of any size; what divides by their squares must not overflow."""
    generator = np.random.default_rng(1)
    R = upper(generator, 20, np.float32)
    assert np.allclose(rotated(R, (size * generator.normal(size=(8, 20))).astype(np.float32)), R, rtol=1e-6)


def test_without_rows_nothing_changes():
    R = upper(np.random.default_rng(2), 19, np.float32)
    assert rotated(R, np.zeros((8, 19), np.float32)).tobytes() == R.tobytes()
    assert rotated(R, np.zeros((0, 19), np.float32)).tobytes() == R.tobytes()


def test_the_order_of_the_batches_does_not_matter():
    generator = np.random.default_rng(3)
    R, X = upper(generator, 37, np.float64), generator.normal(size=(96, 37))
    one, many = rotated(R, X), R
    for first in range(0, 96, 8):
        many = rotated(many, X[first : first + 8][::-1])
    assert np.allclose(np.triu(one), np.triu(many), rtol=1e-10)


@given(st.integers(1, 70), st.integers(0, 10**6), st.sampled_from([np.float32, np.float64]))
def test_solve_matches_numpy(n, seed, dtype):
    generator = np.random.default_rng(seed)
    R = (upper(generator, n, dtype) + 2.0 * np.eye(n)).astype(dtype)
    b = generator.normal(size=n) * 10.0 ** generator.uniform(-50.0, 50.0)
    x = b.copy()
    square_root.solve(R, x)
    assert np.allclose(x, np.linalg.solve(gram(R), b), rtol=1e-9, atol=1e-9 * np.abs(b).max())


@pytest.mark.parametrize("n", [255, 256, 512, 600])
def test_solve_of_many_unknowns(n):
    generator = np.random.default_rng(n)
    R = upper(generator, n, np.float32)
    b = generator.normal(size=n)
    x = b.copy()
    square_root.solve(R, x)
    assert np.allclose(gram(R) @ x, b, rtol=1e-8, atol=1e-8 * np.abs(x).max())


# Ten million rows: features of a wide kernel, which are nearly alike, so that A is ill-conditioned.
WIDTH, TABLE, ROUNDS, PRIOR = 16, 1 << 16, 153, 0.03


def wide(sigma=4.0):
    """Return rows of cosines and sines, shape (TABLE, WIDTH), of inputs that differ little in units of the kernel."""
    generator = np.random.default_rng(0)
    s = generator.normal(size=(TABLE, 2)) @ generator.normal(size=(2, WIDTH // 2)) / sigma
    return (np.concatenate([np.cos(s), np.sin(s)], axis=1) / math.sqrt(WIDTH // 2)).astype(np.float32)


def start():
    return (math.sqrt(PRIOR) * np.eye(WIDTH)).astype(np.float32)


def after(rounds):
    """Return λI + Σ xxᵀ over the table so many times, in float64."""
    return PRIOR * np.eye(WIDTH) + rounds * gram(np.zeros((1, WIDTH)), wide())


def ratios(A, exact):
    """Return the smallest and the largest of uᵀAu / uᵀ(exact)u over all directions u."""
    L = np.linalg.inv(np.linalg.cholesky(exact))
    return np.linalg.eigvalsh(L @ A @ L.T)[[0, -1]]


@compiled  # a plain njit function that has to load a unit waits for ever for numba's lock
def _reflect(factor, table, rounds):
    rows = np.empty((2 * EIGHT, table.shape[1]), table.dtype)
    for _ in range(rounds):
        for first in range(0, len(table), 2 * EIGHT):
            rows[:] = table[first : first + 2 * EIGHT]
            square_root.rotate(factor, rows)


@njit
def _subtract(P, table, rounds, kept):
    """P ← (P - Px(Px)ᵀ/(ρ + xᵀPx))/ρ: the inverse of A, from which is subtracted."""
    gain = np.empty(len(P), P.dtype)
    for _ in range(rounds):
        for i in range(len(table)):
            beyond = P.dtype.type(kept)
            for j in range(len(P)):
                gain[j] = (P[j] * table[i]).sum()
            beyond += (gain * table[i]).sum()
            for j in range(len(P)):
                P[j] = (P[j] - gain[j] * gain / beyond) / P.dtype.type(kept)


def test_ten_million_rows_in_float32():
    """The factor is positive and represents the sum of all rows, with the right size in every direction."""
    assert ROUNDS * TABLE > 10_000_000
    exact, R = after(ROUNDS), start()
    assert np.linalg.cond(exact) > 1e8
    _reflect(R, wide(), ROUNDS)
    assert np.isfinite(R).all()
    assert (np.diag(R) > 0.9 * math.sqrt(PRIOR)).all()
    assert np.linalg.norm(gram(R) - exact) < 1e-2 * np.linalg.norm(exact)
    assert ratios(gram(R), exact)[0] > 0.2
    assert ratios(gram(R), exact)[1] < 5.0


def test_downdating_is_unstable():
    """The same rows, a fiftieth of them, in the form that is usual: its error is beyond what the factor's may be."""
    exact, P, R = after(3), np.linalg.inv(start() @ start().T).astype(np.float32), start()
    _subtract(P, wide(), 3, 1.0)
    _reflect(R, wide(), 3)
    error = ratios(P.astype(np.float64), np.linalg.inv(exact))
    assert error[0] < 0.1 or error[1] > 10.0
    assert ratios(gram(R), exact)[0] > 0.9
    assert ratios(gram(R), exact)[1] < 1.1


@compiled
def _forget(state, table, most):
    """Take Newton steps as the mixture does, on rows of the table again and again."""
    numbers, rows = state.numbers[0], state.rows.reshape(-1, table.shape[1])
    batch = numbers.batch_size
    for first in range(0, most, batch):
        for i in range(batch):
            rows[i] = table[(first + i) % len(table)]
        numbers.examples, numbers.buffered, numbers.step_k_xx = first + batch, batch, 1.0
        newton.begin_step(state)
        newton.advance(state, True)


@pytest.mark.parametrize(
    ("batch", "kept"),
    [
        case if case in ((64, 0.9), (24, 0.99), (8, 0.999), (64, 0.99999)) else slow(*case)
        for case in itertools.product([8, 24, 64], [0.9, 0.99, 0.999, 0.99999])
    ],
)
def test_the_factor_that_forgets_neither_grows_nor_vanishes(batch, kept):
    """After a million rows it is λI + Σ ρ^age xxᵀ, λ within a factor of 3, also where there is nothing to be seen."""
    table = wide()
    table[:, 3] = table[:, 9:12] = 0.0
    f = SecondOrderLearner(
        kernels.Gaussian(1.0),
        losses.Square(),
        step_sizes.Constant(0.75),
        joint=True,
        block_size=WIDTH // 2,
        max_features=WIDTH // 2,
        batch_size=batch,
        forgetting=kept,
    )
    newton.begin_step(f.arrays)  # on no rows: what it calls is loaded, also where `_forget` comes from the cache
    f.arrays.priors[:] = PRIOR
    count, R = 1_000_000 // batch * batch, f.groups[0].factor
    R[:] = start()
    _forget(f.arrays, table, count)
    ages = np.bincount(np.arange(count) % TABLE, kept ** (np.arange(count)[::-1] // batch * batch), TABLE)
    seen = (table.T.astype(np.float64) * ages) @ table
    low, high = (ratios(gram(R), PRIOR * factor * np.eye(WIDTH) + seen) for factor in (1.0 / 3.0, 3.0))
    assert low[0] > 0.8  # rows are sampled
    assert high[1] < 1.2
    assert 1.0 / 3.0 < (R[3, 3] ** 2 / PRIOR) < 3.0


def test_the_downdated_form_grows_without_data():
    table = wide()
    table[:, 3] = 0.0
    P = (np.eye(WIDTH) / PRIOR).astype(np.float32)
    _subtract(P, table, 1, 0.999)
    assert not P[3, 3] < 1e20
