"""The routes and metrics of a process that serves models of checkpoints."""

from __future__ import annotations

import mmap
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.connectors.json_text import printable
from streamkernel.engine.http import openapi
from streamkernel.engine.http.applications import application_of, json_answer, metrics_answer
from streamkernel.engine.http.predictions import Worker, answer_prediction, version_headers
from streamkernel.engine.serving.follower import CheckpointFollower, ServedModel
from streamkernel.engine.telemetry.status import build_info, model_rows

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

    `worker` is the row of this process.

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
        counts = self._counts[:, self._models[model]].sum(axis=0).tolist()
        bounds = ["+Inf" if bound == np.inf else str(bound) for bound in BOUNDS]
        buckets = np.cumsum(counts[len(STATUSES) : -2]).tolist()
        requests = dict(zip(STATUSES, counts, strict=False))
        return ModelCounts(requests, counts[-2], list(zip(bounds, buckets, strict=True)), counts[-1])

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
    """The metrics of served models, for Prometheus. `counts` are requests of all workers."""

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
            name, served = [printable(follower.name)], follower.newest
            problem.add_metric(name, float(bool(follower.problem)))
            if served is not None:
                age.add_metric(name, served.age)
                number.add_metric(name, served.model.version)
                events.add_metric(name, served.model.events)
        yield from (age, number, events, problem)
        yield from self._requests()
        text = "Worker processes that ended and were started again."
        yield CounterMetricFamily("streamkernel_serve_restarts", text, self._counts.restarts)

    def _requests(self) -> Iterator[Metric]:
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


def serving_application(followers: Sequence[CheckpointFollower], counts: SharedCounts, token: str | None) -> Starlette:
    """Return the ASGI application of some models; the paths of a run name the model if there is only one.

    `counts` is where requests are counted. `token` is as for :class:`~streamkernel.engine.http.applications.Guard`.
    """
    registry = CollectorRegistry()
    registry.register(ServingCollector(followers, counts))
    by_name = {follower.name: follower for follower in followers}
    only = followers[0].name if len(followers) == 1 else None
    worker = Worker()
    description = orjson.dumps(openapi.serving_description(has_one=only is not None, needs_token=token is not None))

    def follower_of(request: Request) -> CheckpointFollower:
        name = request.path_params.get("name", only)
        follower = by_name.get(name) if name is not None else None
        if follower is None:
            raise HTTPException(404, f"Expected /models/NAME with one of {', '.join(by_name)}")
        return follower

    async def predict(request: Request) -> Response:
        follower, began, status = follower_of(request), time.perf_counter(), 500
        try:
            answer = await answer_prediction(request, _model_of(follower).model, worker)
            status = answer.status_code
            return answer
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            records = request.state.records if status == 200 else 0
            counts.add(follower.name, status, time.perf_counter() - began, records)

    async def model(request: Request) -> Response:
        served = _model_of(follower_of(request))
        about = {"about": dict(model_rows(served.model.model))}
        return json_answer(_summary(served) | about, headers=version_headers(served.model))

    async def models(request: Request) -> Response:
        return json_answer({"models": _all(followers)})

    async def readyz(request: Request) -> Response:
        missing = [f"{one.name}: {one.problem or 'loading'}" for one in followers if one.newest is None]
        status = {"status": "no model yet: " + "; ".join(missing) if missing else "ok", "models": _all(followers)}
        return json_answer(status, 503 if missing else 200)

    async def healthz(request: Request) -> Response:
        return json_answer({"status": "ok"})

    async def metrics(request: Request) -> Response:
        return metrics_answer(request, registry)

    async def spec(request: Request) -> Response:
        return Response(description, media_type="application/json")

    routes = [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)]
    routes += [Route("/openapi.json", spec), Route("/models", models), Route("/models/{name}", model)]
    routes += [Route(path, predict, methods=["POST"]) for path in ("/predict", "/models/{name}/predict")]
    return application_of([*routes, Route("/model", model)], token)


def _model_of(follower: CheckpointFollower) -> ServedModel:
    served = follower.newest
    if served is None:
        reason = follower.problem or "it is being loaded"
        raise HTTPException(503, f"No model yet ({reason}); retry", {"retry-after": "1"})
    return served


def _all(followers: Sequence[CheckpointFollower]) -> dict[str, Any]:
    """Return the state of each model, by name."""
    return {
        follower.name: ({} if follower.newest is None else _summary(follower.newest)) | {"problem": follower.problem}
        for follower in followers
    }


def _summary(served: ServedModel) -> dict[str, Any]:
    model = served.model
    return {
        "version": model.version,
        "events": model.events,
        "origin": f"checkpoint {model.version}",
        "age_seconds": round(served.age, 3),
    }
