"""Records as messages of a subject of NATS JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from streamkernel.connectors.base import Position, RecordsRefusedError
from streamkernel.connectors.interfaces import Sink
from streamkernel.connectors.nats.connection import NatsConnection, is_too_large
from streamkernel.connectors.record_encoding import Encoded, Refused, json_or_refuse

MOST_BUFFERED = 512


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
        self,
        subject: str,
        servers: str = "nats://localhost:4222",
        user: str | None = None,
        password: str | None = None,
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

    def seek(self, position: Position) -> None:
        """Do nothing: a stream cannot be truncated."""

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
