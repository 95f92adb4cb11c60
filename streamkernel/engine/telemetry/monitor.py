"""The published figures of a run: a snapshot, its history, and copies of the model, for any thread.

The learning thread replaces them about once per second, so readers need no lock and never see a partial update, and an
event pays nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from streamkernel.connectors import Source
from streamkernel.engine.health import REPORT_SECONDS
from streamkernel.engine.label_losses import LabelLosses
from streamkernel.engine.pipelines import counts_of_targets
from streamkernel.engine.serving_copy import Publisher
from streamkernel.engine.telemetry.figure import EVENT_BOUNDS, Durations
from streamkernel.engine.telemetry.figures import Reading, figures_of_point
from streamkernel.engine.telemetry.history import History
from streamkernel.engine.telemetry.snapshot import EngineSnapshot, of_model
from streamkernel.estimators.internals import scales_of

if TYPE_CHECKING:
    from streamkernel.engine.checkpointer import Checkpointer
    from streamkernel.engine.record_processor import RecordProcessor
    from streamkernel.engine.telemetry.snapshot import ClusterSnapshot

PUBLISH_SECONDS = 1.0
"""Seconds between two snapshots, at least."""

FOLD_AT = 1000
"""Minimum number of events that are evaluated and counted together."""

log = structlog.get_logger("streamkernel")


class Monitor:
    """Publishes the figures of a run; only the learning thread calls its methods.

    `processor`, `checkpointer` and `source` are the parts of the run whose figures are published. `history` is the
    history to which points are added. The runner counts the events of this process in `n_events`, and adds their
    durations to `event_seconds`. `snapshot` is the last snapshot of the run, and `cluster` the last one of the workers
    on a cluster. `publisher` has copies of the model, if predictions are served. `interval` are the seconds between two
    snapshots, at least.
    """

    def __init__(
        self, processor: RecordProcessor, checkpointer: Checkpointer, history: History, source: Source
    ) -> None:
        self.n_events = 0
        self.interval = PUBLISH_SECONDS
        self.event_seconds = Durations(EVENT_BOUNDS)
        self.cluster: ClusterSnapshot | None = None
        self.history = history
        self.publisher = Publisher()
        self._processor, self._checkpointer, self._source = processor, checkpointer, source
        self._n_published, self._last_event = 0, 0.0
        self._n_outlying, self._next_outlying = 0, 0.0
        self._losses = None if processor.labels is None else LabelLosses(processor.labels)
        self.take_snapshot()

    def refresh(self) -> None:
        """Replace each published value that is due."""
        self._report_outlying()
        if self._losses is not None:
            self._losses.report()
        if not 0.0 <= time.time() - self.snapshot.time < self.interval:
            self.take_snapshot()
        if not self._checkpointer.is_uncertain and self.publisher.is_due(self._processor.outcomes["learned"]):
            self.publish_model()

    def report_end(self) -> None:
        """Report what the end of the stream leaves."""
        if self._losses is not None:
            self._losses.report_end()

    def take_snapshot(self) -> None:
        """Make a new snapshot."""
        if self.n_events > self._n_published:
            self._n_published, self._last_event = self.n_events, time.time()
        processor, checkpointer = self._processor, self._checkpointer
        model, examples, labels = processor.kernel_model, processor.examples, processor.labels
        scales = None if model is None else scales_of(model)
        names = {"kinds": len(examples.types), "ranges": len(examples.ranges)}
        self.snapshot = EngineSnapshot(
            outcomes=dict(processor.outcomes),
            refused=dict(processor.refused),
            labels={} if labels is None else dict(labels.counts),
            pending_labels=0 if labels is None else len(labels),
            since_joined={} if labels is None else dict(labels.since_joined),
            outlying_inputs=examples.ranges.n_outside,
            names=names if scales is None else names | {"scales": scales.n_names},
            names_refused={"kinds": examples.types.n_refused, "ranges": examples.ranges.n_refused},
            positions=dict(checkpointer.positions),
            scores=processor.quality.scores(),
            challengers=processor.challengers.snapshot(),
            coverage=None if processor.coverage is None else processor.coverage.snapshot(),
            monitoring=None if processor.monitoring is None else processor.monitoring.snapshot(),
            model=None if model is None else of_model(model),
            of_targets=counts_of_targets(processor.model),
            events=self.event_seconds.histogram(),
            checkpoints=checkpointer.durations.histogram(),
            last_event=self._last_event,
        )

    def publish_model(self, checkpoint: int | None = None) -> None:
        """Copy the model for predictions; `checkpoint` is as for `Published`."""
        processor = self._processor
        threshold = None if processor.coverage is None else processor.coverage.threshold()
        learned = processor.outcomes["learned"]
        self.publisher.publish(processor.model, processor.examples, learned, checkpoint, threshold=threshold)

    def add_point(self) -> None:
        """Add a point to the history."""
        processor = self._processor
        model, coverage = processor.kernel_model, processor.coverage
        reading = Reading(
            outcomes=processor.outcomes,
            scores=processor.quality.scores(),
            coverage=None if coverage is None else coverage.snapshot(),
            model=None if model is None else of_model(model),
        )
        momentary = {"time": time.time(), "lag": float(sum(self._source.lag().values()))}
        self.history.add(figures_of_point(reading) | momentary)

    def fold(self) -> None:
        """Evaluate and count the processed events, if enough have accumulated."""
        if len(self.event_seconds.new) >= FOLD_AT:
            self.event_seconds.fold()
            self._processor.quality.fold()
            if self._processor.monitoring is not None:
                self._processor.monitoring.fold()

    def _report_outlying(self) -> None:
        """Report input values far outside their range since the last report, at most once a minute."""
        ranges, now = self._processor.examples.ranges, time.monotonic()
        new = ranges.n_outside - self._n_outlying
        if new and ranges.last is not None and now >= self._next_outlying:
            self._n_outlying, self._next_outlying = ranges.n_outside, now + REPORT_SECONDS
            name, value, low, high = ranges.last
            where = {"field": name, "value": value, "low": low, "high": high}
            log.warning("values are far outside the usual range of their field", count=new, **where)
