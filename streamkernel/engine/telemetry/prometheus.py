"""The figures of a run as metrics for Prometheus and OpenTelemetry, with the names of `docs/reference/metrics.md`.

Each scrape reads the snapshot that the engine publishes. Values that may change while the learner waits, such as for
unavailable brokers, are read at the moment of the scrape: integers under fixed names.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from streamkernel.connectors.json_text import printable
from streamkernel.engine.telemetry.figure import Figure
from streamkernel.engine.telemetry.figures import figures_in
from streamkernel.engine.telemetry.status import reading_of
from streamkernel.versions import package_version

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine

FAMILIES: dict[str, Any] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


class EngineCollector(Collector):
    """The metrics of an engine, for Prometheus. `engine` is the engine; any thread may collect."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield build_info()
        yield from metrics_of(figures_in(reading_of(self._engine)))


def registry_of(engine: Engine) -> CollectorRegistry:
    """Return the metrics of an engine and of its process."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    ProcessCollector(registry=registry)
    return registry


def build_info() -> Metric:
    """Return the versions of the program as a metric."""
    versions = {
        "version": package_version("streamkernel"),
        "river": package_version("river"),
        "python": platform.python_version(),
    }
    return InfoMetricFamily("streamkernel_build", "Versions; always 1.", versions)


def metrics_of(figures: Iterable[tuple[Figure, Any]]) -> Iterator[Metric]:
    """Yield figures as metrics, each read from its part, without the values that do not exist."""
    for figure, part in figures:
        samples = figure.samples(part) if figure.name else None
        if samples is None:
            continue
        family = FAMILIES[figure.kind](f"streamkernel_{figure.name}", figure.help, labels=figure.labels)
        for labels, value in samples:
            texts = [printable(label) for label in labels]
            if figure.kind == "histogram":
                family.add_metric(texts, list(value.buckets), value.total)
            elif not labels or not (value is None or math.isnan(value)):
                family.add_metric(texts, value)
        yield family
