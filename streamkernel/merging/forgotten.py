"""How much of a group's Gram matrix the Newton steps of a forgetting function have left."""

from __future__ import annotations

import math

import numpy as np

from streamkernel.jit import compiled
from streamkernel.merging.summaries import SecondOrderSummary
from streamkernel.second_order import newton

NOTHING_LEFT = -750.0
"""The logarithm of a share that is 0 as a number: steps before do not matter."""


def left_in(part: SecondOrderSummary, g: int, first: int, batch: int, rested: int) -> tuple[float, float]:
    """Return the fraction that is left in a group of an earlier Gram matrix of it, and the multiple of λI that has been
    added since then.

    Parameters
    ----------
    part, g
        The function, and the group.
    first
        The time, by the clock of the group.
    batch
        Examples of a Newton step.
    rested
        Examples that the group had left out by then.
    """
    kept, targets = float(part.forgetting[g]), len(part.of_targets)
    if kept == 1.0:
        return 1.0, 0.0
    forgetting, n, last = float(part.numbers["forgetting"]), part.newton[g].shape[1], part.clock(g)
    outputs = np.array([w.shape[1] for w in part.newton])
    of_many = int(part.table[outputs >= newton.MANY, 2].min(initial=1 << 62))
    first = max(first, last - math.ceil(NOTHING_LEFT / math.log(kept)))
    left, returned = _follow((first, last), of_many, rested, batch, forgetting, kept, n, targets)
    return float(left), float(returned)


@compiled
def _follow(times, of_many, rested, batch, forgetting, kept, n, targets):  # type: ignore[no-untyped-def]
    """Return the share that the steps of a time have left of A, and the multiple of λI that they added.

    `times` are the first example and the last one by the clock of the group, which had `rested` examples less than the
    model by the first one; after example `of_many` of the model steps are as for a large group.
    """
    first, last = times
    left, returned, waiting = 1.0, 0.0, 0
    for seen in range(first + 1, last + 1):
        waiting += 1
        most = newton.LONGEST_OF_MANY if seen + rested > of_many else newton.LONGEST_BATCH
        if waiting >= newton.compiled_due(seen + rested, batch, forgetting, targets, most) or seen == last:
            fading, returning = newton.turns(n, waiting, kept)
            if newton.is_turn(seen, waiting, fading):
                left, returned = left * kept**fading, returned * kept**fading
            if newton.is_turn(seen, waiting, returning):
                returned += 1.0 - kept**returning
            waiting = 0
    return left, returned
