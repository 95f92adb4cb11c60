"""A text file that is followed through its rotations: renamed and created again, or copied and truncated.

The name of a rotated file begins with the name of the current file: ``app.log.1``, or ``app.log-20260131``. The file
``.1`` may be the newest one, as logrotate numbers them, or the oldest one, as some libraries do.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from streamkernel.connectors.base import Event, Position, is_broken, is_place
from streamkernel.connectors.files.bytestreams import FOLLOW_SECONDS, CutError, FileBytes, open_regular
from streamkernel.connectors.files.text import HeaderError, Layout, TextReader
from streamkernel.connectors.formats import TextFormat

LOOK_SECONDS = 0.2
"""Seconds to wait at the end of a file before looking for its successor."""

HEAD_BYTES = 1024
"""Number of bytes at the start of a file that identify it."""

_NUMBER = re.compile(r"[-_.]?(\d{1,3})")
_DATE = re.compile(r"[-_.]?(\d{4})[-_.]?(\d\d)?[-_.]?(\d\d)?([-_.:\dT]*)")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The identity of a file, which renaming does not change.

    The device is not part of it: all candidates are in one folder, and some systems renumber devices. `inode` is its
    number in the file system, which can be given to another file once this one is deleted. `size` is the number of
    bytes at its start that the digest covers.

    Examples
    --------
    >>> fingerprint = Fingerprint.of(7, b"first line")
    >>> str(fingerprint)
    '7-10-6c5422b201924c4b'
    >>> Fingerprint.parse(str(fingerprint)) == fingerprint
    True
    >>> fingerprint.begins(b"first line, and another"), fingerprint.begins(b"first l")
    (True, False)
    """

    inode: int
    size: int
    digest: str

    @classmethod
    def of(cls, inode: int, head: bytes) -> Fingerprint:
        """Return the fingerprint of a file that begins with these bytes."""
        return cls(inode, len(head), _digest(head))

    @classmethod
    def parse(cls, text: object) -> Fingerprint:
        """Return the fingerprint that ``str`` wrote; raise a `ValueError` for any other text."""
        parts = text.split("-") if isinstance(text, str) else []
        if len(parts) != 3 or not all(part.isdecimal() for part in parts[:2]):
            raise ValueError(f"Expected inode-size-digest, got {text!r}")
        return cls(int(parts[0]), int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.inode}-{self.size}-{self.digest}"

    def begins(self, head: bytes) -> bool:
        """Return whether a file with these bytes at its start can be this one."""
        return len(head) >= self.size and _digest(head[: self.size]) == self.digest


def find(path: Path, fingerprint: Fingerprint, offset: int) -> Path | None:
    """Return the path of the file that was read up to `offset`, or ``None`` if it is gone.

    The same file under any name that begins with `path`, where it was, is preferred to a copy of it.
    """
    copies: list[tuple[bool, int, Path]] = []
    for file in (path, *_beside(path)):
        status = _status(file)
        if status is None or status.st_size < offset or not fingerprint.begins(_head(file)):
            continue
        if status.st_ino == fingerprint.inode:
            return file
        if fingerprint.size:
            copies.append((file == path, status.st_mtime_ns, file))
    return max(copies)[-1] if copies else None


