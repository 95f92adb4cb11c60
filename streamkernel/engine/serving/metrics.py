"""The metrics of served models for Prometheus, the same from whichever worker answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from streamkernel.connectors.json_text import printable
from streamkernel.engine.serving.counts import SharedCounts
from streamkernel.engine.serving.follower import CheckpointFollower
from streamkernel.engine.telemetry.prometheus import build_info


class ServingCollector(Collector):
    """The metrics of served models, for Prometheus.

    Parameters
    ----------
    followers
        The models.
    counts
        Requests of all workers.
    """

    def __init__(self, followers: Sequence[CheckpointFollower], counts: SharedCounts) -> None:
        self._followers, self._counts = followers, counts

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield build_info()
        age = _gauge("age_seconds", "Time since the checkpoint of the model was written.")
        number = _gauge("checkpoint", "Number of the checkpoint that the model is from.")
        events = _gauge("events", "Events that the model has learned.")
        problem = _gauge("problem", "1 if the newest checkpoint cannot be used and an older model answers, or none.")
        for follower in self._followers:
            name, found = [printable(follower.name)], follower.newest
            problem.add_metric(name, float(bool(follower.problem)))
            if found is not None:
                age.add_metric(name, found.age)
                number.add_metric(name, found.model.version)
                events.add_metric(name, found.model.events)
        yield from (age, number, events, problem)
        yield from self._requests()
        text = "Worker processes that ended and were started again."
        yield CounterMetricFamily("streamkernel_serve_restarts", text, self._counts.restarts)

    def _requests(self) -> Iterator[Metric]:
        """Yield the counts of requests."""
        text = "Requests for predictions, by class of status."
        requests = CounterMetricFamily("streamkernel_serve_requests", text, labels=["model", "status"])
        records = CounterMetricFamily("streamkernel_serve_records", "Records that were predicted.", labels=["model"])
        text = "Time from a request's headers to its response."
        seconds = HistogramMetricFamily("streamkernel_serve_request_seconds", text, labels=["model"])
        for model in self._counts:
            name, counts = printable(model), self._counts.of(model)
            for status, count in counts.requests.items():
                requests.add_metric([name, status], count)
            records.add_metric([name], counts.records)
            seconds.add_metric([name], counts.buckets, counts.seconds)
        yield from (requests, records, seconds)


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"streamkernel_served_model_{name}", text, labels=["model"])
