"""The export of metrics and traces to a collector, by the libraries of OpenTelemetry."""

from __future__ import annotations

import math
import os
import random
import re
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from streamkernel.connectors import Event, Refusal
from streamkernel.connectors.kafka.clients import Headers
from streamkernel.connectors.owner import Owner
from streamkernel.engine.config.environment import interval_of
from streamkernel.engine.delayed_labels import Key
from streamkernel.engine.record_processor import Step
from streamkernel.engine.runner import EngineParts, StreamRunner
from streamkernel.versions import package_version

BOUND = "le"
"""The label of a bucket of a histogram."""

CLOSE_SECONDS = 2.0
"""Seconds that the end of a run waits for a collector, for metrics and for spans."""

PARENT = "traceparent"
CARRIED = (PARENT, "tracestate")
"""Headers of a record that its prediction gets, too."""

_DIGIT, _ODD = 54, frozenset(b"13579bdf")
"""The place of the last digit of a traceparent, and its values if the trace is sampled."""

_SAMPLED = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf](-|$)")

W3C = TraceContextTextMapPropagator()

MOST_PENDING = 10_000
"""Largest number of traced records whose label has not arrived, to which the trace of the label is linked."""

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
        by_labels: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
        for sample in family.samples:
            labels = tuple((name, value) for name, value in sample.labels.items() if name != BOUND)
            by_labels.setdefault(labels, []).append(sample)
        if by_labels:
            points = [_histogram(samples, since, now) for samples in by_labels.values()]
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


def carried(event: Event) -> Headers:
    """Return the headers that the prediction of an event gets, too.

    Examples
    --------
    >>> carried(Event("t:0", 1, b"", headers=(("traceparent", b"00-1-2-00"), ("id", b"7"))))
    (('traceparent', b'00-1-2-00'),)
    """
    return tuple(one for one in event.headers if one[0] in CARRIED and one[1]) if event.headers else ()


class CountingExporter(SpanExporter):
    """Passes spans to another exporter, and counts in `sent` the spans that a collector has taken."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.sent = 0
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = self._exporter.export(spans)
        self.sent += len(spans) if result is SpanExportResult.SUCCESS else 0
        return result

    def shutdown(self) -> None:
        """Stop, also a pause between two attempts."""
        self._exporter.shutdown()


class Tracing:
    """Decides which records are traced, and sends their spans to a collector.

    Spans are sent by another thread, from a bounded queue; what a collector does not take is lost, and counted.
    `resource` is the description of this process. `ratio` is the share of records without a trace that begin one.
    """

    def __init__(self, exporter: SpanExporter, resource: Resource, ratio: float) -> None:
        self._exporter, self._ratio, self._random = CountingExporter(exporter), ratio, random.Random()
        self._provider = TracerProvider(sampling.ALWAYS_ON, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self.tracer = self._provider.get_tracer("streamkernel")
        self.n_spans = 0

    def sampled(self, events: Sequence[Event]) -> deque[tuple[int, Event]]:
        """Return the events that are traced, each with its place."""
        return deque((i, event) for i, event in enumerate(events) if self._is_sampled(event))

    def close(self) -> None:
        """Send the spans that are left, as long as that takes at most `CLOSE_SECONDS`."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if closing.is_alive():
            self._exporter.shutdown()
        if lost := self.n_spans - self._exporter.sent:
            log.warning("spans were lost: the collector did not take them in time", count=lost, made=self.n_spans)

    def _is_sampled(self, event: Event) -> bool:
        for name, value in event.headers:
            if name == PARENT:
                is_sampled = value is not None and len(value) > _DIGIT and value[_DIGIT] in _ODD
                return is_sampled and _SAMPLED.match(value) is not None
        return self._ratio > 0.0 and not event.is_position_only and self._random.random() < self._ratio


class Trace:
    """The spans of one record: one of its processing, which begins now, and one for each part.

    `began` is when it began, in nanoseconds since 1970. `span` is the span of its processing.
    """

    def __init__(self, tracing: Tracing, event: Event) -> None:
        self._tracing, self.began = tracing, time.time_ns()
        parent = W3C.extract({name: value.decode(errors="replace") for name, value in carried(event)}, Context())
        where = event.stream
        attributes: dict[str, str | int] = {"streamkernel.stream": where}
        if event.origin is not None:
            where, attributes = str(event.origin["topic"]), _of_topic(event.origin)
        self.span = self._start_span(f"process {where}", parent, self.began, SpanKind.CONSUMER, attributes)
        self._inside = set_span_in_context(self.span, Context())

    def part(self, name: str, began: int, ended: int) -> None:
        """Add the span of a part that has ended."""
        self._start_span(name, self._inside, began).end(ended)

    @contextmanager
    def writing(self, topic: str | None) -> Iterator[Headers]:
        """Add the span of writing a prediction, to a topic or elsewhere; yield the headers that continue the trace."""
        name, kind = ("write", SpanKind.INTERNAL) if topic is None else (f"send {topic}", SpanKind.PRODUCER)
        attributes = {} if topic is None else _of_topic({"topic": topic}, "send")
        span, headers = self._start_span(name, self._inside, None, kind, attributes), dict[str, str]()
        W3C.inject(headers, set_span_in_context(span, Context()))
        try:
            yield tuple((name, value.encode()) for name, value in headers.items())
        finally:
            span.end()

    def _start_span(
        self,
        name: str,
        parent: Context,
        began: int | None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, str | int] | None = None,
    ) -> Span:
        self._tracing.n_spans += 1
        return self._tracing.tracer.start_span(name, parent, kind, attributes, start_time=began)


