"""Dead letters read from a file or a topic, with the data needed to redrive their records."""

from __future__ import annotations

import base64
import json
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from streamkernel.connectors.kafka.clients import OffsetGoneError, Partition, Record
from streamkernel.connectors.kafka.offsets import find_partitions
from streamkernel.connectors.kafka.options import Options
from streamkernel.connectors.kafka.sink import CONNECT, OWN, STREAMS

LONGEST_NOTE = 4000
"""Largest length of a note in characters; brokers accept 4,096 bytes by default (``offset.metadata.max.bytes``)."""


class Driven:
    """A set of numbers that were added in ascending order within each pass.

    `base` is the first number that is not in the set.

    Examples
    --------
    >>> driven = Driven()
    >>> for number in (0, 1, 4, 5):
    ...     driven.add(number)
    >>> [number in driven for number in (1, 2, 4, 6)], driven.base
    ([True, False, True, False], 2)
    >>> driven.add(2, 4)
    >>> driven.base, driven.note()
    (6, '')
    """

    def __init__(self, base: int = 0, note: str = "") -> None:
        self.base = base
        self._starts: list[int] = []
        self._ends: list[int] = []
        if note:
            at = base
            numbers = json.loads(zlib.decompress(base64.b64decode(note)))
            for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
                self._starts.append(at + gap)
                at += gap + length
                self._ends.append(at)

    def __contains__(self, number: int) -> bool:
        """Return whether a number is in the set."""
        at = bisect_right(self._starts, number)
        return number < self.base or (at > 0 and number < self._ends[at - 1])

    def add(self, number: int, end: int | None = None) -> None:
        """Add a number, or all from it up to an end."""
        end = number + 1 if end is None else end
        if number <= self.base:
            self.base = max(self.base, end)
        else:
            first = bisect_right(self._ends, number - 1)  # the first range that overlaps or adjoins it
            last = bisect_right(self._starts, end)
            starts, ends = self._starts[first:last], self._ends[first:last]
            self._starts[first:last] = [min([number, *starts])]
            self._ends[first:last] = [max([end, *ends])]
        while self._starts and self._starts[0] <= self.base:
            self.base = max(self.base, self._ends.pop(0))
            self._starts.pop(0)

    def note(self) -> str:
        """Return the ranges after the base as text. Raise `ValueError` if there are too many for a note."""
        if not self._starts:
            return ""
        numbers, at = [], self.base
        for start, end in zip(self._starts, self._ends, strict=True):
            numbers += [start - at, end - start]
            at = end
        text = base64.b64encode(zlib.compress(json.dumps(numbers, separators=(",", ":")).encode(), 9)).decode()
        if len(text) > LONGEST_NOTE:
            raise ValueError(
                f"Expected few letters left out between those sent back, got {len(self._starts):,} gaps, whose list is "
                "too long for brokers; redrive all letters up to here first, with --limit and without a filter"
            )
        return text


TIMES = f"{OWN}redriven"
"""The header that counts how often a record was redriven."""

OUTPUT = "output"
"""The kind of letters whose records were learned, and would be learned again."""


class Letter(NamedTuple):
    """A dead letter.

    Parameters
    ----------
    stream, number
        Position of the letter: the path of the file and the line, or the partition and the offset.
    kind, reason
        Kind and text of the error that made the record a dead letter.
    topic, partition
        Source of the record, if it is a topic.
    path
        Source of the record, if it is a file.
    hindrance
        The reason why the record cannot be redriven, or empty.
    """

    stream: str
    number: int
    kind: str
    reason: str
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    topic: str | None = None
    partition: int | None = None
    path: str | None = None
    hindrance: str = ""


