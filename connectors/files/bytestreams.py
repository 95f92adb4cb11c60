"""The bytes of a text file: plain, compressed, from standard input, or rewritten as UTF-8."""

from __future__ import annotations

import codecs
import contextlib
import errno
import gzip
import os
import select
import stat
import sys
import time
import zlib
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 18
FOLLOW_SECONDS = 0.02
"""Seconds between two checks for the end of a followed file."""

STDIN = 0
_COMPARED_BYTES = 1 << 16
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)


class BrokenStreamError(Exception):
    """The remaining bytes cannot be read."""


class CutError(ValueError):
    """A file has become shorter than its part that was read, or begins with other bytes."""


class ByteStream:
    """Bytes in order, a chunk at a time; by default they cannot be rewound, and their number is unknown."""

    def read(self, timeout: float) -> bytes | None:
        """Return the next chunk, ``b""`` if none arrived within `timeout` seconds, or ``None`` at the end."""
        raise NotImplementedError

    def seek(self, offset: int) -> None:
        """Go to the byte at `offset`."""

    def waiting(self) -> int | None:
        """Return the number of unread bytes, or ``None`` if it is unknown."""
        return None

    def close(self) -> None:
        """Release the stream's resources."""


def check_regular(path: Path) -> None:
    """Raise an `OSError` unless a path leads to a regular file: a pipe blocks, and a device may never end."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        kinds = (stat.S_ISFIFO, 'a pipe, which is read as "-", standard input'), (stat.S_ISSOCK, "a socket")
        kind = next((name for is_one, name in kinds if is_one(mode)), "a device")
        raise OSError(errno.EINVAL, f"Expected a regular file, got {kind}", str(path))


def open_regular(path: Path) -> FileIO:
    """Open a regular file without a buffer."""
    check_regular(path)
    return path.open("rb", buffering=0)


def _check_long_enough(path: Path, offset: int, size: int) -> None:
    if size < offset:
        raise CutError(f"Expected at least {offset} bytes, got {size} - at {path}: it is not the file that was read")


class FileBytes(ByteStream):
    """A plain file, which may still grow.

    At its end, `grows` returns whether to wait for more bytes; additions after the byte `end` are ignored.
    """

    def __init__(self, path: Path, grows: Callable[[], bool], end: int = sys.maxsize) -> None:
        self._path = path
        self._grows = grows
        self._end = end
        self._file = open_regular(path)

    def read(self, timeout: float) -> bytes | None:
        """Return the next chunk, ``b""`` if none arrived within `timeout` seconds, or ``None`` at the end."""
        deadline = time.monotonic() + timeout
        while not (chunk := self._file.read(min(CHUNK_BYTES, max(0, self._end - self._file.tell())))):
            if not self._grows():
                return None
            _check_long_enough(self._path, self._file.tell(), self._size())
            self._look_at_name()
            left = deadline - time.monotonic()
            if left <= 0:
                return b""
            time.sleep(min(left, FOLLOW_SECONDS))
        return chunk

    def seek(self, offset: int) -> None:
        """Go to the byte at `offset`; raise a `ValueError` if the file is shorter."""
        _check_long_enough(self._path, offset, self._size())
        self._file.seek(offset)

    def waiting(self) -> int:
        """Return the number of unread bytes."""
        return max(0, self._size() - self._file.tell())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def is_continued_in(self, other: BinaryIO, offset: int) -> bool:
        """Return whether a file that has taken this one's place begins with its first bytes up to `offset`.

        The first and the last of these are compared. An exporter that writes a file again and renames it leaves no name
        to the old one; a program that rotates logs does.
        """
        if os.fstat(self._file.fileno()).st_nlink or not 0 < offset <= os.fstat(other.fileno()).st_size:
            return False
        size = min(offset, _COMPARED_BYTES)
        return all(
            os.pread(self._file.fileno(), size, at) == os.pread(other.fileno(), size, at) for at in (0, offset - size)
        )

    def _look_at_name(self) -> None:
        """Go on in the file that has taken this one's place; raise a `CutError` if it has other contents."""
        try:
            other = open_regular(self._path)
        except OSError:  # It was renamed: the rest of it is read.
            return
        offset = self._file.tell()
        if os.path.sameopenfile(self._file.fileno(), other.fileno()):
            other.close()
        elif self.is_continued_in(other, offset):
            self._file.close()
            self._file = other
            self._file.seek(offset)
        else:
            other.close()
            raise CutError(f"Expected the file that was read up to byte {offset}, got another one - at {self._path}")

    def _size(self) -> int:
        return min(self._end, os.fstat(self._file.fileno()).st_size)


class GzipBytes(ByteStream):
    """A gzip-compressed file; offsets count uncompressed bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._compressed = path.open("rb")
        self._file = gzip.GzipFile(fileobj=self._compressed)

    def read(self, timeout: float) -> bytes | None:
        """Return the next chunk, or ``None`` at the end; raise `BrokenStreamError` if the file is damaged."""
        try:
            return self._file.read1(CHUNK_BYTES) or None
        except DAMAGE as error:
            raise BrokenStreamError(f"Expected gzip data, got an error: {error}") from error

    def seek(self, offset: int) -> None:
        """Go to the uncompressed byte at `offset`; raise a `ValueError` if the file is shorter."""
        with contextlib.suppress(*DAMAGE):  # The reached offset decides.
            self._file.seek(offset)
        _check_long_enough(self._path, offset, self._file.tell())

    def waiting(self) -> int:
        """Return the number of unread compressed bytes."""
        return os.fstat(self._compressed.fileno()).st_size - self._compressed.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._compressed.close()


class StdinBytes(ByteStream):
    """Standard input, which belongs to the process, and stays open."""

    def read(self, timeout: float) -> bytes | None:
        """Return the available bytes, ``b""`` if none arrived within `timeout` seconds, or ``None`` at the end."""
        ready, _, _ = select.select([STDIN], [], [], timeout)
        return os.read(STDIN, CHUNK_BYTES) or None if ready else b""


_KEEP = "streamkernel.surrogates"
"""The name of an error handler: bytes that are no text become characters that UTF-8 refuses, in their record only."""


def _as_surrogates(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udc80", error.end


codecs.register_error(_KEEP, _as_surrogates)


class RewrittenBytes(ByteStream):
    """A stream in some encoding as UTF-8; offsets count bytes of UTF-8."""

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
