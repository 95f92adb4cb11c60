"""The bandwidths of groups.

The first four blocks have different bandwidths where the kernel is a `MultiScale`. A larger group has the narrowest
bandwidth whose single block is nearly as good as the best, because narrow bandwidths gain most from more features.
"""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import F64, I64
from streamkernel.second_order.growth import GAIN, IN_PAIRS

PROBED = 512
"""Number of examples before the first block in a metric."""

TRUSTED = 0.5
"""If at least this share of the loss is unexplained, a metric is used only after it has reduced the loss."""


def probe(table: I64, standing: F64) -> int:
    """Return the single block that is in the metric, or may restart in it: the widest; the narrowest if that is best
    or the widest in pairs of inputs.

    Parameters
    ----------
    table
        Blocks, bandwidth and first example of the single blocks.
    standing
        Their running losses.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0]])
    >>> probe(table, np.array([0.5, 0.4, 0.6, 0.7])), probe(table, np.array([0.5, 0.4, 0.6, 0.3]))
    (3, 0)
    """
    last, in_pairs = len(table) - 1, IN_PAIRS * len(table)
    begun = np.flatnonzero((table[:, 1] > last) & (table[:, 1] < in_pairs))
    if len(begun):
        return int(begun[0])
    if table[last, 1] >= in_pairs:
        return 0
    return 0 if int(standing.argmin()) == last and table[0, 1] < in_pairs else last


def bandwidth_for_group(standing: F64, multiples: list[float], table: I64, seen: int, unexplained: float) -> int:
    """Return the bandwidth for a larger group: the index of a single block, plus the number of these in the metric.

    The group is in the metric if the single block in the metric has the lowest loss; or, while that block has few
    examples, if most of the loss is explained, because the gradients are then reliable.

    Parameters
    ----------
    standing, multiples
        Running losses of the single blocks, and multiples of their bandwidths.
    table
        Blocks, bandwidth, and the examples before it, of the single blocks.
    seen
        Examples so far.
    unexplained
        The unexplained share of the loss.

    Examples
    --------
    >>> import numpy as np
    >>> table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 5, 512]])
    >>> losses, multiples = np.array([0.5, 0.4, 0.6, 0.3]), [0.25, 0.5, 1.5, 6.0]
    >>> [bandwidth_for_group(losses, multiples, table, seen, 0.8) for seen in (1024, 2048)]
    [1, 5]
    """
    alone, probed = len(table), probe(table, standing)
    if table[probed, 1] < alone:
        return bandwidth(standing, multiples)
    others = np.delete(np.arange(alone), probed)
    isotropic = int(others[bandwidth(standing[others], [multiples[k] for k in others])])
    is_young = 2 * table[probed, 2] >= seen
    is_better = unexplained < TRUSTED if is_young else standing[probed] < standing[others].min()
    return isotropic + alone * bool(is_better)


def bandwidth(standing: F64, multiples: list[float]) -> int:
    """Return the index of the single block with the bandwidth for a larger group.

    Examples
    --------
    >>> bandwidth(np.array([0.5, 0.41, 0.4, 0.7]), [0.25, 0.5, 1.0, 2.0])
    1
    """
    good = [k for k in range(len(multiples)) if (1.0 - GAIN) * standing[k] <= standing.min()]
    return min(good, key=lambda k: multiples[k])


def unexplained_share(least: float, nothing: float) -> float:
    """Return the unexplained share of the loss.

    Parameters
    ----------
    least, nothing
        The smallest running loss of a function, and the loss of f = 0.

    Examples
    --------
    >>> unexplained_share(0.1, 0.5)
    0.2
    """
    return float(np.clip(least / nothing, 0.0, 1.0)) if nothing > 0.0 else 1.0
