"""The metrics of served models for Prometheus, the same from whichever worker answers."""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from streamkernel.connectors.json_text import printable
from streamkernel.engine.serving.follower import CheckpointFollower
from streamkernel.engine.telemetry.prometheus import build_info

STATUSES = ("2xx", "4xx", "5xx")

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, np.inf)
"""Upper bounds of the histogram of response times, in seconds."""

_FIELDS = len(STATUSES) + len(BOUNDS) + 2


class ModelCounts(NamedTuple):
    """Requests to one model, of all workers since the start.

    Parameters
    ----------
    requests
        By class of status.
    records
        Records that were predicted.
    buckets
        Requests by the upper bound of their time, cumulative.
    seconds
        The sum of their times.
    """

    requests: dict[str, float]
    records: float
    buckets: list[tuple[str, float]]
    seconds: float


class SharedCounts:
    """Counts by worker and model, in memory that is inherited by forked processes; each worker writes its own row.

    Parameters
    ----------
    workers
        Worker processes.
    models
        Names of the models.

    Attributes
    ----------
    worker : int
        The row of this process.

    Examples
    --------
    >>> counts = SharedCounts(2, ["clicks"])
    >>> counts.add("clicks", 200, 0.002, records=3)
    >>> counts.of("clicks").requests, counts.of("clicks").records
    ({'2xx': 1.0, '4xx': 0.0, '5xx': 0.0}, 3.0)
    """

    def __init__(self, workers: int, models: Sequence[str]) -> None:
        self.worker = 0
        self._models = {name: i for i, name in enumerate(models)}
        size = workers * len(models) * _FIELDS
        memory = np.frombuffer(mmap.mmap(-1, 8 * (size + 1)))
        self._restarts = memory[size:]
        self._counts = memory[:size].reshape(workers, len(models), _FIELDS)

    def add(self, model: str, status: int, seconds: float, records: int = 0) -> None:
        """Count a request."""
        row = self._counts[self.worker, self._models[model]]
        row[min(max(status // 100 - 3, 0), 2)] += 1.0
        row[len(STATUSES) + bisect_left(BOUNDS, seconds)] += 1.0
        row[-2] += records
        row[-1] += seconds

    def of(self, model: str) -> ModelCounts:
        """Return the counts of a model."""
        found = self._counts[:, self._models[model]].sum(axis=0).tolist()
        bounds = ["+Inf" if bound == np.inf else str(bound) for bound in BOUNDS]
        buckets = np.cumsum(found[len(STATUSES) : -2]).tolist()
        requests = dict(zip(STATUSES, found, strict=False))
        return ModelCounts(requests, found[-2], list(zip(bounds, buckets, strict=True)), found[-1])

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of models."""
        return iter(self._models)

    @property
    def restarts(self) -> float:
        """Workers that ended and were started again."""
        return float(self._restarts[0])

    def add_restart(self) -> None:
        """Count a worker that is started again."""
        self._restarts[0] += 1.0


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
