"""Newton steps of the groups: started on buffered examples, computed in units, and applied; compiled.

A step changes nothing that a prediction reads until it is applied, in one short call, two examples before the next one
begins. The units of a long step are spread over every third of the events until then: no event waits for a step, and w
is one step behind. When a step is applied, w moves by -Δ; of the examples gathered meanwhile, with derivatives at the
old w,

    Σ ℓ'φ ← Σ ℓ'φ - Σ ℓ''φφᵀΔ

so that the next step has the same result as without the delay, if ℓ is a square. The times at which units are computed
do not affect the result: a step is applied after the same example whether its units were spread or not.
"""

from __future__ import annotations

import math

from numba import types

from streamkernel import vectors
from streamkernel.jit import compiled, inlined, unit
from streamkernel.learners.clipping import LARGEST_GRADIENT
from streamkernel.second_order import newton_step, resting, sampling, square_root
from streamkernel.second_order.last_row import forget_row
from streamkernel.second_order.mixture_state import (
    AT_REST,
    COUNT,
    GROUP,
    RESTED,
    RESTS_FROM,
    SKETCHED_AT,
    SKETCHES,
    TAKEN,
    group_of,
)
from streamkernel.second_order.tiles import whole_eights

SPREAD = 1 << 22
"""Steps are spread over events if the squared numbers of outputs add up to more: such a step takes about 8 ms."""

EVERY = 3
"""Number of events whose units are computed together. A unit displaces what an event needs from the processor's caches,
so that the next event takes longer."""

STRIP = 64
"""Columns of R that a unit works on."""

FADE, FORWARD, BACKWARD, SKETCH, PHASES = range(5)
"""The phases of a step: forgetting, and adding to the diagonal of A; adding rows to R, and solving Rᵀy = b by the
complete rows of R while they are in the cache; solving Rx = y; and computing the sketch of R if it is due. PHASES is
their number."""

SOLVING = 10.0
"""Cost of a multiplication in solving Rx = y, which reads R from memory, relative to one in adding rows."""

DONE = 1 << 62
"""Number of completed units that marks a step as ready to be applied."""


@compiled
def begin_step(state):  # type: ignore[no-untyped-def]
    """Begin a Newton step of each group on the B buffered examples, which forgets by ρ per example.

        A ← A + Σ ℓ''φφᵀ,   w ← w - A⁻¹(Σ ℓ'φ + Blw)

    and before that, once in S examples and once in T, since the latter costs as much as they do,

        A ← ρˢA,   A ← A + ((1 - ρᵀ)λ + Tl)I,   with the gradient (1 - ρᵀ)λw

    Groups at rest leave the examples out. Which groups rest in the next step is decided now, so that copies of one
    model agree on the rows that were buffered when they were copied.
    """
    numbers, layout = state.numbers[0], state.layout
    numbers.working, numbers.worked_at, numbers.worked_k_xx = numbers.buffered, numbers.examples, numbers.step_k_xx
    numbers.unit = numbers.buffered = 0
    for g in range(len(layout)):
        if layout[g, COUNT] > 0:
            group, is_left_out = group_of(state, g), state.sampled[g, RESTS_FROM] > 0.0
            state.sampled[g, RESTS_FROM] = numbers.worked_at if resting.is_at_rest(state, g) else 0
            if is_left_out:
                state.sampled[g, TAKEN] = AT_REST
                state.sampled[g, RESTED] += numbers.working
                group.sums[:] = 0.0
                continue
            pull = numbers.working * numbers.l2 + _fading(state, g)[1]
            for c in range(len(group.sums)):
                for j in range(layout[g, COUNT]):
                    group.change[c, j] = group.sums[c, j]
                group.sums[c] = 0.0
                if pull > 0.0:
                    vectors.add(group.change[c], group.newton[c], pull)
            sampling.gather(state, group, g)
            sampling.begin_sketch(state, group, g)


