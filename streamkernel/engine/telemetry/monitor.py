"""The published figures of a run, for any thread: a snapshot, its history, copies of the model, lost labels.

The learning thread replaces them about once per second, so readers need no lock and never see a partial update, and an
event pays nothing.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from streamkernel.connectors import Source
from streamkernel.engine.coverage import Coverage, CoverageByTarget, region
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.examples import Examples
from streamkernel.engine.health import REPORT_SECONDS
from streamkernel.engine.pipelines import CLASSIFIERS, counts_of_targets, explain, most_likely
from streamkernel.engine.telemetry.figure import EVENT_BOUNDS, Durations
from streamkernel.engine.telemetry.figures import Reading, figures_of_point
from streamkernel.engine.telemetry.history import History
from streamkernel.engine.telemetry.snapshot import EngineSnapshot, of_model
from streamkernel.estimators.internals import prediction_copy, scales_of, take_texts

if TYPE_CHECKING:
    from streamkernel.engine.checkpointer import Checkpointer
    from streamkernel.engine.record_processor import RecordProcessor
    from streamkernel.engine.telemetry.snapshot import ClusterSnapshot


COPY_SECONDS = 1.0
"""Smallest age in seconds at which a copy is replaced."""

COPY_SHARE = 0.01
"""Maximum share of the time that is spent on copies."""

MANY_LOST = 100
"""Lost features or labels that are reported, where none is joined or they are more than `SHARE_LOST`."""

SHARE_LOST = 0.05
"""A share of lost features or labels that is reported."""

FEATURES, LABELS = ("expired", "evicted"), ("late", "unmatched")
"""Outcomes of lost features, and of lost labels."""

LATER = "raise delayed_labels.timeout_seconds or max_pending, or send labels sooner"
OTHER_KEYS = "compare their keys, unless the run has not seen the features of these labels"
"""Advice."""

PUBLISH_SECONDS = 1.0
"""Seconds between two snapshots, at least."""

FOLD_AT = 1000
"""Minimum number of events that are evaluated and counted together."""

log = structlog.get_logger("streamkernel")


class PublishedModel(NamedTuple):
    """A copy of the model after a number of events.

    `version` is the number of this copy, counted in this process. `checkpoint` is the number of the checkpoint that the
    copy was read from, if the run has not resumed yet. `coverage` has the widths of intervals or sets, if the answer
    has these.
    """

    version: int
    events: int
    model: Any
    examples: Examples
    checkpoint: int | None = None
    coverage: Coverage | CoverageByTarget | None = None

    @property
    def origin(self) -> str:
        """A description of the model's origin, as text."""
        if self.checkpoint is None:
            return "this run"
        return f"checkpoint {self.checkpoint}, read from disk; the run has not resumed yet"

    def answer(self, record: Mapping[str, Any], *, explained: bool = False) -> dict[str, Any]:
        """Return the prediction for one record, the probabilities of a classifier, and an interval or a set of labels.

        `explained` says whether to add the contributions of the inputs; the model must be explainable. Raise
        `InputError` if the record cannot be used. Errors of other steps of the pipeline are passed on.
        """
        x, _ = self.examples.read(record)
        take_texts(self.model, x)
        is_classifier = isinstance(self.model, CLASSIFIERS)
        answer = most_likely(self.model, x) if is_classifier else (self.model.predict_one(x), None)
        fields = {"prediction": answer[0]} | ({"probabilities": answer[1]} if is_classifier else {})
        if self.coverage is not None:
            fields |= region(answer, self.coverage.threshold(x))
        return fields | {"explanation": explain(self.model, x, answer[0])} if explained else fields


class Publisher:
    """Copies a model for predictions, so rarely that copies take at most a hundredth of the time.

    `wanted` says whether predictions are requested.

    Examples
    --------
    >>> from river import linear_model
    >>> publisher = Publisher()
    >>> model, examples = linear_model.LinearRegression(), Examples("y", numeric_label=True)
    >>> publisher.publish(model, examples, 0)
    >>> model.learn_one({"a": 1.0}, 5.0)
    >>> publisher.newest.answer({"a": 1.0})
    {'prediction': 0.0}
    """

    def __init__(self) -> None:
        self.wanted = False
        self.newest: PublishedModel | None = None
        self._next = 0.0

    def is_due(self, events: int) -> bool:
        """Return whether a new copy is due for a model that has learned `events` events."""
        newest = self.newest
        is_new = newest is None or events != newest.events or newest.checkpoint is not None
        return self.wanted and is_new and time.monotonic() >= self._next

    def publish(
        self,
        model: Any,
        examples: Examples,
        events: int,
        checkpoint: int | None = None,
        *,
        coverage: Coverage | CoverageByTarget | None = None,
    ) -> None:
        """Make a copy; `checkpoint` and `coverage` are as for :class:`PublishedModel`."""
        began = time.monotonic()
        version = 1 if self.newest is None else self.newest.version + 1
        parts = prediction_copy(model), copy.deepcopy(examples)
        widths = None if coverage is None else coverage.to_predict()
        self.newest = PublishedModel(version, events, *parts, checkpoint, widths)
        now = time.monotonic()
        self._next = now + max(COPY_SECONDS, (now - began) / COPY_SHARE)


