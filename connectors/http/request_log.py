"""Requests on disk: each is a line of JSON, durable before it is confirmed; old files are deleted."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import orjson

SEGMENT_BYTES = 1 << 26
"""Size of a file after which the next one begins."""

RETAINED_BYTES = 1 << 28
"""Bytes of learned requests that are kept, so that their keys are known after a restart."""

MOST_KEYS = 200_000
"""Number of remembered keys, of the last requests."""

_READ_BYTES = 1 << 18


class Request(NamedTuple):
    """The events of one request, as JSON text of an array, and its ``Idempotency-Key``, if it has one."""

    key: str | None
    events: bytes


class Stored(NamedTuple):
    """The bytes of the log between which a request is, and whether it had been stored before."""

    begin: int
    position: int
    is_repeated: bool


class KeyConflictError(ValueError):
    """A request has the key of an earlier one, and other events."""


class RequestLog:
    """A directory of requests in their order, which one process appends to and reads.

    The name of a file is the position of its first byte. Half a line at the end, which a crash leaves, was never
    confirmed and is cut off. `folder` is the directory; opening the log creates it. `end` is the position after the
    last durable request.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = RequestLog(Path(folder))
    ...     log.open()
    ...     stored = log.append([Request("a", b'[{"x":1}]'), Request("a", b'[{"x":1}]')])
    ...     lines = list(log.read(0))
    ...     log.close()
    >>> stored
    [Stored(begin=0, position=31, is_repeated=False), Stored(begin=0, position=31, is_repeated=True)]
    >>> lines
    [b'{"key":"a","events":[{"x":1}]}']
    """

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"expected a directory, got a file - at {folder}")
        self.folder, self.end = folder, 0
        self._keys: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._lock = self._file = -1
        self._begin = 0  # of the file that is appended to

    def bounds(self) -> tuple[int, int]:
        """Return the positions of the first byte and after the last byte on disk, without opening the log."""
        files = self._files()
        return (_begin_of(files[0]), _begin_of(files[-1]) + files[-1].stat().st_size) if files else (0, 0)

    def open(self) -> None:
        """Lock the directory, cut off half a line at the end, and read the keys.

        Raise `OSError` if another process has opened it, or it cannot be written.
        """
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(f"the log of requests is used by another process - at {self.folder}") from None
        _flush_directory(self.folder.absolute().parent)
        files = self._files()
        self._start_file(_begin_of(files[-1]) if files else 0)
        size = os.fstat(self._file).st_size
        whole = _end_of_last_line(self._path(self._begin), size)
        os.ftruncate(self._file, whole)
        os.fsync(self._file)  # also requests that a killed process had not flushed
        self.end = self._begin + whole
        position = _begin_of(files[0]) if files else 0
        for line in self.read(position):
            position += len(line) + 1
            self._remember(line, position)

    def append(self, requests: Sequence[Request]) -> list[Stored | KeyConflictError]:
        """Make requests durable with one flush, and return the position of each.

        A request whose key is known is not stored again. Other events under a known key are an error. Raise `OSError`
        if they cannot be stored, such as on a full disk; none is stored then.
        """
        results: list[Stored | KeyConflictError] = []
        lines, end, new = [], self.end, OrderedDict[str, tuple[int, bytes]]()
        for key, events in requests:
            stored = new.get(key, self._keys.get(key)) if key is not None else None
            if stored is not None and stored[1] != _digest(events):
                results.append(KeyConflictError("Expected a new Idempotency-Key for other events, got a known one"))
                continue
            line = b'{"key":%b,"events":%b}\n' % (orjson.dumps(key), events)
            if stored is not None:  # the same line
                results.append(Stored(stored[0] - len(line), stored[0], True))
                continue
            results.append(Stored(end, end + len(line), False))
            end += len(line)
            lines.append(line)
            if key is not None:
                new[key] = end, _digest(events)
        self._write(b"".join(lines))
        self._keep_keys(new)  # not before: an event that was not stored must not be taken for a repeated one
        return results

    def read(self, position: int) -> Iterator[bytes]:
        """Yield the durable requests after a position, without their newlines, up to the end of a file.

        Raise `OSError` if a file cannot be read, or is missing.
        """
        while position < self.end:
            path = next((path for path in reversed(self._files()) if _begin_of(path) <= position), None)
            if path is None:
                raise FileNotFoundError(f"expected a file with byte {position}, found none - at {self.folder}")
            with path.open("rb") as file:
                file.seek(position - _begin_of(path))
                before = position
                while position < self.end and (line := file.readline()).endswith(b"\n"):
                    position += len(line)
                    yield line[:-1]
            if position == before:
                raise ValueError(f"Expected a request up to a newline, got a part of one - at {path}, byte {position}")

    def release(self, position: int) -> None:
        """Delete files whose requests are all before a position, except for the last `RETAINED_BYTES`."""
        files = self._files()
        for path, successor in pairwise(files):
            if _begin_of(successor) > min(position, self.end - RETAINED_BYTES):
                return
            path.unlink()

    def close(self) -> None:
        """Unlock the directory."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def _write(self, content: bytes) -> None:
        """Append bytes durably, or leave the log unchanged."""
        if not content:
            return
        try:
            if self.end - self._begin >= SEGMENT_BYTES:
                self._start_file(self.end)
            os.ftruncate(self._file, self.end - self._begin)  # remainders of an earlier failure
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self.end - self._begin)
            raise
        self.end += len(content)

    def _start_file(self, begin: int) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path(begin), flags, 0o600)
        os.fsync(self._lock)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._begin = file, begin

    def _remember(self, line: bytes, position: int) -> None:
        try:
            request = orjson.loads(line)
            key, events = request["key"], orjson.dumps(request["events"])
        except (ValueError, KeyError, TypeError):  # the reader reports it
            return
        if key is not None:
            self._keep_keys({key: (position, _digest(events))})

    def _keep_keys(self, new: Mapping[str, tuple[int, bytes]]) -> None:
        self._keys.update(new)
        while len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.jsonl"))

    def _path(self, begin: int) -> Path:
        return self.folder / f"{begin:020d}.jsonl"


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _begin_of(path: Path) -> int:
    return int(path.stem)


def _digest(events: bytes) -> bytes:
    return hashlib.blake2b(events, digest_size=8).digest()


def _end_of_last_line(path: Path, size: int) -> int:
    """Return the size of a file up to its last newline."""
    with path.open("rb") as file:
        end = size
        while end > 0:
            begin = max(0, end - _READ_BYTES)
            file.seek(begin)
            if (place := file.read(end - begin).rfind(b"\n")) >= 0:
                return begin + place + 1
            end = begin
    return 0
