"""Sockets, and servers on them that accept a few connections at a time, with TLS 1.2 or newer or without."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvicorn

from streamkernel.connectors.owner import Owner
from streamkernel.engine.http.connections import HEAD_BYTES, HEAD_SECONDS, IDLE_SECONDS, Connection, Connections

log = structlog.get_logger("streamkernel")

BACKLOG = 128
"""Connections that the system queues for the server."""

ACCEPTED_AT_ONCE = 2
"""Connections that a process accepts in one turn of its event loop; others that share the socket accept the rest."""

DRAIN_SECONDS = 20
"""Seconds in which open requests are answered after a request to stop."""

SWITCH_SECONDS = 5e-4
"""Seconds for which a thread keeps the interpreter while another waits; the default would slow responses tenfold."""


class Certificate:
    """A certificate with its private key, as files in PEM format.

    A connection begins with the files of that moment. Files that do not fit together, such as while they are being
    replaced, are reported once, and the certificate before is used until they do.

    Parameters
    ----------
    certificate, key
        The files; the first one may have a chain.

    Attributes
    ----------
    context : ssl.SSLContext
        The context of a server.

    Raises
    ------
    ValueError
        If the files cannot be read, do not fit together, or the key has a password.
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
    """Return a listening socket; the system chooses the port if `port` is 0.

    Raises
    ------
    OSError
        If the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"Expected to serve HTTP, got {error.strerror or error} - at {host}:{port}") from error
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else an answer's second packet waits for 40 ms
    return listening


class Server(uvicorn.Server):
    """A server of an ASGI application on sockets that other processes may share.

    Parameters
    ----------
    app
        The application.
    certificate
        The certificate of the server; ``None`` for plain HTTP.

    Attributes
    ----------
    owner : Owner or None
        The process of the sockets, if no other process shares them.
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