def _of_topic(place: Mapping[str, str | int], operation: str = "process") -> dict[str, str | int]:
    """Return the attributes of a topic, and of a record of it, by OpenTelemetry's conventions.

    Examples
    --------
    >>> _of_topic({"topic": "clicks"}, "send")["messaging.destination.name"]
    'clicks'
    """
    attributes: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": place["topic"],
    }
    if "offset" in place:
        attributes["messaging.destination.partition.id"] = str(place["partition"])
        attributes["messaging.kafka.offset"] = place["offset"]
    return attributes


class TracedRunner(StreamRunner):
    """A :class:`StreamRunner` that processes a record alone if its trace is sampled, and makes its spans.

    `tracing` decides which records are traced.
    """

    def __init__(self, parts: EngineParts, tracing: Tracing) -> None:
        super().__init__(parts, headers_of=carried)
        self._tracing = tracing
        self._trace: Trace | None = None  # of the event that is processed now
        self._sampled: deque[tuple[int, Event]] = deque()
        self._pending: OrderedDict[Key, SpanContext] = OrderedDict()
        self._topic = parts.outputs.predictions.topic if parts.outputs.predictions else None
        self._processor.is_timed = True

    def process_all(self, events: Sequence[Event], stopping: Callable[[], bool], watch: Callable[[], None]) -> None:
        """Process the events of one poll."""
        self._sampled = self._tracing.sampled(events)
        super().process_all(events, stopping, watch)

    def process_together(self, events: Sequence[Event], first: int, most: float = math.inf) -> int:
        """Process the next events in one compiled call, up to the next one that is traced."""
        if self._sampled:
            most = min(most, self._sampled[0][0] - first)
        return super().process_together(events, first, most) if most > 0 else 0

    def process(self, event: Event) -> None:
        """Process one event, with spans if it is traced."""
        if not self._sampled or self._sampled[0][1] is not event:
            super().process(event)
            return
        self._sampled.popleft()
        self._processor.predicted_at = 0
        trace = self._trace = Trace(self._tracing, event)
        try:
            super().process(event)
        finally:
            self._trace = None
            trace.span.end()

    def finish(self, event: Event, step: Step) -> None:
        """Write and evaluate a prediction after the spans of how it was made and learned."""
        if self._trace is not None:
            now, predicted = time.time_ns(), self._processor.predicted_at
            _, y, _, is_new = step
            if predicted:
                self._trace.part("predict", self._trace.began, predicted)
            if y is not None:
                self._trace.part("learn", predicted or self._trace.began, now)
            self._link(self._trace, event, is_pending=y is None, is_label=not is_new)
        super().finish(event, step)

    def write(self, event: Event, line: dict[str, Any]) -> None:
        """Write a prediction with the headers of its trace."""
        if self._trace is None:
            self._outputs.gather(line, event.key, carried(event))
            return
        with self._trace.writing(self._topic) as headers:
            self._outputs.write_all([line], [event.key], [headers])

    def refuse(self, event: Event, refusal: Refusal) -> None:
        """Write a dead letter."""
        if self._trace is not None:
            self._trace.span.set_attribute("error.type", refusal.kind)
            self._trace.span.set_status(Status(StatusCode.ERROR, refusal.reason))
        super().refuse(event, refusal)

    def close(self) -> None:
        """Send the spans that are left."""
        self._tracing.close()

    def _link(self, trace: Trace, event: Event, *, is_pending: bool, is_label: bool) -> None:
        """Link the trace of a label that came later to the trace of its features."""
        labels = self._processor.labels
        if labels is None or event.record is None or not (is_pending or is_label):
            return
        key = labels.key_of(event.record)
        if is_pending:
            self._pending[key] = trace.span.get_span_context()
            if len(self._pending) > MOST_PENDING:
                self._pending.popitem(last=False)
        elif is_label and (context := self._pending.pop(key, None)) is not None:
            trace.span.add_link(context)
