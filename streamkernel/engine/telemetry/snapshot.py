"""The state of an engine at one moment, for any thread; the learning thread replaces it about twice per second.

So readers need no lock and never see a partial update, and an event costs nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkernel.engine.coverage import CoverageSnapshot
from streamkernel.engine.monitoring.monitoring import MonitoringSnapshot
from streamkernel.engine.telemetry.histogram import Histogram
from streamkernel.engine.telemetry.quality import Scores
from streamkernel.estimators.internals import learner_of

if TYPE_CHECKING:
    from connectors import Source
    from streamkernel.engine.challengers.challengers import ChallengersSnapshot
    from streamkernel.estimators.base import KernelModel

MOST = 100
"""Largest number of streams whose position and lag are reported individually."""


class ModelSnapshot(NamedTuple):
    """The state of a kernel model: its attributes of these names, and more.

    `n_forced` are the steps among `n_reused` that would have added a block if there had been room. `next_step` is γ of
    the next step, and `last_step` the last step η that the rule's check has chosen. `shares` are the weights of
    functions by how they learn, `groups` how many groups of features there are, and `youngest` is how many examples
    came before the youngest of them. `gap` is NaN where nothing was refitted.
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
    n_prunings: int
    gap: float


@dataclass(frozen=True)
class EngineSnapshot:
    """Figures of an engine; counters continue after a restart, except `events` and `checkpoints`.

    Parameters
    ----------
    outcomes, refused, labels
        Events, dead letters and labels by what became of them, or why.
    pending_labels
        Features whose label has not arrived.
    outlying_inputs
        Values of inputs far outside their usual range, in this process.
    names, names_refused
        Names in each table of names, and values in this process whose name had no room there.
    positions
        Where each stream stands.
    scores
        How good predictions are.
    challengers
        Of the models that learn beside the champion.
    coverage
        Of the intervals or the sets of labels around predictions, where there are some.
    monitoring
        What is watched besides, if anything is.
    model
        Of the kernel model, if it is one.
    events, checkpoints
        How long they took.
    last_event
        When the last event was done, in seconds since 1970; 0 before the first of this process.
    time
        When all this was so.
    """

    outcomes: Mapping[str, int]
    refused: Mapping[str, int]
    labels: Mapping[str, int]
    pending_labels: int
    outlying_inputs: int
    names: Mapping[str, int]
    names_refused: Mapping[str, int]
    positions: Mapping[str, Any]
    scores: Scores
    challengers: ChallengersSnapshot
    coverage: CoverageSnapshot | None
    monitoring: MonitoringSnapshot | None
    model: ModelSnapshot | None
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
        youngest=0 if table is None else int(table[:, 2].max()),
        n_prunings=model.n_prunings,
        gap=model.gap,
    )


def lag_of(source: Source) -> Mapping[tuple[str, str], int]:
    """Return the lag of a source, or nothing if it changes at this moment."""
    try:
        return source.lag()
    except (OSError, RuntimeError):
        return {}


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
