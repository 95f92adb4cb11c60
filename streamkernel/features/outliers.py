"""Outliers among the first values of a name, by medians, while its scale is unknown."""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import F64, I64, Rows
from streamkernel.features.scale_moments import RARE

ABSURD = 1000.0
"""Deviations from the median beyond which a value is far out; tails that are merely heavy stay."""

LEAST = 16
"""Values of a name that tell which of them are far out."""

DEVIATION = 1.4826
"""The deviation of a normal variable over the median distance from its median."""


def without_outliers(rows: Rows) -> Rows:
    """Return rows with NaN in place of rare outliers of each name, or `rows` themselves.

    A name with more than half of its values equal has no spread by medians, and no outliers.

    Examples
    --------
    >>> from streamkernel import kernels
    >>> from streamkernel.features.directions import Directions
    >>> from streamkernel.kernels.program import KernelProgram
    >>> directions = Directions(KernelProgram(kernels.Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
    >>> values = np.array([*range(20), -99999.0])[:, None]
    >>> without_outliers(directions.rows(["a"], values)).values[-3:].tolist()
    [18.0, 19.0, nan]
    """
    hashes, of, counts = np.unique(rows.hashes, return_inverse=True, return_counts=True)
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.abs(rows.values - _medians(rows.values, of, counts)[of])
        spread = DEVIATION * _medians(distance, of, counts)
        is_far = (distance > ABSURD * spread[of]) & (spread[of] > 0.0)
    far = np.bincount(of, is_far, len(hashes))
    known = (counts >= LEAST) & (far <= RARE * counts)
    absurd = is_far & known[of]
    return rows._replace(values=np.where(absurd, np.nan, rows.values)) if absurd.any() else rows


def _medians(values: F64, of: I64, counts: I64) -> F64:
    """Return the median of each name's values, the lower one of two; `of` has the index of each value's name."""
    middle = np.cumsum(counts) - counts + (counts - 1) // 2
    found: F64 = values[np.lexsort((values, of))[middle]]
    return found
