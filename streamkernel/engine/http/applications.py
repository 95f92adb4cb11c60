"""Parts that all ASGI applications share: access control, the page's files, bodies of requests, and answers as JSON.

Access is for clients with the token, or without a token for programs on this machine. Bodies are JSON, compressed or
not, of limited size, and within a time limit.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import zlib
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from importlib import resources
from typing import Any

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from streamkernel.connectors.json_text import to_json

_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

_FOLDER = resources.files("streamkernel.engine.http").joinpath("page")

FILES = {
    ("/" if one.name == "index.html" else f"/{folder}{one.name}"): f"{folder}{one.name}"
    for folder in ("", "vendor/")
    for one in sorted(_FOLDER.joinpath(folder).iterdir(), key=lambda one: one.name)
    if one.name[one.name.rfind(".") :] in KINDS
}
"""The files of the live page by the path of a request."""

HEADERS = {
    "content-security-policy": "; ".join(
        ["default-src 'self'", "img-src data:", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"]
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
"""The headers that they are sent with."""

OPEN = (*FILES, "/metrics", "/healthz", "/readyz", "/openapi.json")
"""Paths that need no token."""

_HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")

_FORWARDED = (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")

Headers = Iterable[tuple[bytes, bytes]]

CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Values of ``Content-Encoding``, and the window bits of zlib for each."""

_PIECE = 4096  # what is copied after each member, of which a body may have thousands

LARGEST_BODY = 1 << 20
"""Largest size of a body in bytes, as it is sent and decompressed."""

BODY_SECONDS = 10.0
"""Seconds in which a body has to arrive."""


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


def application_of(
    routes: Sequence[Route], token: str | None, registry: CollectorRegistry, description: Mapping[str, Any]
) -> Starlette:
    """Return the application of some routes, with the metrics of a registry and a description by OpenAPI.

    `token` is as for :class:`Guard`.
    """
    document = orjson.dumps(description)

    async def metrics(request: Request) -> Response:
        encoder, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(registry), media_type=kind)

    async def spec(request: Request) -> Response:
        return Response(document, media_type="application/json")

    app = Starlette(
        routes=[*routes, Route("/metrics", metrics), Route("/openapi.json", spec)],
        exception_handlers={HTTPException: _answer_http_error, Exception: _answer_failure},
    )
    app.router.redirect_slashes = False
    app.add_middleware(Guard, token=token)
    return app


def page_text(name: str) -> str:
    """Return the text of a file of the live page."""
    return _FOLDER.joinpath(name).read_text()


async def page_answer(request: Request) -> Response:
    """Return the file of the live page at the path of a request."""
    name = FILES[request.url.path]
    return Response(page_text(name), media_type=KINDS[name[name.rfind(".") :]], headers=HEADERS)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    close = {"connection": "close"} if error.status_code in (408, 413) else {}
    return json_answer({"error": error.detail}, error.status_code, {**(error.headers or {}), **close})


async def _answer_failure(request: Request, error: Exception) -> Response:
    return json_answer({"error": f"{type(error).__name__} while answering"}, 500)


def decompress(body: bytes, coding: str, most: int) -> bytes:
    """Return a body without its coding; never more than `most` bytes are decompressed.

    `body` is the body as it was sent. `coding` is the value of ``Content-Encoding``; empty or ``identity`` for none.
    `most` is the largest size of the result in bytes. Raise `HTTPException` if the body is damaged, incomplete or too
    long, or the coding is unknown.

    Examples
    --------
    >>> import gzip
    >>> decompress(gzip.compress(b"{}"), "gzip", most=10), decompress(b"{}", "", most=10)
    (b'{}', b'{}')
    >>> decompress(b"{}", "br", most=10)
    Traceback (most recent call last):
    starlette.exceptions.HTTPException: 415: Expected content-encoding gzip or deflate, got "br"
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in CODINGS:
        text = f'Expected content-encoding gzip or deflate, got "{coding[:60]}"'
        raise HTTPException(415, text, {"accept-encoding": "gzip, deflate"})
    reader, content = zlib.decompressobj(CODINGS[coding]), bytearray()
    try:
        for begin in range(0, len(body), _PIECE):
            rest = body[begin : begin + _PIECE]
            while rest:
                if reader.eof:
                    reader = zlib.decompressobj(CODINGS[coding])
                content += reader.decompress(rest, most + 1 - len(content))
                if len(content) > most:
                    raise HTTPException(413, f"Expected a body of at most {most:,} bytes when decompressed, got more")
                rest = reader.unused_data
    except zlib.error as error:
        raise HTTPException(400, f"Expected a body in {coding}, got other bytes: {error}") from None
    if not reader.eof:
        raise HTTPException(400, f"Expected a complete body in {coding}, got a part of it")
    return bytes(content)


async def json_body(request: Request) -> bytes:
    """Return the decompressed body of a request.

    Raise `HTTPException` if it is not declared as JSON, has an unknown coding, or is damaged, too long or too slow.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "Expected a body of content-type application/json")
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
    return decompress(bytes(body), ", ".join(request.headers.getlist("content-encoding")), LARGEST_BODY)
