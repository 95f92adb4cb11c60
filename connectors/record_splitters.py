"""Splitting of bytes into records: at newlines, or for CSV at newlines outside of quotes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

KEPT_BYTES = 1024
"""Number of bytes that are kept of an oversized record."""

ENOUGH_DELIMITERS = 8
"""Delimiters in lines that look like rows, after which open quotes before them are no quotes of a cell."""


@dataclass(frozen=True, slots=True)
class OversizedRecord:
    """The beginning of a record that is longer than allowed, its size in bytes, and the number of newlines in it."""

    head: bytes
    size: int
    newlines: int = 0


Raw: TypeAlias = bytes | OversizedRecord


class LineCutter:
    r"""Splits at every newline, in bounded memory for lines of any length.

    `limit` is the longest record, in bytes, that is kept whole.

    Examples
    --------
    >>> cutter = LineCutter(limit=100)
    >>> cutter.feed(b'one\ntw'), cutter.feed(b'o\nthree'), cutter.end()
    ([b'one'], [b'two'], [b'three'])
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail = bytearray()  # the beginning of an incomplete line
        self._dropped = 0  # bytes dropped from the end of that line because it is too long

    def feed(self, chunk: bytes) -> Iterable[Raw]:
        """Return the records that are complete after `chunk`."""
        return self._cut(chunk)

    def end(self) -> Iterable[Raw]:
        """Return the last record if no newline ended it."""
        return [self._line()] if self._tail else []

    def pending(self) -> bytes:
        """Return the first bytes of the incomplete record."""
        return bytes(self._tail[:KEPT_BYTES])

    def _cut(self, chunk: bytes) -> list[Raw]:
        first, *others = chunk.split(b"\n")
        self._tail += first
        lines: list[Raw] = []
        if others:
            lines.append(self._line())
            self._tail = bytearray(others.pop())
            self._dropped = 0
            long = len(chunk) > self._limit
            lines += [_shorten(line, self._limit) for line in others] if long else others
        if self._dropped or len(self._tail) > max(self._limit, KEPT_BYTES):
            self._dropped += max(0, len(self._tail) - KEPT_BYTES)
            del self._tail[KEPT_BYTES:]
        return lines

    def _line(self) -> Raw:
        if self._dropped:
            return OversizedRecord(bytes(self._tail[:KEPT_BYTES]), len(self._tail) + self._dropped)
        return _shorten(bytes(self._tail), self._limit)


class Quotes(Enum):
    """How the quotes of a line end."""

    CLOSED = auto()
    OPEN = auto()
    BROKEN = auto()


class QuotedLine(NamedTuple):
    """How the quotes of a line end, and the number of delimiters outside of them."""

    quotes: Quotes
    delimiters: int


class QuotedCutter(LineCutter):
    r"""Splits at newlines outside of quotes, and takes a line whose quotes lead nowhere as a record of its own.

    Quotes that are open at the end of a line lead nowhere if something other than a delimiter follows the quote that
    closes them, if they are still open where the row has too many cells, is too long or ends with the file, or if the
    lines inside are rows themselves: the line and lines after it with `ENOUGH_DELIMITERS` have as many cells as a row,
    or all lines after it have, and the joined row has not. So one stray quote costs one record. Only bytes after the
    start of a record decide, so that reading may continue there. `limit` is the longest record, in bytes, that is kept
    whole. `delimiter` is the byte between two cells. `widths` returns the numbers of cells that a row may have, none if
    they are unknown.

    Examples
    --------
    >>> cutter = QuotedCutter(limit=100)
    >>> [*cutter.feed(b'1,"two\nlines"\n2,"one\n3,"two"\n4,"th')], [*cutter.end()]
    ([b'1,"two\nlines"', b'2,"one', b'3,"two"'], [b'4,"th'])
    """

    def __init__(
        self, limit: int, delimiter: bytes = b",", widths: Callable[[], Collection[int]] = tuple[int, ...]
    ) -> None:
        super().__init__(limit)
        self._delimiter, self._widths = delimiter, widths
        self._open: OpenRecord | None = None

    def feed(self, chunk: bytes) -> Iterable[Raw]:
        """Return the records that are complete after `chunk`; all have to be read before the next call."""
        lines = self._cut(chunk)
        if self._open is None and b'"' not in chunk and not (lines and b'"' in _head(lines[0])):
            return lines
        return self._join(lines)

    def end(self) -> Iterable[Raw]:
        """Return the records up to the end, where no quotes are open any more."""
        yield from self._join(super().end())
        while self._open is not None:
            first, *others = self._open.lines
            self._open = None
            yield first
            yield from self._join(others)

    def pending(self) -> bytes:
        """Return the first bytes of the incomplete record."""
        lines = [] if self._open is None else self._open.lines
        return b"\n".join([*map(_head, lines), super().pending()])[:KEPT_BYTES]

    def _join(self, lines: Iterable[Raw]) -> Iterator[Raw]:
        """Yield the records that end in these lines."""
        left = deque(lines)
        while left:
            line = left.popleft()
            record = self._open
            if record is not None:
                quotes = record.add(line)
                if quotes is Quotes.OPEN:
                    continue
                self._open = None
                if quotes is Quotes.CLOSED:
                    yield b"\n".join(map(_head, record.lines))
                else:
                    left.extendleft(reversed(record.lines[1:]))
                    yield record.lines[0]
            elif type(line) is bytes and b'"' in line:
                quotes, delimiters = quoted_line(line, False, self._delimiter)
                if quotes is Quotes.OPEN:
                    self._open = OpenRecord(line, delimiters, self._limit, self._delimiter, self._widths())
                else:
                    yield line
            else:
                yield line


