"""Further inputs of the linear function, which follow from the first examples: indicators of values, and squares.

Numbers may be codes: 0, 1 and 2 of three kinds of something. A function linear in them has one slope for all. So an
input whose first values are few also has an indicator of each frequent one between the smallest and the largest of
these; with the input itself and the constant, they give every frequent value a level of its own. A value that is rare,
or comes later, has no indicator.

An indicator is divided by its deviation √(p(1 - p)), where p is the share of the first examples with the value. Its
place has a hash of the name and the value as its name, and the value as its centre.

Classes may differ in the spread of an input rather than in its mean, and a number may depend on an input by a parabola.
So an input s has the further input (min(s², 9) - 1)/√2 if that explains the targets of the first examples. Let R² be
the share of the variance of a square, less its regression on s, that the targets explain, and k the degrees of freedom
of the targets. If no square explains anything, Σ nR² is about a sum of μ_i χ²_k, where μ_i are the eigenvalues of the
correlations of all squares, and exceeds kΣμ_i + 2√(ktΣμ_i²) + 2t max μ_i with a probability of at most exp(-t) (Laurent
and Massart 2000). If it does exceed that, squares with nR² > 2k are inputs: they reduce the error by more than the
variance of their coefficients adds (Mallows 1973).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamkernel.features.rows import F64, U64, Rows, in_order
from streamkernel.features.scale_table import ScalesState
from streamkernel.jit import compiled
from streamkernel.learners.scoring import longest_row
from streamkernel.second_order.linear.state import (
    NEAR,
    PLACES,
    VALUES,
    Linear,
    places_of,
    room_for,
    with_index,
    with_more_room,
)
from streamkernel.second_order.linear.steps import FURTHEST_SQUARED, add_place, admit, read_row
from streamkernel.second_order.name_table import square_key, value_key

FREQUENT = 5
"""Smallest number of examples with a frequent value, and smallest mean number of examples per value of an input."""

SURE = 3.0
"""t: in at most one of 20 models, squares that explain nothing seem to explain something together."""

DEPENDENT = 0.01
"""If a smaller share of the variance of a square does not follow from the input, as where that has two values, the
square is not an input.
"""


class FewValues(NamedTuple):
    """Values of inputs: the hash of the name, the value, and the divisor of its indicator, each of shape (values,)."""

    names: U64
    values: F64
    divisors: F64


@compiled
def columns_of_values(names, keys, values):  # type: ignore[no-untyped-def]
    """Return for each place of a value, by its key and the value, the index of the name, -1 for none of these."""
    columns = np.full(len(keys), -1)
    for place in range(len(keys)):
        for j in range(len(names)):
            if value_key(names[j], values[place]) == keys[place]:
                columns[place] = j
    return columns


def find_few_values(rows: Rows) -> FewValues:
    """Return the inner frequent values of the inputs that have few values and are in at least half of the first rows.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.features.directions import Directions
    >>> from streamkernel.kernels.program import KernelProgram
    >>> directions = Directions(KernelProgram(kernels.Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
    >>> rows = Rows.stack([directions.row({"kind": i % 3, "size": i / 7, "flag": i % 2}) for i in range(48)])
    >>> found = find_few_values(rows)
    >>> found.values.tolist(), found.divisors.round(2).tolist()
    ([1.0], [0.47])
    """
    (hashes, of), n = rows.names(), len(rows.weights)
    order = in_order(rows.values, of)
    names, values = np.maximum(hashes, np.uint64(1))[of[order]], rows.values[order]
    is_first = np.ones(len(names), bool)
    is_first[1:] = (names[1:] != names[:-1]) | (values[1:] != values[:-1])
    first = np.flatnonzero(is_first)
    counts, names, values = np.diff(first, append=len(names)), names[first], values[first]
    distinct, begin, kinds = np.unique(names, return_index=True, return_counts=True)
    total = np.add.reduceat(counts, begin) if len(distinct) else kinds
    is_few = (FREQUENT * kinds <= n) & (2 * total >= n)
    frequent = np.repeat(is_few, kinds) & (counts >= FREQUENT)
    names, values, counts = names[frequent], values[frequent], counts[frequent]
    inner = np.zeros(len(names), bool)
    inner[1:-1] = (names[1:-1] == names[:-2]) & (names[1:-1] == names[2:])
    p = counts[inner] / n
    return FewValues(names[inner], values[inner], np.sqrt(p * (1.0 - p)))


def with_further_inputs(
    linear: Linear, scales: ScalesState, rows: Rows, targets: F64, least: float, *, for_classes: bool
) -> Linear:
    """Return an untrained function with places for the names of these first rows, in the order in which they come, and
    after them for few values of some, among the first `NEAR` places, and for squares of others.

    `targets` have the shape (rows,) or (rows, targets), of classes their numbers; `least` is λ.
    """
    few, (names, _) = find_few_values(rows), rows.names()
    if not len(linear.w) or not (len(few.names) or 0 < len(names) < NEAR):
        return linear
    while (used := int(_admit_rows(linear, scales, rows, least))) + len(few.names) > linear.w.shape[1]:
        linear = with_more_room(linear)
    n = max(0, NEAR - used)
    _admit_values(linear, FewValues(few.names[:n], few.values[:n], few.divisors[:n]), least)
    if len(names) < NEAR:
        squared = _names_to_square(linear, rows, targets, few.names, for_classes=for_classes)
        while len(squared) + linear.counts[PLACES] > linear.w.shape[1]:
            linear = with_more_room(linear)
        _admit_squares(linear, squared, least)
    return with_index(linear)


@compiled
def _admit_rows(linear, scales, rows, least):  # type: ignore[no-untyped-def]
    """Add the names of rows as learning them would; return the number of places, or more if they have no room."""
    work = room_for(None, linear, longest_row(rows))
    for i in range(len(rows.start) - 1):
        used = read_row(linear, scales, rows, i, work)
        if used > linear.w.shape[1]:
            return used
        admit(linear, scales, rows, i, used, least, work)
    return linear.counts[PLACES]


@compiled
def _admit_values(linear, few, least):  # type: ignore[no-untyped-def]
    """Add places for values, which have room."""
    for i in range(len(few.names)):
        key, place = value_key(few.names[i], few.values[i]), linear.counts[PLACES]
        add_place(linear, key, place, least)
        linear.scales[place, 0], linear.scales[place, 1] = few.values[i], -few.divisors[i]
        linear.counts[PLACES] = place + 1
    linear.counts[VALUES] = len(few.names)


def _names_to_square(linear: Linear, rows: Rows, targets: F64, others: U64, *, for_classes: bool) -> U64:
    """Return the names in at least half of the rows, without some others, whose squares the targets explain."""
    names, at = rows.names()
    names = np.maximum(names, np.uint64(1))
    place = places_of(linear, names)
    centre, divisor = np.where(place > 0, linear.scales[place].T, [[0.0], [1.0]])
    s = np.zeros((len(targets), len(names)))
    s[np.repeat(np.arange(len(targets)), np.diff(rows.start)), at] = (rows.values - centre[at]) / divisor[at]
    is_usual = (place > 0) & (2 * np.bincount(at, minlength=len(names)) >= len(targets)) & ~np.isin(names, others)
    return np.asarray(names[is_usual][explained(s[:, is_usual], targets, for_classes=for_classes)])


def explained(s: F64, targets: F64, *, for_classes: bool) -> Any:
    """Return for which inputs, shape (rows, inputs), the targets explain the square.

    Examples
    --------
    >>> s = np.random.default_rng(0).normal(size=(256, 3))
    >>> explained(s, (s[:, 1] ** 2 < 0.5).astype(float), for_classes=True).tolist()
    [False, True, False]
    """
    s = np.clip(s, -FURTHEST_SQUARED, FURTHEST_SQUARED)
    q = s * s
    s, q = s - s.mean(axis=0), q - q.mean(axis=0)
    sizes, before = (s * s).sum(axis=0), (q * q).sum(axis=0)
    q -= s * np.divide((s * q).sum(axis=0), sizes, out=np.zeros_like(sizes), where=sizes > 0.0)
    left = (q * q).sum(axis=0)
    columns = [np.unique(y, return_inverse=True)[1] for y in targets.reshape(len(s), -1).T]  # classes, or ranks
    each = [np.eye(y.max() + 1)[y] if for_classes else y[:, None] for y in columns]
    u, singular, _ = np.linalg.svd(np.hstack([y - y.mean(axis=0) for y in each]), full_matrices=False)
    u = u[:, singular > 1e-9 * len(s)]
    q = np.divide(q, np.sqrt(left), out=np.zeros_like(q), where=left > DEPENDENT * before)
    nr, k = len(s) * np.square(u.T @ q).sum(axis=0), u.shape[1]
    mu = np.square(np.linalg.svd(q, compute_uv=False))
    chance = k * mu.sum() + 2.0 * math.sqrt(k * (mu * mu).sum() * SURE) + 2.0 * mu.max(initial=0.0) * SURE
    return (nr > 2.0 * k) & (nr.sum() > chance)


@compiled
def _admit_squares(linear, names, least):  # type: ignore[no-untyped-def]
    """Add places for the squares of names, which have room."""
    for name in names:
        place = linear.counts[PLACES]
        add_place(linear, square_key(name), place, least)
        linear.scales[place, 0], linear.scales[place, 1] = 0.0, -1.0
        linear.counts[PLACES] = place + 1
        linear.counts[VALUES] += place < NEAR
