"""The messages of a stream of NATS JetStream as events; a position is the sequence number of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from streamkernel.connectors.base import Event, Position
from streamkernel.connectors.checks import is_count, position_of
from streamkernel.connectors.interfaces import Source
from streamkernel.connectors.json_values import json_fields
from streamkernel.connectors.nats.connection import NatsConnection

BATCH = 512

IDLE_SECONDS = 300.0
"""Seconds after which a server forgets a consumer that asks for nothing."""


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
        """Return the next events.

        Returns
        -------
        sequence of Event or None
            ``None`` at the end, with `until`.

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
        found = []
        for message in messages:
            self._last, self._waiting = message.metadata.sequence.stream, message.metadata.num_pending
            if self._end is None or self._last <= self._end:
                found.append(self._event(message))
        return found

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
            found: Sequence[Any] = await self._messages.fetch(BATCH, timeout=max(timeout, 0.01))
        except TimeoutError:
            return []
        return found

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
