"""Connections of clients, and servers on sockets that accept a few at a time, with TLS 1.2 or newer or without."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvicorn

from streamkernel.connectors.owner import Owner

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

BODY = b"content-length", b"transfer-encoding"
"""The headers of requests with a body."""

log = structlog.get_logger("streamkernel")


Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]
"""An application of ASGI."""

Addresses = tuple[Any, Any]
"""The address and port of a client, and of the server: what names a connection."""

BACKLOG = 128
"""Connections that the system queues for the server."""

ACCEPTED_AT_ONCE = 2
"""Connections that a process accepts in one turn of its event loop; others that share the socket accept the rest."""

DRAIN_SECONDS = 20
"""Seconds in which open requests are answered after a request to stop."""

SWITCH_SECONDS = 5e-4
"""Seconds for which a thread keeps the interpreter while another waits; the default would slow responses tenfold."""


class Connections:
    """The open connections of a server. Each has a deadline for each phase, and their number is bounded.

    Half-sent requests and unread responses cannot lock out other clients: beyond the limit, the server closes a
    connection of the client with the most connections, the one that has kept it waiting longest.

    It lies between the event loop and the server's protocol, and between the server and its application: what it needs
    of the server are the interfaces of asyncio and of ASGI. `app` is the application, which this object calls in its
    place.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: dict[Addresses, Connection] = {}
        self._last_log = -LOG_SECONDS

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """Answer a request, and keep in mind its phase."""
        connection = self._open.get((scope.get("client"), scope.get("server")))
        if connection is None:  # it was closed meanwhile
            await self._app(scope, receive, send)
        else:
            await connection.answer(self._app, scope, receive, send)

    def add(self, connection: Connection) -> None:
        """Add an open connection, and close one if there are too many."""
        self._open[connection.addresses] = connection
        if len(self._open) > MAX_CONNECTIONS:
            self._close_one()

    def discard(self, connection: Connection) -> None:
        """Remove a closed connection."""
        if self._open.get(connection.addresses) is connection:
            del self._open[connection.addresses]

    def _close_one(self) -> None:
        of_client = Counter(one.host for one in self._open.values())
        new = asyncio.get_running_loop().time() - NEW_SECONDS
        longest = max(
            (one for one in self._open.values() if not one.is_answering),
            key=lambda one: (of_client[one.host], one.has_asked or one.since < new, -one.since),
        )
        self.discard(longest)
        longest.abort()
        if time.monotonic() - self._last_log >= LOG_SECONDS:
            self._last_log = time.monotonic()
            log.warning("too many HTTP connections; closing the connections that wait longest", client=longest.host)


