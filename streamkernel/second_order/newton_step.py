"""The schedule of the groups' Newton steps; compiled."""

from __future__ import annotations

import math
from typing import Any

from streamkernel.features.rows import I64
from streamkernel.jit import inlined
from streamkernel.second_order.mixture_state import COUNT, SQUARES_BEFORE
from streamkernel.second_order.tiles import EIGHT

LONGEST_BATCH, LONGEST_OF_MANY = 64, 128
MANY = 4096
"""A Newton step has at most `LONGEST_BATCH` examples; while a group has `MANY` outputs, `LONGEST_OF_MANY`, because
reading R takes most of the time of such a step."""

GROWING = 256
"""Number of examples after which Newton steps take eight more each."""

SEVERAL = 4
"""Newton steps take at least eight examples for each target, up to four targets, because each adds a solution."""


@inlined(allocates=False)
def begin(layout, factor, g, prior):  # type: ignore[no-untyped-def]
    """Set R of group g to its value without examples, for A = λI; R must be 0."""
    n, before = layout[g, COUNT], layout[g, SQUARES_BEFORE]
    for d in range(n):
        factor[before + d * (n + 1)] = math.sqrt(prior)


@inlined(allocates=False)
def turns(n, batch, kept):  # type: ignore[no-untyped-def]
    """Return S and T for a group of n outputs: a tenth of the examples that it remembers, and all of them."""
    gone = max(1.0 - kept, 1e-9)
    return max(batch, min(n, int(0.1 / gone))), max(batch, min(n, int(1.0 / gone)))


@inlined(allocates=False)
def is_turn(seen, batch, every):  # type: ignore[no-untyped-def]
    """Return whether the step of the last `batch` of all examples seen is one that comes once in `every` examples."""
    return seen // every > (seen - batch) // every


def longest(outputs: I64) -> int:
    """Return the largest number of examples of a Newton step, from the outputs of each group.

    Examples
    --------
    >>> import numpy as np
    >>> longest(np.array([512, 2048])), longest(np.array([512, 4096]))
    (64, 128)
    """
    most = LONGEST_BATCH
    for n in outputs:
        if n >= MANY:
            most = LONGEST_OF_MANY
    return most


def due(seen: int, batch: int, kept: float, targets: int, most: int) -> int:
    """Return the number of examples of a Newton step: B, or if B is 1 a number that grows with the model's examples.

    Examples
    --------
    >>> [due(seen, 1, 1.0, targets=1, most=64) for seen in (1, 1000, 100_000)]
    [8, 24, 64]
    >>> [due(seen, 1, 1.0, targets=8, most=128) for seen in (1, 1000, 100_000)]
    [32, 32, 128]
    """
    if batch > 1:
        return batch
    memory = 0.1 / max(1.0 - kept, 0.1 / most)
    eights = max(seen // GROWING, min(targets, SEVERAL))
    return max(min(eights * EIGHT, most, int(memory)) // EIGHT, 1) * EIGHT


def applied_after(due: int) -> int:
    """Return how many of the next `due` examples are buffered when a spread step is applied.

    It is applied before the next step is due, so that no event waits for both.

    Examples
    --------
    >>> applied_after(64)
    62
    """
    return max(due - 2, 1)


_longest: Any = inlined(longest)
compiled_due: Any = inlined(due)
compiled_applied_after: Any = inlined(applied_after)
"""The same for compiled code."""


@inlined(allocates=False)
def due_after(state, seen):  # type: ignore[no-untyped-def]
    """Return the number of examples of the next Newton step of a model that has seen a number of examples."""
    numbers, most = state.numbers[0], _longest(state.layout[:, COUNT])
    return compiled_due(seen, numbers.batch_size, numbers.forgetting, len(state.numbers), most)
