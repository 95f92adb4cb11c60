"""Merging of the linear function of models: names in one order, on one scale, and sums of Gram matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamkernel.features.rows import F64, I64, U64
from streamkernel.second_order.linear.state import (
    BOUND,
    BOUND_OF_SCORES,
    CONSTANT,
    DENSE,
    MOST,
    NAMES,
    PLACES,
    Linear,
)
from streamkernel.second_order.name_table import places_of_squares
from streamkernel.second_order.square_root import factor_of, solution


@dataclass(frozen=True)
class LinearSummary:
    """The summary of a linear function for merging: copies of its arrays.

    Attributes
    ----------
    names
        The names by place, the constant's first.
    scales
        Centre and divisor of the values of each place, shape (places, 2).
    w
        Shape (columns, places).
    gram
        A of the first places, shape (n, n).
    diagonal
        Of A, of all places, shape (places,).
    errors
        Running squared errors, shape (targets,).
    bound
        The bound of saturated scores, 0 if they are not saturated.
    """

    names: U64
    scales: F64
    w: F64
    gram: F64
    diagonal: F64
    errors: F64
    bound: int = 0

    def in_order(self, order: I64) -> LinearSummary:
        """Return a summary with the targets, which have a column each, in another order."""
        return replace(self, w=self.w[order], errors=self.errors[order]) if len(self.w) else self

    def with_columns(self, columns: F64) -> LinearSummary:
        """Return a summary whose columns are sums of this one's."""
        bound = round(self.bound * np.abs(columns).max()) if len(columns) > columns.shape[1] == 1 else self.bound
        return replace(self, w=columns @ self.w, bound=bound) if len(self.w) else self


def summarize(linear: Linear) -> LinearSummary:
    """Return the summary of the function."""
    n = int(linear.counts[PLACES])
    dense = min(n, len(linear.factor))
    factor = linear.factor[:dense, :dense]
    gram, diagonal = factor.T @ factor, linear.diagonal[:n].copy()
    diagonal[:dense] = np.diagonal(gram)
    copies = linear.names[:n].copy(), linear.scales[:n].copy(), linear.w[:, :n].copy()
    return LinearSummary(*copies, gram, diagonal, linear.errors.copy(), int(linear.counts[BOUND]))


def merge(
    parts: Sequence[LinearSummary],
    base: LinearSummary | None,
    weights: F64,
    *,
    moved: F64,
    kept: F64,
    least: float,
) -> dict[str, Any]:
    """Return the tensors of the merged linear function.

        A = ρA_0 + Σ (A_i - ρ_iA_0),   Aw = ρA_0w_0 + Σ (A_iw_i - ρ_iA_0w_0),   ρ_i = γ^n_i,   ρ = Π ρ_i

    with A_0 = λI and w_0 = 0 if there is no base. The bound of saturated scores is the largest of the parts. `weights`
    are n_i/n, `least` is λ, and `kept` are ρ_i, the shares of the base that the parts still contain after n_i examples
    with the forgetting factor γ. `moved` is the change of the offset of f: the numbers to add to the columns of each
    part, and at the end to those of the base.
    """
    everything = [*parts, *([] if base is None else [base])]
    order = [*([] if base is None else [base]), *parts]
    scale_of: dict[int, list[float]] = {}
    for one in reversed(order):
        scale_of |= zip(one.names.tolist(), one.scales.tolist(), strict=True)
    every_name = dict.fromkeys(name for one in order for name in one.names.tolist())
    names = np.array([*every_name][:MOST], np.uint64)
    scales = np.array([scale_of[name] for name in names.tolist()])
    same = [_on(one, names, scales, move, least) for one, move in zip(everything, moved, strict=True)]
    n, dense = len(names), min(len(names), DENSE)
    root = (*_nothing(n, dense, least), np.zeros((len(parts[0].w), n))) if base is None else same[-1]
    share, each = np.append(np.ones(len(parts)), kept.prod() - kept.sum()), [*same[: len(parts)], root]
    bound = max(part.bound for part in parts)
    gram = sum(s * g for s, (g, _, _) in zip(share, each, strict=True))
    diagonal = np.maximum(sum(s * d for s, (_, d, _) in zip(share, each, strict=True)), 1e-12 * least)
    moment = sum(s * (w[:, :dense] @ g) for s, (g, _, w) in zip(share, each, strict=True))
    rest = sum(s * (w[:, dense:] * d) for s, (_, d, w) in zip(share, each, strict=True))
    factor = factor_of(gram, CONSTANT * least)
    return {
        NAMES: names.view(np.int64),
        "linear.scales": scales,
        "linear.w": np.hstack([solution(factor, np.transpose(moment)).T, rest / diagonal]),
        "linear.factor": factor[np.triu_indices(dense)],
        "linear.diagonal": diagonal,
        "linear.errors": np.stack([part.errors for part in parts], axis=1) @ weights,
        **({BOUND_OF_SCORES: np.array([bound])} if bound else {}),
    }


def _nothing(n: int, dense: int, least: float) -> tuple[F64, F64]:
    """Return A without examples: the matrix for the first places, the diagonal for the others."""
    gram = least * np.eye(dense)
    gram[0, 0] *= CONSTANT
    return gram, np.full(n - dense, least)


def _on(part: LinearSummary, names: U64, scales: F64, moved: F64, least: float) -> tuple[F64, F64, F64]:
    """Return A of the first places, its diagonal of the others, and w of a part, in the order and on the scales of the
    merged function. An input s' with centre a' and divisor b' becomes (s' b' + a' - a)/b.
    """
    n, dense = len(names), min(len(names), DENSE)
    places = {name: i for i, name in enumerate(part.names.tolist())}
    at = np.array([places.get(name, -1) for name in names.tolist()])
    has = at >= 0
    w = np.zeros((len(part.w), n))
    w[:, has] = part.w[:, at[has]]
    gram, rest = _nothing(n, dense, least)
    rest[has[dense:]] = part.diagonal[at[dense:][has[dense:]]]
    present = np.flatnonzero(has[:dense])
    inside = present[at[present] < len(part.gram)]
    gram[present, present] = part.diagonal[at[present]]
    gram[np.ix_(inside, inside)] = part.gram[np.ix_(at[inside], at[inside])]
    wider, shift = np.ones(n), np.zeros(n)
    theirs = part.scales[at[has]]
    theirs[0] = scales[0] = 0.0, 1.0
    wider[has] = scales[has, 1] / theirs[:, 1]
    shift[has] = (scales[has, 0] - theirs[:, 0]) / theirs[:, 1]
    squares = places_of_squares(names, dense)
    change = _basis(1.0 / wider[:dense], -shift[:dense] / wider[:dense], squares)
    w[:, :dense] = w[:, :dense] @ _basis(wider[:dense], shift[:dense], squares)
    w[:, 0] += w[:, dense:] @ shift[dense:] + (moved if len(w) else 0.0)
    w[:, dense:] *= wider[dense:]
    return change @ gram @ change.T, rest / wider[dense:] ** 2, w


def _basis(factors: F64, shifts: F64, squares: I64) -> F64:
    """Return the matrix from inputs (1, s, q) to those of s' = as + b, with q' = a²q + √2abs + (a² + b² - 1)/√2."""
    out = np.diag(factors)
    out[1:, 0] += shifts[1:]
    for one, square in squares.tolist():
        a, b, root = factors[one], shifts[one], math.sqrt(2.0)
        out[square, [0, one, square]] = (a * a + b * b - 1.0) / root, root * a * b, a * a
    return out