def file_letters(path: Path, driven: Mapping[str, Driven] | None = None) -> Iterator[Letter]:
    """Yield the letters of a file that have not been redriven.

    `path` is the file, of JSON lines. Raise `ValueError` if a line is not a dead letter.
    """
    stream = str(path)
    before = (driven or {}).get(stream, Driven())
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if number in before or not line.endswith(b"\n"):  # the last one is still being written
                continue
            try:
                fields = orjson.loads(line)
                value = _bytes(fields["raw"]) or b""
                headers = [(name, _bytes(content) or b"") for name, content in fields.get("record_headers", ())]
                letter = Letter(
                    stream=stream,
                    number=number,
                    kind=fields["kind"],
                    reason=fields["reason"],
                    value=value,
                    key=_bytes(fields.get("record_key")),
                    headers=_for_another_time(headers),
                    topic=fields.get("topic"),
                    partition=fields.get("partition"),
                    path=fields.get("stream"),
                    hindrance=_hindrance(fields["kind"], value),
                )
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"Expected a dead letter, got {error!r} - at {path}, line {number + 1}") from error
            yield letter


def topic_letters(options: Options, topic: str, driven: Mapping[str, Driven] | None = None) -> Iterator[Letter]:
    """Yield the letters of a topic, up to its present end, that have not been redriven.

    Offsets without a record, such as markers of transactions, are added to `driven` on the way. `topic` is the topic.
    Letters of Kafka Connect and Kafka Streams can be read, too. Raise `UnavailableError` if brokers are unavailable, or
    there is no such topic.
    """
    client = options.consumer()
    try:
        partitions = find_partitions(client, topic, None, options.servers)
        ends = client.ends(partitions)
        for partition in partitions:
            before = (driven or {}).get(str(partition), Driven())
            begin = max(before.base, client.first(partition))
            yield from _letters_of(client, partition, begin, ends[partition], before)
    finally:
        client.close()


def _letters_of(client: Any, partition: Partition, begin: int, end: int, before: Driven) -> Iterator[Letter]:
    """Yield the letters of a partition between two offsets."""
    if begin >= end:
        return
    before.add(before.base, begin)
    client.start({partition: begin})
    expected = begin
    while expected < end:
        try:
            records: Sequence[Record] = client.poll(0.2).get(partition, ())
        except OffsetGoneError:
            client.start({partition: client.first(partition)})
            continue
        for record in records:
            if record.offset >= end:
                break
            if record.offset > expected:
                before.add(expected, record.offset)
            expected = record.offset + 1
            if record.offset not in before:
                yield _letter(partition, record)
        if not records and client.position(partition) > expected:
            position = min(client.position(partition), end)
            before.add(expected, position)
            expected = position
    client.pause([partition])


def _letter(partition: Partition, record: Record) -> Letter:
    headers = dict(record.headers)

    def text(*names: str) -> str | None:
        return next((headers[name].decode(errors="replace") for name in names if name in headers), None)

    number = text(f"{CONNECT}partition", f"{STREAMS}partition")
    cut, value, kind = text(f"{OWN}truncated"), record.value or b"", text(f"{OWN}kind") or "error"
    return Letter(
        stream=str(partition),
        number=record.offset,
        kind=kind,
        reason=text(f"{CONNECT}exception.message", f"{STREAMS}message") or "",
        value=value,
        key=record.key,
        headers=_for_another_time(record.headers),
        topic=text(f"{CONNECT}topic", f"{STREAMS}topic"),
        partition=None if number is None else int(number),
        path=text(f"{OWN}stream"),
        hindrance=f"its {cut} is cut" if cut else _hindrance(kind, value),
    )


def _hindrance(kind: str, value: bytes) -> str:
    """Return why a whole record cannot be redriven, or nothing."""
    if kind == OUTPUT:
        return "its record was learned; only its prediction is missing"
    return "" if value else "it has no value"


def _for_another_time(headers: Sequence[tuple[str, bytes]]) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a record without the headers of the letter, with the count of redrives increased."""
    times = next((content for name, content in reversed(headers) if name == TIMES), b"0")
    kept = [(name, content or b"") for name, content in headers if not name.startswith((CONNECT, STREAMS, OWN))]
    return (*kept, (TIMES, b"%d" % (1 + int(times) if times.isdigit() else 1)))


def _bytes(content: Any) -> bytes | None:
    """Return the content of a file as text, or as base64 if it is not text."""
    if isinstance(content, dict):
        return base64.b64decode(content["base64"])
    return None if content is None else str(content).encode(errors="surrogateescape")