class OpenRecord:
    """The lines of a record whose quotes are still open.

    `delimiters` are the delimiters in it that are outside of quotes. `widths` are the numbers of cells that a row may
    have, none if they are unknown.

    Examples
    --------
    >>> OpenRecord(b'1,"two', 1, 100, b",", [2]).add(b'lines"')
    <Quotes.CLOSED: 1>
    """

    def __init__(self, line: bytes, delimiters: int, limit: int, delimiter: bytes, widths: Collection[int]) -> None:
        self.lines: list[Raw] = [line]
        self._limit, self._delimiter, self._widths = limit, delimiter, widths
        self._size = len(line)
        self._cells = 1 + delimiters
        self._begins_as_row = 1 + line.count(delimiter) in widths
        self._goes_on_with_rows = True
        self._delimiters_after = 0  # in the further lines, each taken alone

    def add(self, line: Raw) -> Quotes:
        """Add a line, and return how the quotes end: broken if they lead nowhere."""
        quotes, delimiters = quoted_line(_head(line), True, self._delimiter)
        self.lines.append(line)
        self._size += 1 + (line.size if isinstance(line, OversizedRecord) else len(line))
        self._cells += delimiters
        if self._goes_on_with_rows:
            cells = self._cells_alone(_head(line))
            self._delimiters_after += cells - 1
            self._goes_on_with_rows = cells in self._widths
        return Quotes.BROKEN if self._size > self._limit or self._leads_nowhere(quotes) else quotes

    def _leads_nowhere(self, quotes: Quotes) -> bool:
        """Return whether the lines are rows, or cannot become a row together."""
        if self._goes_on_with_rows and self._begins_as_row and self._delimiters_after >= ENOUGH_DELIMITERS:
            return True
        if quotes is Quotes.OPEN:
            return self._cells > max(self._widths, default=self._cells)
        return self._goes_on_with_rows and self._cells not in self._widths

    def _cells_alone(self, line: bytes) -> int:
        """Return the number of cells of a line as a row, where open quotes are a character like any other."""
        most = 1 + line.count(self._delimiter)
        if b'"' not in line or most < min(self._widths, default=most + 1):
            return most  # which is enough to know that it is no row
        quotes, delimiters = quoted_line(line, False, self._delimiter)
        return most if quotes is Quotes.OPEN else 1 + delimiters


def quoted_line(line: bytes, is_quoted: bool, delimiter: bytes = b",") -> QuotedLine:
    r"""Return how the quotes of a CSV line end.

    They are broken if something other than a delimiter follows closing quotes: nothing can be joined to such a line.
    `is_quoted` says whether quotes are open at its start. `delimiter` is the byte between two cells.

    Examples
    --------
    >>> quoted_line(b'1,"two', is_quoted=False), quoted_line(b'lines",3', is_quoted=True)
    (QuotedLine(quotes=<Quotes.OPEN: 2>, delimiters=1), QuotedLine(quotes=<Quotes.CLOSED: 1>, delimiters=1))
    >>> quoted_line(b'a 5" pipe,"he said ""hi""', is_quoted=False).quotes
    <Quotes.OPEN: 2>
    >>> quoted_line(b'Ulm "old" town",3', is_quoted=True).quotes
    <Quotes.BROKEN: 3>
    """
    at = delimiters = 0
    if not is_quoted and line.startswith(b'"'):
        is_quoted, at = True, 1
    while True:
        if is_quoted:
            at = line.find(b'"', at)
            if at < 0:
                return QuotedLine(Quotes.OPEN, delimiters)
            after = line[at + 1 : at + 2]
            if after == b'"':
                at += 2
            elif after == delimiter:
                is_quoted, at = False, at + 1
            else:
                is_end = after in (b"", b"\r") and at + 2 >= len(line)
                return QuotedLine(Quotes.CLOSED if is_end else Quotes.BROKEN, delimiters)
        else:
            begin, at = at, line.find(delimiter + b'"', at)
            if at < 0:
                return QuotedLine(Quotes.CLOSED, delimiters + line.count(delimiter, begin))
            delimiters += line.count(delimiter, begin, at + 1)
            is_quoted, at = True, at + 2


def _shorten(line: bytes, limit: int) -> Raw:
    return line if len(line) <= limit else OversizedRecord(line[:KEPT_BYTES], len(line))


def _head(line: Raw) -> bytes:
    return line.head if isinstance(line, OversizedRecord) else line
