"""The state of a model and of a step in progress, as values that are replaced in one assignment.

The first examples of a stream decide the scales of inputs and the bandwidths of the kernel.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from streamkernel.errors import InputError
from streamkernel.features import numeric_names, scaling
from streamkernel.features.rows import F64, Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Kernel, bandwidth
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.upkeep.scheduler import BackgroundTasks

log = logging.getLogger(__name__)


@dataclass(slots=True)
class State:
    """The learned state of a model. Everything that compiled code does not change is replaced in one assignment.

    `scales` is ``None`` if inputs are taken as they are; `first` are examples that still decide the bandwidths, with
    their targets, ``None`` once these are known. `labels` are their numbers, in order of their first appearance, and
    `names` the labels by their numbers, with ``None`` after them. `numeric` are the names with numeric values, and
    `own` is the additional state of a subclass. `journal` is the step in progress, ``None`` if there is none. With
    `is_direct` learning an example is a single call of the function; with `is_plain` only the function and the scales
    change with an example.
    """

    learner: FirstOrderLearner | SecondOrderLearner
    scales: scaling.Scales | None
    first: tuple[tuple[Rows, float], ...] | None
    labels: Mapping[Any, int]
    upkeep: BackgroundTasks | None
    numeric: numeric_names.NumericNames = numeric_names.NONE
    own: Any = None
    journal: Journal | None = None
    is_direct: bool = field(init=False)
    is_plain: bool = field(init=False)
    names: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        nothing = self.first is None and self.upkeep is None and self.own is None
        self.is_direct = nothing and isinstance(self.learner, FirstOrderLearner)
        self.is_plain = nothing and self.journal is None
        self.names = (*self.labels, None)

    def frozen(self) -> State:
        """Return a copy at one moment that predicts, and that learning does not change."""
        learner, scales = self.learner.frozen(self.scales)
        return State(learner, scales, self.first, self.labels, self.upkeep, self.numeric, self.own)

    def with_journal(self, journal: Journal | None, outputs_state: Any) -> State:
        """Return the state with another journal; each event needs two, and `dataclasses.replace` is slow."""
        return State(
            self.learner, self.scales, self.first, self.labels, self.upkeep, self.numeric, outputs_state, journal
        )


class Journal(NamedTuple):
    """The examples of a step in progress: after an interruption it decides what to complete or to undo.

    `before` is the state to restore if none of the examples is learned; `read` are the scaled values of the ones that
    are. The function had been passed `offered` examples before. `own` is the additional state of a subclass after the
    step.
    """

    before: State
    rows: Rows
    y: F64
    read: F64
    offered: int
    own: Any = None


def restart(state: State, first: tuple[tuple[Rows, float], ...], wanted: Kernel, name: str) -> State:
    """Return the state with scales and bandwidths from the first examples, which are learned again.

    `state` is the state that they are learned in so far, and `wanted` the kernel, with bandwidths that are pending.
    """
    rows = unscaled = Rows.stack([row for row, _ in first])
    targets, refused, scales = np.array([target for _, target in first]), 0, state.scales
    if scales is not None:
        scales = scales.of_first(rows).in_shared_unit(rows, _columns_of_targets(targets, state.labels))
        rows = scales(rows)
    plan = state.learner.directions.plan
    learner = state.learner.start_over(bandwidth.with_medians(wanted, plan, rows), rows)
    if isinstance(learner, SecondOrderLearner):
        learner = learner.with_first(unscaled, targets, scales)
    while (done := learner.n_offered + refused) < len(first):
        try:
            learner.learn_again(unscaled.part(done, len(first)), targets[done:], scales)
        except InputError as error:
            refused += 1
            log.warning("%s cannot learn an example again with a new bandwidth: %s", name, error)
    if not bandwidth.is_enough([row for row, _ in first]):
        return replace(state, learner=learner, scales=scales, first=first)
    log.info("%s took %r from the first %d examples", name, learner.kernel, len(first))
    return replace(state, learner=learner, scales=scales, first=None)


def _columns_of_targets(targets: Any, labels: Mapping[Any, int]) -> F64:
    """Return targets in units of their deviations, or an indicator of each label, shape (examples, columns)."""
    if labels and targets.ndim == 1:
        return np.asarray(targets[:, None] == np.arange(len(labels)), np.float64)
    targets = targets.reshape(len(targets), -1)
    deviations = targets.std(axis=0)
    return np.asarray(targets / np.where(deviations > 0.0, deviations, 1.0))
