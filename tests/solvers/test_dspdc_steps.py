"""The compiled steps against Algorithms 1 and 2 as they are printed, iterate by iterate."""

from __future__ import annotations

import numpy as np
import pytest
from reference import dspdc as plain
from scipy import sparse

from streamkernel.features.counter_rng import domain_key
from streamkernel.solvers.primal_dual_steps import (
    Blocks,
    CompiledProblem,
    Point,
    advance,
    as_compiled,
    block_norm,
    bounds,
    draw,
)
from streamkernel.solvers.saddle_problem import LOSSES, Factors, dual_step, step_sizes

N, P, D, STEPS = 23, 11, 4, 60
KEYS = np.array([domain_key(1, "rows"), domain_key(1, "columns")])
BLOCKS = [(1, 1), (23, 11), (5, 3), (23, 1), (1, 11), (3, 11)]
L1, L2 = 0.02, 0.1


def factorised() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(N, D)), generator.normal(size=(D, P))


def targets(loss: str) -> np.ndarray:
    b = np.random.default_rng(1).normal(size=N)
    return b if loss == "square" else np.sign(b)


def drawn(rows: int, columns: int) -> list[tuple[range, range]]:
    """Return the blocks that the compiled code takes."""
    return [
        (range(*bounds(draw(KEYS[0], t, rows), N, rows)), range(*bounds(draw(KEYS[1], t, columns), P, columns)))
        for t in range(STEPS)
    ]


def forms(U: np.ndarray, V: np.ndarray) -> dict[str, Factors]:
    A = U @ V
    return {
        "rows": Factors(A, None),
        "columns": Factors(None, np.ascontiguousarray(A.T)),
        "sparse rows": Factors(sparse.csr_array(A), None),
        "sparse columns": Factors(None, sparse.csr_array(A.T)),
        "factorised": Factors(U, np.ascontiguousarray(V.T)),
        "sparse factors": Factors(sparse.csr_array(U), sparse.csr_array(V.T)),
    }


@pytest.mark.parametrize("form", list(forms(*factorised())))
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("rows", "columns"), BLOCKS)
def test_iterates_match_the_paper(form: str, loss: str, rows: int, columns: int) -> None:
    U, V = factorised()
    A, b = forms(U, V)[form], targets(loss)
    sizes = step_sizes(N, P, N / rows, P / columns, 30.0, L2, 1.0 / LOSSES[loss].curvature)
    x, y = np.zeros(P), np.zeros(N)
    d = A.shape[2]
    problem = CompiledProblem(
        as_compiled(A.U), as_compiled(A.V), LOSSES[loss].code, b, l1=np.full(P, L1), l2=np.full(P, L2)
    )
    at, blocks = Point(x, y, u=np.zeros(d), v=np.zeros(d), v_ahead=np.zeros(d)), Blocks(rows, columns, KEYS)
    how = b, loss, L1, L2, sizes, drawn(rows, columns), float(rows)
    printed = plain.algorithm2(U, V, *how) if "fact" in form else plain.algorithm1(U @ V, *how)
    for t, (x_printed, y_printed) in enumerate(printed):
        advance(problem, at, blocks, sizes, t, 1)
        np.testing.assert_allclose(x, x_printed, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(y, y_printed, rtol=1e-9, atol=1e-11)
    assert np.abs(x).max() > 1e-3


@pytest.mark.parametrize(("rows", "columns"), BLOCKS)
def test_the_extrapolation_is_that_of_theorem_2(rows: int, columns: int) -> None:
    scale, gamma = 30.0, 4.0
    k = max(rows, columns) + rows * columns * np.sqrt(scale / (N * L2 * gamma))
    sizes = step_sizes(N, P, N / rows, P / columns, scale, L2, gamma)
    assert sizes.theta == pytest.approx(columns * (1.0 - 1.0 / (2.0 * k)), rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_dual_step_is_optimal(loss: str) -> None:
    """Also from the ends of the feasible range, and with steps that are much too short or too long."""
    generator = np.random.default_rng(2)
    for _ in range(2000):
        b = generator.choice([-1.0, 1.0])
        y = -b * generator.choice([0.0, 1e-9, generator.random(), 1.0])
        c, s = generator.normal() * generator.choice([0.1, 1.0, 10.0]), 10.0 ** generator.uniform(-5, 5)
        found = dual_step(LOSSES[loss].code, y, b, c, s)
        assert found == pytest.approx(plain.dual_prox(loss, y, b, c, s * N, N), rel=1e-9, abs=1e-13)


def test_chunks_of_steps_are_the_same_steps() -> None:
    U, V = factorised()
    A, b, ends = Factors(U, np.ascontiguousarray(V.T)), targets("logistic"), []
    sizes = step_sizes(N, P, N / 5, P / 3, 30.0, L2, 4.0)
    problem = CompiledProblem(A.U, A.V, LOSSES["logistic"].code, b, l1=np.full(P, L1), l2=np.full(P, L2))
    for chunk in (60, 7, 1):
        at = Point(*(np.zeros(size) for size in (P, N, D, D, D)))
        for first in range(0, STEPS, chunk):
            count = min(chunk, STEPS - first)
            advance(problem, at, Blocks(5, 3, KEYS), sizes, first, count)
        ends.append(np.concatenate(at))
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


@pytest.mark.parametrize("count", [1, 2, 7, 23])
def test_coordinates_are_drawn_uniformly(count: int) -> None:
    draws = 20_000
    seen = np.zeros(N)
    for t in range(draws):
        start, stop = bounds(draw(KEYS[0], t, count), N, count)
        assert N // count <= stop - start <= -(-N // count)
        seen[start:stop] += 1
    deviation = np.sqrt(draws * (1 / count) * (1 - 1 / count))
    assert np.abs(seen - draws / count).max() <= 4.5 * deviation


@pytest.mark.parametrize("form", list(forms(*factorised())))
def test_norms_of_blocks(form: str) -> None:
    """Exactly for blocks of one row or one column, from below and within some percent otherwise."""
    U, V = factorised()
    for rows, columns in BLOCKS:
        exact = max(
            np.linalg.norm((U @ V)[slice(*bounds(i, N, rows)), slice(*bounds(j, P, columns))], 2) ** 2
            for i in range(rows)
            for j in range(columns)
        )
        found = block_norm(forms(U, V)[form], rows, columns, pairs=rows * columns)
        assert 0.9 * exact <= found <= exact * (1.0 + 1e-12)
        if rows == N or columns == P:
            assert found == pytest.approx(exact)
