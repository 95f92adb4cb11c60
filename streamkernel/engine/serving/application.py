"""The routes of a process that serves models of checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import orjson
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.engine.http import openapi
from streamkernel.engine.http.applications import application_of, json_answer, metrics_answer
from streamkernel.engine.http.predictions import Worker, answer_prediction, version_headers
from streamkernel.engine.serving.follower import CheckpointFollower, ServedModel
from streamkernel.engine.serving.metrics import ServingCollector, SharedCounts
from streamkernel.engine.telemetry.description import model_rows


def serving_application(followers: Sequence[CheckpointFollower], counts: SharedCounts, token: str | None) -> Starlette:
    """Return the ASGI application of some models; the paths of a run name the model if there is only one.

    Parameters
    ----------
    followers
        The models.
    counts
        Where requests are counted.
    token
        As for :class:`~streamkernel.engine.http.applications.Guard`.
    """
    registry = CollectorRegistry()
    registry.register(ServingCollector(followers, counts))
    by_name = {follower.name: follower for follower in followers}
    only = followers[0].name if len(followers) == 1 else None
    worker = Worker()
    description = orjson.dumps(openapi.serving_description(has_one=only is not None, needs_token=token is not None))

    def follower_of(request: Request) -> CheckpointFollower:
        name = request.path_params.get("name", only)
        found = by_name.get(name) if name is not None else None
        if found is None:
            raise HTTPException(404, f"Expected /models/NAME with one of {', '.join(by_name)}")
        return found

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
        found = _model_of(follower_of(request))
        about = {"about": dict(model_rows(found.model.model))}
        return json_answer(_summary(found) | about, headers=version_headers(found.model))

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
    found = follower.newest
    if found is None:
        reason = follower.problem or "it is being loaded"
        raise HTTPException(503, f"No model yet ({reason}); retry", {"retry-after": "1"})
    return found


def _all(followers: Sequence[CheckpointFollower]) -> dict[str, Any]:
    """Return the state of each model, by name."""
    return {
        follower.name: ({} if follower.newest is None else _summary(follower.newest)) | {"problem": follower.problem}
        for follower in followers
    }


def _summary(found: ServedModel) -> dict[str, Any]:
    model = found.model
    return {
        "version": model.version,
        "events": model.events,
        "origin": f"checkpoint {model.version}",
        "age_seconds": round(found.age, 3),
    }
