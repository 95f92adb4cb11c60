"""A connection to NATS, whose client needs an event loop; it runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

try:
    import nats
    from nats.errors import Error
except ImportError as error:
    raise ImportError("nats-py is needed: pip install 'streamkernel[nats]'") from error

from connectors.base import UnavailableError

Result = TypeVar("Result")

CONNECT_SECONDS = 5


class NatsUnavailableError(UnavailableError):
    """The servers cannot be reached, or refuse."""

    service = "NATS"


class NatsConnection:
    """A connection that is made when it is needed, and made again after an error.

    Parameters
    ----------
    servers : str
        Addresses, ``"nats://host:4222"``, or ``"tls://..."``, separated by commas.
    user, password : str or None
        The login, if any.

    Raises
    ------
    ValueError
        If an address contains a login.
    """

    def __init__(self, servers: str, user: str | None, password: str | None) -> None:
        if "@" in servers:
            raise ValueError("Expected addresses of servers without a login, got one with it - see user and password")
        self._servers, self._login = servers, {"user": user, "password": password}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None

    def call(self, task: Callable[[Any], Awaitable[Result]]) -> Result:
        """Return the result of a task, which gets the JetStream context.

        Raises
        ------
        NatsUnavailableError
            If the servers cannot be reached, or refuse.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True, name="nats").start()
        try:
            return asyncio.run_coroutine_threadsafe(self._run(task), self._loop).result()
        except (Error, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise NatsUnavailableError(f"NATS at {self._servers} is unavailable: {reason}") from error

    def close(self) -> None:
        """Close the connection and end its thread."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    async def _run(self, task: Callable[[Any], Awaitable[Result]]) -> Result:
        if self._client is None:
            reasons: list[Exception] = []

            async def collect(error: Exception) -> None:
                reasons.append(error)

            servers = [server.strip() for server in self._servers.split(",")]
            try:
                self._client = await nats.connect(
                    servers, allow_reconnect=False, connect_timeout=CONNECT_SECONDS, error_cb=collect, **self._login
                )
            except Error as error:
                raise reasons[0] if reasons else error from error
        try:
            return await task(self._client.jetstream())
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
