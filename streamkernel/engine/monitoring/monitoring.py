"""The monitoring of a run besides its metric: predictions are collected, and evaluated many at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from streamkernel.engine.monitoring.drift_watch import DriftSnapshot, DriftWatch
from streamkernel.engine.monitoring.field_windows import MISSING, QUANTILES, FieldSummary
from streamkernel.engine.monitoring.novelty_watch import LEVELS, NoveltySnapshot, NoveltyWatch
from streamkernel.engine.monitoring.several_metrics import Judged, SeveralMetrics, SeveralScores, texts_of
from streamkernel.engine.monitoring.stream_statistics import StatisticsSnapshot, StreamStatistics
from streamkernel.engine.pipelines import Answer, importances
from streamkernel.engine.telemetry.figure import Figure, counter, gauge

WINDOWS = ("reference", "last")


def _alarms(watched: MonitoringSnapshot) -> dict[str, int] | None:
    counts = {} if watched.drift is None else dict(watched.drift.counts)
    return (counts if watched.novelty is None else counts | {"novelty": watched.novelty.alarms_raised}) or None


def _of_classes(value: Callable[[Any], Any]) -> Callable[[SeveralScores], dict[str, Any]]:
    """Return a function that reads a value of each class."""
    return lambda scores: {name: value(one) for name, one in scores.recent_by_class.items()}


def _label_shares(scores: SeveralScores) -> dict[str, float]:
    """Return the share of each class in the last labels."""
    total = sum(one.labels for one in scores.recent_by_class.values())
    return {name: one.labels / total for name, one in scores.recent_by_class.items()}


def _prediction_shares(statistics: StatisticsSnapshot) -> dict[tuple[str, str], float]:
    """Return the share of each predicted class in both windows."""
    pairs = zip(WINDOWS, statistics.predictions.get("prediction", ()), strict=False)
    return {(name, window): share for window, of in pairs for name, share in of.shares.items()}


def _of_fields(prefix: str, label: str) -> tuple[Figure, ...]:
    """Return the figures of the fields of inputs or of predictions."""
    text, labels, unit = "in the reference window and in the last one.", (label, "window"), f"of the {label}"

    def each(values: Callable[[FieldSummary], dict[tuple[str, ...], Any]]) -> Callable[[StatisticsSnapshot], Any]:
        return lambda part: {
            (name, window, *level): value
            for name, pair in getattr(part, f"{prefix}s").items()
            for window, one in zip(WINDOWS, pair, strict=True)
            for level, value in values(one).items()
        }

    def quantiles(one: FieldSummary) -> dict[tuple[str, ...], float]:
        return {(f"{q:g}",): value for q, value in zip(QUANTILES, one.quantiles or (), strict=False)}

    return (
        gauge(
            f"{prefix}_missing", "1", f"Share of {prefix}s that are missing, {text}",
            each(lambda one: {(): one.missing}), labels,
        ),
        gauge(f"{prefix}_mean", unit, f"Mean of {prefix}s, {text}", each(lambda one: {(): one.mean}), labels),
        gauge(
            f"{prefix}_deviation", unit, f"Deviation of {prefix}s, {text}",
            each(lambda one: {(): one.deviation}), labels,
        ),
        gauge(f"{prefix}_quantile", unit, f"Quantiles of {prefix}s, {text}", each(quantiles), (*labels, "level")),
        gauge(
            f"{prefix}_change", "1", "Population stability index of the last window against the reference window.",
            lambda part: {name: last.change for name, (_, last) in getattr(part, f"{prefix}s").items()}, (label,),
        ),
    )  # fmt: skip


MONITORING: dict[str, tuple[Figure, ...]] = {
    "run.monitoring.quality": (
        gauge("further_metric", "of the metric", "Further metrics since the start.", "since_start", ("name",)),
        gauge("further_metric_recent", "of the metric", "Further metrics over the last 1,000 labels.",
            lambda scores: {name: scores.recent[name] for name in scores.since_start}, ("name",)),
        gauge(
            "segment_metric_recent", "of the metric", "Metrics over the labels of a segment among the last 1,000.",
            lambda scores: {
                (segment, name): value
                for segment, of in scores.recent_by_segment.items()
                for name, value in of.items()
            },
            ("segment", "name"),
        ),
        counter("segment_labels", "labels", "Labels by segment.",
            lambda scores: {name: n for name, (n, _) in scores.segments.items()}, ("segment",)),
        gauge("class_labels", "1", "Share of the labels of a class among the last 1,000.", _label_shares, ("class",)),
        gauge("class_precision", "1", "Share of the predictions of a class that were right, of the last 1,000 labels.",
            _of_classes(lambda one: one.precision), ("class",)),
        gauge("class_recall", "1", "Share of the labels of a class that were predicted, of the last 1,000 labels.",
            _of_classes(lambda one: one.recall), ("class",)),
    ),
    "run.monitoring.statistics": (
        *_of_fields("input", "field"),
        gauge("input_new", "1", "Share of texts of the last window that were not in the reference window.",
            lambda part: {name: last.new for name, (_, last) in part.inputs.items()}, ("field",)),
        gauge("input_outside", "1",
            "Share of values of the last window far outside the usual range of the reference window.",
            lambda part: {name: last.outside for name, (_, last) in part.inputs.items()}, ("field",)),
        *_of_fields("prediction", "value"),
        gauge("prediction_share", "1", "Share of a predicted class, in the reference window and in the last one.",
            _prediction_shares, ("class", "window")),
        gauge("calibration_error", "1", "Expected calibration error of the last 1,000 labels of the sample.",
            "reliability.error"),
    ),
    "run.monitoring": (
        counter("drifts", "alarms", "Alarms of changes of the stream, by detector.", _alarms, ("detector",)),
    ),
    "run.monitoring.drift": (
        gauge("drift_evidence", "1",
            "Evidence of a change, of the kernel detector; at half its average_run_length it raises an alarm.",
            "evidence"),
    ),
    "run.monitoring.novelty": (
        counter("novelty_events", "events", "Events of the sample, by whether they are novel.",
            lambda part: {"novel": part.novel, "usual": part.examined - part.novel}, ("outcome",)),
        gauge("novelty_share", "1", "Share of novel events among the last 1,000 of the sample.", "recent"),
        gauge("novelty_share_target", "1", "Bound of this share where the stream does not change.", "rate"),
        gauge("novelty_score", "1", "Quantiles of the novelty scores of the last window.",
            lambda part: {f"{q:g}": score for q, score in zip(LEVELS, part.quantiles, strict=False)}, ("level",)),
    ),
}  # fmt: skip
"""The figures by the part of a `Reading` with their values."""


JUDGED = 8192
"""Number of predictions with labels that are passed to the metrics together, unless their values are read before."""

TOGETHER = 128
"""Number of sampled events that statistics and detectors evaluate together, unless their figures are read before."""


class MonitoringSnapshot(NamedTuple):
    """The figures of the monitoring at one moment; any thread may read them."""

    quality: SeveralScores | None
    statistics: StatisticsSnapshot | None
    drift: DriftSnapshot | None
    novelty: NoveltySnapshot | None

    @property
    def alarms(self) -> list[Mapping[str, Any]]:
        """The last alarms of all detectors."""
        return [alarm for of in (self.drift, self.novelty) if of is not None for alarm in of.alarms]

    def rows(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {name: None if of is None else of.rows() for name, of in self._asdict().items()}


class Monitoring:
    """Collects predictions and their labels, and passes them to metrics, statistics and drift detection.

    `until_due` is the number of predicted events until `look` must be called, so that it is called after the same event
    in each run. `segment_field` is the input whose values are the segments.
    """

    def __init__(
        self,
        *,
        quality: SeveralMetrics | None = None,
        segment_field: str | None = None,
        statistics: StreamStatistics | None = None,
        drift: DriftWatch | None = None,
        novelty: NoveltyWatch | None = None,
    ) -> None:
        self.quality, self.statistics, self.drift, self.novelty = quality, statistics, drift, novelty
        self._parts: dict[str, Any] = {"quality": quality, "statistics": statistics, "drift": drift, "novelty": novelty}
        self._segment_field = segment_field
        self._judged: list[Judged] = []
        self._new: list[tuple[dict[str, Any], Any, Answer, bool]] = []  # the last records, still unknown to the parts
        self._reads_all = quality is not None and quality.needs_probabilities
        self._is_observed = False  # whether the caller calls `observe` for new records
        self._samplers: list[StreamStatistics | DriftWatch] = [] if statistics is None else [statistics]
        if drift is not None and drift.scores:
            self._samplers.append(drift)
        self.until_due = self._until_due()

    @property
    def reads_probabilities(self) -> bool:
        """Whether probabilities of a classifier are read, of every event or of a sample."""
        return self._reads_all or bool(self._samplers)

    @property
    def reads_next(self) -> bool:
        """Whether the probabilities of the next prediction may be read, if all labels come with their features."""
        return self._reads_all or any(part.is_in_sample(len(self._new)) for part in self._samplers)

    def observe(self, x: dict[str, Any]) -> dict[str, Any]:
        """Examine the features of a new record before it is added; return the fields of its line about novelty.

        Unless the caller needs them, the novelty detector examines the records as they are added, which is faster.
        """
        if self.novelty is None:
            return {}
        self._is_observed = True
        novelty = self.novelty.observe(x)
        return {"novelty": novelty.score, "is_novel": novelty.is_novel}

    def observe_all(self, xs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Examine new records as `observe` does each."""
        return [] if self.novelty is None else [self.observe(x) for x in xs]

    def add(self, x: dict[str, Any], y: Any, answer: Answer, is_new: bool) -> None:
        """Collect the features of a record, the label if it is known, and the answer, which may be an earlier one."""
        self.until_due -= is_new
        self._new.append((x, y, answer, is_new))

    def add_all(self, xs: Sequence[dict[str, Any]], ys: Sequence[Any], answers: Sequence[Answer]) -> None:
        """Collect records with their labels and new answers."""
        self._pass_records()
        self.until_due -= len(xs)
        self._add_all(xs, ys, answers)

    def _add_all(self, xs: Sequence[dict[str, Any]], ys: Sequence[Any], answers: Sequence[Answer]) -> None:
        """Pass records with their labels and new answers to the parts."""
        self._add_to_novelty(xs)
        if self.statistics is not None:
            answers = self.statistics.add_all(xs, ys, answers)
        if self.drift is not None:
            self.drift.add_all(xs, answers)
        self._add_judged(xs, ys, answers)

    def end_windows(self, model: Any) -> bool:
        """Complete what is due after this event; return whether `model`, which has learned it, must be reset."""
        self._pass_records()
        if self.statistics is not None and self.statistics.is_full:
            self.statistics.complete(lambda: importances(model))
        has_to_forget = self.drift is not None and self.drift.has_to_forget()
        self.until_due = self._until_due()
        return has_to_forget

    def fold(self) -> None:
        """Evaluate what has accumulated, where that is enough; the grouping into calls does not change the results."""
        self._pass_records()
        if len(self._judged) >= JUDGED:
            self._update_metrics()
        for part in (self.statistics, self.drift, self.novelty):
            if part is not None and part.n_waiting >= TOGETHER:
                part.fold()

    def snapshot(self) -> MonitoringSnapshot:
        """Return the current figures."""
        self._pass_records()
        self._update_metrics()
        return MonitoringSnapshot(
            **{name: None if part is None else part.snapshot() for name, part in self._parts.items()}
        )

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        self._pass_records()
        self._update_metrics()
        return {name: None if part is None else part.state() for name, part in self._parts.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state, parts of which may be missing; predictions collected since are dropped."""
        self._judged, self._new = [], []
        for name, part in self._parts.items():
            if part is not None and state.get(name) is not None:
                part.restore(state[name])
        self.until_due = self._until_due()

    def _update_metrics(self) -> None:
        """Pass the collected predictions with their labels to the metrics, whose cost is mostly per call."""
        judged, self._judged = self._judged, []
        if self.quality is not None:
            self.quality.fold(judged)

    def _pass_records(self) -> None:
        """Pass the last records to the parts."""
        new, self._new = self._new, []
        if not new:
            return
        xs, ys, answers, are_new = zip(*new, strict=True)
        if all(are_new) and None not in ys:
            self._add_all(xs, ys, answers)
            return
        if self.statistics is not None:
            for record in new:
                self.statistics.add(*record)
        new_xs = [x for x, _, _, is_new in new if is_new]
        self._add_to_novelty(new_xs)
        if self.drift is not None:
            self.drift.add_all(new_xs, [answer for _, _, answer, is_new in new if is_new])
        labelled = [(x, y, answer) for x, y, answer, _ in new if y is not None]
        if labelled:
            self._add_judged(*zip(*labelled, strict=True))

    def _add_judged(self, xs: Sequence[dict[str, Any]], ys: Sequence[Any], answers: Sequence[Answer]) -> None:
        """Collect predictions with their labels for the metrics."""
        if self.quality is not None:
            field = self._segment_field
            segments = repeat(None, len(xs)) if field is None else texts_of([x.get(field, MISSING) for x in xs])
            judged = zip(ys, answers, segments, strict=True)
            self._judged += [(y, answer[0], answer[1], segment) for y, answer, segment in judged]

    def _add_to_novelty(self, xs: Sequence[dict[str, Any]]) -> None:
        """Pass new records to the novelty detector, unless it has examined them."""
        if self.novelty is not None and not self._is_observed:
            self.novelty.add_all(xs)

    def _until_due(self) -> float:
        window = math.inf if self.statistics is None else self.statistics.until_window
        return min(window, math.inf if self.drift is None else self.drift.until_check)
