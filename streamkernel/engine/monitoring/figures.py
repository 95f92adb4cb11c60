"""The figures of the monitoring, a part of the table of a run's figures; the number of time series is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamkernel.engine.monitoring.field_windows import QUANTILES, FieldSummary
from streamkernel.engine.monitoring.monitoring import MonitoringSnapshot
from streamkernel.engine.monitoring.novelty_watch import LEVELS
from streamkernel.engine.monitoring.several_metrics import SeveralScores
from streamkernel.engine.monitoring.stream_statistics import StatisticsSnapshot
from streamkernel.engine.telemetry.figure import Figure, counter, gauge

WINDOWS = ("reference", "last")


def _alarms(found: MonitoringSnapshot) -> dict[str, int] | None:
    """Return the number of alarms by detector."""
    counts = {} if found.drift is None else dict(found.drift.counts)
    return (counts if found.novelty is None else counts | {"novelty": found.novelty.alarms_raised}) or None


def _of_classes(value: Callable[[Any], Any]) -> Callable[[SeveralScores], dict[str, Any]]:
    """Return a function that reads a value of each class."""
    return lambda scores: {name: value(one) for name, one in scores.recent_by_class.items()}


def _label_shares(scores: SeveralScores) -> dict[str, float]:
    """Return the share of each class in the last labels."""
    total = sum(one.labels for one in scores.recent_by_class.values())
    return {name: one.labels / total for name, one in scores.recent_by_class.items()}


def _prediction_shares(found: StatisticsSnapshot) -> dict[tuple[str, str], float]:
    """Return the share of each predicted class in both windows."""
    pairs = zip(WINDOWS, found.predictions.get("prediction", ()), strict=False)
    return {(name, window): share for window, of in pairs for name, share in of.shares.items()}


def _of_fields(prefix: str, label: str) -> tuple[Figure, ...]:
    """Return the figures of the fields of inputs or of predictions."""
    text, labels, unit = "in the reference window and in the last one.", (label, "window"), f"of the {label}"

    def each(values: Callable[[FieldSummary], dict[tuple[str, ...], Any]]) -> Callable[[StatisticsSnapshot], Any]:
        return lambda found: {
            (name, window, *level): value
            for name, pair in getattr(found, f"{prefix}s").items()
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
            lambda found: {name: last.change for name, (_, last) in getattr(found, f"{prefix}s").items()}, (label,),
        ),
    )  # fmt: skip


MONITORING: dict[str, tuple[Figure, ...]] = {
    "monitoring.quality": (
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
    "monitoring.statistics": (
        *_of_fields("input", "field"),
        gauge("input_new", "1", "Share of texts of the last window that were not in the reference window.",
            lambda found: {name: last.new for name, (_, last) in found.inputs.items()}, ("field",)),
        gauge("input_outside", "1",
            "Share of values of the last window far outside the usual range of the reference window.",
            lambda found: {name: last.outside for name, (_, last) in found.inputs.items()}, ("field",)),
        *_of_fields("prediction", "value"),
        gauge("prediction_share", "1", "Share of a predicted class, in the reference window and in the last one.",
            _prediction_shares, ("class", "window")),
        gauge("calibration_error", "1", "Expected calibration error of the last 1,000 labels of the sample.",
            "reliability.error"),
    ),
    "monitoring": (
        counter("drifts", "alarms", "Alarms of changes of the stream, by detector.", _alarms, ("detector",)),
    ),
    "monitoring.drift": (
        gauge("drift_evidence", "1",
            "Evidence of a change, of the kernel detector; at half its average_run_length it raises an alarm.",
            "evidence"),
    ),
    "monitoring.novelty": (
        counter("novelty_events", "events", "Events of the sample, by whether they are novel.",
            lambda found: {"novel": found.novel, "usual": found.examined - found.novel}, ("outcome",)),
        gauge("novelty_share", "1", "Share of novel events among the last 1,000 of the sample.", "recent"),
        gauge("novelty_share_target", "1", "Bound of this share where the stream does not change.", "rate"),
        gauge("novelty_score", "1", "Quantiles of the novelty scores of the last window.",
            lambda found: {f"{q:g}": score for q, score in zip(LEVELS, found.quantiles, strict=False)}, ("level",)),
    ),
}  # fmt: skip
"""The figures by the part of a `Reading` with their values."""
