"""The engine's numbers for Prometheus. They are read when they are scraped, so an event pays next to nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from streamkernel.engine.runner import Engine

BOUNDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 0.1, 1.0)


class Durations:
    """How often an event took how long, in seconds.

    Examples
    --------
    >>> durations = Durations()
    >>> durations.observe(3e-5)
    >>> dict(durations.buckets())["5e-05"], dict(durations.buckets())["+Inf"]
    (1.0, 1.0)
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one event."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return the events up to each bound, cumulated as Prometheus has it."""
        cumulated, seen = [], 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._counts, strict=True):
            seen += count
            cumulated.append((bound, float(seen)))
        return cumulated


class EngineCollector(Collector):
    """Gives Prometheus the present numbers of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        engine = self._engine
        model = engine.kernel_model
        if model is not None:
            yield _gauge("objective", "Running regularised loss, each example before it is learnt.", model.objective)
            yield _gauge("features", "Random features in the model.", model.n_features)
            yield _gauge("seeds", "Blocks of features in the model, each of one seed.", model.n_seeds)
            yield CounterMetricFamily("streamkernel_reused", "Steps that moved an old block.", model.n_reused)
        events = CounterMetricFamily("streamkernel_events", "Events by what became of them.", labels=["outcome"])
        for outcome, count in engine.outcomes.items():
            events.add_metric([outcome], count)
        yield events
        if engine.labels:
            labels = CounterMetricFamily(
                "streamkernel_labels", "Labels in records of their own, by what became of them.", labels=["outcome"]
            )
            for outcome, count in engine.labels.items():
                labels.add_metric([outcome], count)
            yield labels
            yield _gauge("pending_labels", "Features that wait for their label.", engine.pending_labels)
        seconds = HistogramMetricFamily("streamkernel_event_seconds", "Time to predict and learn one event.")
        seconds.add_metric([], engine.durations.buckets(), engine.durations.total)
        yield seconds
        lag = GaugeMetricFamily(
            "streamkernel_consumer_lag",
            "What waits behind the last event: records of a topic, bytes of a file.",
            labels=["topic", "partition"],
        )
        for (topic, partition), waiting in engine.source.lag().items():
            lag.add_metric([topic, partition], waiting)
        yield lag
        incidents = CounterMetricFamily(
            "streamkernel_incidents", "What happened to a run that went on, by kind.", labels=["kind"]
        )
        for kind, count in engine.incidents.items():
            incidents.add_metric([kind], count)
        yield incidents
        age = engine.checkpoint_age
        if age is not None:
            yield _gauge("checkpoint_age_seconds", "Time since the last checkpoint was durable.", age)
        quality = GaugeMetricFamily("streamkernel_metric", "Prequential quality since the start.", labels=["name"])
        for name, value in engine.quality().items():
            quality.add_metric([name], value)
        yield quality


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"streamkernel_{name}", text, value)


def serve(engine: Engine, host: str, port: int) -> int:
    """Answer ``/metrics`` from a thread, and return the port (of the system's choice if `port` is 0).

    Raises
    ------
    OSError
        If the port is in use.
    """
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise OSError(f"Expected to serve metrics, got {error.strerror or error} - at {host}:{port}") from error
    return int(server.server_port)
