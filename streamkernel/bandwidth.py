"""The median trick on a stream: the bandwidth is the median distance between the first examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamkernel.features import Rows

FIRST = 256
"""Examples that decide the bandwidth."""


def is_due(seen: int) -> bool:
    """Say whether the median is taken (again) after this many examples: at 2, 4, 8, ..., `FIRST`.

    Examples
    --------
    >>> [n for n in range(300) if is_due(n)]
    [2, 4, 8, 16, 32, 64, 128, 256]
    """
    return 2 <= seen <= FIRST and seen & (seen - 1) == 0


def median_distance(rows: Sequence[Rows]) -> float:
    """Return the median Euclidean distance between all pairs of `rows`.

    Equal pairs do not count; if all are equal, the answer is 1.

    Examples
    --------
    >>> from streamkernel.features import Directions
    >>> directions = Directions(seed=0, per_block=1, cache_bytes=0)
    >>> median_distance([directions.row({"x": float(x)}) for x in (0, 1, 3)])
    2.0
    """
    hashes, columns = np.unique(np.concatenate([row.hashes for row in rows]), return_inverse=True)
    lengths = [len(row.values) for row in rows]
    table = np.zeros((len(rows), len(hashes)))
    table[np.repeat(np.arange(len(rows)), lengths), columns] = np.concatenate([row.values for row in rows])
    # Differences, not |a|² + |b|² - 2ab: far from the origin that would be rounding.
    distances = np.concatenate([np.linalg.norm(table[i + 1 :] - table[i], axis=1) for i in range(len(rows))])
    apart = distances[distances > 0.0]
    return float(np.median(apart)) if len(apart) else 1.0
