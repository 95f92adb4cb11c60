"""A connection to NATS, whose client needs an event loop; it runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

try:
    import nats
    from nats.errors import AuthorizationError, Error, MaxPayloadError
    from nats.js.errors import APIError
except ImportError as error:
    raise ImportError("nats-py is needed: pip install 'streamkernel[nats]'") from error

from streamkernel.connectors.base import GaveUpError, UnavailableError
from streamkernel.connectors.owner import Owner

Result = TypeVar("Result")

CONNECT_SECONDS = 5

REFUSED = ("authorization violation", "permissions violation", "authentication expired", "authentication revoked")
"""Parts of the messages of a server that refuses a login, or what the login asks for."""

TOO_LARGE = (10054, 10097)
"""JetStream's codes of the errors that a message, or its headers, is larger than the stream takes."""


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
        self._owner = Owner("connection to NATS")
        self._reported: list[Exception] = []  # of this connection

    def call(self, task: Callable[[Any], Awaitable[Result]]) -> Result:
        """Return the result of a task, which gets the JetStream context.

        Raises
        ------
        NatsUnavailableError
            If the servers cannot be reached, or refuse.
        GaveUpError
            If they refuse the login, or what it asks for.
        """
        self._owner.check()
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True, name="nats").start()
        try:
            return asyncio.run_coroutine_threadsafe(self._run(task), self._loop).result()
        except (Error, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            refusal = next((str(one) for one in (*self._reported, error) if _is_refusal(one)), None)
            if refusal is not None:
                raise GaveUpError(
                    f"Expected a login with permission, NATS at {self._servers} says: {refusal}"
                ) from error
            raise NatsUnavailableError(f"NATS at {self._servers} is unavailable: {reason}") from error

    @property
    def largest_message(self) -> int:
        """Largest size in bytes of a message that the server takes; there is a connection."""
        size: int = self._client.max_payload
        return size

    def close(self) -> None:
        """Close the connection and end its thread."""
        if self._loop is not None and self._owner.is_here:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    async def _run(self, task: Callable[[Any], Awaitable[Result]]) -> Result:
        if self._client is None:
            self._reported.clear()
            servers = [server.strip() for server in self._servers.split(",")]
            try:
                self._client = await nats.connect(
                    servers,
                    allow_reconnect=False,
                    connect_timeout=CONNECT_SECONDS,
                    error_cb=self._report,
                    **self._login,
                )
            except Error as error:
                raise self._reported[0] if self._reported else error from error
        try:
            return await task(self._client.jetstream())
        except BaseException:
            await self._close()
            raise

    async def _report(self, error: Exception) -> None:
        self._reported.append(error)

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def is_too_large(answer: Any) -> bool:
    """Return whether the answer to a message is the error that the server or the stream takes none of its size."""
    return isinstance(answer, MaxPayloadError) or (isinstance(answer, APIError) and answer.err_code in TOO_LARGE)


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, AuthorizationError) or any(text in str(error).lower() for text in REFUSED)
