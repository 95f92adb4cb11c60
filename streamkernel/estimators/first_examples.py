"""The first examples of a stream, which decide the scales of inputs and the bandwidths of the kernel."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from streamkernel.errors import InputError
from streamkernel.estimators.model_state import State
from streamkernel.features.rows import Rows
from streamkernel.kernels import Kernel, bandwidth
from streamkernel.second_order.mixture import SecondOrderLearner

log = logging.getLogger(__name__)


def restart(found: State, first: tuple[tuple[Rows, float], ...], wanted: Kernel, name: str) -> State:
    """Return the state with scales and bandwidths from the first examples, which are learned again.

    Parameters
    ----------
    found
        The state that they are learned in so far.
    first
        The examples and their targets.
    wanted
        The kernel, with bandwidths that are pending.
    name
        The name of the model in log lines.
    """
    rows = given = Rows.stack([row for row, _ in first])
    scales = found.scales
    if scales is not None:
        scales = scales.of_first(rows)
        rows = scales(rows)
    plan = found.learner.directions.plan
    learner = found.learner.start_over(bandwidth.with_medians(wanted, plan, rows), rows)
    if isinstance(learner, SecondOrderLearner):
        learner = learner.with_few_values(given, scales)
    for i, (_, target) in enumerate(first):
        try:
            learner.learn_again(given.part(i, i + 1), np.array([target]), scales)
        except InputError as error:
            log.warning("%s cannot learn an example again with a new bandwidth: %s", name, error)
    if not bandwidth.is_enough([row for row, _ in first]):
        return replace(found, learner=learner, scales=scales, first=first)
    log.info("%s took %r from the first %d examples", name, learner.kernel, len(first))
    return replace(found, learner=learner, scales=scales, first=None)
