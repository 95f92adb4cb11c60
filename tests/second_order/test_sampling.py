"""Sampled rows of a step in A: their sum approximates that of all rows, and does not depend on the times of steps."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from streamkernel import losses, step_sizes
from streamkernel.kernels import Gaussian
from streamkernel.learners.embedding import embed_rows
from streamkernel.second_order import sampling
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.second_order.mixture_state import SKETCHED_AT

N, OUTPUTS, NAMES = 6000, 32, ["a", "b"]


def examples(f, loss, n=N, seed=4):
    """Return rows and targets."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, len(NAMES)))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * generator.normal(size=n)
    return f.directions.rows(NAMES, X), (y > 0.0).astype(float) if loss.for_classes else y


def data(f, loss, seed=4):
    """Yield rows with their targets."""
    rows, y = examples(f, loss, seed=seed)
    for i in range(N):
        yield rows.part(i, i + 1), y[i]


def learned(loss=None, n=N, w=None):
    """Return a function of one group that has learned, its features, and its targets."""
    loss, size = loss or losses.Square(), OUTPUTS // 2
    step = step_sizes.Constant(0.5)
    f = SecondOrderLearner(Gaussian(1.0), loss, step, seed=3, joint=True, block_size=size, max_features=size)
    rows, y = examples(f, loss, n)
    rows = rows._replace(weights=np.ones(n) if w is None else w)
    f.arrays.bounds[:] = 1e9  # nothing is clipped
    f.learn(rows, y)
    return f, embed_rows(f.numbers, f.directions, rows, 1).astype(np.float64), y


def moment(f):
    """Return A - λI."""
    factor = np.triu(f.groups[0].factor).astype(np.float64)
    return factor.T @ factor - f.prior(0) * np.eye(len(factor))


@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_gram_matrix_is_nearly_the_sum_of_all_rows(is_weighted):
    w = np.random.default_rng(5).uniform(0.2, 5.0, N) if is_weighted else np.ones(N)
    f, phi, _ = learned(w=w)
    done = N - f.numbers["buffered"]
    whole, found = (phi[:done] * w[:done, None]).T @ phi[:done], moment(f)
    assert np.trace(found) == pytest.approx(np.trace(whole), rel=0.05)
    assert np.linalg.norm(found - whole) < 0.1 * np.linalg.norm(whole)
    assert np.linalg.norm(found - whole) > 1e-3 * np.linalg.norm(whole)  # rows were left out


def test_leverages_determine_the_weights_of_rows():
    """Estimates of the leverage by eight random signs: without bias, and within a factor of three."""
    f, *_ = learned(losses.Logistic())
    group, at = f.groups[0], f.numbers["buffered"]
    rows = group.rows[:at].astype(np.float64)
    A = np.triu(group.factor).astype(np.float64)
    exact = np.square(np.linalg.solve(A.T, rows.T)).sum(axis=0)
    estimated = np.square(rows @ group.sketch.T.astype(np.float64)).sum(axis=1)
    assert np.exp(np.abs(np.log(estimated / exact))).max() < 4.0
    assert estimated.sum() == pytest.approx(exact.sum(), rel=0.3)
    p = np.maximum(sampling.CAUTION * estimated, 1.0 / sampling.MOST)
    shares = sampling.waiting_shares(f.arrays, 0)
    taken = shares > 0.0
    assert 0 < taken.sum() < at
    assert shares[taken] == pytest.approx(1.0 / np.minimum(p, 1.0)[taken], rel=1e-4)


def test_rows_in_a_new_direction_all_count():
    """So that a step on them does not go beyond their targets."""
    f, *_ = learned()
    far = f.directions.rows(NAMES, np.full((48, 2), 30.0))
    f.settle()
    f.learn(far, np.full(48, 5.0))
    assert (sampling.waiting_shares(f.arrays, 0) == 1.0).all()
    f.settle()
    found = embed_rows(f.numbers, f.directions, far, 1).astype(np.float64) @ f.groups[0].newton[0]
    assert found == pytest.approx(5.0, rel=0.05)


def test_the_function_is_nearly_that_of_all_rows():
    f, phi, y = learned()
    done = N - f.numbers["buffered"]
    ridge = Ridge(alpha=f.prior(0), fit_intercept=False, solver="cholesky").fit(phi[:done], y[:done])
    best = np.mean((phi @ ridge.coef_ - y) ** 2)
    assert np.mean((phi @ f.groups[0].newton[0] - y) ** 2) < 1.05 * best


def test_all_rows_count_while_there_are_few():
    f, phi, _ = learned(n=sampling.FROM)
    done = len(phi) - f.numbers["buffered"]
    whole = phi[:done].T @ phi[:done]
    assert np.linalg.norm(moment(f) - whole) < 1e-5 * np.linalg.norm(whole)


def test_the_weight_of_a_row_does_not_change_while_it_is_buffered():
    f, *_ = learned(losses.Logistic())
    before: list[float] = []
    for row, y in data(f, losses.Logistic(), seed=6):
        now = sampling.waiting_shares(f.arrays, 0).tolist()
        if len(now) > len(before):
            assert now[: len(before)] == before
        before = now
        f.learn_one(row, y)
    assert f.examples == 2 * N


def test_a_step_takes_the_rows_as_they_count():
    f, *_ = learned(n=N)
    group = f.groups[0]
    rows, shares = group.rows[: f.numbers["buffered"]].astype(np.float64), sampling.waiting_shares(f.arrays, 0)
    assert 0 < np.count_nonzero(shares) < len(shares)
    expected = moment(f) + (rows * shares[:, None]).T @ rows
    f.settle()
    assert np.allclose(moment(f), expected, atol=1e-5 * np.abs(expected).max())


def test_a_file_without_a_sketch_takes_all_rows_until_there_is_one():
    f, *_ = learned()
    tensors = f.tensors()
    twin, *_ = learned(n=0)
    twin.restore({name: tensor for name, tensor in tensors.items() if name not in {"sketch", "sketched_at"}})
    assert (sampling.waiting_shares(f.arrays, 0) == 0.0).any()
    assert (sampling.waiting_shares(twin.arrays, 0) == 1.0).all()
    twin.settle()
    assert twin.arrays.sampled[0, SKETCHED_AT] == N
    with pytest.raises(ValueError, match="expected numbers of examples as sketched_at"):
        twin.restore(tensors | {"sketched_at": np.array([N + 1.0])})
