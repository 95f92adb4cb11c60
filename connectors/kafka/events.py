"""Fetched records of Kafka by partition, and their conversion to events."""

from __future__ import annotations

import inspect
import struct
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from streamkernel.connectors.base import DecoderUnavailableError, Event, Position, Trouble, UnavailableError, not_utf8
from streamkernel.connectors.formats import PassedOverError
from streamkernel.connectors.json_values import JsonFields, flatten
from streamkernel.connectors.kafka.clients import Consumer, Partition, Record

Run = tuple[Partition, Sequence[Record], Sequence[Position]]
"""Successive records of a partition, and the positions after each."""

FULL = 4000
"""Buffered records of a partition, at most, or a few more."""

Read = Callable[[bytes], Any]
"""Returns a value for the bytes of a key, or raises a `ValueError` with the reason."""


class Buffers:
    """Records by partition, returned in order of arrival, or one of each partition in turn.

    In turn, a position is ``[offset, round]``. The next record is from the first of the partitions with the fewest
    rounds, and other partitions wait for it. So neither the order of arrival nor a restart changes the order. `in_turn`
    says whether partitions take turns.

    Examples
    --------
    >>> a, b = Partition("t", 0), Partition("t", 1)
    >>> buffers = Buffers(in_turn=True)
    >>> buffers.add({a: [Record(n, None, b"", ()) for n in range(3)]})
    >>> [(str(partition), positions) for partition, _, positions in buffers.take(9, [a, b])]
    [('t:0', [[1, 1]])]
    >>> buffers.add({b: [Record(7, None, b"", ())]})
    >>> [(str(partition), positions) for partition, _, positions in buffers.take(9, [a, b])]
    [('t:1', [[8, 1]]), ('t:0', [[2, 2]])]
    """

    def __init__(self, *, in_turn: bool) -> None:
        self._in_turn = in_turn
        self._waiting: defaultdict[Partition, deque[Record]] = defaultdict(deque)
        self._rounds: defaultdict[Partition, int] = defaultdict(int)
        self._full: set[Partition] = set()  # partitions that are paused because many records wait

    def add(self, records: Mapping[Partition, Iterable[Record]]) -> None:
        """Append records to their partitions."""
        for partition, those in records.items():
            self._waiting[partition].extend(those)

    def take(self, most: int, partitions: Collection[Partition]) -> list[Run]:
        """Return the next records of some partitions, and the positions after them."""
        runs: list[Run] = []
        while most > 0 and (partition := self._next(partitions)) is not None:
            waiting = self._waiting[partition]
            records = [waiting.popleft() for _ in range(1 if self._in_turn else min(most, len(waiting)))]
            positions: list[Position] = [record.offset + 1 for record in records]
            if self._in_turn:
                self._rounds[partition] += 1
                positions = [self.position(partition, offset) for offset in positions]
            runs.append((partition, records, positions))
            most -= len(records)
        return runs

    def put_back(self, runs: Sequence[Run]) -> None:
        """Return the last records to the buffer, in their order."""
        for partition, records, _ in reversed(runs):
            self._waiting[partition].extendleft(reversed(records))
            if self._in_turn:
                self._rounds[partition] -= len(records)

    def position(self, partition: Partition, offset: int) -> Position:
        """Return the position before an offset, after the records of a partition that were taken."""
        return [offset, self._rounds[partition]] if self._in_turn else offset

    def is_ready(self, partitions: Collection[Partition]) -> bool:
        """Return whether a record can be taken."""
        return self._next(partitions) is not None

    def count(self, partition: Partition) -> int:
        """Return the number of records of a partition."""
        return len(self._waiting[partition])

    def first(self, partition: Partition) -> int | None:
        """Return the offset of a partition's next record, or ``None`` if there is none."""
        waiting = self._waiting[partition]
        return waiting[0].offset if waiting else None

    def throttle(self, client: Consumer, partitions: Iterable[Partition]) -> None:
        """Pause partitions with many buffered records; each pause discards the fetches in flight."""
        for partition in partitions:
            waiting = self.count(partition)
            if waiting >= FULL and partition not in self._full:
                self._full.add(partition)
                client.pause([partition])
            elif waiting < FULL // 2 and partition in self._full:
                self._full.discard(partition)
                client.resume([partition])

    def drop(self, partition: Partition, position: Position = None) -> None:
        """Drop the records of a partition, and continue after a position."""
        self._waiting.pop(partition, None)
        self._full.discard(partition)
        self._rounds[partition] = position[1] if isinstance(position, list) else 0

    def _next(self, partitions: Collection[Partition]) -> Partition | None:
        if not self._in_turn:
            return next((partition for partition in partitions if self._waiting[partition]), None)
        partition = min(partitions, key=lambda p: (self._rounds[p], p), default=None)
        return partition if partition is not None and self._waiting[partition] else None


