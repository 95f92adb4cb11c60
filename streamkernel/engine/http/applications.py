"""ASGI applications of routes: access control, values and errors as JSON.

Access is for clients with the token, or without a token for programs on this machine.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.connectors.json_text import to_json
from streamkernel.engine.http.page_files import FILES

_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS

OPEN = (*FILES, "/metrics", "/healthz", "/readyz", "/openapi.json")
"""Paths that need no token."""

_HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")

_FORWARDED = (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")

Headers = Iterable[tuple[bytes, bytes]]


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a value of Python or numpy as JSON."""
    return Response(to_json(value, _JSON), status, headers, "application/json")


class Guard:
    """Access control by token, or without a token by origin: this machine, addressed by a local name.

    The name is checked because a page on the Internet could have a name that resolves to this machine. A request
    through a proxy comes from elsewhere, and without a token is refused. So is one that a browser sends for a page of
    another origin.
    """

    def __init__(self, app: Any, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else token.encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Process a request or refuse it."""
        assert scope["type"] == "http"
        refused = _framing_problem(scope)
        if refused is None and scope["path"] not in OPEN:
            refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, send)

    def _refusal(self, scope: MutableMapping[str, Any]) -> Response | None:
        if self._expected is not None:
            if _has_token(scope["headers"], self._expected):
                return None
            return json_answer(
                {"error": "Expected Authorization: Bearer and the token"}, 401, {"www-authenticate": "Bearer"}
            )
        if not is_loopback(scope["client"][0] if scope["client"] else ""):
            return _refusal(403, "Expected a request from this machine; set a token to allow others")
        if any(name in _FORWARDED for name, _ in scope["headers"]):
            return _refusal(403, "Expected a request from this machine, got one from a proxy; set a token to allow it")
        hosts = _values(scope["headers"], b"host")
        if len(hosts) != 1:
            return _refusal(400, f"Expected one Host header, got {len(hosts) or 'none'}")
        host = _HOST.fullmatch(hosts[0].decode("latin-1"))
        if host is None or not is_loopback(host["name"].strip("[]").lower()):
            return _refusal(403, "Expected a request to this machine by its name, as localhost, got another Host")
        if any(origin.partition(b"://")[2] != hosts[0] for origin in _values(scope["headers"], b"origin")):
            return _refusal(403, "Expected a request of a page of this server, got one of another Origin")
        is_read = scope["method"] in ("GET", "HEAD")  # as by a link; what it answers no page of another site can read
        if not is_read and b"cross-site" in _values(scope["headers"], b"sec-fetch-site"):
            return _refusal(403, "Expected a request of a page of this server, got one of another site")
        return None


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is a loopback one.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _framing_problem(scope: MutableMapping[str, Any]) -> Response | None:
    """Return the reason to refuse a request whose end a proxy might have placed elsewhere."""
    coded = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    if not coded:
        return None
    if scope["http_version"] == "1.0":
        return _refusal(400, "Expected Content-Length in HTTP/1.0, got Transfer-Encoding", {"connection": "close"})
    if any(name == b"content-length" for name, _ in scope["headers"]):
        return _refusal(400, "Expected Content-Length or Transfer-Encoding, got both", {"connection": "close"})
    return None


def _has_token(headers: Headers, expected: bytes) -> bool:
    values = _values(headers, b"authorization")
    scheme, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    return hmac.compare_digest(token.strip(), expected) and scheme.lower() == b"bearer"


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _refusal(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    return json_answer({"error": text}, status, headers)


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
