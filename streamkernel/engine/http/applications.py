"""An ASGI application of routes: access control, and errors as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.engine.http.answers import json_answer
from streamkernel.engine.http.guard import Guard


def application_of(routes: Sequence[Route], token: str | None) -> Starlette:
    """Return the application of some routes; `token` is as for :class:`Guard`."""
    app = Starlette(routes=routes, exception_handlers={HTTPException: _answer_http_error, Exception: _answer_failure})
    app.router.redirect_slashes = False
    app.add_middleware(Guard, token=token)
    return app


def metrics_answer(request: Request, registry: CollectorRegistry) -> Response:
    """Return the metrics of a registry in the format that a scraper accepts."""
    encoder, kind = choose_encoder(request.headers.get("accept", ""))
    return Response(encoder(registry), media_type=kind)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    close = {"connection": "close"} if error.status_code in (408, 413) else {}
    return json_answer({"error": error.detail}, error.status_code, {**(error.headers or {}), **close})


async def _answer_failure(request: Request, error: Exception) -> Response:
    return json_answer({"error": f"{type(error).__name__} while answering"}, 500)