def key_reader(form: str) -> Read:
    r"""Return the decoder of keys of a format, one of `KEY_FORMATS`.

    Raise `ValueError` if there is no such format. `form` is ``"string"`` is text in UTF-8, ``"long"`` and ``"integer"``
    are the 8 and 4 bytes that Kafka's serializers of these names write, ``"json"`` is a value of JSON, in which an
    integer beyond 64 bits is a text.

    Examples
    --------
    >>> key_reader("string")(b"7"), key_reader("long")(bytes([0, 0, 0, 0, 0, 0, 0, 7])), key_reader("json")(b"7")
    ('7', 7, 7)
    >>> key_reader("string")(bytes([0, 0, 0, 7]))
    Traceback (most recent call last):
    ValueError: Expected a key of UTF-8 text, got 4 bytes, 00 00 00 07: declare its key_format
    """
    if form not in _READERS:
        raise ValueError(f"Expected one of {', '.join(KEY_FORMATS)} as key_format, got {form!r}")
    return _READERS[form]


def _text(key: bytes) -> str:
    if b"\0" in key:  # valid in UTF-8, but most integers have it and no text does
        raise _not_text(key)
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise _not_text(key) from None


def _not_text(key: bytes) -> ValueError:
    return ValueError(f"Expected a key of UTF-8 text, got {_shown(key)}: declare its key_format")


def _integer_of(form: str, number: struct.Struct) -> Read:
    def read(key: bytes) -> int:
        if len(key) != number.size:
            raise ValueError(f'Expected a key of {number.size} bytes for key_format "{form}", got {_shown(key)}')
        value: int = number.unpack(key)[0]
        return value

    return read


def _json(key: bytes) -> Any:
    try:
        value = orjson.loads(key)
        is_long = type(value) is float and key.strip().removeprefix(b"-").isdigit()
        return key.strip().decode() if is_long else value
    except orjson.JSONDecodeError:
        raise ValueError(f'Expected a key of JSON for key_format "json", got {_shown(key)}') from None


def _shown(key: bytes) -> str:
    more = " ..." if len(key) > 16 else ""
    return f"{len(key)} byte{'' if len(key) == 1 else 's'}{', ' if key else ''}{key[:16].hex(' ')}{more}"


_READERS: Mapping[str, Read] = {
    "string": _text,
    "long": _integer_of("long", struct.Struct(">q")),
    "integer": _integer_of("integer", struct.Struct(">i")),
    "json": _json,
}

KEY_FORMATS = tuple(_READERS)
"""Formats of keys."""


Decoder = Callable[..., dict[str, Any]]

LONGEST_PAUSE = 30.0
"""Longest pause in seconds before an unavailable decoder is called again."""


