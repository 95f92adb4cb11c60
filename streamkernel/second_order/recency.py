"""A group that forgets, with the features of a single block, and the detection of a misleading past.

An abrupt change is found by the functions of single blocks with constant steps, which follow it: f is then worse than
they are, and worse than before. Let ℓ and ℓ_k be the losses of f and of function k at an example of weight w, ℓ̄ and w̄
the mean loss of f and the mean weight, and s a unit, 1 for classes and max(2ℓ̄, (ℓ + ℓ_k)/4) for numbers:

    D_k ← max(0, D_k + min(1, w/w̄)a) where a = (ℓ - max(ℓ_k, ℓ̄))/s within ±1.5

Without bounds and ℓ̄ this is the logarithm of a ratio of likelihoods since the best moment (Page, "Continuous inspection
schemes", Biometrika 1954). Where it exceeds 12, the single blocks and the group that forgets start from nothing. Larger
groups stay, until checks find them worthless. Noise that begins counts as a change where f is much too certain.

Slow changes are found by the group that forgets. It takes the Newton steps of the block with A fading, so that it
represents recent examples only. On a stationary stream the block, which forgets nothing, has the lower loss. Where the
forgetting group has a clearly lower loss, all single blocks are reset, and larger groups with a higher loss end.

In both cases learning continues as in a new model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkernel.features.rows import F64, I64
from streamkernel.jit import compiled, inlined
from streamkernel.learners.state import MEAN
from streamkernel.second_order import growth
from streamkernel.second_order.mixture_state import COUNT, OWNER

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

SURELY, MOST = 12.0, 1.5
"""The evidence D_k that shows a change, and the most that an example adds to it or takes from it, so that few outliers
or wrong labels show nothing. Compiled code has the values of its first use."""


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


def has_changed(evidence: F64) -> bool:
    """Return whether the stream has changed abruptly, from D_k of each group.

    Examples
    --------
    >>> [bool(has_changed(np.array([0.0, largest]))) for largest in (12.5, 11.5)]
    [True, False]
    """
    most = 0.0
    for ahead in evidence:
        most = max(most, ahead)
    return most > SURELY


compiled_has_changed: Any = inlined(has_changed, allocates=False)
"""The same for compiled code."""


def misled_groups(seen: int, table: I64, outputs: I64, losses: F64, evidence: F64) -> list[int]:
    """Return the groups that are reset because the stream has changed, usually none, after `seen` examples.

    `table` has blocks, bandwidth and first example of each group; for the last one, which forgets, the block that it
    shares instead of the bandwidth. `losses` are sums of the recent losses of their Newton steps, and `evidence` D_k of
    each.

    Examples
    --------
    >>> table = np.array([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [0, 0, 0], [2, 1, 1024], [1, 1, 0]])
    >>> losses, evidence = np.array([0.6, 0.5, 0.5, 0.4, 0.0, 0.5, 0.35]), np.zeros(7)
    >>> misled_groups(4096, table, 8 * table[:, 0], losses, evidence)
    [0, 1, 2, 3, 5]

    Groups of more outputs are compared later:

    >>> [misled_groups(seen, table, 1024 * table[:, 0], losses, evidence) for seen in (4095, 4096)]
    [[], [0, 1, 2, 3, 5]]

    After an abrupt change all of a single block are reset:

    >>> evidence[1] = 13.0
    >>> misled_groups(4096, table, 8 * table[:, 0], losses, evidence)
    [0, 1, 2, 3, 6]
    """
    if has_changed(evidence):
        return np.flatnonzero(table[:, 0] == 1).tolist()
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


@inlined(allocates=False)
def add_evidence(state, g, loss, of_f, w):  # type: ignore[no-untyped-def]
    """Update D_k of the constant steps of group g with its loss, and the loss of f, at an example of weight w."""
    numbers, layout = state.numbers[0], state.layout
    is_single = layout[g, COUNT] == layout[-1, COUNT]  # larger groups may just be better
    may_restart = layout[-1, OWNER] != len(layout) - 1 and numbers.examples - numbers.restarted >= growth.FROM
    if is_single and may_restart:
        mean = numbers.running_loss
        unit = max(2.0 * mean, 0.25 * (of_f + loss)) if numbers.intercept == MEAN else 1.0
        ahead = (of_f - max(loss, mean)) / unit if unit > 0.0 else 0.0
        share = min(1.0, w * numbers.examples / numbers.weight)
        state.evidence[g] = max(0.0, state.evidence[g] + share * min(max(ahead, -MOST), MOST))
