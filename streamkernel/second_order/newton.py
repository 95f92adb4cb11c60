"""Functions of groups that take Newton steps, w ← w - A⁻¹Σ ℓ'φ, for streams that do not drift; compiled.

An example adds its part of A = λI + Σ ℓ''φφᵀ and of Σ ℓ'φ to what the next step will take. A step is begun on buffered
examples, computed in units, and applied. It changes nothing that a prediction reads until it is applied, in one short
call, two examples before the next one begins. The units of a long step are spread over every third of the events until
then: no event waits for a step, and w is one step behind. When a step is applied, w moves by -Δ; of the examples
gathered meanwhile, with derivatives at the old w,

    Σ ℓ'φ ← Σ ℓ'φ - Σ ℓ''φφᵀΔ

so that the next step has the same result as without the delay, if ℓ is a square. The times at which units are computed
do not affect the result: a step is applied after the same example whether its units were spread or not.

A group may rest: it takes one of `RESTS` steps and leaves the examples of the others out. A group that has learned
enough rests while a larger one has a much smaller loss, because the mixture uses it little then. A group that forgets
also rests while its block, which forgets nothing, has a clearly smaller loss. It then represents as many examples of a
longer time, at a fraction of the cost, and its loss still shows when the stream changes. Losses are those of about the
last 512 examples, which only models with groups that forget compare (:mod:`streamkernel.second_order.recency`); in
others nothing rests.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from streamkernel import vectors
from streamkernel.features.rows import I64
from streamkernel.jit import compiled, inlined, unit
from streamkernel.learners.embedding import set_scaled
from streamkernel.learners.mixing import FLATTEST
from streamkernel.learners.span import LARGEST_GRADIENT
from streamkernel.second_order import sampling, slots, square_root
from streamkernel.second_order.last_row import forget_row
from streamkernel.second_order.mixture_state import (
    AT_REST,
    BEFORE,
    BORN,
    COUNT,
    FIRST,
    GROUP,
    OWNER,
    RESTED,
    RESTS_FROM,
    SKETCHED_AT,
    SKETCHES,
    SQUARES_BEFORE,
    TAKEN,
    group_of,
    read_groups,
    rows_per_group,
)
from streamkernel.second_order.recency import MATURE, YOUNGEST
from streamkernel.second_order.targets import clip_derivatives
from streamkernel.second_order.tiles import EIGHT, whole_eights

LONGEST_BATCH, LONGEST_OF_MANY = 64, 128
MANY = 4096
"""A Newton step has at most `LONGEST_BATCH` examples; while a group has `MANY` outputs, `LONGEST_OF_MANY`, because
reading R takes most of the time of such a step."""

GROWING = 256
"""Number of examples after which Newton steps take eight more each."""

AGAIN = 12
"""Steps that learn examples again grow this number of times as fast."""

SEVERAL = 4
"""Newton steps take at least eight examples for each target, up to four targets, because each adds a solution."""

RESTS = 4
"""A group at rest takes a Newton step once in this number of them."""

CLEARLY, MUCH = 0.1, 0.25
"""The minimum by which the loss of a block is smaller than the loss of a group that forgets, and the loss of a larger
group than the loss of another, as a fraction of the loss of the group at rest."""

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


@inlined(allocates=False)
def read(state, z, f):  # type: ignore[no-untyped-def]
    """Set the slots of the functions in `f`, shape (functions, columns), to φᵀw, with the features `z`."""
    read_groups(state.layout, state.newton, state.slots[slots.NEWTON], z, f)


@inlined(allocates=False)
def learn(state, example, work):  # type: ignore[no-untyped-def]
    """Buffer √ℓ''φ of each group, and add ℓ'φ to its gradient, and ℓ''φ to the sums for other offsets; w examples count
    for one of weight w.
    """
    numbers, layout, z, columns = state.numbers[0], state.layout, state.last.z, work.g.shape[1]
    height, w = rows_per_group(numbers, state.rows, state.sums), example.weight
    centred = rows_per_group(numbers, state.centring, state.sums)
    for g in range(len(layout)):
        k, n, curvature = state.slots[slots.NEWTON] + g, layout[g, COUNT], FLATTEST
        clip_derivatives(state, k, work.g)
        if n == 0:
            continue
        phi = z[layout[g, FIRST] : layout[g, FIRST] + n]
        for c in range(columns):
            curvature = max(curvature, work.h[k, c])
        at = height * layout[g, BEFORE] + numbers.buffered * n
        set_scaled(state.rows[at : at + n], phi, np.float32(math.sqrt(w * curvature)))
        for c in range(columns):
            at = columns * layout[g, BEFORE] + c * n
            vectors.add(state.sums[at : at + n], phi, w * work.g[k, c])
        first = centred * layout[g, BEFORE] + centred // 2 * n
        for j in range(centred // 2):
            at, offset = first + j * n, work.targets.added[j - 1] if j > 0 else 1.0
            vectors.add(state.centring[at : at + n], phi, w * curvature * offset)


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
    return compiled_due(seen - numbers.restarted, numbers.batch_size, numbers.forgetting, len(state.numbers), most)


@inlined(allocates=False)
def is_at_rest(state, g):  # type: ignore[no-untyped-def]
    """Return whether a group leaves out the step after the one that begins."""
    layout, recent, block = state.layout, state.recent, state.layout[g, OWNER]
    seen, batch = state.numbers[0].worked_at, state.numbers[0].working
    is_mature = seen - layout[block, BORN] >= max(YOUNGEST, MATURE * layout[block, COUNT])
    may_rest = layout[-1, OWNER] != len(layout) - 1
    if not (is_mature and may_rest) or is_turn(seen, batch, RESTS * batch):
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


@compiled
def begin_step(state):  # type: ignore[no-untyped-def]
    """Begin a Newton step of each group on the B buffered examples, which forgets by ρ per example.

        A ← A + Σ ℓ''φφᵀ,   w ← w - A⁻¹(Σ ℓ'φ + Blw)

    and before that, once in S examples and once in T, since the latter costs as much as they do,

        A ← ρˢA,   A ← A + ((1 - ρᵀ)λ + Tl)I,   with the gradient (1 - ρᵀ)λw

    The sums for other offsets fade with A. Groups at rest leave the examples out. Which groups rest in the next step is
    decided now, so that copies of one model agree on the rows that were buffered when they were copied.
    """
    numbers, layout = state.numbers[0], state.layout
    numbers.working, numbers.worked_at, numbers.worked_k_xx = numbers.buffered, numbers.examples, numbers.step_k_xx
    numbers.unit = numbers.buffered = 0
    for g in range(len(layout)):
        if layout[g, COUNT] > 0:
            group, is_left_out = group_of(state, g), state.sampled[g, RESTS_FROM] > 0.0
            half = len(group.centring) // 2
            state.sampled[g, RESTS_FROM] = numbers.worked_at if is_at_rest(state, g) else 0
            if is_left_out:
                state.sampled[g, TAKEN] = AT_REST
                state.sampled[g, RESTED] += numbers.working
                group.sums[:] = 0.0
                group.centring[half:] = 0.0
                continue
            left, prior, _ = _fading(state, g)
            pull = numbers.working * numbers.l2 + prior
            for j in range(half):
                if left < 1.0:
                    vectors.multiply(group.centring[j], left)
                vectors.add(group.centring[j], group.centring[half + j], 1.0)
                group.centring[half + j] = 0.0
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
    fading, returning = turns(state.layout[g, COUNT], numbers.working, kept)
    left, prior, more = 1.0, 0.0, 0.0
    if kept < 1.0 and is_turn(seen, numbers.working, fading):
        left = kept**fading
    is_returning = is_turn(seen, numbers.working, returning)
    if is_returning and kept < 1.0:
        blocks = state.layout[g, COUNT] // (numbers.components * numbers.block_size)
        prior = (1.0 - kept**returning) * state.priors[g] * numbers.worked_k_xx * blocks
    if is_returning or numbers.worked_at == numbers.working:
        more = returning * numbers.l2
    return left, prior, more


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
    """Compute the remaining units of a step, or the ones that are due; no prediction reads the changes."""
    numbers, layout = state.numbers[0], state.layout
    if numbers.working == 0 or numbers.unit == DONE:
        return
    done, goal = 0.0, math.inf
    work = square_root.room_for(whole_eights(numbers.working))
    for is_counted in (True, False):
        place = 0
        if is_counted and is_all:
            continue
        if not is_all and not is_counted:
            last = compiled_applied_after(due_after(state, numbers.examples)) - 1
            every = EVERY if last >= EVERY else 1
            goal, done = done * (numbers.buffered // every * every) / max(last // every * every, 1), 0.0
        for g in range(len(layout)):
            n, (kept, prior, more), rows = layout[g, COUNT], _fading(state, g), int(state.sampled[g, TAKEN])
            if rows == AT_REST:
                continue
            back, is_sketched = prior + more, state.sampled[g, SKETCHED_AT] == numbers.worked_at
            for phase in range(PHASES):
                for first in range(0, n, STRIP):
                    place += 1
                    done += _cost(n, phase, first, rows, numbers.columns, kept, back, is_sketched)
                    if is_counted or place <= numbers.unit:
                        continue
                    if done > goal:
                        return
                    if phase != SKETCH or is_sketched:
                        _work(group_of(state, g), rows, phase, first, kept, back, work)
                    numbers.unit = place
    numbers.unit = DONE


@unit(types.void(GROUP, types.int64, types.int64, types.int64, types.float64, types.float64, square_root.ROOM))
def _work(group, rows, phase, first, kept, back, work):  # type: ignore[no-untyped-def]
    """Compute one unit: one phase of a group's step in the columns of R from `first` on."""
    last = min(first + STRIP, len(group.factor))
    if phase == FADE:
        if first == 0 and kept < 1.0:
            square_root.fade(group.factor, kept)
        if back > 0.0:
            square_root.add_diagonal(group.factor, back, first, last)
    elif phase == FORWARD:
        square_root.reflect_columns(group.factor, group.panels, rows, first, last, work)
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
