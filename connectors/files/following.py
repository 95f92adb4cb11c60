"""A text file that is followed through its rotations: renamed and created again, or copied and truncated."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from streamkernel.connectors.base import Event, Position
from streamkernel.connectors.checks import is_broken, is_count
from streamkernel.connectors.files.bytestreams import FOLLOW_SECONDS, CutError, FileBytes, open_regular
from streamkernel.connectors.files.rotation import HEAD_BYTES, Fingerprint, find, newer, rotated_files
from streamkernel.connectors.files.text import HeaderError, Layout, TextReader
from streamkernel.connectors.formats import TextFormat

LOOK_SECONDS = 0.2
"""Seconds to wait at the end of a file before looking for its successor."""


class WatchedBytes(FileBytes):
    """A plain file that compares its beginning, to detect that another file has taken its place.

    `path` and `grows` are as for :class:`~streamkernel.connectors.files.bytestreams.FileBytes`.
    """

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

    A position is ``[offset, line, fingerprint]``; the fingerprint identifies the file (`rotation.Fingerprint`). Without
    one, the position refers to the file with the current name. `path` is the file; it may be missing if there is a
    rotated one. `layout` says how its records are written.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self._path = path
        self._name = str(path)
        self._layout = layout
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
        if not (isinstance(position, (list, tuple)) and len(position) in (2, 3) and all(map(is_count, position[:2]))):
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
            try:
                self._reader.seek(self._last)
            except HeaderError as error:
                self._reader.give_up_header(error)
                self._reader.seek(self._last)
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