@inlined
def _fading(state, g):  # type: ignore[no-untyped-def]
    """Return ρˢ, (1 - ρᵀ)λ and Tl for the step of a group; 1, 0 and 0 in steps without them. The first has Tl.

    Examples that the group left out do not count.
    """
    numbers, kept = state.numbers[0], state.kept[g]
    seen = numbers.worked_at - int(state.sampled[g, RESTED])
    fading, returning = newton_step.turns(state.layout[g, COUNT], numbers.working, kept)
    left, own, more = 1.0, 0.0, 0.0
    if kept < 1.0 and newton_step.is_turn(seen, numbers.working, fading):
        left = kept**fading
    is_returning = newton_step.is_turn(seen, numbers.working, returning)
    if is_returning and kept < 1.0:
        blocks = state.layout[g, COUNT] // (numbers.components * numbers.block_size)
        own = (1.0 - kept**returning) * state.priors[g] * numbers.worked_k_xx * blocks
    if is_returning or numbers.worked_at == numbers.working:
        more = returning * numbers.l2
    return left, own, more


@inlined
def _cost(n, phase, first, rows, columns, kept, back, is_sketched):  # type: ignore[no-untyped-def]
    """Return the approximate cost of a unit, in multiplications."""
    left = float(n - first)
    if phase == FADE:
        scaling = SOLVING * left * left if first == 0 and kept < 1.0 else 0.0
        return scaling + (left * left * STRIP if back > 0.0 else 0.0)
    if phase == FORWARD:
        return (2.0 * rows + columns) * STRIP * left
    if phase == SKETCH:
        columns = SKETCHES if is_sketched else 0
    return SOLVING * columns * STRIP * float(first + STRIP)


@compiled(nogil=True)
def advance(state, is_all):  # type: ignore[no-untyped-def]
    """Compute the remaining units of a step, or those that are due; no prediction reads the changes."""
    numbers, layout = state.numbers[0], state.layout
    if numbers.working == 0 or numbers.unit == DONE:
        return
    done, goal = 0.0, math.inf
    room = square_root.room_for(whole_eights(numbers.working))
    for is_counted in (True, False):
        place = 0
        if is_counted and is_all:
            continue
        if not is_all and not is_counted:
            last = newton_step.compiled_applied_after(newton_step.due_after(state, numbers.examples)) - 1
            every = EVERY if last >= EVERY else 1
            goal, done = done * (numbers.buffered // every * every) / max(last // every * every, 1), 0.0
        for g in range(len(layout)):
            n, (kept, own, more), rows = layout[g, COUNT], _fading(state, g), int(state.sampled[g, TAKEN])
            if rows == AT_REST:
                continue
            back, is_sketched = own + more, state.sampled[g, SKETCHED_AT] == numbers.worked_at
            for phase in range(PHASES):
                for first in range(0, n, STRIP):
                    place += 1
                    done += _cost(n, phase, first, rows, numbers.columns, kept, back, is_sketched)
                    if is_counted or place <= numbers.unit:
                        continue
                    if done > goal:
                        return
                    if phase != SKETCH or is_sketched:
                        _work(group_of(state, g), rows, phase, first, kept, back, room)
                    numbers.unit = place
    numbers.unit = DONE


@unit(types.void(GROUP, types.int64, types.int64, types.int64, types.float64, types.float64, square_root.ROOM))
def _work(group, rows, phase, first, kept, back, room):  # type: ignore[no-untyped-def]
    """Compute one unit: one phase of a group's step in the columns of R from `first` on."""
    last = min(first + STRIP, len(group.factor))
    if phase == FADE:
        if first == 0 and kept < 1.0:
            square_root.fade(group.factor, kept)
        if back > 0.0:
            square_root.add_diagonal(group.factor, back, first, last)
    elif phase == FORWARD:
        square_root.reflect_columns(group.factor, group.panels, rows, first, last, room)
        square_root.solve_forward(group.factor, group.change, first, last)
    else:
        n = len(group.factor)
        if phase == BACKWARD:
            square_root.solve_backward(group.factor, group.change, n - last, n - first)
        else:
            square_root.solve_backward(group.factor, group.sketch, n - last, n - first)


@compiled
def apply_step(state):  # type: ignore[no-untyped-def]
    """Apply the step whose units are all computed."""
    numbers, layout = state.numbers[0], state.layout
    forget_row(state.last)
    for g in range(len(layout)):
        if layout[g, COUNT] > 0:
            group = group_of(state, g)
            for c in range(len(group.change)):
                change = group.change[c]
                if vectors.within(change, 1.0, LARGEST_GRADIENT):
                    vectors.add(group.newton[c], change, -1.0)
                    for i in range(numbers.buffered):
                        vectors.add(group.sums[c], group.rows[i], -vectors.dot(group.rows[i], change))
                change[:] = 0.0
    numbers.working = numbers.unit = 0
