"""The choice of the cheapest method: numbers of coordinates in a step, and the form of A."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from streamkernel.solvers.saddle_point.factors import Factors
from streamkernel.solvers.saddle_point.primal_dual_steps import as_compiled, largest_norm

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
    A: Factors,
    seen: Norms,
    condition: float,
    *,
    m: int | None,
    q: int | None,
    may_form: bool,
    may_factor: bool,
) -> BlockPlan:
    """Return the plan with the least K times the cost of a step, where K = max(n/m, p/q) + S.

    Parameters
    ----------
    A
        Both factors, or a matrix beside the identity.
    seen
        Its norms.
    condition
        1/(nλγ).
    m, q
        The requested numbers; by default any power of 2 or all coordinates, and for a formed A all of x or all of y.
    may_form, may_factor
        Whether A may be formed, and whether it may stay factorised.
    """
    n, p, _ = A.shape
    heights = [m] if m else [*powers(n), n]
    widths = [q] if q else [*powers(p), p]
    found = []
    for formed in ([True] if may_form else []) + ([False] if may_factor else []):
        for height, width in itertools.product(heights, widths):
            if formed and not (m and q) and height < n and width < p:
                continue
            rows, columns = math.ceil(n / height), math.ceil(p / width)
            careful = 1 / 16 if min(rows, columns) > 1 else 1 / 4
            root = rows * columns * math.sqrt(careful * seen.block(rows, columns) * condition)
            cost = (max(rows, columns) + root) * step_cost(A, n / rows, p / columns, formed)
            found.append(BlockPlan(cost, rows, columns, formed))
    return min(found)


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