def newer(path: Path, status: os.stat_result) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the non-empty files up to `path` that came after a file with a status, the oldest first.

    If it no longer has a name, files that were written to later came after it.
    """
    last = _status(path)
    if last is not None and os.path.samestat(last, status):
        return
    files = [(file, state) for file in rotated_files(path) if (state := _status(file)) is not None]
    same = [i for i, (_, state) in enumerate(files) if os.path.samestat(state, status)]
    if same:
        files = files[same[-1] + 1 :]
    else:
        files = [(file, state) for file, state in files if state.st_mtime_ns > status.st_mtime_ns]
    for file, state in [*files, *([] if last is None else [(path, last)])]:
        if state.st_size:
            yield file, state


def rotated_files(path: Path) -> list[Path]:
    """Return the rotated files beside `path`, the oldest first: by their numbers, then those with dates."""
    numbered, dated = [], []
    for other in _beside(path):
        suffix = other.name.removeprefix(path.name)
        if number := _NUMBER.fullmatch(suffix):
            numbered.append((int(number[1]), other))
        elif date := _DATE.fullmatch(suffix):
            dated.append(([int(part) for group in date.groups("") for part in _DIGITS.findall(group)], other))
    files = [file for _, file in sorted(numbered)]
    return [*(files if _ages_fall(files) else reversed(files)), *(file for _, file in sorted(dated))]


def _ages_fall(files: Sequence[Path]) -> bool:
    """Return whether most files were written to, or renamed, later than the one before them."""
    times = [(status.st_mtime_ns, status.st_ctime_ns) for file in files if (status := _status(file)) is not None]
    pairs = list(pairwise(times))
    return sum(one < other for one, other in pairs) > sum(one > other for one, other in pairs)


def _beside(path: Path) -> list[Path]:
    """Return the files whose names begin with the name of `path` and are longer."""
    try:
        others = list(path.parent.iterdir())
    except OSError:
        return []
    return [other for other in others if other.name.startswith(path.name) and other.name != path.name]


def _digest(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=8).hexdigest()


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat() if path.is_file() else None
    except OSError:  # It was renamed or deleted just now.
        return None


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


class WatchedBytes(FileBytes):
    """A plain file that compares its beginning, to detect that another file has taken its place."""

    def __init__(self, path: Path, grows: Callable[[], bool]) -> None:
        super().__init__(path, grows)
        self.status = os.fstat(self._file.fileno())
        self.cut = False
        self._head = b""

    def read(self, timeout: float) -> bytes | None:
        """Return the next chunk, ``b""`` or ``None``; raise `CutError` if the bytes read have been replaced."""
        if self.cut:
            return None
        try:
            chunk = super().read(timeout)
            head = os.pread(self._file.fileno(), len(self._head), 0)
        except OSError as error:
            if error.errno == errno.ESTALE:  # as NFS says of a file that was renamed or deleted elsewhere
                raise CutError(f"Expected the file that was opened, got an error: {error} - at {self._path}") from error
            raise
        if head != self._head:
            raise CutError(f"Expected a file with the same beginning as before, got another one - at {self._path}")
        self._know()
        return chunk

    def seek(self, offset: int) -> None:
        """Go to the byte at `offset`; raise a `CutError` if the file is shorter."""
        super().seek(offset)
        self._know()

    def fingerprint(self, offset: int) -> Fingerprint:
        """Return the fingerprint that identifies this file after `offset` bytes of it."""
        return Fingerprint.of(self.status.st_ino, self._head[:offset])

    def _look_at_name(self) -> None:
        """Do nothing: the reader looks for successors."""

    def _know(self) -> None:
        length = min(HEAD_BYTES, self._file.tell())
        if len(self._head) < length:
            self._head = os.pread(self._file.fileno(), length, 0)


class WatchedReader(TextReader):
    """The events of a watched file; a position ends in the file's fingerprint."""

    def __init__(self, name: str, stream: WatchedBytes, form: TextFormat, limit: int) -> None:
        super().__init__(name, stream, form, limit)
        self.stream = stream
        self._fingerprint = ""

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next events, ``[]`` if none arrived within `timeout` seconds, or ``None`` at the end."""
        events = super().poll(timeout)
        for event in events or ():
            event.resume.append(self.fingerprint(event.resume[0]))
        return events

    def fingerprint(self, offset: int) -> str:
        """Return the fingerprint for a position."""
        if offset < HEAD_BYTES:
            return str(self.stream.fingerprint(offset))
        if not self._fingerprint:
            self._fingerprint = str(self.stream.fingerprint(HEAD_BYTES))
        return self._fingerprint


class FollowReader:
    """The events of a file, and of its successors after each rotation.

    A position is ``[offset, line, fingerprint]``; the fingerprint identifies the file (`Fingerprint`). Without one, the
    position refers to the file with the current name. The file may be missing if there is a rotated one.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self._path, self._name, self._layout = path, str(path), layout
        self._reader: WatchedReader | None = None
        self._rotated = False  # Whether a newer file has bytes: then the writer has left this one.
        self._last: list[int] = [0, 0]
        self._told: list[Event] = []
        self._refused = ""
        self._at_first = True
        if path.exists() or not rotated_files(path):
            self._use(WatchedBytes(path, self._grows))

    def seek(self, position: Position) -> None:
        """Continue after `position` in its file; if that is gone, report it and start with the current file."""
        if not is_place(position):
            raise ValueError(f"Expected a position [offset, line, fingerprint], got {position!r} - at {self._name}")
        self._at_first = False
        self._last = list(position[:2])
        if len(position) == 3 and not is_broken(position):
            file = find(self._path, Fingerprint.parse(position[2]), self._last[0])
            if file is None or not self._begin(file):
                self._lose()
                return
        self._go_on()

    def poll(self, timeout: float) -> list[Event]:
        """Return the next events, or ``[]`` if none arrived within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self._told:
            left = max(0.0, deadline - time.monotonic())
            events = self._events(min(left, LOOK_SECONDS))
            if events:
                self._last = events[-1].resume[:2]
                return events
            if self._turn() if events is None else self._look():
                continue
            if left == 0.0:
                break
            if events is None:
                time.sleep(min(left, FOLLOW_SECONDS))
        errors, self._told = self._told, []
        return errors

    def lag(self) -> int:
        """Return the number of bytes after the last event, including newer files."""
        reader = self._reader
        if reader is None:
            return 0
        return reader.lag() + sum(status.st_size for _, status in newer(self._path, reader.stream.status))

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()

    def _grows(self) -> bool:
        return not self._rotated

    def _events(self, timeout: float) -> list[Event] | None:
        """Return the events of the current file, or ``None`` at its end or without a file."""
        if self._reader is None:
            return None
        try:
            return self._reader.poll(timeout)
        except HeaderError as error:
            if self._at_first:
                raise
            self._reader.give_up_header(error)
        except CutError:
            # A half line may be gone, or be another one by now; it only counts where nothing else was read.
            fingerprint = self._reader.stream.fingerprint(self._last[0] or HEAD_BYTES)
            file = find(self._path, fingerprint, self._last[0])
            if file is None or not self._begin(file):
                self._reader.stream.cut = True
            else:
                self._go_on()
        return []

    def _look(self) -> bool:
        """Look for a newer file, unless the current one is known to be rotated."""
        if self._rotated or self._reader is None:
            return False
        self._rotated = any(newer(self._path, self._reader.stream.status))
        return self._rotated

    def _turn(self) -> bool:
        """Switch from a finished file to its successor, if there is one."""
        if self._reader is None:
            return self._begin(self._path)
        self._at_first = False
        if self._reader.stream.cut:
            self._lose()
            return True
        for file, status in newer(self._path, self._reader.stream.status):
            goes_on = self._is_continued_in(file)
            if not self._begin(file, status):
                return False
            if goes_on:
                self._go_on()
            else:
                self._last = [0, 0]
            return True
        return False

    def _is_continued_in(self, file: Path) -> bool:
        """Return whether a file has taken the place of the current one and has more of the same."""
        try:
            with open_regular(file) as other:
                return self._reader is not None and self._reader.stream.is_continued_in(other, self._last[0])
        except OSError:
            return False

    def _begin(self, file: Path, expected: os.stat_result | None = None) -> bool:
        """Open a file; return ``False`` if it is missing, unexpected or unreadable."""
        try:
            stream = WatchedBytes(file, self._grows)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._refuse(f"Expected a readable file, got an error: {error.strerror} - at {file}")
            return False
        if expected is not None and not os.path.samestat(stream.status, expected):
            stream.close()
            return False
        self._use(stream)
        return True

    def _use(self, stream: WatchedBytes) -> None:
        self.close()
        self._reader = WatchedReader(self._name, stream, self._layout.parser(self._path), self._layout.limit)
        self._rotated = False

    def _go_on(self) -> None:
        """Seek the last position in the current file."""
        if self._last == [0, 0]:
            return
        if self._reader is None:
            self._lose()
            return
        try:
            self._reader.resume(self._last)
        except CutError:
            self._lose()

    def _lose(self) -> None:
        """Start with the file of this name, and report that the rest of its predecessor may be lost."""
        offset, self._last = self._last[0], [0, 0]
        self.close()
        self._reader = None
        self._begin(self._path)
        self._tell(
            f"Expected the rest of a file that was read up to byte {offset}, found neither the file nor a copy"
            f" of it: data after that byte may be lost - at {self._path}"
        )

    def _refuse(self, error: str) -> None:
        if error != self._refused:
            self._refused = error
            self._tell(error)

    def _tell(self, error: str) -> None:
        fingerprint = [] if self._reader is None else [self._reader.fingerprint(self._last[0])]
        self._told.append(Event(self._name, [*self._last, *fingerprint], b"", error=error))
