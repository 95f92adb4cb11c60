"""A group that forgets, with the features of a single block, and the detection of a misleading past.

This group takes the Newton steps of the block with A fading, so that it represents recent examples only. On a
stationary stream the block, which forgets nothing, has the lower loss. Where the forgetting group has a clearly lower
loss, the past is misleading: all single blocks are reset, and larger groups with a higher loss end, so that learning
continues as in a new model.
"""

from __future__ import annotations

import numpy as np

from streamkernel.features.rows import F64, I64
from streamkernel.jit import compiled
from streamkernel.second_order import growth

KEPT = 0.996
"""The forgetting factor of the group per example."""

FROM = 512
"""Number of examples before they may change to another block."""

EVERY = 256
"""Number of examples between two comparisons."""

YOUNGEST, MATURE = 2048, 4
"""Number of examples that a block needs before it is compared, absolute and per output. With fewer, forgetting may be
better only because Newton steps overfit while examples are about as many as outputs."""

MARGIN = 0.2
"""The minimum by which the loss of a misled group exceeds the forgetting group's, as a fraction of its own."""


def block_for(current: int, singles: F64, since: int) -> int:
    """Return the single block whose features the forgetting group shares from now on, after `current`.

    It is never the first or the last one, which may restart in a metric. `singles` are the running losses of all of
    them, after `since` examples from the start.

    Examples
    --------
    >>> losses = np.array([0.2, 0.4, 0.3, 0.7])
    >>> block_for(1, losses, 256), block_for(1, losses, 512)
    (1, 2)
    """
    inner = range(1, len(singles) - 1) if len(singles) > 2 else range(len(singles))
    best = min(inner, key=lambda block: float(singles[block]))
    return best if since >= FROM and singles[best] < (1.0 - growth.GAIN) * singles[current] else current


def possible(table: I64, ordinary: int, seen: int) -> bool:
    """Return whether the entries of a table after the ordinary groups can be a group that forgets.

    Examples
    --------
    >>> possible(np.array([[1, 0, 0], [1, 1, 0], [1, 1, 0]]), 2, 100)
    True
    """
    return all(
        blocks == 1 and 0 <= block < ordinary and table[block, 0] == 1 and 0 <= born <= seen
        for blocks, block, born in table[ordinary:].tolist()
    )


def misled_groups(seen: int, table: I64, outputs: I64, losses: F64) -> list[int]:
    """Return the groups that are reset because old examples mislead them, usually none, after `seen` examples.

    `table` has blocks, bandwidth and first example of each group; for the last one, which forgets, the block that it
    shares instead of the bandwidth. `losses` are sums of the recent losses of their Newton steps.

    Examples
    --------
    >>> table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [0, 0, 0], [2, 1, 1024], [1, 1, 0]])
    >>> losses = np.array([0.6, 0.5, 0.5, 0.4, 0.0, 0.5, 0.35])
    >>> misled_groups(4096, table, 8 * table[:, 0], losses)
    [0, 1, 2, 3, 5]

    Groups of more outputs are compared later:

    >>> [misled_groups(seen, table, 1024 * table[:, 0], losses) for seen in (4095, 4096)]
    [[], [0, 1, 2, 3, 5]]
    """
    block = int(table[-1, 1])
    is_mature = seen - table[block, 2] >= max(YOUNGEST, MATURE * outputs[block])
    is_worse = (1.0 - MARGIN) * losses[:-1] > losses[-1]
    if not is_mature or not is_worse[block]:
        return []
    return np.flatnonzero((is_worse & (outputs[:-1] > 0)) | (table[:-1, 0] == 1)).tolist()


@compiled
def note_comparison(state):  # type: ignore[no-untyped-def]
    """Halve the weight of the losses before a comparison that changed nothing."""
    state.numbers[0].compared_at = state.numbers[0].examples
    for g in range(len(state.recent)):
        state.recent[g] *= 0.5