class Connection(asyncio.Protocol):
    """A client's connection, with a deadline for each phase.

    `server` is the server's protocol for the connection. `since` is when the present phase began, by the clock of the
    event loop. `has_asked` says whether it has sent the headers of a request. `is_answering` says whether the server
    has a whole request and is working on the response.
    """

    def __init__(self, connections: Connections, server: asyncio.Protocol) -> None:
        self._connections, self._server = connections, server
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.BaseTransport | None = None
        self.addresses: Addresses = None, None
        self.since = 0.0
        self.has_asked = self.is_answering = self._is_idle = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a connection, and close one if there are too many."""
        self._transport = transport
        client, server = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        self.addresses = client and tuple(client[:2]), server and tuple(server[:2])
        self._server.connection_made(transport)
        self._limit(HEAD_SECONDS)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        if self._is_idle:
            self._limit(HEAD_SECONDS)
        self._server.data_received(data)

    def eof_received(self) -> bool | None:
        """Receive the end of all requests."""
        return self._server.eof_received()

    def pause_writing(self) -> None:
        """Wait until the client reads."""
        self._server.pause_writing()

    def resume_writing(self) -> None:
        """Continue when the client has read."""
        self._server.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove a closed connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._connections.discard(self)
        self._server.connection_lost(exc)

    async def answer(self, app: App, scope: Message, receive: Any, send: Any) -> None:
        """Answer a request whose headers are complete, and wait for the next one."""
        self._limit(REQUEST_SECONDS)
        self.has_asked = True
        self.is_answering = not any(name in BODY and value != b"0" for name, value in scope["headers"])

        async def receive_part() -> Message:
            part: Message = await receive()
            if part["type"] == "http.request":
                self.is_answering = not part.get("more_body", False)
            return part

        async def send_part(part: Message) -> None:
            await send(part)
            if part["type"] == "http.response.body" and not part.get("more_body", False):
                self.is_answering = False
                self._limit(IDLE_SECONDS, is_idle=True)

        await app(scope, receive_part, send_part)

    @property
    def host(self) -> str:
        """The address of the client."""
        client, _ = self.addresses
        return client[0] if client else ""

    def abort(self) -> None:
        """Close the connection at once."""
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()

    def _limit(self, seconds: float, *, is_idle: bool = False) -> None:
        """Start a phase with a time limit."""
        if self._timer is not None:
            self._timer.cancel()
        self.since, self._is_idle = self._loop.time(), is_idle
        self._timer = self._loop.call_later(seconds, self.abort)


class Certificate:
    """A certificate with its private key, as files in PEM format.

    A connection begins with the files of that moment. Files that do not fit together, such as while they are being
    replaced, are reported once, and the certificate before is used until they do. `certificate` and `key` are the
    files; the first one may have a chain. `ValueError` is raised if the files cannot be read, do not fit together, or
    the key has a password.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._seen = self._stamps()
        self.context = self._newest = self._load_context()
        self.context.sni_callback = self._choose_context  # called at each handshake, with a name or without

    def _load_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._files
        try:
            context.load_cert_chain(certificate, key, password=_refuse_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise ValueError(
                f"expected a certificate and its private key as PEM files, got an error: {reason} - "
                f"at {certificate} and {key}"
            ) from None
        return context

    def _stamps(self) -> list[tuple[int, int, int]]:
        try:
            statuses = [path.stat() for path in self._files]
        except OSError:  # between two files
            return []
        return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses]

    def _choose_context(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        """Give a new connection the present certificate."""
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._newest = self._load_context()
                log.info("the certificate was read again", certificate=str(self._files[0]))
            except ValueError as error:
                log.error("the new certificate cannot be used; keeping the one before", reason=str(error))
        connection.context = self._newest


def _refuse_password() -> str:
    raise ValueError("the key has a password, which is not supported")


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; the system chooses the port if `port` is 0. Raise `OSError` if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"Expected to serve HTTP, got {error.strerror or error} - at {host}:{port}") from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else an answer's second packet waits for 40 ms
    return listening


class Server(uvicorn.Server):
    """A server of an ASGI application on sockets that other processes may share.

    `certificate` is the certificate of the server; ``None`` for plain HTTP. `owner` is the process of the sockets, if
    no other process shares them.
    """

    owner: Owner | None = None

    def __init__(self, app: Any, certificate: Certificate | None = None) -> None:
        self._connections, self._certificate = Connections(app), certificate
        config = uvicorn.Config(
            self._connections, http="h11", ws="none", loop="asyncio", lifespan="off", log_config=None,
            log_level="error", access_log=False, server_header=False, proxy_headers=False, backlog=ACCEPTED_AT_ONCE,
            h11_max_incomplete_event_size=HEAD_BYTES, timeout_keep_alive=int(IDLE_SECONDS),
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )  # fmt: skip
        super().__init__(config)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal arrives in the main thread, or `should_exit` is set."""
        sys.setswitchinterval(SWITCH_SECONDS)
        with asyncio.Runner(loop_factory=partial(_Loop, self._connections, self._certificate)) as runner:
            runner.run(self.serve(sockets))


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers have bounded connections.

    Connections have to finish TLS's handshake as early as they have to send a request. The system queues connections
    beyond the ones that are accepted in one turn.
    """

    def __init__(self, connections: Connections, certificate: Certificate | None) -> None:
        super().__init__()
        self._connections, self._certificate = connections, certificate

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        if self._certificate is not None:
            options |= {"ssl": self._certificate.context, "ssl_handshake_timeout": HEAD_SECONDS}
        server = await super().create_server(
            lambda: Connection(self._connections, protocol_factory()), *args, **options
        )
        for listening in server.sockets:
            with listening.dup() as shared:
                shared.listen(BACKLOG)
        return server
