"""Return of dead letters to the source of their records, each exactly once.

Letters are read from a file or a topic. A destination has a ledger that is written together with the records.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from streamkernel.connectors.base import UnavailableError
from streamkernel.connectors.kafka.clients import OffsetGoneError, Partition, Producer, Record
from streamkernel.connectors.kafka.offsets import find_partitions
from streamkernel.connectors.kafka.options import Options
from streamkernel.connectors.kafka.sink import CONNECT, OWN, STREAMS

TRANSACTION_SECONDS = 120.0

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

    `stream` and `number` are its position: the path of the file and the line, or the partition and the offset. `kind`
    and `reason` describe the error that made the record a dead letter. The record came from a partition of a `topic`,
    or from the file at a `path`. `hindrance` is the reason why it cannot be redriven, or empty.
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
    """Yield the letters of a file that have not been redriven; raise a `ValueError` if a line is not a letter."""
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

    Offsets without a record, such as markers of transactions, are added to `driven` on the way. Letters of Kafka
    Connect and Kafka Streams can be read, too. Raise `UnavailableError` if brokers are unavailable, or there is no such
    topic.
    """
    with closing(options.consumer()) as client:
        partitions = find_partitions(client, topic, None, options.servers)
        ends = client.ends(partitions)
        for partition in partitions:
            before = (driven or {}).get(str(partition), Driven())
            begin = max(before.base, client.first(partition))
            yield from _letters_of(client, partition, begin, ends[partition], before)


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


class TopicTarget:
    """Topics, written in transactions that also commit the ledger.

    The ledger of a stream is the offset of a group without members, and its metadata. Brokers delete such offsets after
    some days, so there is a `copy` in a file, which is used if the brokers have none. `name` is the transactional id
    and the group; a process with the same id fences an older one. `partition_of` maps a stream to the partition whose
    offset holds its ledger. `to` is a topic for all records; by default each is written to its original partition.
    """

    def __init__(
        self,
        options: Options,
        name: str,
        partition_of: Callable[[str], Partition],
        to: str | None = None,
        copy: Path | None = None,
    ) -> None:
        self._options, self._name, self._to, self._copy = options, name, to, copy
        self._partition_of = partition_of
        self._producer: Producer | None = None

    def read(self, streams: list[str]) -> dict[str, Driven]:
        """Return the redriven positions of some streams, and fence other processes."""
        self._producer = self._options.producer(self._name, TRANSACTION_SECONDS)
        with closing(self._options.consumer(self._name)) as asked:
            entries = {stream: asked.committed_with_note(self._partition_of(stream)) for stream in streams}
        copies = {} if self._copy is None else read_json(self._copy).get(self._name, {})
        return {stream: Driven(*(entry or copies.get(stream, (0, "")))) for stream, entry in entries.items()}

    def hindrance(self, letter: Letter) -> str:
        """Return why a letter cannot be driven here, or nothing."""
        if letter.hindrance or self._to is not None or letter.topic is not None:
            return letter.hindrance
        return "its record did not come from a topic; name one with --to-topic"

    def send(self, letter: Letter) -> None:
        """Write the record of a letter."""
        assert self._producer is not None
        topic = self._to or letter.topic
        assert topic is not None
        partition = None if self._to else letter.partition
        self._producer.send(topic, letter.value, letter.key, letter.headers, partition)

    def commit(self, driven: Mapping[str, Driven]) -> None:
        """Make records and the ledger visible together.

        Raise `CommitRefusedError` if nothing was committed, or the outcome is unknown; the next start determines it.
        """
        assert self._producer is not None
        notes = {stream: (entry.base, entry.note()) for stream, entry in driven.items()}
        self._producer.flush()
        self._producer.commit(
            [(self._name, {self._partition_of(stream): base}, note) for stream, (base, note) in notes.items()]
        )
        if self._copy is not None:
            kept = read_json(self._copy)
            write(self._copy, {**kept, self._name: {**kept.get(self._name, {}), **notes}})

    def close(self) -> None:
        """Abort uncommitted records."""
        if self._producer is not None:
            self._producer.close()


class FileTarget:
    """A file to which lines are appended, with a ledger beside it that is written before and after.

    Before lines are appended, the ledger records the size that the file will have. After a crash, the size therefore
    shows whether they were written: a partial write is removed, a complete one counts as redriven. `path` is the file;
    its ledger has the same name with ``.redriven``.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._ledger = path, path.with_name(f"{path.name}.redriven")
        self._lines: list[bytes] = []
        self._entries: dict[str, Any] = {}

    def read(self, streams: list[str]) -> dict[str, Driven]:
        """Return the redriven positions of some streams.

        Raise `ValueError` if another program wrote to the file when this one was stopped.
        """
        kept = read_json(self._ledger)
        entries, pending = kept.get("driven", {}), kept.get("pending")
        if pending is not None:
            size = self._path.stat().st_size if self._path.exists() else 0
            if size == pending["end"]:
                entries = pending["driven"]
            elif size > pending["end"] or size < pending["begin"]:
                raise ValueError(
                    f"Expected {pending['begin']:,} or {pending['end']:,} bytes, got {size:,} - at {self._path}, which "
                    f"another program wrote to while the last redrive was killed; see whether it has the lines, and "
                    f"remove {self._ledger}"
                )
            elif size > pending["begin"]:
                os.truncate(self._path, pending["begin"])
            write(self._ledger, {"driven": entries})
        self._entries = entries
        return {stream: Driven(*entries.get(stream, (0, ""))) for stream in streams}

    def hindrance(self, letter: Letter) -> str:
        """Return why a letter cannot be driven here, or nothing."""
        if not letter.hindrance and b"\n" in letter.value and self._path.suffix not in (".csv", ".tsv"):
            return "it has several lines"
        return letter.hindrance

    def send(self, letter: Letter) -> None:
        """Add the record of a letter to the next lines."""
        self._lines.append(letter.value + b"\n")

    def commit(self, driven: Mapping[str, Driven]) -> None:
        """Add the lines to the file."""
        lines, self._lines = b"".join(self._lines), []
        entries = {**self._entries, **{stream: (entry.base, entry.note()) for stream, entry in driven.items()}}
        with self._path.open("ab+") as file:
            begin = file.seek(0, os.SEEK_END)
            if begin:
                file.seek(-1, os.SEEK_END)
                lines = lines if file.read(1) == b"\n" or not lines else b"\n" + lines
            pending = {"begin": begin, "end": begin + len(lines), "driven": entries}
            write(self._ledger, {"driven": self._entries, "pending": pending})
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        write(self._ledger, {"driven": entries})
        self._entries = entries

    def close(self) -> None:
        """Do nothing, because uncommitted lines have not been written."""


def check_file(path: Path) -> None:
    """Raise a `ValueError` if lines cannot be added to a file."""
    if path.suffix == ".gz" or path.suffix == ".parquet" or any(sign in path.name for sign in "*?["):
        raise ValueError(f"Expected a file that lines can be added to, got {path}; name one with --to-file")
    if not path.parent.is_dir():
        raise UnavailableError(f"Expected a folder, got none - at {path.parent}")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file, an empty one if the file is missing."""
    try:
        content: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return content


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the content of a file atomically."""
    draft = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(orjson.dumps(content))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
