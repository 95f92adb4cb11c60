"""The median trick on a stream: the bandwidth is the median distance between the first examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamkernel.features.rows import Rows
from streamkernel.kernels import Kernel
from streamkernel.kernels.program import KernelProgram

FIRST = 256
"""Examples that decide the bandwidth."""

MOST_VALUES = 1 << 18
"""Values of these examples: fewer examples decide where an example has more than 1,024 values."""

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
        hashes, columns = np.unique(rows.hashes[read], return_inverse=True)
        if n <= 2 or n * (n - 1) // 2 * len(hashes) <= MOST_DIFFERENCES:
            break
        n //= 2
    if n < 2 or not len(hashes):
        return 1.0
    table = np.zeros((n, len(hashes)))
    table[np.repeat(np.arange(n), np.diff(rows.start))[read], columns] = rows.values[read]
    # Differences, not |a|² + |b|² - 2ab: far from the origin that would be rounding.
    distances = np.concatenate([np.linalg.norm(table[i + 1 :] - table[i], norm, axis=1) for i in range(n)])
    apart = distances[distances > 0.0]
    return float(np.median(apart)) if len(apart) else 1.0