class Events:
    """Converts records to events, with an error for each that cannot be read.

    `decoder` decodes a value to fields, or raises an error with the reason; JSON by default. Of the parameters
    ``topic``, ``key`` and ``headers``, it is called with the ones that it has. `key` is a field to put the record's key
    into. `key_format` says how it is read, one of :data:`~streamkernel.connectors.kafka.events.KEY_FORMATS`; the fields
    of a key that is an object of JSON come under the path to them.

    Examples
    --------
    >>> event = Events(key="id").of(Partition("t", 0), Record(7, b"k", b'{"a": 1}', ()), 8)
    >>> event.stream, event.resume, event.record
    ('t:0', 8, {'id': 'k', 'a': 1})
    >>> event.origin
    {'topic': 't', 'partition': 0, 'offset': 7}
    """

    def __init__(self, decoder: Decoder | None = None, key: str | None = None, key_format: str = "string") -> None:
        self._decode = decoder or JsonFields()
        self._read_all = self._decode.read_all if isinstance(self._decode, JsonFields) and key is None else None
        self._more = _parameters_of(decoder)
        self._key, self._read_key = key, key_reader(key_format)

    def of(self, partition: Partition, record: Record, position: Position) -> Event:
        """Return the event of a record, with the position after it.

        Raise `DecoderUnavailableError` if the decoder cannot decode it yet: it has raised `UnavailableError`.
        """
        stream, headers = str(partition), tuple(record.headers)
        value, fields, reason = record.value, None, None
        try:
            if value is None:
                raise PassedOverError("a tombstone")
            if self._more:
                arguments = {"topic": partition.topic, "key": record.key, "headers": headers}
                fields = self._decode(value, **{name: arguments[name] for name in self._more})
            else:
                fields = self._decode(value)
            if not isinstance(fields, dict):
                fields, got = None, type(fields).__name__
                raise ValueError(f"Expected a dict from the decoder, got {got}")
            if self._key is not None:
                key = None if record.key is None else self._read_key(record.key)
                fields = {**(flatten({self._key: key}) if type(key) is dict else {self._key: key}), **fields}
        except MemoryError:
            raise
        except PassedOverError:
            return Event(stream, position, b"", origin=_origin(partition, record.offset))
        except UnavailableError as error:
            raise DecoderUnavailableError(f"{error} - at {stream}, offset {record.offset}") from error
        except Exception as error:  # whatever a decoder raises, the stream goes on
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            problem = f"{kind}{error}"
            if isinstance(error, UnicodeDecodeError) and error.encoding == "utf-8":
                problem = not_utf8(error)
            fields, reason = None, f"{problem} - at {stream}, offset {record.offset}"
        origin = _origin(partition, record.offset)
        if record.timestamp is not None and record.timestamp >= 0:
            origin["timestamp"] = record.timestamp
        return Event(stream, position, value or b"", fields, reason, record.key, headers, origin)

    def of_all(self, runs: Sequence[Run]) -> list[Event] | None:
        """Return the events of records as `of` does for each, faster; ``None`` if one must be read alone."""
        if self._read_all is None:
            return None
        values: list[Any] = [record.value for _, records, _ in runs for record in records]
        if None in values:
            return None
        decoded = self._read_all(values)
        if decoded is None:
            try:
                decoded = list(map(self._decode, values))
            except Exception:  # `of` reports the problem
                return None
        events: list[Event] = []
        new, rest = tuple.__new__, zip(values, decoded, strict=True)
        for partition, records, positions in runs:
            stream, (topic, number) = str(partition), partition
            for record, position, (value, fields) in zip(records, positions, rest, strict=False):
                origin: dict[str, str | int] = {"topic": topic, "partition": number, "offset": record.offset}
                timestamp = record.timestamp
                if timestamp is not None and timestamp >= 0:
                    origin["timestamp"] = timestamp
                headers = tuple(record.headers) if record.headers else ()
                events.append(new(Event, (stream, position, value, fields, None, record.key, headers, origin)))
        return events


class Retry:
    """The time of the next call of an unavailable decoder: after 1 s, and then twice the pause each time."""

    def __init__(self) -> None:
        self.trouble: Trouble | None = None
        self._pause = self._due = 0.0

    @property
    def seconds(self) -> float:
        """The time until the next call; 0 if the decoder can be called now."""
        return max(0.0, self._due - time.monotonic()) if self.trouble else 0.0

    def record_failure(self, error: DecoderUnavailableError) -> None:
        """Lengthen the pause before the next call."""
        now = time.monotonic()
        self._pause = min(LONGEST_PAUSE, max(1.0, 2.0 * self._pause))
        self._due = now + self._pause
        self.trouble = Trouble(error, self.trouble.since if self.trouble else now)

    def record_success(self) -> None:
        """Reset the pause to 0."""
        self.trouble, self._pause = None, 0.0


def _parameters_of(decoder: Decoder | None) -> tuple[str, ...]:
    if decoder is None:
        return ()
    try:
        parameters = inspect.signature(decoder).parameters
    except ValueError:  # it is written in C and says nothing
        return ()
    can_be_named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [name for name, parameter in parameters.items() if parameter.kind in can_be_named]
    return tuple(name for name in ("topic", "key", "headers") if name in names and name != next(iter(parameters)))


def gap_event(partition: Partition, offset: int, next_offset: int) -> Event:
    """Return the event that reports a jump to another offset, because the expected record does not exist.

    Examples
    --------
    >>> gap_event(Partition("t", 0), 10, 40).error
    'Expected a record, got 30 records deleted unread - at t:0, offset 10'
    """
    if next_offset > offset:
        what = f"{next_offset - offset} records deleted unread"
    else:
        what = f"an end at {next_offset}, so records were deleted"
    error = f"Expected a record, got {what} - at {partition}, offset {offset}"
    return Event(str(partition), next_offset, b"", error=error, origin=_origin(partition, offset))


def _origin(partition: Partition, offset: int) -> dict[str, str | int]:
    return {"topic": partition.topic, "partition": partition.number, "offset": offset}
