"""Sockets, and servers on them that accept a few connections at a time, with TLS or without."""

from __future__ import annotations

import asyncio
import socket
import sys
from functools import partial
from typing import Any

import uvicorn

from streamkernel.connectors.owner import Owner
from streamkernel.engine.http.connections import HEAD_BYTES, HEAD_SECONDS, IDLE_SECONDS, Connection, Connections
from streamkernel.engine.http.tls import Certificate

BACKLOG = 128
"""Connections that the system queues for the server."""

ACCEPTED_AT_ONCE = 2
"""Connections that a process accepts in one turn of its event loop; others that share the socket accept the rest."""

DRAIN_SECONDS = 20
"""Seconds in which open requests are answered after a request to stop."""

SWITCH_SECONDS = 5e-4
"""Seconds for which a thread keeps the interpreter while another waits; the default would slow responses tenfold."""


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

    Connections have to finish TLS's handshake as early as they have to send a request. Those beyond what is accepted in
    one turn wait in the system's queue.
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
