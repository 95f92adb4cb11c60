"""Several events, each scored and then learned, in one compiled call.

The result has the same bits as `score_event` and `learn_event` for one event after the other. The call holds the
interpreter's lock; the list keeps the dictionaries alive meanwhile, and its address is an argument of the call.
"""

from __future__ import annotations

import numpy as np

from streamkernel.features.dictionaries import GIVEN, item_of, parts_of, read, sort
from streamkernel.first_order.sgd_step import step
from streamkernel.first_order.single_event import open_arena
from streamkernel.jit import compiled, of_one_signature
from streamkernel.learners.scoring import score
from streamkernel.learners.state import DONE


@of_one_signature
@compiled(allocates=False)
def score_and_learn(memory, cache, record, xs, largest, steps, values, out):  # type: ignore[no-untyped-def]
    """Score and learn the dictionaries of the list at address `xs`, in order; return how many are learned.

    It ends before the first event that needs more than a step, or has a value beyond ±`largest`. The target and γ of
    event i are ``steps[i]``; its values are written to ``values[i]``, as given, and its scores before it was learned to
    ``out[i]``.
    """
    function, kernel, rows, room, scores, target = open_arena(memory, cache, record)
    numbers, given = function.numbers[0], parts_of(record)[0][GIVEN].view(np.float64)
    if numbers.closed or values.shape[1] != len(given) or out.shape[1] != scores.shape[1]:
        return 0
    for i in range(len(steps)):
        if not read(record, item_of(xs, i)) or (
            numbers.blocks == numbers.room_blocks and numbers.blocks < numbers.most_blocks
        ):
            return i
        for j in range(len(given)):
            if not -largest <= given[j] <= largest:
                return i
            values[i, j] = given[j]
        if not (sort(record) and numbers.last_example == record[0]):
            numbers.last_example = 0
            if not score(function, kernel, rows, 0, room.evaluation, scores):
                return i
            numbers.last_example = record[0]
        for c in range(scores.shape[1]):
            if scores[1, c] != scores[1, c]:
                return i
            out[i, c] = scores[1, c]
        target[0], rows.weights[0] = steps[i, 0], 1.0
        if step(function, kernel, rows, 0, target, scores, steps[i, 1], room)[0] != DONE:
            return i
    return len(steps)
