"""The connection to a collector: the resource of a process, and a thread that sends its metrics."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from streamkernel.connectors.owner import Owner
from streamkernel.engine.config.environment import interval_of
from streamkernel.versions import package_version

BOUND = "le"
"""The label of a bucket of a histogram."""

CLOSE_SECONDS = 2.0
"""Seconds that the end of a run waits for a collector, for metrics and for spans."""

log = structlog.get_logger("streamkernel")


def metrics_data(families: Iterable[Metric], resource: Resource, since: int) -> export.MetricsData:
    """Return the values of all metrics at this moment.

    `families` are the metrics as Prometheus's client collects them. `resource` is the process that they describe.
    `since` is when its counters were first observed, in nanoseconds since 1970.

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
    metrics = [metric for family in families for metric in _metrics(family, since, now)]
    of_scope = export.ScopeMetrics(scope, metrics, "")
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
    by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != BOUND)
        by_labels.setdefault(labels, []).append(sample)
    return by_labels.values()


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


def resource_of(member: str | None) -> Resource:
    """Return the description of this process; variables of the environment take precedence.

    `member` is the identity of its state directory, which a restart keeps; ``None`` if it has none.
    """
    attributes = {
        "service.name": "streamkernel",
        "service.version": package_version("streamkernel"),
        "service.instance.id": member or str(uuid.uuid4()),
    }
    return Resource.create(attributes).merge(OTELResourceDetector().detect())


def span_exporter(endpoint: str | None) -> OTLPSpanExporter:
    """Return the exporter of spans to a collector; without an address, to the one that the environment names."""
    return OTLPSpanExporter(None if endpoint is None else f"{endpoint}/v1/traces")


class MetricsExport:
    """A thread that sends the metrics of a registry periodically, and once at the end.

    `registry` are the metrics; any thread may collect them. `endpoint` is the address of the collector; without one,
    the address in the environment. `resource` is the description of this process.
    """

    def __init__(self, registry: CollectorRegistry, endpoint: str | None, resource: Resource) -> None:
        self._registry, self._resource, self._since = registry, resource, time.time_ns()
        self._exporter = OTLPMetricExporter(None if endpoint is None else f"{endpoint}/v1/metrics")
        self._seconds, self._stopping = interval_of(os.environ), threading.Event()
        self._owner = Owner("export of metrics")
        self._thread = threading.Thread(target=self._export_periodically, daemon=True, name="otlp metrics")
        self._thread.start()

    def close(self) -> None:
        """Send the metrics once more, as long as that takes at most `CLOSE_SECONDS`."""
        if not self._owner.is_here:
            return
        self._stopping.set()
        self._thread.join(CLOSE_SECONDS)
        self._exporter.shutdown()

    def _export_periodically(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._export_once()
        self._export_once()

    def _export_once(self) -> None:
        try:
            self._exporter.export(metrics_data(self._registry.collect(), self._resource, self._since))
        except Exception:
            log.warning("the metrics could not be collected for OpenTelemetry", exc_info=True)
