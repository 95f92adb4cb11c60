"""The steps of DSPDC, compiled: Algorithm 2 of the paper, and Algorithm 1 as the case of an identity factor.

A = UV with U of shape (n, d) and V of shape (d, p). A matrix that is not factorised is A·I, where Uᵀy is Aᵀy, or I·A,
where Vx is Ax: the position of the identity determines which of the two is maintained. A factor is given as its rows (V
transposed, so that both look alike): an array, the three arrays of a sparse matrix in CSR, or None for the identity.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from streamkernel import jit
from streamkernel.features.counter_rng import counter_bits
from streamkernel.solvers.saddle_problem import F64, Factors, Order, dual_step

_SHIFT = np.uint64(32)
_SUMS = {"reassoc", "contract"}  # sums in any order


class CompiledProblem(NamedTuple):
    """A problem in compiled form: the factors of A as :func:`compiled` returns them, the loss, targets, penalties."""

    U: Any
    V: Any
    code: int
    b: F64
    l1: F64
    l2: F64


class Point(NamedTuple):
    """The iterates x and y, with u = Uᵀy and v = Vx, and v̄."""

    x: F64
    y: F64
    u: F64
    v: F64
    v_ahead: F64

    def copy(self) -> Point:
        """Return an independent copy."""
        return Point(*(part.copy() for part in self))


class Blocks(NamedTuple):
    """The numbers of blocks of the rows (y) and the columns (x), and the keys of their draws."""

    rows: int
    columns: int
    keys: Any


def dots(rows: Any, start: int, stop: int, vector: Any, out: Any) -> Any:
    """Return the products of the rows from start to stop and the vector, in `out` or in the vector itself."""
    raise NotImplementedError


def move(rows: Any, start: int, stop: int, change: Any, at: Any, ahead: Any, factor: float, work: Any) -> None:
    """Add Δ = Σ_i change[i] row_{start + i} to `at`, and let `ahead` be at + factor·Δ."""
    raise NotImplementedError


@overload(dots, jit_options={"fastmath": _SUMS})
def _dots(rows, start, stop, vector, out):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):

        def dense(rows, start, stop, vector, out):  # type: ignore[no-untyped-def]
            for i in range(start, stop):
                row, total = rows[i], 0.0
                for k in range(len(vector)):
                    total += row[k] * vector[k]
                out[i - start] = total
            return out

        return dense
    if isinstance(rows, types.BaseTuple):

        def sparse(rows, start, stop, vector, out):  # type: ignore[no-untyped-def]
            begins, places, values = rows
            for i in range(start, stop):
                total = 0.0
                for k in range(begins[i], begins[i + 1]):
                    total += values[k] * vector[places[k]]
                out[i - start] = total
            return out

        return sparse
    return lambda rows, start, stop, vector, out: vector[start:stop]


@overload(move, jit_options={"fastmath": _SUMS})
def _move(rows, start, stop, change, at, ahead, factor, work):  # type: ignore[no-untyped-def]
    if isinstance(rows, types.Array):

        def dense(rows, start, stop, change, at, ahead, factor, work):  # type: ignore[no-untyped-def]
            one, row = change[0], rows[start]
            for k in range(len(work)):
                work[k] = one * row[k]
            for i in range(start + 1, stop):
                one, row = change[i - start], rows[i]
                for k in range(len(work)):
                    work[k] += one * row[k]
            _follow(at, work, ahead, factor)

        return dense
    if isinstance(rows, types.BaseTuple):

        def sparse(rows, start, stop, change, at, ahead, factor, work):  # type: ignore[no-untyped-def]
            begins, places, values = rows
            work[:] = 0.0
            for i in range(start, stop):
                for k in range(begins[i], begins[i + 1]):
                    work[places[k]] += change[i - start] * values[k]
            _follow(at, work, ahead, factor)

        return sparse

    def identity(rows, start, stop, change, at, ahead, factor, work):  # type: ignore[no-untyped-def]
        ahead[:start] = at[:start]
        ahead[stop:] = at[stop:]
        _follow(at[start:stop], change, ahead[start:stop], factor)

    return identity


@jit.compiled(fastmath=_SUMS)
def _follow(at, change, ahead, factor):  # type: ignore[no-untyped-def]
    for k in range(len(at)):
        at[k] += change[k]
        ahead[k] = at[k] + factor * change[k]


@jit.compiled(fastmath=_SUMS)
def _shrink(x, g, cut, keep, step, out):  # type: ignore[no-untyped-def]
    """Take the steps (12) for the coordinates of a block, and set `out` to their changes."""
    for j in range(len(x)):
        down = x[j] - step * g[j]
        new = (down - min(max(down, -cut[j]), cut[j])) * keep[j]
        out[j] = new - x[j]
        x[j] = new


@jit.compiled(inline="always")
def bounds(block, length, count):  # type: ignore[no-untyped-def]
    """Return the bounds of a block, one of `count` even ones."""
    return block * length // count, (block + 1) * length // count


@jit.compiled(inline="always")
def draw(key, t, count):  # type: ignore[no-untyped-def]
    """Return the block of step t, drawn uniformly from `count`."""
    return np.int64(((counter_bits(key, t) >> _SHIFT) * np.uint64(count)) >> _SHIFT)


@jit.compiled(nogil=True)
def advance(problem, at, blocks, sizes, first, count):  # type: ignore[no-untyped-def]
    """Take `count` steps from step `first`, each on one block of y and one block of x; `at` is moved.

    For y, (20) to (22), and for x, (23) to (25); v_ahead is v̄. The sizes of blocks differ by at most one coordinate. A
    block is drawn uniformly, so that each coordinate has the probability 1/rows (1/columns): this is m/n (q/p) of the
    paper, also if m does not divide n.
    """
    x, y, u, v, b = at.x, at.y, at.u, at.v, problem.b
    rows, columns = blocks.rows, blocks.columns
    n, p, d = len(y), len(x), len(u)
    height, width = -(-n // rows), -(-p // columns)
    c, dy, g, dx = np.empty(height), np.empty(height), np.empty(width), np.empty(width)
    work, u_ahead = np.empty(d), np.empty(d)
    cut, keep = sizes.tau * problem.l1, 1.0 / (1.0 + sizes.tau * problem.l2)
    for t in range(first, first + count):
        start, stop = bounds(draw(blocks.keys[0], t, rows), n, rows)
        scores = dots(problem.U, start, stop, at.v_ahead, c)
        for i in range(start, stop):
            new = dual_step(problem.code, y[i], b[i], scores[i - start], sizes.sigma / n)
            dy[i - start] = new - y[i]
            y[i] = new
        move(problem.U, start, stop, dy, u, u_ahead, rows - 1.0, work)
        start, stop = bounds(draw(blocks.keys[1], t, columns), p, columns)
        slopes = dots(problem.V, start, stop, u_ahead, g)
        _shrink(x[start:stop], slopes, cut[start:stop], keep[start:stop], sizes.tau / n, dx)
        move(problem.V, start, stop, dx, v, at.v_ahead, sizes.theta, work)


@jit.compiled(nogil=True)
def largest_norm(U, V, shape, rows, columns, pairs, rounds):  # type: ignore[no-untyped-def]
    """Return the largest ‖U_I V_J‖² of `pairs` pairs of blocks by `rounds` rounds of power iteration.

    The `shape` of A = UV is (n, p, d). One round is exact for blocks of one row or one column.
    """
    n, p, d = shape
    left, right = np.empty(-(-n // rows)), np.empty(-(-p // columns))
    work, sums, ahead = np.empty(d), np.empty(d), np.empty(d)
    largest = 0.0
    for pair in range(pairs):
        start, stop = bounds(pair % rows, n, rows)
        begin, end = bounds((pair + pair // rows) % columns, p, columns)
        weights = left[: stop - start]
        for i in range(len(weights)):
            weights[i] = 1.0 if counter_bits(np.uint64(pair), i) >> _SHIFT & np.uint64(1) else -1.0
        weights /= math.sqrt(len(weights))
        norm = 0.0
        for _ in range(rounds):
            sums[:] = 0.0
            move(U, start, stop, weights, sums, ahead, 0.0, work)
            back = dots(V, begin, end, sums, right)[: end - begin].copy()
            norm = (back * back).sum()
            if norm == 0.0:
                break
            back /= math.sqrt(norm)
            sums[:] = 0.0
            move(V, begin, end, back, sums, ahead, 0.0, work)
            weights[:] = dots(U, start, stop, sums, left)[: stop - start]
            norm = (weights * weights).sum()
            weights /= math.sqrt(norm)
        largest = max(largest, norm)
    return largest


def as_compiled(rows: Any) -> Any:
    """Return an array, a sparse matrix in CSR or None in the form that the functions of this file accept."""
    return rows if rows is None or isinstance(rows, np.ndarray) else (rows.indptr, rows.indices, rows.data)


FORMED_BYTES = 1 << 30
"""The largest size in bytes of a product UV that may be formed."""

_DENSE, _SPARSE, _VECTOR, _PRIMAL, _DUAL, _STEP = 0.2, 1.5, 0.6, 0.5, 15.0, 80.0
"""The costs of a number of A, a number of a vector, a coordinate and a step, in nanoseconds or any other unit."""


class Norms(NamedTuple):
    """Estimates of the largest square of an entry, of a row and of a column, and of ‖A‖²."""

    entry: float
    row: float
    column: float
    whole: float

    def block(self, rows: float, columns: float) -> float:
        """Return an estimate of the largest squared norm of a random block of n/rows rows and p/columns columns."""
        return self.entry + self.row / columns + self.column / rows + self.whole / (rows * columns)


class BlockPlan(NamedTuple):
    """A plan: the blocks of y and of x, whether A is formed, and the cost."""

    cost: float
    rows: int
    columns: int
    formed: bool


def block_norm(A: Factors, rows: int, columns: int, *, pairs: int | None = None) -> float:
    """Return the largest ‖A_I^J‖² of the blocks: exact if they have one row, otherwise estimated from some."""
    n, p, _ = A.shape
    rounds = 1 if rows == n or columns == p else 6
    if pairs is None:
        pairs = max(rows, columns) if rounds == 1 else max(max(rows, columns) // 12, min(max(rows, columns), 8))
    return float(largest_norm(as_compiled(A.U), as_compiled(A.V), A.shape, rows, columns, pairs, rounds))


def norms(A: Factors) -> Norms:
    """Return the norms of A, estimated from a few hundred blocks."""
    n, p, _ = A.shape
    few, part = 300, max(1, n // 512)
    return Norms(
        block_norm(A, n, p, pairs=few),
        block_norm(A, n, 1, pairs=min(n, few)),
        block_norm(A, 1, p, pairs=min(p, 16)),
        block_norm(A, part, 1, pairs=1) * part,
    )


def choose(
    A: Factors, seen: Norms, condition: float, *, m: int | None, q: int | None, may_form: bool, may_factor: bool
) -> BlockPlan:
    """Return the plan with the least K times the cost of a step, where K = max(n/m, p/q) + S.

    A is both factors, or a matrix beside the identity; `condition` is 1/(nλγ). `m` and `q` are the requested numbers;
    by default any power of 2 or all coordinates. A part of x and of y is taken only if A is not formed and the parts
    are similar: with a smaller part of y, the estimate is too low, and steps on all of x end earlier. `may_form` and
    `may_factor` say whether A may be formed, and whether it may stay factorised.
    """
    n, p, _ = A.shape
    heights = [m] if m else [*powers(n), n]
    widths = [q] if q else [*powers(p), p]
    plans = []
    for formed in ([True] if may_form else []) + ([False] if may_factor else []):
        for height, width in itertools.product(heights, widths):
            rows, columns = math.ceil(n / height), math.ceil(p / width)
            fewer, more = sorted((rows, columns))
            if not (m and q) and fewer > 1 and (formed or more > 2 * fewer):
                continue
            careful = 1 / 16 if min(rows, columns) > 1 else 1 / 4
            root = rows * columns * math.sqrt(careful * seen.block(rows, columns) * condition)
            cost = (max(rows, columns) + root) * step_cost(A, n / rows, p / columns, formed)
            plans.append(BlockPlan(cost, rows, columns, formed))
    return min(plans)


def powers(most: int) -> list[int]:
    """Return the powers of 2 below `most`."""
    return [1 << k for k in range((most - 1).bit_length())]


def step_cost(A: Factors, m: float, q: float, formed: bool) -> float:
    """Return the approximate cost of a step."""
    n, p, d = A.shape
    fixed = _STEP + _DUAL * m + _PRIMAL * q
    if not formed:
        return fixed + _entry(A.U) * m + _entry(A.V) * q + 2.0 * _VECTOR * d
    row = _entry(A.U) if A.V is None else _DENSE * p
    return fixed + (row * m + _VECTOR * p if n / m >= p / q else row * n / p * q + _VECTOR * n)


def _entry(rows: Any) -> float:
    """Return the cost of a dot product of a row and a vector, and of adding a row to a vector."""
    if rows is None:
        return 0.0
    return float(_DENSE * rows.shape[1] if isinstance(rows, np.ndarray) else _SPARSE * rows.nnz / rows.shape[0])


def ways(factors: Factors, method: str, *, has_sizes: bool) -> tuple[bool, bool]:
    """Return whether A may be formed, and whether it may stay factorised."""
    n, p, _ = factors.shape
    if factors.V is None:
        return True, False
    if method != "auto":
        return method == "formed", method == "factorised"
    return 8 * n * p <= FORMED_BYTES and not has_sizes, True


def in_words(way: BlockPlan, factors: Factors) -> str:
    """Return a plan as text."""
    n, p, d = factors.shape
    form = "A"
    if factors.V is not None:
        form = "A = UV, formed" if way.formed else f"A = UV with d = {d:,}, not formed"
    name = "SPDC" if way.columns == 1 else "DSPDC"
    height, width = math.ceil(n / way.rows), math.ceil(p / way.columns)
    return f"{name} on {form}: steps on {height:,} of {n:,} rows and {width:,} of {p:,} columns"


def random_order(seed: list[int], length: int, blocks: int) -> Order:
    """Return an order of coordinates whose blocks form a random partition; any order for one or single blocks."""
    if blocks in (1, length):
        return slice(None)
    return np.random.default_rng(seed).permutation(length)
