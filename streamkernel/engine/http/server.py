"""The HTTP server, in a thread beside the one that learns, and its routes."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from importlib import resources
from typing import TYPE_CHECKING, Any

import orjson
import uvicorn
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.engine.http import openapi
from streamkernel.engine.http.answers import json_answer
from streamkernel.engine.http.connections import HEAD_BYTES, IDLE_SECONDS, Connection
from streamkernel.engine.http.guard import Guard
from streamkernel.engine.http.questions import SHORT_BYTES, answer_to, is_explanation_wanted, question_in
from streamkernel.engine.http.worker import BusyError, Worker
from streamkernel.engine.telemetry.description import model_rows
from streamkernel.engine.telemetry.prometheus import EngineCollector
from streamkernel.engine.telemetry.status import status_of

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine

LARGEST_BODY = 1 << 20
"""Largest size of a body in bytes."""

BODY_SECONDS = 10.0
"""Seconds in which a body has to arrive."""

BACKLOG = 128
"""Connections that the system queues for the server."""

SWITCH_SECONDS = 5e-4
"""Seconds for which a thread keeps the interpreter while another waits; the default would slow responses tenfold."""

PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
SAFE = {
    "content-security-policy": "; ".join(
        ["default-src 'self'", "img-src data:", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"]
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def serve(engine: Engine, host: str, port: int, token: str | None = None) -> int:
    """Start the server in a thread of its own, and return the port (chosen by the system if `port` is 0).

    Raises
    ------
    OSError
        If the port is in use.
    """
    try:
        listening = socket.create_server((host, port), family=_family(host), backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"Expected to serve HTTP, got {error.strerror or error} - at {host}:{port}") from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else an answer's second packet waits for 40 ms
    sys.setswitchinterval(SWITCH_SECONDS)
    engine.publisher.wanted = True
    config = uvicorn.Config(
        application(engine, token), http=Connection, ws="none", loop="asyncio", lifespan="off", log_config=None,
        log_level="error", access_log=False, server_header=False, proxy_headers=False, backlog=BACKLOG,
        h11_max_incomplete_event_size=HEAD_BYTES, timeout_keep_alive=int(IDLE_SECONDS),
    )  # fmt: skip
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, args=([listening],), daemon=True, name="http").start()
    return int(listening.getsockname()[1])


def application(engine: Engine, token: str | None) -> Starlette:
    """Return the ASGI application of an engine."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    ProcessCollector(registry=registry)
    worker = Worker()
    description = orjson.dumps(openapi.description(needs_token=token is not None))

    async def page(request: Request) -> Response:
        name, kind = PAGE[request.url.path]
        return Response(resources.files(__package__).joinpath("page", name).read_bytes(), media_type=kind, headers=SAFE)

    async def metrics(request: Request) -> Response:
        encoder, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(registry), media_type=kind)

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
            headers=_versions(found),
        )

    async def status(request: Request) -> Response:
        return json_answer(status_of(engine))

    async def predict(request: Request) -> Response:
        found = _published_model(engine)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "Expected a body of content-type application/json")
        try:
            body = await _body(request)
            question, explained = question_in(body), is_explanation_wanted(request.query_params)
            answer = await worker.run(
                lambda: json_answer(answer_to(question, found, explained=explained), headers=_versions(found)),
                is_short=isinstance(question, dict) and len(body) <= SHORT_BYTES and not explained,
            )
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except BusyError:
            raise HTTPException(503, "Too many requests are waiting; retry later", {"retry-after": "1"}) from None
        return answer

    async def spec(request: Request) -> Response:
        return Response(description, media_type="application/json")

    routes = [Route(path, page) for path in PAGE]
    routes += [Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz), Route("/model", model)]
    routes += [Route("/status", status), Route("/openapi.json", spec), Route("/predict", predict, methods=["POST"])]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _answer_http_error, Exception: _answer_failure})
    app.router.redirect_slashes = False
    app.add_middleware(Guard, token=token)
    return app


async def _body(request: Request) -> bytes:
    """Return the body of a request, or raise an error if it is too long or too slow."""
    too_long = HTTPException(413, f"Expected a body of at most {LARGEST_BODY:,} bytes, got more")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > LARGEST_BODY:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST_BODY:
                    raise too_long
    except TimeoutError:
        raise HTTPException(408, f"Expected a body within {BODY_SECONDS:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "Expected a complete body, got a part of it") from None
    return bytes(body)


def _published_model(engine: Engine) -> Any:
    found = engine.publisher.newest
    if found is None:
        raise HTTPException(503, "No model has been published yet; retry", {"retry-after": "1"})
    return found


def _versions(found: Any) -> dict[str, str]:
    return {"streamkernel-version": str(found.version), "streamkernel-events": str(found.events)}


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    close = {"connection": "close"} if error.status_code in (408, 413) else {}
    return json_answer({"error": error.detail}, error.status_code, {**(error.headers or {}), **close})


async def _answer_failure(request: Request, error: Exception) -> Response:
    return json_answer({"error": f"{type(error).__name__} while answering"}, 500)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
