"""The metrics of what is watched, for Prometheus; the number of time series is bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from connectors.json_text import printable
from streamkernel.engine.monitoring.monitoring import MonitoringSnapshot
from streamkernel.engine.monitoring.several_metrics import SeveralScores


def monitoring_families(found: MonitoringSnapshot) -> Iterator[Metric]:
    """Yield the metrics of what is watched."""
    if found.quality is not None:
        yield from _quality(found.quality)


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
