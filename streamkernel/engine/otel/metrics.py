"""The metrics of a scrape in OpenTelemetry's form, with the same names, labels and values."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from streamkernel.versions import package_version

BOUND = "le"
"""The label of a bucket of a histogram."""


def metrics_data(families: Iterable[Metric], resource: Resource, since: int) -> export.MetricsData:
    """Return the values of all metrics at this moment.

    Parameters
    ----------
    families
        The metrics as Prometheus's client collects them.
    resource
        The process that they describe.
    since
        When its counters were first observed, in nanoseconds since 1970.

    Examples
    --------
    >>> from prometheus_client.core import CounterMetricFamily
    >>> data = metrics_data([CounterMetricFamily("events", "Events.", 7)], Resource.get_empty(), 0)
    >>> metric = data.resource_metrics[0].scope_metrics[0].metrics[0]
    >>> metric.name, metric.data.data_points[0].value
    ('events_total', 7.0)
    """
    now = time.time_ns()
    scope = InstrumentationScope("streamkernel", package_version("streamkernel"))
    found = [metric for family in families for metric in _metrics(family, since, now)]
    of_scope = export.ScopeMetrics(scope, found, "")
    return export.MetricsData([export.ResourceMetrics(resource, [of_scope], "")])


def _metrics(family: Metric, since: int, now: int) -> Iterator[export.Metric]:
    cumulative, text, unit = export.AggregationTemporality.CUMULATIVE, family.documentation, family.unit
    if family.type == "histogram":
        if family.samples:
            points = [_histogram(samples, since, now) for samples in _by_labels(family.samples)]
            yield export.Metric(family.name, text, unit, export.Histogram(points, cumulative))
        return
    by_name: dict[str, list[export.NumberDataPoint]] = {}
    for sample in family.samples:
        point = export.NumberDataPoint(dict(sample.labels), since, now, float(sample.value))
        by_name.setdefault(sample.name, []).append(point)
    for name, numbers in by_name.items():
        if family.type == "counter":
            yield export.Metric(name, text, unit, export.Sum(numbers, cumulative, is_monotonic=True))
        else:
            yield export.Metric(name, text, unit, export.Gauge(numbers))


def _by_labels(samples: Iterable[Sample]) -> Iterable[list[Sample]]:
    """Return the samples of each histogram of a family."""
    found: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != BOUND)
        found.setdefault(labels, []).append(sample)
    return found.values()


def _histogram(samples: Iterable[Sample], since: int, now: int) -> export.HistogramDataPoint:
    """Return one histogram, whose buckets are cumulated in `samples` and are not in the result."""
    bounds, counts, total, below = [], [], 0.0, 0
    labels: dict[str, str] = {}
    for sample in samples:
        if BOUND in sample.labels:
            bounds.append(float(sample.labels[BOUND]))
            counts.append(int(sample.value) - below)
            below = int(sample.value)
        elif sample.name.endswith("_sum"):
            labels, total = dict(sample.labels), float(sample.value)
    extremes: dict[str, None] = {"min": None, "max": None}  # which a scrape does not have
    return export.HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=since,
        time_unix_nano=now,
        count=below,
        sum=total,
        bucket_counts=counts,
        explicit_bounds=bounds[:-1],
        **extremes,  # type: ignore[arg-type]
    )
