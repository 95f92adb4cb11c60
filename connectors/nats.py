"""Streams of NATS JetStream as a source and as a sink; a position is the sequence number of a message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from streamkernel.connectors.base import (
    Event,
    GaveUpError,
    Position,
    RecordsRefusedError,
    UnavailableError,
    is_count,
    position_of,
)
from streamkernel.connectors.interfaces import Sink, Source
from streamkernel.connectors.json_text import Encoded, Refused, json_or_refuse
from streamkernel.connectors.json_values import json_fields
from streamkernel.connectors.owner import Owner

try:
    import nats
    from nats.errors import AuthorizationError, Error, MaxPayloadError
    from nats.js.errors import APIError
except ImportError as error:
    raise ImportError("nats-py is needed: pip install 'streamkernel[nats]'") from error

Result = TypeVar("Result")

CONNECT_SECONDS = 5

REFUSED = ("authorization violation", "permissions violation", "authentication expired", "authentication revoked")
"""Parts of the messages of a server that refuses a login, or what the login asks for."""

TOO_LARGE = (10054, 10097)
"""JetStream's codes of the errors that a message, or its headers, is larger than the stream takes."""

BATCH = 512

IDLE_SECONDS = 300.0
"""Seconds after which a server forgets a consumer that asks for nothing."""

MOST_BUFFERED = 512


class NatsUnavailableError(UnavailableError):
    """The servers cannot be reached, or refuse."""

    service = "NATS"


