"""A single event in one compiled call, on the arena of a first-order function and the record of the event's names.

The call holds the interpreter's lock from its beginning to its end. So no other thread sees a function between two
steps, no signal is handled inside it, and nothing in it allocates memory: an event is learned whole or not at all.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamkernel.features.compiled_kernel import PART, ROOM, CompiledKernel, Entries
from streamkernel.features.dictionaries import (
    GIVEN,
    HASH,
    READERS,
    SCALED,
    SLOT,
    SORTED,
    item_of,
    parts_of,
    read,
    sort,
)
from streamkernel.features.rows import I64, Rows
from streamkernel.features.scale_table import ScalesState, has_room, scale_row
from streamkernel.first_order.sgd_step import Scaling, StepWork, observe_inputs, step
from streamkernel.jit import compiled, inlined, of_one_signature
from streamkernel.jit.calls import Arena, array_at
from streamkernel.kernels.program import KernelProgram
from streamkernel.learners import scoring
from streamkernel.learners.scoring import FirstOrder, ScoringRoom, score
from streamkernel.learners.span import ENTRIES
from streamkernel.learners.state import CLOSED, DONE, NO_ROOM, NUMBERS, UNREAD

_ARRAYS = (
    "numbers", "parts", "weights", "terms", "kept", "coef", "beta", "phi", "scores", "room", "sums", "gradients",
    "move", "mean", "block", "gram", "total", "start", "target", "weight", "span", "members",
)  # fmt: skip
(
    _NUMBERS, _PARTS, _WEIGHTS, _TERMS, _KEPT, _COEF, _BETA, _PHI, _SCORES, _WORK, _SUMS, _GRADIENTS, _MOVE,
    _MEAN, _BLOCK, _GRAM, _TOTAL, _START, _TARGET, _WEIGHT, _SPAN,
    _MEMBERS,
) = range(len(_ARRAYS))  # fmt: skip


_member_size = inlined(allocates=False)(scoring.member_size)


def new_arena(numbers: Any, plan: KernelProgram, kept: I64, width: int, panels: int, average: bool) -> Arena:
    """Return an arena for a first-order function.

    `width` is the features in a panel, and `panels` the capacity. With `average` the sums for the average are kept.
    """
    parts, terms, kept_rows = len(plan.parts), len(plan.terms), len(kept)
    columns, components, size, batch = (
        int(numbers[name]) for name in ("columns", "components", "block_size", "batch_size")
    )
    summed, solved = columns * (1 + average), batch if numbers["ridge"] > 0.0 else 0
    shapes = (
        (1,), (parts,), (terms,), (terms, parts), (kept_rows, 3), (panels, summed, components, width),
        (panels * (width // size), columns), (panels, components, width), (3, columns), (ROOM + 2 * parts, width),
        (summed, width), (3, batch, columns), (columns, components, size), (columns,), (components * size, solved),
        (solved, solved), (0, columns, components, width), (2,), (1,), (1,), (ENTRIES,),
        (scoring.member_size(int(numbers["bandwidths"]), columns),),
    )  # fmt: skip
    kinds: list[Any] = [np.float64] * len(_ARRAYS)
    kinds[_NUMBERS], kinds[_PARTS], kinds[_TERMS], kinds[_KEPT] = NUMBERS, PART, np.uint8, np.int64
    kinds[_PHI] = kinds[_WORK] = np.float32
    kinds[_START] = np.int64
    arena = Arena(dict(zip(_ARRAYS, zip(shapes, kinds, strict=True), strict=True)))
    arena["numbers"][0] = numbers
    stored = arena["numbers"][0]
    stored["panels"], stored["summed"], stored["kept_rows"], stored["room_blocks"] = (
        panels,
        summed,
        kept_rows,
        len(arena["beta"]),
    )
    stored["last_example"] = 0
    arena["parts"][:], arena["weights"][:], arena["terms"][:] = plan.parts_compiled, plan.weights, plan.factors
    arena["kept"][:] = kept
    return arena


@inlined(allocates=False)
def open_arena(memory, cache, record):  # type: ignore[no-untyped-def]
    """Return the function, kernel, row, scaled row and work arrays of an arena and a record, the last row's scores, and
    an array for its target.
    """
    at = array_at(memory, 0, (len(_ARRAYS),), np.int64)
    numbers = array_at(memory, at[_NUMBERS], (1,), NUMBERS)
    sizes = numbers[0]
    parts, components, columns, panels = sizes.parts, sizes.components, sizes.columns, sizes.panels
    summed, width, batch, size = sizes.summed, cache.shape[3], sizes.batch_size, sizes.block_size
    solved = batch if sizes.ridge > 0.0 else 0
    function = FirstOrder(
        numbers,
        array_at(memory, at[_COEF], (panels, summed, components, width), np.float64),
        array_at(memory, at[_BETA], (sizes.room_blocks, columns), np.float64),
        array_at(memory, at[_PHI], (panels, components, width), np.float32),
        array_at(memory, at[_SPAN], (ENTRIES,), np.float64),
        array_at(memory, at[_MEMBERS], (_member_size(sizes.bandwidths, columns),), np.float64),
    )
    kernel = CompiledKernel(
        array_at(memory, at[_PARTS], (parts,), PART),
        array_at(memory, at[_WEIGHTS], (sizes.terms,), np.float64),
        array_at(memory, at[_TERMS], (sizes.terms, parts), np.uint8),
        cache,
        array_at(memory, at[_KEPT], (sizes.kept_rows, 3), np.int64),
    )
    names, counts, slots, hashes, values = parts_of(record)
    start = array_at(memory, at[_START], (2,), np.int64)
    start[1] = names.shape[1]
    weight = array_at(memory, at[_WEIGHT], (1,), np.float64)
    hashes_of, sorted_values = names[HASH].view(np.uint64), names[SORTED].view(np.float64)
    rows = Rows(start, names[SLOT], hashes_of, names[READERS], sorted_values, weight)
    scaled = Rows(start, names[SLOT], hashes_of, names[READERS], names[SCALED].view(np.float64), weight)
    step_work = StepWork(
        ScoringRoom(
            Entries(slots, hashes, values, counts),
            array_at(memory, at[_WORK], (ROOM + 2 * parts, width), np.float32),
            array_at(memory, at[_SUMS], (summed, width), np.float64),
            array_at(memory, at[_GRADIENTS], (3, batch, columns), np.float64),
            array_at(memory, at[_MOVE], (columns, components, size), np.float64),
        ),
        array_at(memory, at[_MEAN], (columns,), np.float64),
        array_at(memory, at[_BLOCK], (components * size, solved), np.float64),
        array_at(memory, at[_GRAM], (solved, solved), np.float64),
        array_at(memory, at[_TOTAL], (0, columns, components, width), np.float64),
    )
    scores = array_at(memory, at[_SCORES], (3, columns), np.float64)
    return function, kernel, rows, scaled, step_work, scores, array_at(memory, at[_TARGET], (1,), np.float64)


@inlined(allocates=False)
def _score_record(memory, cache, record, counts, table):  # type: ignore[no-untyped-def]
    """Return the scores of the values in a record, and whether the values are usable."""
    function, kernel, rows, scaled, step_work, scores, _ = open_arena(memory, cache, record)
    numbers = function.numbers[0]
    if not (sort(record) and numbers.last_example == record[0]):
        numbers.last_example = 0
        new = scale_row(ScalesState(counts, table), rows, 0, scaled.values)
        if not score(function, kernel, scaled, 0, step_work.evaluation, scores):
            return scores, False
        numbers.last_example = record[0] if new == 0 else 0
    return scores, True


@of_one_signature
@compiled(allocates=False)
def score_event(memory, cache, record, counts, table, x):  # type: ignore[no-untyped-def]
    """Return the score of the dictionary at address `x` by a function of one column.

    It is NaN if the dictionary cannot be read, or a value cannot be used. `counts` and `table` are of the scales.
    """
    if read(record, x):
        scores, usable = _score_record(memory, cache, record, counts, table)
        if usable:
            return scores[1, 0]
    return math.nan


@compiled(allocates=False)
def scores_event(memory, cache, record, counts, table, x, out):  # type: ignore[no-untyped-def]
    """Set `out`, shape (columns,), to the scores of the dictionary at address `x`; return whether that was possible."""
    if read(record, x):
        scores, usable = _score_record(memory, cache, record, counts, table)
        if usable and len(out) == scores.shape[1]:
            for c in range(len(out)):
                out[c] = scores[1, c]
            return True
    return False


@of_one_signature
@compiled(allocates=False)
def learn_event(memory, cache, record, counts, table, may_change, x, example):  # type: ignore[no-untyped-def]
    """Take one step on the dictionary at address `x`; return a status of `learners.state`.

    `example` are its target, its weight, and γ. The scores and features of an example that was scored last are reused.
    `counts` and `table` are of the scales, which the example changes, those in use only if they `may_change`.
    """
    if not read(record, x):
        return UNREAD
    function, kernel, rows, scaled, step_work, scores, target = open_arena(memory, cache, record)
    numbers, scaling = function.numbers[0], Scaling(ScalesState(counts, table), True, may_change)
    if numbers.closed:
        return CLOSED
    if numbers.blocks == numbers.room_blocks and numbers.blocks < numbers.most_blocks:
        return NO_ROOM
    new, may_read = 0, numbers.blocks < numbers.most_blocks or numbers.ridge > 0.0  # other features than the last ones
    if not (sort(record) and numbers.last_example == record[0]):
        numbers.last_example, may_read = 0, True
    if may_read:
        new = scale_row(scaling.scales, rows, 0, scaled.values)
    if not has_room(scaling.scales, new):
        return NO_ROOM
    target[0], rows.weights[0], gamma = example
    status, _ = step(function, kernel, scaled, 0, target, scores, gamma, step_work)
    if status == DONE:
        observe_inputs(scaling, rows, 0, 1)
    return status


@compiled
def close(old):  # type: ignore[no-untyped-def]
    """Return a copy of an arena, and close the arena: it learns no further event, so none is lost.

    The copy is closed if the arena was.
    """
    at = array_at(old, 0, (len(_ARRAYS),), np.int64)
    new = np.empty_like(old)
    numbers = array_at(old, at[_NUMBERS], (1,), NUMBERS)[0]
    new[:] = old
    numbers.closed = 1
    return new


@of_one_signature
@compiled(allocates=False)
def score_and_learn(memory, cache, record, scaling, xs, largest, steps, results):  # type: ignore[no-untyped-def]
    """Score and learn the dictionaries of the list at address `xs`, in order; return how many are learned.

    It ends before the first event that needs more than a step, or has a value beyond ±`largest`. The target and γ of
    event i are ``steps[i]``. Its values as given are written to row i of the first of `results`, and its scores before
    it was learned to row i of the second. `scaling` says how values are scaled.
    """
    values, out = results
    function, kernel, rows, scaled, step_work, scores, target = open_arena(memory, cache, record)
    numbers, scales, inputs = function.numbers[0], scaling.scales, parts_of(record)[0][GIVEN].view(np.float64)
    if numbers.closed or values.shape[1] != len(inputs) or out.shape[1] != scores.shape[1]:
        return 0
    for i in range(len(steps)):
        if not read(record, item_of(xs, i)) or (
            numbers.blocks == numbers.room_blocks and numbers.blocks < numbers.most_blocks
        ):
            return i
        for j in range(len(inputs)):
            if not -largest <= inputs[j] <= largest:
                return i
            values[i, j] = inputs[j]
        if not (sort(record) and numbers.last_example == record[0]):
            numbers.last_example = 0
            if not has_room(scales, scale_row(scales, rows, 0, scaled.values)) or not score(
                function, kernel, scaled, 0, step_work.evaluation, scores
            ):
                return i
            numbers.last_example = record[0]
        for c in range(scores.shape[1]):
            if scores[1, c] != scores[1, c]:
                return i
            out[i, c] = scores[1, c]
        target[0], rows.weights[0] = steps[i, 0], 1.0
        if step(function, kernel, scaled, 0, target, scores, steps[i, 1], step_work)[0] != DONE:
            return i
        observe_inputs(scaling, rows, 0, 1)
    return len(steps)
