"""Readers of one file, of a followed file, of all files that match a pattern, and of standard input."""

from __future__ import annotations

import codecs
import errno
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from streamkernel.connectors.checks import unknown_name
from streamkernel.connectors.files.bytestreams import (
    ByteStream,
    CutError,
    FileBytes,
    GzipBytes,
    StdinBytes,
    check_regular,
)
from streamkernel.connectors.files.following import FollowReader
from streamkernel.connectors.files.many_files import PatternReader, files_of
from streamkernel.connectors.files.parquet import ParquetReader, arrow
from streamkernel.connectors.files.rotation import rotated_files
from streamkernel.connectors.files.text import Layout, TextReader
from streamkernel.connectors.formats import TEXT_FORMATS, format_of

_KEEP = "streamkernel.surrogates"
"""The name of an error handler: bytes that are no text become characters that UTF-8 refuses, in their record only."""


def _as_surrogates(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udc80", error.end


codecs.register_error(_KEEP, _as_surrogates)


class RewrittenBytes:
    """A stream as UTF-8; offsets count bytes of UTF-8. `stream` are the bytes in their encoding."""

    def __init__(self, stream: ByteStream, encoding: str) -> None:
        self._stream = stream
        self._new_decoder = codecs.getincrementaldecoder(encoding)
        self._begin()

    def _begin(self) -> None:
        self._decoder, self._ended, self._rest = self._new_decoder(_KEEP), False, b""

    def read(self, timeout: float) -> bytes | None:
        """Return the next chunk, ``b""`` if none arrived within `timeout` seconds, or ``None`` at the end."""
        rest, self._rest = self._rest, b""
        if rest or self._ended:
            return rest or None
        chunk = self._stream.read(timeout)
        self._ended = chunk is None
        text = self._decoder.decode(chunk or b"", final=self._ended)
        return text.encode(errors="surrogatepass") or (None if self._ended else b"")

    def seek(self, offset: int) -> None:
        """Go to a byte of UTF-8; raise a `CutError` if there are fewer."""
        if self._stream.waiting() is None:  # Standard input cannot be read again.
            return
        self._stream.seek(0)
        self._begin()
        left = offset
        while left:
            chunk = self.read(0.0)
            if not chunk:
                raise CutError(
                    f"Expected at least {offset} bytes, got {offset - left}: it is not the file that was read"
                )
            self._rest, left = chunk[left:], max(0, left - len(chunk))

    def waiting(self) -> int | None:
        """Return the number of unread bytes, in the encoding, or ``None`` if it is unknown."""
        waiting = self._stream.waiting()
        return None if waiting is None else waiting + len(self._rest)

    def close(self) -> None:
        """Release the stream's resources."""
        self._stream.close()


STDIN_PATH = "-"


def stdin_reader(layout: Layout, follow: bool) -> TextReader:
    """Return a reader of standard input."""
    format = layout.format
    if format is None:
        raise unknown_name("a format for standard input, one of", "None", TEXT_FORMATS)
    if format not in TEXT_FORMATS:
        raise ValueError("Expected a file, got standard input - Parquet is read from its end")
    if follow:
        raise ValueError("Expected a file to follow, got standard input - it is always followed")
    return TextReader(STDIN_PATH, _as_utf8(StdinBytes(), Path(STDIN_PATH), layout), layout.parser(Path()), layout.limit)


def read_to_end() -> bool:
    """Return that a file does not grow."""
    return False


def file_reader(
    path: Path, layout: Layout, grows: Callable[[], bool], end: int = sys.maxsize
) -> TextReader | ParquetReader:
    """Open a file that is not followed, or whose end is final unless `grows` returns true; plain text up to `end`."""
    check_regular(path)
    if layout.format_of(path) == "parquet":
        return ParquetReader(str(path), path, layout.max_list_length, is_silent=layout.is_silent, zones=layout.zones)
    stream: ByteStream = GzipBytes(path) if is_compressed(path) else FileBytes(path, grows, end)
    return TextReader(str(path), _as_utf8(stream, path, layout), layout.parser(path), layout.limit)


def follow_reader(path: Path, layout: Layout) -> FollowReader:
    """Open one file that is followed through its rotations."""
    if path.exists():
        check_regular(path)
    is_parquet = layout.format_of(path) == "parquet"
    if is_parquet or is_compressed(path):
        kind = "a compressed one" if is_compressed(path) else "Parquet"
        raise ValueError(f"Expected a plain text file to follow, got {kind} - at {path}")
    if layout.is_rewritten(path):
        raise ValueError(
            f"Expected an encoding with the line ends of ASCII to follow a file, got {layout.csv.encoding}"
        )
    return FollowReader(path, layout)


def pattern_reader(pattern: Path, layout: Layout, follow: bool) -> PatternReader:
    """Open all files that match a pattern."""
    reader = PatternReader(pattern, lambda path, grows: file_reader(path, layout, grows), follow)
    paths = [Path(name) for name in files_of(pattern)]
    if not paths and not follow:
        raise FileNotFoundError(errno.ENOENT, "Expected files that match, found none", str(pattern))
    if follow:
        _check_not_rotated(paths)
    formats = {layout.format or _format_or_none(path) for path in paths}
    if formats == {None}:
        format_of(paths[0])
    if "parquet" in formats:
        arrow()
    return reader


def _check_not_rotated(paths: Sequence[Path]) -> None:
    """Raise an error if a followed pattern also matches the rotated files of one that it matches."""
    for path in paths:
        rotated = {*rotated_files(path)}.intersection(paths)
        if rotated:
            raise ValueError(
                f"Expected a pattern without rotated files, got {min(rotated).name} beside {path.name} - follow {path} "
                "alone, whose rotated files are read too"
            )


def _as_utf8(stream: ByteStream, path: Path, layout: Layout) -> ByteStream:
    return RewrittenBytes(stream, layout.csv.encoding) if layout.is_rewritten(path) else stream


def _format_or_none(path: Path) -> str | None:
    try:
        return format_of(path)
    except ValueError:
        return None


def is_compressed(path: Path) -> bool:
    """Return whether a file is a gzip file, by its name."""
    return path.suffix.lower() == ".gz"
