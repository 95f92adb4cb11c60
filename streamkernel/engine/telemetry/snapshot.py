"""The state of an engine at one moment, for any thread; the learning thread replaces it about once per second.

So readers need no lock and never see a partial update, and events cost no additional time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkernel.engine.coverage import CoverageSnapshot
from streamkernel.engine.monitoring.monitoring import MonitoringSnapshot
from streamkernel.engine.telemetry.figure import Histogram
from streamkernel.engine.telemetry.quality import Scores
from streamkernel.estimators.internals import learner_of

if TYPE_CHECKING:
    from streamkernel.engine.challengers import ChallengersSnapshot
    from streamkernel.estimators.base import KernelModel

MOST = 100
"""Largest number of streams whose position and lag are reported individually."""


class RoundSnapshot(NamedTuple):
    """Figures of one round.

    `events` and `seconds` are the number of events that each worker read, and the time that this took; both 0 for a
    worker without an assignment. `round_seconds` and `merge_seconds` is the duration of the whole round, and of its
    merge. `spread` is the distance of the replicas from their mean before the merge, in units of the mean's size.
    """

    events: tuple[int, ...]
    seconds: tuple[float, ...]
    round_seconds: float
    merge_seconds: float
    spread: float


class ClusterSnapshot(NamedTuple):
    """The rounds of this process so far.

    `by_worker` are events and seconds of each worker. `rounds` and `merges` are durations of rounds and merges.
    `recent` are the last few rounds.
    """

    by_worker: Mapping[int, tuple[int, float]]
    rounds: Histogram
    merges: Histogram
    last: RoundSnapshot
    recent: tuple[RoundSnapshot, ...]


class ModelSnapshot(NamedTuple):
    """The state of a kernel model: its attributes of these names, and some derived figures.

    `n_forced` counts the steps among `n_reused` that would have added a block if the cap had allowed it. `next_step` is
    γ of the next step, and `last_step` the last step η that the rule's check has chosen. `shares` are the weights of
    functions by kind, `groups` is the number of groups of features, and `youngest` the number of examples before the
    youngest group. `descent` are the shares of the loss that new and old features are expected to gain. `gap` is NaN
    before the first refit.
    """

    objective: float
    n_features: int
    n_seeds: int
    n_steps: int
    n_reused: int
    n_forced: int
    next_step: float
    last_step: float | None
    bytes: int
    cached_bytes: int
    shares: Mapping[str, float]
    groups: int
    youngest: int
    descent: tuple[float, float] | None
    n_prunings: int
    gap: float


@dataclass(frozen=True)
class EngineSnapshot:
    """Figures of an engine; counters continue after a restart, except `events` and `checkpoints`.

    `outcomes`, `refused` and `labels` are numbers of events, dead letters and labels, by outcome or reason.
    `pending_labels` are features whose label has not arrived. `since_joined` are the numbers of features and labels
    since a label was last joined; see `DelayedLabels`. `outlying_inputs` are values of inputs far outside their usual
    range, in this process. `names` is the number of names in each table of names, and `names_refused` of values in this
    process whose name did not fit into it. `of_targets` are the numbers of predictions that were limited to the range
    of targets, and of targets that did not count in full; ``None`` if the model has no such range. `last_event` is its
    time in seconds since 1970; 0 before the first of this process.
    """

    outcomes: Mapping[str, int]
    refused: Mapping[str, int]
    labels: Mapping[str, int]
    pending_labels: int
    since_joined: Mapping[str, int]
    outlying_inputs: int
    names: Mapping[str, int]
    names_refused: Mapping[str, int]
    positions: Mapping[str, Any]
    scores: Scores
    challengers: ChallengersSnapshot
    coverage: CoverageSnapshot | None
    monitoring: MonitoringSnapshot | None
    model: ModelSnapshot | None
    of_targets: tuple[int, int] | None
    events: Histogram
    checkpoints: Histogram
    last_event: float
    time: float = field(default_factory=time.time)


def of_model(model: KernelModel) -> ModelSnapshot:
    """Return the snapshot of a model."""
    learner = learner_of(model)
    table = learner.table
    return ModelSnapshot(
        objective=model.objective,
        n_features=model.n_features,
        n_seeds=model.n_seeds,
        n_steps=model.n_steps,
        n_reused=model.n_reused,
        n_forced=int(learner.numbers["forced_steps"]),
        next_step=learner.next_step,
        last_step=learner.last_step,
        bytes=learner.nbytes,
        cached_bytes=learner.directions.cached_bytes,
        shares=learner.shares,
        groups=0 if table is None else int((table[:, 0] > 0).sum()),
        youngest=0 if table is None else int(table[table[:, 0] > 0, 2].max()),
        descent=learner.expected_descent,
        n_prunings=model.n_prunings,
        gap=model.gap,
    )


def place(position: Any) -> float | None:
    """Return a position as a number: bytes, rows, records or an offset.

    Examples
    --------
    >>> place(7), place([1024, 12, "mark"]), place({"late": [9, 1]}), place("?")
    (7.0, 1024.0, 9.0, None)
    """
    if isinstance(position, Mapping):
        position = next(iter(position.values()), None)
    if isinstance(position, (list, tuple)) and position:
        position = position[0]
    return float(position) if isinstance(position, (int, float)) else None
