"""The connection to a collector: the resource of a process, and a thread that sends its metrics."""

from __future__ import annotations

import os
import threading
import time
import uuid

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import CollectorRegistry

from streamkernel.connectors.owner import Owner
from streamkernel.engine.otel.environment import interval_of
from streamkernel.engine.otel.metrics import metrics_data
from streamkernel.versions import package_version

CLOSE_SECONDS = 2.0
"""Seconds that the end of a run waits for a collector, for metrics and for spans."""

log = structlog.get_logger("streamkernel")


def resource_of(member: str | None) -> Resource:
    """Return the description of this process; variables of the environment take precedence.

    Parameters
    ----------
    member
        The identity of its state directory, which a restart keeps; ``None`` if it has none.
    """
    own = {
        "service.name": "streamkernel",
        "service.version": package_version("streamkernel"),
        "service.instance.id": member or str(uuid.uuid4()),
    }
    return Resource.create(own).merge(OTELResourceDetector().detect())


def span_exporter(endpoint: str | None) -> OTLPSpanExporter:
    """Return the exporter of spans to a collector; without an address, to the one that the environment names."""
    return OTLPSpanExporter(None if endpoint is None else f"{endpoint}/v1/traces")


class MetricsExport:
    """A thread that sends the metrics of a registry periodically, and once at the end.

    Parameters
    ----------
    registry
        The metrics; any thread may collect them.
    endpoint
        The address of the collector; without one, that of the environment.
    resource
        The description of this process.
    """

    def __init__(self, registry: CollectorRegistry, endpoint: str | None, resource: Resource) -> None:
        self._registry, self._resource, self._since = registry, resource, time.time_ns()
        self._exporter = OTLPMetricExporter(None if endpoint is None else f"{endpoint}/v1/metrics")
        self._seconds, self._stopping = interval_of(os.environ), threading.Event()
        self._owner = Owner("export of metrics")
        self._thread = threading.Thread(target=self._run, daemon=True, name="otlp metrics")
        self._thread.start()

    def close(self) -> None:
        """Send the metrics once more, as long as that takes at most `CLOSE_SECONDS`."""
        if not self._owner.is_here:
            return
        self._stopping.set()
        self._thread.join(CLOSE_SECONDS)
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._export()
        self._export()

    def _export(self) -> None:
        try:
            self._exporter.export(metrics_data(self._registry.collect(), self._resource, self._since))
        except Exception:
            log.warning("the metrics could not be collected for OpenTelemetry", exc_info=True)
