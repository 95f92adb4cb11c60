"""Connections of clients: their number, and timeouts of idle ones."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 200
"""Largest number of open connections."""

HEAD_BYTES = 1 << 14
"""Largest size of the request line and the headers together, in bytes."""

HEAD_SECONDS = 10.0
"""Seconds for them, from the connection or the first byte of another request."""

REQUEST_SECONDS = 60.0
"""Seconds from the end of the headers to the response; bodies have a shorter limit."""

IDLE_SECONDS = 30.0
"""Seconds in which a client has to read a response and start the next request."""

NEW_SECONDS = 2.0
"""Seconds in which a new connection is closed only if all are new: its request may not have been read yet."""

LOG_SECONDS = 60.0
"""Seconds between two log lines about too many connections, at least."""

log = structlog.get_logger("streamkernel")


class Connection(H11Protocol):
    """A client's connection, with a deadline for each phase; the number of connections is bounded.

    Half-sent requests and unread responses cannot lock out other clients: beyond the limit, the server closes a
    connection of the client with the most connections, the one that has kept it waiting longest.

    Attributes
    ----------
    since : float
        When the present phase began, by the clock of the event loop.
    """

    _last_log = -LOG_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        self.since = 0.0
        self._is_idle = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, and close one if there are too many."""
        super().connection_made(transport)
        self._limit(HEAD_SECONDS)
        if len(self.connections) > MAX_CONNECTIONS:
            self._close_one()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        if self._is_idle:
            self._limit(HEAD_SECONDS)
        super().data_received(data)

    def handle_events(self) -> None:
        """Start to process a request whose headers are complete."""
        cycle = self.cycle
        super().handle_events()
        if self.cycle is not cycle:
            self._limit(REQUEST_SECONDS)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._limit(IDLE_SECONDS, is_idle=True)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove a closed connection."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def host(self) -> str:
        """The address of the client."""
        return self.client[0] if self.client else ""

    @property
    def is_answering(self) -> bool:
        """Whether the server is working on a response."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _limit(self, seconds: float, *, is_idle: bool = False) -> None:
        """Start a phase with a time limit."""
        if self._timer is not None:
            self._timer.cancel()
        self.since, self._is_idle = self.loop.time(), is_idle
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _close_one(self) -> None:
        connections = [one for one in self.connections if isinstance(one, Connection)]
        of_client = Counter(one.host for one in connections)
        new = self.loop.time() - NEW_SECONDS
        found = max(
            (one for one in connections if not one.is_answering),
            key=lambda one: (of_client[one.host], one.cycle is not None or one.since < new, -one.since),
        )
        self.connections.discard(found)
        found.transport.abort()
        if time.monotonic() - Connection._last_log >= LOG_SECONDS:
            Connection._last_log = time.monotonic()
            log.warning("too many HTTP connections; closing those that wait longest", client=found.host)
