"""Pairs of examples: before a function learns a pair, it bets on which of the two has the label 1; compiled."""

from __future__ import annotations

import math

import numpy as np

from streamkernel.first_order.sgd_step import step, step_workspace
from streamkernel.jit import compiled
from streamkernel.learners.scoring import score
from streamkernel.learners.state import DONE


@compiled
def bet_and_learn(state, kernel, rows, gammas, most, wealth):  # type: ignore[no-untyped-def]
    """Score rows 2n and 2n + 1, set ``wealth[n + 1]``, and learn the rows with the targets 0 and 1, for n = 0, 1, ...

        M_{n+1} = (M_n + 1) · 2 / (1 + exp(f(x_2n) - f(x_2n+1)))

    It ends after the first pair that brings M to `most`, and before one that cannot be learned; return the number of
    learned pairs.
    """
    room, numbers = step_workspace(state, kernel, rows), state.numbers[0]
    scores, own, targets = np.empty((3, numbers.columns)), np.empty(2), np.empty(len(gammas))
    for n in range(len(wealth) - 1):
        numbers.last_example = 0
        for i in range(2):
            targets[2 * n + i] = i
            if not score(state, kernel, rows, 2 * n + i, room.evaluation, scores):
                return n
            own[i] = scores[1, 0]
        wealth[n + 1] = (wealth[n] + 1.0) * (1.0 + math.tanh(0.5 * (own[1] - own[0])))
        for i in range(2 * n, 2 * n + 2):
            if step(state, kernel, rows, i, targets, scores, gammas[i], room)[0] != DONE:
                return n
        if wealth[n + 1] >= most:
            return n + 1
    return len(wealth) - 1