def shares_of(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each outcome of a loss, among the features or labels that are joined or lost.

    Examples
    --------
    >>> shares_of({"joined": 60, "expired": 20, "evicted": 20, "late": 0, "unmatched": 0})
    {'expired': 0.2, 'evicted': 0.2, 'late': 0.0, 'unmatched': 0.0}
    """
    shares: dict[str, float] = {}
    for outcomes in (FEATURES, LABELS):
        n = counts["joined"] + sum(counts[outcome] for outcome in outcomes)
        shares |= {outcome: counts[outcome] / max(1, n) for outcome in outcomes}
    return shares


def why_none_joins(since_joined: Mapping[str, int]) -> str:
    """Return why no label has been joined for long, or an empty text if one has, or none is missing yet.

    Examples
    --------
    >>> why_none_joins({"features": 500, "early": 0, "late": 0, "lost": 400})
    'no label has come for the last 500 features, and 400 were dropped unlearned: look for the source of labels'
    """
    features, early, late, lost = (since_joined[name] for name in ("features", "early", "late", "lost"))
    if late >= MANY_LOST and lost >= late:
        return f"the last {late:,} labels came after their features were dropped: {LATER}"
    if early >= MANY_LOST and features >= MANY_LOST:
        return f"none of the last {early:,} labels has the key of one of the last {features:,} features: {OTHER_KEYS}"
    if lost >= MANY_LOST:
        came = f"{early + late:,} labels have" if early + late else "no label has"
        what = f"{came} come for the last {features:,} features, and {lost:,} were dropped unlearned"
        return f"{what}: {OTHER_KEYS if early + late else 'look for the source of labels'}"
    return ""


def _cause(lost: Mapping[str, int]) -> str:
    """Return the likely cause of the largest loss."""
    most = max(lost, key=lost.__getitem__)
    if most == "unmatched":
        return OTHER_KEYS
    if most == "late":
        return LATER
    limit = "max_pending" if most == "evicted" else "timeout_seconds"
    return f"labels are missing, have other keys, or come later than delayed_labels.{limit} allows"


class LabelLosses:
    """Reports lost features and labels, at most once a minute and at the end. `labels` is the join of both."""

    def __init__(self, labels: DelayedLabels) -> None:
        self._labels = labels
        self._before, self._next = dict(labels.counts), 0.0

    def report(self) -> None:
        """Log a warning if many features or labels have been lost since the last one, or if none is joined."""
        labels, now = self._labels, time.monotonic()
        new = {outcome: max(0, n - self._before.get(outcome, 0)) for outcome, n in labels.counts.items()}
        if now < self._next or not any(new.values()):
            return
        reason, shares = why_none_joins(labels.since_joined), shares_of(new)
        lost = {outcome: new[outcome] for outcome in shares}
        if not reason and max(shares.values()) >= SHARE_LOST and sum(lost.values()) >= MANY_LOST:
            reason = _cause(lost)
        if reason:
            self._before, self._next = dict(labels.counts), now + REPORT_SECONDS
            figures = self._figures(new["joined"], lost, labels.last_keys)
            log.warning("labels and features do not join", reason=reason, **figures)

    def report_end(self) -> None:
        """Log the features and labels that are left without each other at the end of the stream.

        Predictions that alone are left are no warning, if others have been joined: their labels may come in another
        run.
        """
        labels, counts = self._labels, self._labels.counts
        lost = {outcome: counts[outcome] for outcome in (*FEATURES, *LABELS)}
        lost["unmatched"] += labels.n_early
        if not len(labels) and not any(lost.values()):
            return
        is_usual = counts["joined"] > 0 and not any(lost.values())
        reason = _cause(lost) if any(lost.values()) else "no label has come for pending features"
        figures = self._figures(counts["joined"], lost, labels.keys_left())
        tell = log.info if is_usual else log.warning
        tell("the stream has ended without some labels or features", reason=reason, **figures)

    def _figures(self, joined: int, lost: Mapping[str, int], keys: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a line of the log: counts that are not 0, and the last keys."""
        counts = {"joined": joined} | {name: n for name, n in lost.items() if n}
        return counts | {"pending": len(self._labels)} | {f"key_of_{name}": key for name, key in keys.items()}


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
        model, examples, learned = processor.model, processor.examples, processor.outcomes["learned"]
        self.publisher.publish(model, examples, learned, checkpoint, coverage=processor.coverage)

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
