"""Files that several processes read together."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from streamkernel.connectors.base import Event, Position, is_broken, position_of
from streamkernel.connectors.csv_table import PLAIN, CsvOptions
from streamkernel.connectors.files.readers import (
    DONE,
    LATE,
    SIZE,
    STDIN_PATH,
    PatternReader,
    files_of,
    has,
    inner_position,
    is_compressed,
    is_pattern,
    matches,
)
from streamkernel.connectors.files.source import FileSource
from streamkernel.connectors.files.text import Layout
from streamkernel.connectors.interfaces import PartitionedSource, WorkAssignment


class PartitionedFiles(PartitionedSource):
    r"""The records of one file, or of all files that match a pattern, divided among several processes.

    Unfinished files, sorted by name, are assigned in turn: the first of three workers gets files 1, 4, and so on. It
    reads them one after the other up to its number of events, and continues there in the next round. New files are part
    of the next plan.

    Records are those of :class:`~streamkernel.connectors.FileSource` with a pattern, also for one file, and either
    class continues from positions of the other. Several files are read at the same time, so each event has
    ``{"late": position}``. At the end of a file an event without a record has ``{"done": position, "size": bytes}``. A
    finished file is not read again, except for lines added to the last file that was started.

    ``end`` of an assignment has the size of each file, or the end of the last complete line of the last file. Plain
    text is read up to this position, so an assignment has the same events whenever it is read. Compressed files and
    Parquet files are read completely, so they must be complete when they appear.

    Parameters
    ----------
    path : str or PathLike
        The file, or a pattern.
    format : str or None, default None
        ``"csv"``, ``"jsonl"``, ``"svmlight"`` or ``"parquet"``; by default from the suffix of the files.
    max_record_bytes : int, default 2**20
        The largest size of a text record, in bytes.
    csv : CsvOptions, default CsvOptions()
        How tables are written.
    max_list_length : int, default 0
        The largest length of a list whose items become fields.
    zones : dict of str to str or None, default None
        The zones of Parquet's time stamps without one, by field; by default UTC.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If the file does not exist, or no file matches.
    ValueError
        If the format is unknown, or the path is standard input. `plan` raises it if the positions are only of other
        files.
    ImportError
        If a Parquet file is among them and pyarrow is not installed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> directory = TemporaryDirectory()
    >>> for name in "ab":
    ...     Path(directory.name, f"{name}.csv").write_text("n\n1\n2\n3\n") and None
    >>> source = PartitionedFiles(Path(directory.name, "*.csv"))
    >>> positions = {}
    >>> while (assignments := source.plan(positions, workers=2, events=2)) is not None:
    ...     for worker, assignment in enumerate(assignments):
    ...         for events in source.read(assignment):
    ...             positions |= {event.stream: event.resume for event in events}
    ...             print(worker, [(Path(e.stream).name, e.resume, e.record) for e in events])
    0 [('a.csv', {'late': [4, 2]}, {'n': 1}), ('a.csv', {'late': [6, 3]}, {'n': 2})]
    1 [('b.csv', {'late': [4, 2]}, {'n': 1}), ('b.csv', {'late': [6, 3]}, {'n': 2})]
    0 [('a.csv', {'late': [8, 4]}, {'n': 3})]
    0 [('a.csv', {'done': [8, 4], 'size': 8}, None)]
    1 [('b.csv', {'late': [8, 4]}, {'n': 3})]
    1 [('b.csv', {'done': [8, 4], 'size': 8}, None)]
    >>> source.close()
    >>> directory.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        max_record_bytes: int = 1 << 20,
        csv: CsvOptions = PLAIN,
        max_list_length: int = 0,
        zones: Mapping[str, str] | None = None,
    ) -> None:
        if str(path) == STDIN_PATH:
            raise ValueError("Expected a file or a pattern to divide, got standard input")
        self._layout = Layout(format, csv, max_list_length, max_record_bytes, zones=zones or {})
        FileSource(  # checks the arguments
            path, format, max_record_bytes=max_record_bytes, csv=csv, max_list_length=max_list_length
        ).close()
        self._name = str(Path(path))
        self._pattern = Path(path) if is_pattern(Path(path)) else Path(glob.escape(self._name))
        self._sizes: dict[str, int] = {}  # of the files that were not finished at the last plan
        self._growing = ""  # the last one of all
        self._reading: _Reading | None = None

    def plan(self, positions: Mapping[str, Position], workers: int, events: int) -> list[WorkAssignment] | None:
        """Assign the unfinished files to workers, ``None`` if all files are finished.

        A worker gets at most as many files as events, since a file may be empty. The last file that was started is
        first, unless its position is in a late file, which must be read before a later file is started, after which it
        counts as finished.
        """
        if not any(map(self._is_ours, positions)):
            position_of(self._name, positions)
        sizes = {name: size for name, size in files_of(self._pattern).items() if size}
        begun = set(filter(self._is_ours, positions))
        sizes |= dict.fromkeys(begun - sizes.keys(), 0)
        last = max(begun, default="")
        over = {name for name in begun if _is_over(positions[name], sizes[name], name == last)}
        names = sorted(sizes.keys() - over, key=lambda name: (name not in begun or has(positions[name], LATE), name))
        self._sizes = {name: sizes[name] for name in names}
        self._growing = max(sizes, default="")
        if len(names) > 1 and self._growing in names and not self._lines(self._growing, positions):
            names.remove(self._growing)  # until it has more records, or is the only file left
        dealt = [names[worker::workers][:events] for worker in range(workers)]
        return [self._assignment(share, positions, events) for share in dealt] if names else None

    def read(self, assignment: WorkAssignment) -> Iterator[list[Event]]:
        """Yield the events of an assignment, a few hundred at a time, and its end as an event without a record."""
        left = assignment.events
        for name, position in assignment.begin.items():
            size = assignment.end[name]
            reading = self._at(name, position, size)
            while (events := reading.take(left)) is not None:
                yield [Event(e.stream, {LATE: e.resume}, e.raw, e.record, e.error) for e in events]
                left -= len(events)
                if not left:
                    return
            yield [Event(name, {DONE: reading.position, SIZE: size}, b"")]

    def lag(self, positions: Mapping[str, Position]) -> Mapping[tuple[str, str], int]:
        """Return the bytes after these positions as ``(path, "0")``, for each file that the last plan had to finish.

        A compressed file or Parquet file counts completely until it is finished.
        """
        return {
            (name, "0"): self._bytes_left(name, size, positions.get(name)) for name, size in dict(self._sizes).items()
        }

    def close(self) -> None:
        """Close the file that is being read."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _counts_bytes(self, name: str) -> bool:
        """Return whether positions in a file count its bytes."""
        return not (is_compressed(Path(name)) or self._layout.is_rewritten(Path(name)))

    def _bytes_left(self, name: str, size: int, position: Position) -> int:
        is_counted = has(position, DONE) or self._counts_bytes(name)
        return max(0, size - _bytes_read(position)) if is_counted else size

    def _is_ours(self, name: str) -> bool:
        return matches(Path(name), self._pattern)

    def _assignment(self, names: list[str], positions: Mapping[str, Position], events: int) -> WorkAssignment:
        begin = {name: inner_position(positions.get(name)) for name in names}
        return WorkAssignment(begin, {name: self._end(name, positions) for name in names}, events if names else 0)

    def _end(self, name: str, positions: Mapping[str, Position]) -> int:
        """Return the end of the work in a file: after its last whole line, if it may still be written."""
        return (self._lines(name, positions) if name == self._growing else 0) or self._sizes[name]

    def _lines(self, name: str, positions: Mapping[str, Position]) -> int:
        """Return the end of the last whole line of a file, or 0 if there is none after its position.

        It is the size of a file whose records are not lines, as with quotes in CSV.
        """
        size, kind = self._sizes[name], self._layout.format_of(Path(name))
        if kind == "parquet" or not self._counts_bytes(name):
            return size
        read = _bytes_read(positions.get(name))
        if read >= size:
            return size
        first = max(read, size - self._layout.limit)
        with suppress(OSError), Path(name).open("rb") as file:
            file.seek(first)
            text = file.read(size - first)
            if kind == "csv" and b'"' in text:
                return size
            lines = text.rfind(b"\n") + 1
            return first + lines if lines else 0
        return size

    def _at(self, name: str, position: Position, size: int) -> _Reading:
        """Return the open file if reading continues at its position; otherwise open it again."""
        reading = self._reading
        if reading is None or (reading.name, reading.position, reading.size) != (name, position, size):
            self.close()
            pattern = Path(glob.escape(name))  # of one file; so a file that cannot be read is an event
            reader = PatternReader(pattern, self._layout, follow=False, end=size)
            reading = self._reading = _Reading(name, position, size, reader)
        return reading


class _Reading:
    """One file of which a limited number of events is read."""

    def __init__(self, name: str, position: Position, size: int, reader: PatternReader) -> None:
        self.name, self.position, self.size, self._reader = name, position, size, reader
        self._at_hand: list[Event] = []
        reader.seek({name: {LATE: position}})

    def take(self, most: int) -> list[Event] | None:
        """Return the next events, or ``None`` at the end of the file."""
        while not self._at_hand:
            events = self._reader.poll(1.0)
            if events is None:
                return None
            self._at_hand = events
        taken, self._at_hand = self._at_hand[:most], self._at_hand[most:]
        self.position = taken[-1].resume
        return taken

    def close(self) -> None:
        self._reader.close()


def _is_over(position: Position, size: int, is_last: bool) -> bool:
    """Return whether a file of this size need not be read again; `last` is the last started file in order."""
    if is_broken(inner_position(position)):
        return True
    if has(position, DONE):
        return not is_last or size <= position[SIZE]
    return not (is_last or has(position, LATE))


def _bytes_read(position: Position) -> int:
    """Return the number of bytes read of a file: up to its position if it is unfinished plain text."""
    if has(position, DONE):
        return int(position[SIZE])
    inner = inner_position(position)
    return int(inner[0]) if isinstance(inner, list) else 0
