"""The state of a model and of a step in progress, as values that are replaced in one assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamkernel.features import numeric_names, scaling
from streamkernel.features.rows import F64, Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.second_order.mixture import SecondOrderLearner
from streamkernel.upkeep.scheduler import BackgroundTasks


@dataclass(slots=True)
class State:
    """The learned state of a model. Everything that compiled code does not change is replaced in one assignment.

    Attributes
    ----------
    learner
        The function.
    scales
        The scales of inputs, ``None`` if they are taken as they are.
    first
        Examples that still decide the bandwidths, with their targets; ``None`` once these are known.
    labels
        The numbers of labels, in order of their first appearance.
    upkeep
        The periodic tasks on the function, ``None`` without any.
    numeric
        The names with numeric values.
    own
        The additional state of a subclass.
    journal
        The step in progress, ``None`` if there is none.
    is_direct
        Whether learning an example is a single call of the function.
    is_plain
        Whether only the function and the scales change with an example.
    names
        The labels by their numbers, and ``None`` after them.
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
        self.is_direct, self.is_plain = nothing and self.scales is None, nothing and self.journal is None
        self.names = (*self.labels, None)

    def frozen(self) -> State:
        """Return a copy at one moment that predicts, and that learning does not change."""
        learner, scales = self.learner.frozen(self.scales)
        return State(learner, scales, self.first, self.labels, self.upkeep, self.numeric, self.own)

    def with_journal(self, journal: Journal | None, own: Any) -> State:
        """Return the state with another journal; each event needs two, and `dataclasses.replace` is slow."""
        return State(self.learner, self.scales, self.first, self.labels, self.upkeep, self.numeric, own, journal)


class Journal(NamedTuple):
    """The examples of a step in progress: after an interruption it decides what to complete or to undo.

    Attributes
    ----------
    before
        The state to restore if none of the examples is learned.
    rows, y
        The examples.
    read
        The scaled values of the examples that are learned.
    offered
        Number of examples that were passed to the function before.
    own
        The additional state of a subclass after the step.
    """

    before: State
    rows: Rows
    y: F64
    read: F64
    offered: int
    own: Any = None
