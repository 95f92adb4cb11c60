"""The slots of a mixture: the place of each function in its weights, losses and scores.

Functions of one kind are together, in this order: functions by Newton steps, functions by constant steps, small
functions, the linear function, and functions of the nearest neighbours. Both functions of group g are g slots after
the first one of their kind.
"""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import I64

NEWTON, STEADY, SMALL, LINEAR, NEIGHBOURS, ALL = range(6)
"""Entries of an array of slots: the first slot of each kind, and the number of all."""


def slots_of(groups: int, small: int, linear: int, neighbours: int) -> I64:
    """Return the first slot of each kind of function, and the number of slots.

    Examples
    --------
    >>> slots_of(groups=6, small=1, linear=1, neighbours=3).tolist()
    [0, 6, 12, 13, 14, 17]
    """
    return np.cumsum([0, groups, groups, small, linear, neighbours])
