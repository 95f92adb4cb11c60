"""Groups that rest, which take one of `RESTS` Newton steps and leave the examples of the others out; compiled.

A group that has learned enough rests while a larger one has a much smaller loss, because the mixture uses it little
then. A group that forgets also rests while its block, which forgets nothing, has a clearly smaller loss. It then
represents as many examples of a longer time, at a fraction of the cost, and its loss still shows when the stream
changes.

Losses are those of about the last 512 examples, which only models with groups that forget compare
(:mod:`streamkernel.second_order.recency`); in others nothing rests.
"""

from __future__ import annotations

from streamkernel.jit import inlined
from streamkernel.second_order import newton_step
from streamkernel.second_order.mixture_state import BORN, COUNT, OWNER
from streamkernel.second_order.recency import MATURE, YOUNGEST

RESTS = 4
"""A group at rest takes a Newton step once in this number of them."""

CLEARLY, MUCH = 0.1, 0.25
"""The minimum by which the loss of a block is smaller than that of a group that forgets, and the loss of a larger group
than that of another, as a fraction of the loss of the group at rest."""


@inlined(allocates=False)
def is_at_rest(state, g):  # type: ignore[no-untyped-def]
    """Return whether a group leaves out the step after the one that begins."""
    layout, recent, block = state.layout, state.recent, state.layout[g, OWNER]
    seen, batch = state.numbers[0].worked_at, state.numbers[0].working
    is_mature = seen - layout[block, BORN] >= max(YOUNGEST, MATURE * layout[block, COUNT])
    may_rest = layout[-1, OWNER] != len(layout) - 1
    if not (is_mature and may_rest) or newton_step.is_turn(seen, batch, RESTS * batch):
        return False
    if block != g:  # it forgets
        if (seen - layout[g, BORN]) * (1.0 - state.kept[g]) < 1.0:  # it has forgotten nothing
            return False
        if recent[block] < (1.0 - CLEARLY) * recent[g]:
            return True
    for k in range(len(layout)):
        n = layout[k, COUNT]
        if n > layout[g, COUNT] and seen - layout[k, BORN] >= n and recent[k] < (1.0 - MUCH) * recent[g]:
            return True
    return False
