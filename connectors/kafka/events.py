"""Events from records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from connectors.base import Event, Position
from connectors.formats import JsonLines
from connectors.kafka.clients import Partition, Record

Decoder = Callable[[bytes], dict[str, Any]]


class Events:
    """Makes events from records, with an error where one cannot be read.

    Parameters
    ----------
    decoder
        Makes the fields from a value, or raises an error that says why not; JSON by default.
    key
        A field to put the record's key into, as text.

    Examples
    --------
    >>> event = Events(key="id").of(Partition("t", 0), Record(7, b"k", b'{"a": 1}', ()), 8)
    >>> event.stream, event.resume, event.record
    ('t:0', 8, {'id': 'k', 'a': 1})
    """

    def __init__(self, decoder: Decoder | None = None, key: str | None = None) -> None:
        self._decode = decoder or JsonLines().parse
        self._key = key

    def of(self, partition: Partition, record: Record, position: Position) -> Event:
        """Return the event of a record, with the position after it."""
        stream, headers = str(partition), tuple(record.headers)
        value, fields, reason = record.value, None, None
        try:
            if value is None:
                raise ValueError("Expected a value, got a tombstone")
            fields = self._decode(value)
            if not isinstance(fields, dict):
                fields, got = None, type(fields).__name__
                raise ValueError(f"Expected a dict from the decoder, got {got}")
            if self._key is not None:
                fields = {self._key: None if record.key is None else record.key.decode(), **fields}
        except Exception as error:  # whatever a decoder raises, the stream goes on
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            fields, reason = None, f"{kind}{error} - at {stream}, offset {record.offset}"
        return Event(stream, position, value or b"", fields, reason, record.key, headers)


def gone(partition: Partition, offset: int, place: int) -> Event:
    """Return the event that says that reading goes on at another place, because there is no record where it should.

    Examples
    --------
    >>> gone(Partition("t", 0), 10, 40).error
    'Expected a record, got 30 records deleted unread - at t:0, offset 10'
    """
    what = f"{place - offset} records deleted unread" if place > offset else f"an end at {place}, records are gone"
    error = f"Expected a record, got {what} - at {partition}, offset {offset}"
    return Event(str(partition), place, b"", error=error)
