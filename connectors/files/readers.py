"""Readers of one file, of a followed file, of standard input, and of all files that match a pattern."""

from __future__ import annotations

import errno
import glob
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from streamkernel.connectors.base import BROKEN, Event, Position, is_broken, position_of, unknown_name
from streamkernel.connectors.files.bytestreams import (
    ByteStream,
    FileBytes,
    GzipBytes,
    RewrittenBytes,
    StdinBytes,
    check_regular,
)
from streamkernel.connectors.files.following import FollowReader, rotated_files
from streamkernel.connectors.files.parquet import ParquetReader, arrow
from streamkernel.connectors.files.text import HeaderError, Layout, TextReader
from streamkernel.connectors.formats import SUFFIXES, TEXT_FORMATS, format_of, suffix_of

STDIN_PATH = "-"

LATE = "late"
DONE = "done"
SIZE = "size"
LOOK_SECONDS = 0.2
"""Seconds to wait at the end of the last file before looking for new ones."""

LOOK_PAUSE = 10
"""Between two files, new ones are not looked for during this multiple of the last search's duration."""

_MAGIC = re.compile(r"[*?\[]")


def is_pattern(path: Path) -> bool:
    """Return whether a path is a pattern; the path of an existing file is not, whatever its name.

    Examples
    --------
    >>> is_pattern(Path("logs/2026-*/*.csv")), is_pattern(Path("a.csv"))
    (True, False)
    """
    return _MAGIC.search(str(path)) is not None and not path.exists()


def matches(path: Path, pattern: Path) -> bool:
    """Return whether a pattern matches a file name.

    Examples
    --------
    >>> matches(Path("logs/may/1.csv"), Path("logs/**/*.csv")), matches(Path("logs/may/1.csv"), Path("logs/*.csv"))
    (True, False)
    """
    return _match(path.parts, pattern.parts)


def _match(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_match(names[at:], patterns[1:]) for at in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], patterns[0]) and _match(names[1:], patterns[1:])


def has(position: Position, note: str) -> bool:
    """Return whether a position contains more than the place in its file.

    Examples
    --------
    >>> has({"late": [9, 1]}, LATE), has([9, 1], LATE)
    (True, False)
    """
    return isinstance(position, dict) and note in position


def inner_position(position: Position) -> Position:
    """Return the place in its file of a position.

    Examples
    --------
    >>> inner_position({"late": [9, 1]}), inner_position({"done": [9, 1], "size": 9}), inner_position([9, 1])
    ([9, 1], [9, 1], [9, 1])
    """
    return next((position[note] for note in (LATE, DONE) if has(position, note)), position)


