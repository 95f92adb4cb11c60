"""Sockets, and servers on them that accept a few connections at a time, with TLS or without."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn

from streamkernel.connectors.owner import Owner
from streamkernel.engine.http.connections import HEAD_BYTES, HEAD_SECONDS, IDLE_SECONDS, Connection
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
        config = uvicorn.Config(
            app, http=Connection, ws="none", loop="asyncio", lifespan="off", log_config=None, log_level="error",
            access_log=False, server_header=False, proxy_headers=False, backlog=ACCEPTED_AT_ONCE,
            h11_max_incomplete_event_size=HEAD_BYTES, timeout_keep_alive=int(IDLE_SECONDS),
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )  # fmt: skip
        config.load()
        config.ssl = None if certificate is None else certificate.context
        super().__init__(config)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal arrives in the main thread, or `should_exit` is set."""
        sys.setswitchinterval(SWITCH_SECONDS)
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(self.serve(sockets))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections; those beyond what is accepted in one turn wait in the system's queue."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose connections have to finish TLS's handshake as early as they have to send a request."""

    async def create_server(self, *args: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = HEAD_SECONDS
        return await super().create_server(*args, **options)
