"""Events from a text format: bytes are split into records, and each record is parsed or becomes an error."""

from __future__ import annotations

import time
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, islice, repeat
from pathlib import Path
from typing import cast

from streamkernel.connectors.base import BROKEN, Event, Position, is_place, not_utf8
from streamkernel.connectors.csv_table import PLAIN, Csv, CsvOptions
from streamkernel.connectors.files.bytestreams import BrokenStreamError, ByteStream
from streamkernel.connectors.formats import TEXT_FORMATS, Headless, JsonLines, TextFormat, format_of, suffix_of
from streamkernel.connectors.record_splitters import OversizedRecord, Raw

BATCH_EVENTS = 512
HEADER_SECONDS = 1.0

_ABSENT = None, None, (), None
"""The error, key, headers and origin of an event of a file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The format of files and its options.

    `max_list_length` is the largest length of a list whose items become fields. `limit` is the longest text record, in
    bytes, that is read. `is_silent` says whether nothing is written to the log, as for a look at the first records.
    `zones` are the zones of times without one, by field; UTC for others.

    Examples
    --------
    >>> Layout().format_of(Path("a.tsv")), Layout("jsonl").format_of(Path("a.log"))
    ('csv', 'jsonl')
    """

    format: str | None = None
    csv: CsvOptions = PLAIN
    max_list_length: int = 0
    limit: int = 1 << 20
    is_silent: bool = False
    zones: Mapping[str, str] = field(default_factory=dict)

    def format_of(self, path: Path) -> str:
        """Return the format of a file; raise a `ValueError` if nothing tells it."""
        return self.format or format_of(path)

    def is_rewritten(self, path: Path) -> bool:
        """Return whether a file is rewritten as UTF-8 before it is split, so that positions count other bytes."""
        return self.csv.is_rewritten and self.format_of(path) == "csv"

    def parser(self, path: Path) -> TextFormat:
        """Return a parser of a text file."""
        form = self.format_of(path)
        if form == "csv":
            is_tabs = self.csv.delimiter is None and suffix_of(path) == ".tsv"
            options = replace(self.csv, delimiter="\t") if is_tabs else self.csv
            return Csv(options, is_rewritten=options.is_rewritten, is_silent=self.is_silent)
        return JsonLines(self.max_list_length, self.csv.texts) if form == "jsonl" else TEXT_FORMATS[form]()


class HeaderError(ValueError):
    """A header without usable names, so that no record can be read."""