def files_of(pattern: Path) -> dict[str, int]:
    """Return the matching files in the order of their names, with their sizes in bytes."""
    sizes = {}
    for name in sorted(glob.glob(str(pattern), recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute pattern
        path = Path(name)
        with suppress(OSError):  # It was deleted just now.
            if path.is_file():
                sizes[str(path)] = path.stat().st_size
    return sizes


class PatternReader:
    """The events of all files that match a pattern.

    A file that appears before one that has been started is late: it is read after all existing files, or when the last
    one has ended. The position after its records is ``{"late": position}``, because the position in a later file does
    not show whether it was complete. With `follow` it waits for more files, and at the end of the last one for more of
    it; plain text is read up to `end`.
    """

    def __init__(self, pattern: Path, layout: Layout, *, follow: bool, end: int = sys.maxsize) -> None:
        self._pattern, self._layout, self._follow, self._end = pattern, layout, follow, end
        self._reader: TextReader | ParquetReader | None = None
        self._name = ""  # The file that is being read,
        self._front = ""  # the last in order of the begun ones,
        self._over: set[str] = set()  # files that need not be looked at again,
        self._queue: dict[str, int] = {}  # and those to read, with their sizes.
        self._aside = ""  # The last one in order, while late ones are read.
        self._resumed: set[str] = set()  # Late ones that an earlier source had begun.
        self._look_again = 0.0
        self._positions: dict[str, Position] = {}
        self._told: list[Event] = []

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Continue in each file after its position: the last one in order, late files, and files without a position.

        A file with ``{"done": position}`` had ended; if it is the last one, records added since are read.
        """
        matching = {name: position for name, position in positions.items() if matches(Path(name), self._pattern)}
        if not matching:
            position_of(str(self._pattern), positions)
        self._front = max(matching, default="")
        for name, position in matching.items():
            late = has(position, LATE)
            self._positions[name] = inner = inner_position(position)
            if is_broken(inner) or not (late or name == self._front):
                self._over.add(name)
            elif late:
                self._resumed.add(name)
            if name not in self._over and not has(position, DONE) and not Path(name).exists():
                what = "a file" if inner is None else f"the rest of a file that was read up to {inner}"
                self._give_up(name, f"Expected {what}, found no file")

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next events, ``[]`` if none arrived within `timeout` seconds, or ``None`` at the end of all."""
        deadline = time.monotonic() + timeout
        while not self._told:
            left = max(0.0, deadline - time.monotonic())
            if self._reader is None:
                if self._next():
                    continue
                if not self._follow:
                    return None
                time.sleep(min(left, LOOK_SECONDS))
            else:
                events = self._events(self._reader, min(left, LOOK_SECONDS))
                if events:
                    self._positions[self._name] = events[-1].resume
                    return [self._wrap_position(event) for event in events] if self._is_late() else events
                if events is None:
                    self._leave()
                    continue
                if self._may_grow():
                    self._look()
            if left == 0.0:
                return []
        errors, self._told = self._told, []
        return errors

    def lag(self) -> dict[tuple[str, str], int]:
        """Return the backlog in each unfinished file; in bytes if it has not been started."""
        lags = {(name, "0"): size for name, size in dict(self._queue).items()}
        reader = self._reader
        return lags if reader is None else {(self._name, "0"): reader.lag(), **lags}

    def close(self) -> None:
        """Close the file that is being read."""
        if self._reader is not None:
            self._reader.close()

    def _look(self) -> None:
        """Order the files to read: new files after all started ones, then late files, then the postponed file.

        A late file that an earlier source had started comes first, because all others had ended then.
        """
        began = time.monotonic()
        new = {name: size for name, size in files_of(self._pattern).items() if size and name not in self._over}
        if self._reader is not None:
            size = new.pop(self._name, 0)
            if new and self._follow and max(new) < self._name:  # It may still grow, and is gone on with after them.
                new[self._name] = size
                self._aside = self._name
                self._reader.close()
                self._reader = None
        aside = self._aside if new and max(new) <= self._front else ""
        order = sorted(new, key=lambda name: (name == aside, name not in self._resumed, name < self._front, name))
        self._queue = {name: new[name] for name in order}
        self._look_again = time.monotonic() + LOOK_PAUSE * (time.monotonic() - began)

    def _next(self) -> bool:
        """Start with the next file, if there is one."""
        if not self._queue or time.monotonic() >= self._look_again:
            self._look()
        if not self._queue:
            return False
        self._name = next(iter(self._queue))
        del self._queue[self._name]
        self._front = max(self._front, self._name)
        self._aside = "" if self._aside == self._name else self._aside
        try:
            self._reader = file_reader(Path(self._name), self._layout, self._may_grow, self._end)
            if (position := self._positions.get(self._name)) is not None:
                self._reader.resume(position)
        except (OSError, ValueError) as error:
            self._leave()
            self._give_up(self._name, str(error))
        return True

    def _events(self, reader: TextReader | ParquetReader, timeout: float) -> list[Event] | None:
        try:
            return reader.poll(timeout)
        except HeaderError as error:
            assert isinstance(reader, TextReader)
            reader.give_up_header(error)
        except (OSError, ValueError) as error:
            self._give_up(self._name, str(error))
            return None
        return []

    def _leave(self) -> None:
        """Close the current file for good."""
        self.close()
        self._reader = None
        self._over.add(self._name)

    def _give_up(self, name: str, reason: str) -> None:
        self._over.add(name)
        error = reason if name in reason else f"{reason} - at {name}"
        self._told.append(self._wrap_position(Event(name, [0, 0, BROKEN], b"", error=error)))

    def _wrap_position(self, event: Event) -> Event:
        return event._replace(resume={LATE: event.resume}) if event.stream < self._front else event

    def _is_late(self) -> bool:
        return self._name < self._front

    def _may_grow(self) -> bool:
        """Return whether the current file is the last in order; a writer has left it once there is a later one."""
        return self._follow and not any(name > self._name for name in self._queue)


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


def file_reader(
    path: Path, layout: Layout, grows: Callable[[], bool] = lambda: False, end: int = sys.maxsize
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
    reader = PatternReader(pattern, layout, follow=follow)
    paths = [Path(name) for name in files_of(pattern)]
    if not paths and not follow:
        raise FileNotFoundError(errno.ENOENT, "Expected files that match, found none", str(pattern))
    if follow:
        _check_not_rotated(paths)
    formats = {layout.format or SUFFIXES.get(suffix_of(path)) for path in paths}
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


def is_compressed(path: Path) -> bool:
    """Return whether a file is a gzip file, by its name."""
    return path.suffix.lower() == ".gz"
