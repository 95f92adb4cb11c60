"""Who may ask: who has the token, or this machine alone."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import MutableMapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from streamkernel.engine.http.answers import json_answer

OPEN = ("/", "/page.css", "/page.js", "/metrics", "/healthz", "/readyz", "/openapi.json")
"""What anybody may ask who reaches the port; the rest is for who has the token, or without one for this machine."""


class Guard:
    """Lets through who has the token, or without one who asks on this machine and by its name.

    The name is looked at since a page of the Internet could have a name that leads here.
    """

    def __init__(self, app: Any, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Answer a request, or say why not."""
        if scope["type"] == "http" and scope["path"] not in OPEN and (refused := self._refusal(Request(scope))):
            await refused(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        if self._token is not None:
            given = request.headers.get("authorization", "").encode()
            if hmac.compare_digest(given, f"Bearer {self._token}".encode()):
                return None
            return json_answer(
                {"error": "Expected Authorization: Bearer and the token"}, 401, {"www-authenticate": "Bearer"}
            )
        local = is_loopback(request.client.host if request.client else "") and is_loopback(request.url.hostname or "")
        return (
            None
            if local
            else json_answer({"error": "Expected a request from this machine; without a token, others get none"}, 403)
        )


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is that of this machine for itself.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
