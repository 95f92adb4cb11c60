"""Topics as sinks: of predictions, and of records that could not be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from connectors.base import Event, Position
from connectors.json_text import to_json
from connectors.kafka.writer import Writer

LONGEST_RAW = 900_000
"""Bytes of a record that a dead letter keeps; with its headers it has to fit into what brokers take by default."""

_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


class _Topic:
    """A topic that is written to."""

    def __init__(self, writer: Writer, topic: str) -> None:
        self._writer, self._topic = writer, topic

    def open(self) -> None:
        """Find out whether the topic is there, or raise `Unavailable`."""
        self._writer.open(self._topic)

    def flush(self) -> Position:
        """Wait until all is written; a topic has no position to go back to."""
        self._writer.flush()
        return None

    def seek(self, position: Position) -> None:
        """Do nothing: what is in a topic stays, and what was not committed never was."""

    def close(self) -> None:
        """Release the client."""
        self._writer.close()


class KafkaSink(_Topic):
    """A topic of JSON objects.

    Parameters
    ----------
    writer
        :meth:`Options.producer() <connectors.kafka.options.Options.producer>`, so that records are seen at once, or
        :class:`~connectors.kafka.transactions.KafkaTransactions`: then readers that ask for what is committed see a
        record when it is.
    topic
        Where to.
    """

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write a record, under the key of the one it was made from."""
        self._writer.send(self._topic, to_json(record, _JSON), key, ())


class KafkaDeadLetters(_Topic):
    """A topic of records that could not be used: key, value and headers as they came, with the reason in headers.

    ``reason``, ``stream`` and ``resume`` are added to the headers, and ``length`` if the value was too long to keep.

    Parameters
    ----------
    writer, topic
        As for :class:`KafkaSink`.
    """

    def write(self, event: Event, reason: str) -> None:
        """Write one event, and why it could not be used."""
        value = event.raw or (b"" if event.record is None else orjson.dumps(event.record, default=repr, option=_JSON))
        told = {"reason": reason, "stream": event.stream, "resume": orjson.dumps(event.resume).decode()}
        if len(value) > LONGEST_RAW:
            told["length"] = str(len(value))
        headers = [
            *event.headers,
            *((name, text[:10_000].encode(errors="backslashreplace")) for name, text in told.items()),
        ]
        self._writer.send(self._topic, value[:LONGEST_RAW], event.key, headers)
