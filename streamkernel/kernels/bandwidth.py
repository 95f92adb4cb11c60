"""The median trick on a stream: the bandwidth is the median distance between the first examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamkernel.features.rows import Rows
from streamkernel.jit import compiled, inlined
from streamkernel.kernels import Kernel
from streamkernel.kernels.program import KernelProgram

FIRST = 256
"""Examples that decide the bandwidth."""

MOST_VALUES = 1 << 17
"""Values of these examples: fewer examples decide where an example has more than 512 values, because learning them
again takes long."""

MOST_DIFFERENCES = 1 << 26
"""Differences of values that a median is computed from; fewer examples count where there would be more."""


def is_due(seen: int) -> bool:
    """Return whether the median is taken after this many examples: at 2, 4, 8, ..., `FIRST`.

    Examples
    --------
    >>> [n for n in range(300) if is_due(n)]
    [2, 4, 8, 16, 32, 64, 128, 256]
    """
    return 2 <= seen <= FIRST and seen & (seen - 1) == 0


def is_enough(first: Sequence[Rows]) -> bool:
    """Return whether there are enough first examples to decide the bandwidth."""
    return len(first) == FIRST or (len(first) > 1 and sum(len(row.values) for row in first) >= MOST_VALUES)


def with_medians(kernel: Kernel, plan: KernelProgram, rows: Rows, median_factor: float = 1.0) -> Kernel:
    """Return `kernel` with pending bandwidths set to median distances of what each part reads from `rows`.

    The medians are multiplied by `median_factor`.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.features.directions import Directions
    >>> kernel = kernels.Gaussian("median")
    >>> directions = Directions(KernelProgram(kernel, seed=0), block_size=1, cache_bytes=0)
    >>> with_medians(kernel, directions.plan, directions.rows(["x"], np.array([[0.0], [1.0], [3.0]])))
    Gaussian(sigma=2.0, median_factor=1.0)
    """
    parts = enumerate(part for part, _ in plan.parts)
    return kernel.with_medians(
        median_factor * median_distance(rows, part, kind.norm) if kind.norm else 1.0 for part, kind in parts
    )


def median_distance(rows: Rows, part: int, norm: int) -> float:
    """Return the median distance, in the 1- or 2-norm, between all pairs of rows as a part reads them.

    Equal pairs do not count; if all are equal, the result is 1. Of examples with very many names, only the first half
    counts, or the first quarter, and so on.
    """
    n = len(rows.start) - 1
    while True:
        rows = rows.part(0, n)
        read = (rows.readers >> part) & 1 == 1
        hashes, of = rows.names()
        is_read = np.bincount(of[read], minlength=len(hashes)) > 0
        if n <= 2 or n * (n - 1) // 2 * np.count_nonzero(is_read) <= MOST_DIFFERENCES:
            break
        n //= 2
    if n < 2 or not is_read.any():
        return 1.0
    distances = _distances(np.ascontiguousarray(rows.table(of, is_read).T), norm)
    apart = distances[distances > 0.0]
    return float(np.median(apart)) if len(apart) else 1.0


@inlined(allocates=False)
def _add_differences(to, values, value, norm):  # type: ignore[no-untyped-def]
    """Add the differences of values from one value, or their squares."""
    for j in range(len(to)):
        off = abs(values[j] - value)
        to[j] += off if norm == 1 else off * off


@compiled
def _distances(table, norm):  # type: ignore[no-untyped-def]
    """Return the distances of all pairs of examples; `table` has the shape (inputs, examples).

    They are of differences, not |a|² + |b|² - 2ab: far from the origin that would be rounding.
    """
    d, n = table.shape
    out, done = np.zeros(n * (n - 1) // 2), 0
    for i in range(n):
        to = out[done : done + n - 1 - i]
        for k in range(d):
            _add_differences(to, table[k, i + 1 :], table[k, i], norm)
        done += len(to)
    return out if norm == 1 else np.sqrt(out)
