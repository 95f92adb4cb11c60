"""Splitting of bytes into records: at newlines, or for CSV at newlines outside of quotes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

KEPT_BYTES = 1024
"""Number of bytes that are kept of an oversized record."""


@dataclass(frozen=True, slots=True)
class OversizedRecord:
    """The beginning of a record that is longer than allowed.

    Parameters
    ----------
    head
        Its first bytes.
    size
        Its size in bytes, without the newline that ended it.
    newlines
        Number of newlines in it.
    """

    head: bytes
    size: int
    newlines: int = 0


Raw: TypeAlias = bytes | OversizedRecord


class LineCutter:
    r"""Splits at every newline, in bounded memory for lines of any length.

    Parameters
    ----------
    limit
        Longest record, in bytes, that is kept whole.

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

    def feed(self, chunk: bytes) -> list[Raw]:
        """Return the records that are complete after `chunk`."""
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

    def end(self) -> list[Raw]:
        """Return the last record if no newline ended it."""
        return [self._line()] if self._tail else []

    def pending(self) -> bytes:
        """Return the first bytes of the incomplete record."""
        return bytes(self._tail[:KEPT_BYTES])

    def _line(self) -> Raw:
        if self._dropped:
            return OversizedRecord(bytes(self._tail[:KEPT_BYTES]), len(self._tail) + self._dropped)
        return _shorten(bytes(self._tail), self._limit)


class QuotedCutter(LineCutter):
    r"""Splits at newlines outside of quotes.

    Quotes that are still open at the size limit end there with the line, and the next line is a record again, so that
    one stray quote cannot swallow a file.

    Parameters
    ----------
    limit
        Longest record, in bytes, that is kept whole.
    delimiter
        The byte between two cells.

    Examples
    --------
    >>> cutter = QuotedCutter(limit=100)
    >>> cutter.feed(b'1,"two\nlines"\n2,one\n3,"tw')
    [b'1,"two\nlines"', b'2,one']
    """

    def __init__(self, limit: int, delimiter: bytes = b",") -> None:
        super().__init__(limit)
        self._delimiter = delimiter
        self._held: list[Raw] = []  # The lines of a record whose quotes are still open,
        self._size = 0  # and their bytes, with newlines.

    def feed(self, chunk: bytes) -> list[Raw]:
        """Return the records that are complete after `chunk`."""
        records: list[Raw] = []
        lines = super().feed(chunk)
        if not self._held and b'"' not in chunk and not (lines and b'"' in _head(lines[0])):
            return lines
        for line in lines:
            if self._held or (type(line) is bytes and b'"' in line):
                open_quotes = type(line) is bytes and ends_quoted(line, bool(self._held), self._delimiter)
                self._hold(line)
                if not open_quotes or self._size > self._limit:
                    records.append(self._release())
            else:
                records.append(line)
        return records

    def end(self) -> list[Raw]:
        """Return the last record, whose quotes may still be open."""
        lines = super().end()
        if not self._held:
            return lines
        for line in lines:
            self._hold(line)
        return [self._release()]

    def pending(self) -> bytes:
        """Return the first bytes of the incomplete record."""
        return b"\n".join([*map(_head, self._held), super().pending()])[:KEPT_BYTES]

    def _hold(self, line: Raw) -> None:
        self._held.append(line)
        self._size += (line.size if isinstance(line, OversizedRecord) else len(line)) + 1

    def _release(self) -> Raw:
        held, size = self._held, self._size - 1
        self._held, self._size = [], 0
        joined = b"\n".join(map(_head, held))
        return joined if size <= self._limit else OversizedRecord(joined[:KEPT_BYTES], size, len(held) - 1)


def ends_quoted(line: bytes, quoted: bool, delimiter: bytes = b",") -> bool:
    r"""Return whether quotes are open at the end of a CSV line.

    Parameters
    ----------
    line
        The line, without its newline.
    quoted
        Whether they were open at its start.
    delimiter
        The byte between two cells.

    Returns
    -------
    bool
        ``False`` also for a line that breaks the rules after closing quotes: nothing can be joined to it.

    Examples
    --------
    >>> ends_quoted(b'1,"two', quoted=False), ends_quoted(b'lines",3', quoted=True)
    (True, False)
    >>> ends_quoted(b'a 5" pipe,"he said ""hi""', quoted=False)
    True
    """
    at = 0
    if not quoted and line.startswith(b'"'):
        quoted, at = True, 1
    while True:
        if quoted:
            at = line.find(b'"', at)
            if at < 0:
                return True
            after = line[at + 1 : at + 2]
            if after == b'"':
                at += 2
            elif after == delimiter:
                quoted, at = False, at + 1
            else:
                return False
        else:
            at = line.find(delimiter + b'"', at)
            if at < 0:
                return False
            quoted, at = True, at + 2


def _shorten(line: bytes, limit: int) -> Raw:
    return line if len(line) <= limit else OversizedRecord(line[:KEPT_BYTES], len(line))


def _head(line: Raw) -> bytes:
    return line.head if isinstance(line, OversizedRecord) else line
