"""Records as messages of a subject of NATS JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from connectors.base import Position
from connectors.json_text import RECORD, to_json
from connectors.nats.connection import NatsConnection

MOST_BUFFERED = 512


class NatsSink:
    """A subject of a stream, which gets each record as JSON at least once.

    A stream cannot be truncated: after a crash, the records since the last checkpoint are published again.

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
        self._buffer: list[bytes] = []

    def open(self) -> None:
        """Connect, and look up the stream of the subject."""
        self._connection.call(lambda context: context.find_stream_name_by_subject(self._subject))

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write one record.

        Parameters
        ----------
        record : dict
            The fields.
        key : bytes or None, default None
            Not used.
        """
        self._buffer.append(to_json(record, RECORD))
        if len(self._buffer) >= MOST_BUFFERED:
            self.flush()

    def flush(self) -> Position:
        """Publish all records, and wait until the stream has them."""
        if self._buffer:
            self._connection.call(self._publish)
            self._buffer.clear()
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
        await asyncio.gather(*(context.publish(self._subject, text) for text in self._buffer))
