"""The HTTP server, in a thread beside the one that learns, and its routes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.connectors.owner import Owner
from streamkernel.engine.http import openapi
from streamkernel.engine.http.applications import application_of, json_answer, metrics_answer
from streamkernel.engine.http.learning import learning_route
from streamkernel.engine.http.listening import Certificate, Server, listen
from streamkernel.engine.http.page_files import FILES, HEADERS, kind_of, read
from streamkernel.engine.http.predictions import Worker, answer_prediction, version_headers
from streamkernel.engine.telemetry.description import model_rows
from streamkernel.engine.telemetry.prometheus import registry_of
from streamkernel.engine.telemetry.status import status_of

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine


def serve(
    engine: Engine, host: str, port: int, token: str | None = None, certificate: Certificate | None = None
) -> int:
    """Start the server in a thread of its own, and return the port (chosen by the system if `port` is 0).

    Raises
    ------
    OSError
        If the port is in use.
    """
    listening = listen(host, port)
    engine.publisher.wanted = True
    server = Server(application(engine, token), certificate)
    server.owner = Owner("live page", listening.close)  # a child has no thread that answers
    threading.Thread(target=server.run, args=([listening],), daemon=True, name="http").start()
    return int(listening.getsockname()[1])


def application(engine: Engine, token: str | None) -> Starlette:
    """Return the ASGI application of an engine."""
    registry, worker = registry_of(engine), Worker()
    learning = learning_route(engine.source.submit, engine.texts) if engine.source.submit else None
    description = orjson.dumps(openapi.description(needs_token=token is not None, learns=learning is not None))

    async def page(request: Request) -> Response:
        name = FILES[request.url.path]
        return Response(read(name), media_type=kind_of(name), headers=HEADERS)

    async def metrics(request: Request) -> Response:
        return metrics_answer(request, registry)

    async def healthz(request: Request) -> Response:
        reason = engine.ill()
        return json_answer({"status": reason or "ok"}, 503 if reason else 200)

    async def readyz(request: Request) -> Response:
        found = engine.publisher.newest
        reason = engine.ill() or ("" if found else "no model has been published yet")
        return json_answer(
            {"status": reason or "ok"} | ({"model": found.origin} if found else {}), 503 if reason else 200
        )

    async def model(request: Request) -> Response:
        found = _published_model(engine)
        return json_answer(
            {
                "version": found.version,
                "events": found.events,
                "origin": found.origin,
                "about": dict(model_rows(found.model)),
            },
            headers=version_headers(found),
        )

    async def status(request: Request) -> Response:
        return json_answer(status_of(engine))

    async def predict(request: Request) -> Response:
        return await answer_prediction(request, _published_model(engine), worker)

    async def spec(request: Request) -> Response:
        return Response(description, media_type="application/json")

    routes = [Route(path, page) for path in FILES]
    routes += [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz), Route("/model", model)]
    routes += [Route("/status", status), Route("/openapi.json", spec), Route("/predict", predict, methods=["POST"])]
    return application_of(routes if learning is None else [*routes, learning], token)


def _published_model(engine: Engine) -> Any:
    found = engine.publisher.newest
    if found is None:
        raise HTTPException(503, "No model has been published yet; retry", {"retry-after": "1"})
    return found
