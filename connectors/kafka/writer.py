"""A writer to topics, which connects at its first use."""

from __future__ import annotations

from collections.abc import Iterable

from connectors.kafka.clients import Headers, Producer
from connectors.kafka.offsets import missing_topic
from connectors.kafka.options import Options


class Writer:
    """A producer of visible records, which connects at its first use.

    Parameters
    ----------
    options
        Connection options.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._producer: Producer | None = None

    def open(self, topic: str) -> None:
        """Check that a topic exists.

        Raises
        ------
        UnavailableError
            If it is not, or no broker answers.
        """
        asked = self.options.consumer()
        try:
            if not asked.partitions_of(topic):
                raise missing_topic(topic, self.options.servers)
        finally:
            asked.close()

    def send(self, topic: str, value: bytes, key: bytes | None = None, headers: Headers = ()) -> None:
        """Write a record.

        Raises
        ------
        CommitRefusedError
            If nothing can be written any more.
        """
        self._connect().send(topic, value, key, headers)

    def send_all(
        self,
        topic: str,
        values: Iterable[bytes],
        keys: Iterable[bytes | None],
        headers: Iterable[Headers] | None = None,
    ) -> None:
        """Write records, each with a key and perhaps headers, as `send` does for each."""
        self._connect().send_all(topic, values, keys, headers)

    def flush(self) -> None:
        """Wait until all sent records are stored.

        Raises
        ------
        CommitRefusedError
            If it could not be written.
        """
        self._connect().flush()

    def close(self) -> None:
        """Release the client."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _connect(self) -> Producer:
        if self._producer is None:
            self._producer = self._make_producer()
        return self._producer

    def _make_producer(self) -> Producer:
        return self.options.producer()