class NatsConnection:
    """A connection that is made when it is needed, and made again after an error.

    `servers` are addresses, ``"nats://host:4222"``, or ``"tls://..."``, separated by commas; a login in one raises a
    `ValueError`.
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

        Raise `NatsUnavailableError` if the servers cannot be reached, or refuse; `GaveUpError` if they refuse the
        login, or what it asks for.
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


class NatsSource(Source):
    """A stream, which is read from its oldest message; nothing is acknowledged or deleted.

    The position is part of the checkpoint, so each event is learned exactly once, as long as the stream keeps it.

    Parameters
    ----------
    stream : str
        Name of the stream.
    servers : str, default "nats://localhost:4222"
        Addresses, ``"nats://host:4222"`` or ``"tls://host:4222"``, separated by commas.
    subject : str or None
        A subject, or a pattern of subjects, to read only a part of the stream.
    until : {"latest"} or None
        Whether to end at the newest message of the start.
    user, password : str or None
        The login, if any.

    Raises
    ------
    ImportError
        If nats-py is not installed.
    ValueError
        If an address contains a login.
    """

    identity: ClassVar[tuple[str, ...]] = ("stream", "subject")

    def __init__(
        self,
        stream: str,
        servers: str = "nats://localhost:4222",
        subject: str | None = None,
        until: Literal["latest"] | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        self._connection = NatsConnection(servers, user, password)
        self._stream, self._subject, self._until = stream, subject, until
        self._last = self._waiting = 0
        self._end: int | None = None
        self._messages: Any = None

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Continue after a message."""
        position = position_of(self._stream, positions)
        if position is not None and not is_count(position):
            raise ValueError(f'Expected the number of a message of "{self._stream}", got {position!r}')
        self._last = position or 0

    def poll(self, timeout: float) -> Sequence[Event] | None:
        """Return the next events, ``None`` at the end that `until` sets.

        Raises
        ------
        UnavailableError
            If the servers cannot be reached, or there is no such stream yet.
        ValueError
            If the stream does not have the messages after the position any more.
        """
        if self._end is not None and self._last >= self._end:
            return None
        try:
            messages = self._connection.call(lambda context: self._fetch(context, timeout))
        except OSError:
            self._messages = None  # a new connection needs a new consumer
            raise
        events = []
        for message in messages:
            self._last, self._waiting = message.metadata.sequence.stream, message.metadata.num_pending
            if self._end is None or self._last <= self._end:
                events.append(self._event(message))
        return events

    def goes_back(self, before: Position, position: Position) -> bool:
        """Return whether the number of a message is less than an earlier one."""
        return bool(position < before)

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the number of messages after the last one."""
        return {(self._stream, ""): self._waiting}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _event(self, message: Any) -> Event:
        headers = tuple((name, text.encode()) for name, text in (message.headers or {}).items())
        try:
            record, error = json_fields(message.data), None
        except ValueError as problem:
            record, error = None, str(problem)
        return Event(self._stream, self._last, message.data, record, error, headers=headers)

    async def _fetch(self, context: Any, timeout: float) -> Sequence[Any]:
        if self._messages is None:
            self._messages = await self._subscribe(context)
        try:
            messages: Sequence[Any] = await self._messages.fetch(BATCH, timeout=max(timeout, 0.01))
        except TimeoutError:
            return []
        return messages

    async def _subscribe(self, context: Any) -> Any:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
        from nats.js.errors import NotFoundError

        try:
            state = (await context.stream_info(self._stream)).state
        except NotFoundError as error:
            raise OSError(f'expected a stream, got "{self._stream}", which does not exist') from error
        if self._last and not state.first_seq - 1 <= self._last <= state.last_seq:
            raise ValueError(
                f'Expected the message after {self._last:,} in the stream "{self._stream}", got {state.first_seq:,} to '
                f"{state.last_seq:,}: messages were deleted, or it is not the stream that was read"
            )
        if self._until is not None and self._end is None:
            self._end = state.last_seq
            if self._subject is not None and state.last_seq:
                self._end = (await context.get_last_msg(self._stream, self._subject)).seq
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._last + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=IDLE_SECONDS,
        )
        return await context.pull_subscribe(self._subject or "", stream=self._stream, config=config)


class NatsSink(Sink):
    """A subject of a stream, which gets each record as JSON at least once.

    A stream cannot be truncated: after a crash, the records since the last checkpoint are published again. A record
    that is larger than the server or the stream takes is refused; one whose publication fails otherwise is published
    again.

    Parameters
    ----------
    subject : str
        The subject; a stream must contain it.
    servers : str, default "nats://localhost:4222"
        Addresses, ``"nats://host:4222"`` or ``"tls://host:4222"``, separated by commas.
    user, password : str or None
        The login, if any.

    Raises
    ------
    ImportError
        If nats-py is not installed.
    ValueError
        If an address contains a login.
    """

    guarantee: ClassVar[str] = "at_least_once"

    def __init__(
        self, subject: str, servers: str = "nats://localhost:4222", user: str | None = None, password: str | None = None
    ) -> None:
        self._connection, self._subject = NatsConnection(servers, user, password), subject
        self._buffer: list[Encoded] = []
        self._refused: list[Refused] = []

    def open(self) -> None:
        """Connect, and look up the stream of the subject."""
        self._connection.call(lambda context: context.find_stream_name_by_subject(self._subject))

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write one record.

        Raises
        ------
        RecordsRefusedError
            If JSON cannot hold it, or as `flush` does.
        """
        self._buffer.append(Encoded(record, key, json_or_refuse(record, key)))
        if len(self._buffer) >= MOST_BUFFERED:
            self.flush()

    def flush(self) -> Position:
        """Publish all records, and wait until the stream has them.

        Raises
        ------
        RecordsRefusedError
            If records are too large; the stream has the others.
        """
        if self._buffer:
            self._connection.call(self._publish)
        if self._refused:
            refused, self._refused = self._refused, []
            raise RecordsRefusedError(refused)
        return None

    def close(self) -> None:
        """Flush, and close the connection."""
        try:
            self.flush()
        finally:
            self._connection.close()

    async def _publish(self, context: Any) -> None:
        """Publish all records; keep the ones that have to be published again, and raise the first error of these."""
        answers = await asyncio.gather(
            *(context.publish(self._subject, content) for *_, content in self._buffer), return_exceptions=True
        )
        failed = {}
        for i, (one, answer) in enumerate(zip(self._buffer, answers, strict=True)):
            if is_too_large(answer):
                self._refused.append((one.record, one.key, self._reason(one.content, answer)))
            elif isinstance(answer, BaseException):
                failed[i] = answer
        self._buffer = [self._buffer[i] for i in failed]
        for error in failed.values():
            raise error

    def _reason(self, content: bytes, error: BaseException) -> str:
        if (description := getattr(error, "description", None)) is not None:
            got = f"Expected a message that the stream takes, got {len(content):,} bytes: {description}"
        else:
            got = f"Expected a message of at most {self._connection.largest_message:,} bytes, got {len(content):,}"
        return f"{got} - for subject {self._subject}"
