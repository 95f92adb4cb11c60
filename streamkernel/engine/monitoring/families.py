"""The Prometheus metrics of the monitoring; the number of time series is bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamkernel.connectors.json_text import printable
from streamkernel.engine.monitoring.field_windows import QUANTILES, FieldSummary
from streamkernel.engine.monitoring.monitoring import MonitoringSnapshot
from streamkernel.engine.monitoring.novelty_watch import LEVELS, NoveltySnapshot
from streamkernel.engine.monitoring.several_metrics import SeveralScores
from streamkernel.engine.monitoring.stream_statistics import StatisticsSnapshot

WINDOWS = ("reference", "last")


def monitoring_families(found: MonitoringSnapshot) -> Iterator[Metric]:
    """Yield the metrics of the monitoring."""
    if found.quality is not None:
        yield from _quality(found.quality)
    if found.statistics is not None:
        yield from _statistics(found.statistics)
    counts = dict(found.drift.counts) if found.drift is not None else {}
    if found.novelty is not None:
        counts["novelty"] = found.novelty.alarms_raised
        yield from _novelty(found.novelty)
    if counts:
        yield _counters("drifts", "Alarms of changes of the stream, by detector.", "detector", counts)
    if found.drift is not None:
        text = "Evidence of a change, of the kernel detector; at half its average_run_length it raises an alarm."
        evidence = found.drift.evidence
        yield gauges("drift_evidence", text, (), [] if evidence is None else [((), evidence)])


def _novelty(found: NoveltySnapshot) -> Iterator[Metric]:
    counts = {"novel": found.novel, "usual": found.examined - found.novel}
    yield _counters("novelty_events", "Events of the sample, by whether they are novel.", "outcome", counts)
    text = "Share of novel events among the last 1,000 of the sample."
    yield gauges("novelty_share", text, (), [((), found.recent)])
    yield gauges(
        "novelty_share_target", "Bound of this share where the stream does not change.", (), [((), found.rate)]
    )
    text = "Quantiles of the novelty scores of the last window."
    values = (((f"{level:g}",), score) for level, score in zip(LEVELS, found.quantiles, strict=False))
    yield gauges("novelty_score", text, ("level",), values)


def _quality(scores: SeveralScores) -> Iterator[Metric]:
    names = list(scores.since_start)
    text = "Further metrics since the start."
    yield gauges("further_metric", text, ("name",), (((name,), scores.since_start[name]) for name in names))
    text = "Further metrics over the last 1,000 labels."
    yield gauges("further_metric_recent", text, ("name",), (((name,), scores.recent[name]) for name in names))
    text = "Metrics over the labels of a segment among the last 1,000."
    values = (
        ((segment, name), value) for segment, of in scores.recent_by_segment.items() for name, value in of.items()
    )
    yield gauges("segment_metric_recent", text, ("segment", "name"), values)
    text = "Labels by segment."
    yield _counters("segment_labels", text, "segment", {name: n for name, (n, _) in scores.segments.items()})
    classes = scores.recent_by_class
    text = "Share of the labels of a class among the last 1,000."
    total = sum(one.labels for one in classes.values())
    yield gauges("class_labels", text, ("class",), (((name,), one.labels / total) for name, one in classes.items()))
    text = "Share of the predictions of a class that were right, of the last 1,000 labels."
    yield gauges("class_precision", text, ("class",), (((name,), one.precision) for name, one in classes.items()))
    text = "Share of the labels of a class that were predicted, of the last 1,000 labels."
    yield gauges("class_recall", text, ("class",), (((name,), one.recall) for name, one in classes.items()))


def _statistics(found: StatisticsSnapshot) -> Iterator[Metric]:
    yield from _fields("input", "inputs", "field", found.inputs)
    yield from _fields("prediction", "predictions", "value", found.predictions)
    text = "Share of a predicted class, in the reference window and in the last one."
    pairs = zip(WINDOWS, found.predictions.get("prediction", ()), strict=False)
    values = (((name, window), share) for window, of in pairs for name, share in of.shares.items())
    yield gauges("prediction_share", text, ("class", "window"), values)
    text = "Expected calibration error of the last 1,000 labels of the sample."
    error = found.reliability.error
    yield gauges("calibration_error", text, (), [] if error is None else [((), error)])


def _fields(
    prefix: str, what: str, label: str, fields: Mapping[str, tuple[FieldSummary, FieldSummary]]
) -> Iterator[Metric]:
    """Yield the metrics of the fields of inputs or of predictions."""
    both = [((name, window), one) for name, pair in fields.items() for window, one in zip(WINDOWS, pair, strict=True)]
    last = [((name,), one) for name, (_, one) in fields.items()]
    labels = (label, "window")
    text = "in the reference window and in the last one."
    missing = ((k, f.missing) for k, f in both)
    yield gauges(f"{prefix}_missing", f"Share of {what} that are missing, {text}", labels, missing)
    yield gauges(f"{prefix}_mean", f"Mean of {what}, {text}", labels, ((k, f.mean) for k, f in both))
    yield gauges(f"{prefix}_deviation", f"Deviation of {what}, {text}", labels, ((k, f.deviation) for k, f in both))
    values = (((*k, f"{q:g}"), v) for k, f in both for q, v in zip(QUANTILES, f.quantiles or (), strict=False))
    yield gauges(f"{prefix}_quantile", f"Quantiles of {what}, {text}", (*labels, "level"), values)
    change = "Population stability index of the last window against the reference window."
    yield gauges(f"{prefix}_change", change, (label,), ((k, f.change) for k, f in last))
    if prefix == "input":
        text = "Share of texts of the last window that were not in the reference window."
        yield gauges("input_new", text, (label,), ((k, f.new) for k, f in last))
        text = "Share of values of the last window far outside the usual range of the reference window."
        yield gauges("input_outside", text, (label,), ((k, f.outside) for k, f in last))


def gauges(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float | None]]
) -> Metric:
    """Return a metric with labels, without the values that do not exist."""
    family = GaugeMetricFamily(f"streamkernel_{name}", text, labels=labels)
    for of, value in values:
        if value is not None and not math.isnan(value):
            family.add_metric([printable(label) for label in of], value)
    return family


def _counters(name: str, text: str, label: str, counts: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"streamkernel_{name}", text, labels=[label])
    for key, count in counts.items():
        family.add_metric([printable(key)], count)
    return family