class TextReader:
    """The events of one stream of bytes, whose records have at most `limit` bytes.

    A position is ``[offset, line]``: the bytes and the lines up to the end of a record. After the damaged part of a
    stream it is ``[offset, line, "broken"]``, so that the damage is not reported again.
    """

    def __init__(self, name: str, stream: ByteStream, form: TextFormat, limit: int) -> None:
        self._name = name
        self._stream = stream
        self._form = form
        self._limit = limit
        self._go_on(offset=0, line=0)

    def seek(self, position: Position) -> None:
        """Continue after `position`."""
        if not is_place(position):
            raise ValueError(f"Expected a position [offset, line], got {position!r} - at {self._name}")
        offset, line = position[:2]
        self._stream.seek(offset)
        if not self._form.ready and self._stream.waiting() is not None:
            self._stream.seek(0)
            while not self._form.ready and self.poll(HEADER_SECONDS) is not None:
                pass
            self._stream.seek(offset)
        self._go_on(offset, line)
        self._told_at = offset if len(position) == 3 else -1

    def resume(self, position: Position) -> None:
        """Continue after `position`, without the header if that cannot be used."""
        try:
            self.seek(position)
        except HeaderError as error:
            self.give_up_header(error)
            self.seek(position)

    def give_up_header(self, error: HeaderError) -> None:
        """Start again, and treat every record as unreadable."""
        self._form = Headless(str(error))
        self._stream.seek(0)
        self._go_on(offset=0, line=0)

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next events, ``[]`` if none arrived within `timeout` seconds, or ``None`` at the end."""
        deadline = time.monotonic() + timeout
        events = self._events()
        while not events and not self._ended:
            events = self._more(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                break
        return events or (None if self._ended else [])

    @property
    def names(self) -> Sequence[str]:
        """The names in the header once it has been read; empty if there is no header."""
        return self._form.names if isinstance(self._form, Csv) else ()

    def lag(self) -> int:
        """Return the number of bytes after the last event, or 0 if it is unknown."""
        waiting = self._stream.waiting()
        return 0 if waiting is None else waiting + self._read - self._offset

    def close(self) -> None:
        """Release the stream."""
        self._stream.close()

    def _go_on(self, offset: int, line: int) -> None:
        self._read = offset  # Bytes read from the stream,
        self._offset = offset  # number of these that were returned in events,
        self._line = line  # and their number of lines.
        self._records: Iterator[Raw] = iter(())
        self._cutter = self._form.cutter(self._limit)
        self._at_start = offset == 0
        self._start = b""
        self._ended = False
        self._told_at = -1

    def _more(self, timeout: float) -> list[Event]:
        """Read more bytes, and return the first events in them."""
        try:
            chunk = self._stream.read(timeout)
        except BrokenStreamError as error:
            self._ended = True
            return [] if self._offset == self._told_at else [self._damage(error)]
        if chunk is None:
            self._ended = True
            self._records = chain(self._cutter.feed(self._start), self._cutter.end())
        else:
            self._read += len(chunk)
            self._records = iter(self._cutter.feed(self._after_mark(chunk) if self._at_start else chunk))
        return self._events()

    def _after_mark(self, chunk: bytes) -> bytes:
        """Return the bytes after the byte order mark, if the file begins with one."""
        begin = self._start + chunk
        if len(begin) < len(BOM_UTF8) and BOM_UTF8.startswith(begin):
            self._start = begin  # More bytes are needed to decide.
            return b""
        self._start, self._at_start = b"", False
        if begin.startswith(BOM_UTF8):
            self._offset += len(BOM_UTF8)
        return begin.removeprefix(BOM_UTF8)

    def _events(self) -> list[Event]:
        """Return the next events of the available records."""
        form = self._form
        if not isinstance(form, (Csv, JsonLines)) or not form.ready:
            return self._parse(self._records)
        while rows := list(islice(self._records, BATCH_EVENTS)):
            if events := self._parse_together(form, rows) or self._parse(rows):
                return events
        return []

    def _parse_together(self, form: Csv | JsonLines, rows: list[Raw]) -> list[Event]:
        """Return the events of rows, or none if one of them must be processed individually."""
        whole = cast(list[bytes], rows)
        if {*map(type, rows)} != {bytes} or not all(rows) or any(map(bytes.isspace, whole)):
            return []
        records = form.parse_all(whole)
        if records is None:
            return []
        line, ends = self._line + 1, list(accumulate((len(row) + 1 for row in whole), initial=self._offset))[1:]
        ends[-1] = min(ends[-1], self._read)  # The last line may lack a newline.
        self._offset, self._line = ends[-1], self._line + len(rows)
        positions = [[end, number] for number, end in enumerate(ends, line)]
        return list(map(Event._make, zip(repeat(self._name), positions, whole, records, *map(repeat, _ABSENT))))

    def _parse(self, records: Iterable[Raw]) -> list[Event]:
        """Return the events of records, one after the other."""
        events: list[Event] = []
        name, parse, offset, line = self._name, self._form.parse, self._offset, self._line
        for raw in records:
            number = line + 1
            if isinstance(raw, OversizedRecord):
                line = number + raw.newlines
                offset = min(offset + raw.size + 1, self._read)
                reason = f"Expected at most {self._limit} bytes in a record, got {raw.size}"
                events.append(self._unreadable(raw.head, reason, number, [offset, line]))
            else:
                line = number + raw.count(b"\n")
                offset = min(offset + len(raw) + 1, self._read)
                if not raw or raw.isspace():
                    continue
                try:
                    record = parse(raw)
                except ValueError as error:
                    events.append(self._unreadable(raw, _reason(error), number, [offset, line]))
                else:
                    if record is not None:
                        events.append(Event(name, [offset, line], raw, record))
            if len(events) >= BATCH_EVENTS:
                break
        self._offset, self._line = offset, line
        return events

    def _unreadable(self, raw: bytes, reason: str, line: int, position: Position) -> Event:
        if not self._form.ready:  # Without names no row can be read.
            raise HeaderError(f"{reason} - at the header of {self._name}")
        return Event(self._name, position, raw, error=f"{reason} - at line {line}")

    def _damage(self, error: BrokenStreamError) -> Event:
        where = [self._offset, self._line, BROKEN]
        return Event(self._name, where, self._cutter.pending(), error=f"{error} - at line {self._line + 1}")


def _reason(error: ValueError) -> str:
    return not_utf8(error) if isinstance(error, UnicodeDecodeError) else str(error)
