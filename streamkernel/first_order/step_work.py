"""Work arrays of a first-order step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from streamkernel.features.rows import F64
from streamkernel.jit import inlined
from streamkernel.learners.scoring import WORK, ScoringRoom, workspace
from streamkernel.learners.state import (
    AUTOMATIC,
)


class StepWork(NamedTuple):
    """Work arrays of a step: those of an evaluation, the mean gradient, those of the preconditioner, and the move of
    all blocks, for steps that move all blocks and have more than one example.
    """

    evaluation: ScoringRoom
    mean: F64
    block: F64
    gram: F64
    total: F64


STEP_WORK = types.NamedTuple(
    [WORK, types.float64[::1], types.float64[:, ::1], types.float64[:, ::1], types.float64[:, :, :, ::1]], StepWork
)


@inlined
def step_workspace(state, kernel, rows):  # type: ignore[no-untyped-def]
    """Return work arrays to take steps on rows."""
    numbers, coef = state.numbers[0], state.coef
    batch = numbers.batch_size if numbers.ridge > 0.0 else 0
    panels = len(coef) if numbers.step_units & AUTOMATIC and numbers.batch_size > 1 else 0
    return StepWork(
        workspace(state, kernel, rows),
        np.empty(numbers.columns),
        np.empty((numbers.components * numbers.block_size, batch)),
        np.empty((batch, batch)),
        np.empty((panels, numbers.columns, coef.shape[2], coef.shape[3])),
    )
