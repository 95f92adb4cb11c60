"""Files that several processes read together."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from connectors.base import Event, Position, Share
from connectors.checks import position_of
from connectors.files import STDIN_PATH, FileSource, file_reader, is_compressed
from connectors.globs import LATE, PatternReader, files_of, is_pattern, matches

DONE = "done"


class DividedFiles:
    r"""The records of one file, or of all files that match a pattern, dealt out to several processes.

    The files that are not finished, in the order of their names, are dealt out in turn: of three workers, the first
    one has the first, the fourth, ... of them. It reads one after the other, until it has as many events as it is to
    read, and goes on there in the next round. Files that appear are in the next plan.

    Records and positions are those of :class:`~connectors.files.FileSource` with a pattern, also for one file. At the
    end of a file a mark has the position ``{"done": position}``.

    Parameters
    ----------
    path
        The file, or a pattern.
    format
        ``"csv"``, ``"jsonl"``, ``"svmlight"`` or ``"parquet"``; by default the files' names tell.
    max_record_bytes
        Longest record that is read from text.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file, or none that matches.
    ValueError
        If the format is not known, or standard input is to be divided. `plan` raises it if the positions are those
        of other files only.
    ImportError
        If pyarrow is not installed and a Parquet file is to be read.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> directory = TemporaryDirectory()
    >>> for name in "ab":
    ...     Path(directory.name, f"{name}.csv").write_text("n\n1\n2\n3\n") and None
    >>> source = DividedFiles(Path(directory.name, "*.csv"))
    >>> positions = {}
    >>> while (shares := source.plan(positions, workers=2, events=2)) is not None:
    ...     for worker, share in enumerate(shares):
    ...         for events in source.read(share):
    ...             positions |= {event.stream: event.resume for event in events}
    ...             print(worker, [(Path(e.stream).name, e.resume, e.record) for e in events])
    0 [('a.csv', [4, 2], {'n': 1}), ('a.csv', [6, 3], {'n': 2})]
    1 [('b.csv', [4, 2], {'n': 1}), ('b.csv', [6, 3], {'n': 2})]
    0 [('a.csv', [8, 4], {'n': 3})]
    0 [('a.csv', {'done': [8, 4]}, None)]
    1 [('b.csv', [8, 4], {'n': 3})]
    1 [('b.csv', {'done': [8, 4]}, None)]
    >>> source.close()
    >>> directory.cleanup()
    """

    def __init__(
        self, path: str | os.PathLike[str], format: str | None = None, max_record_bytes: int = 1 << 20
    ) -> None:
        if str(path) == STDIN_PATH:
            raise ValueError("Expected a file or a pattern to divide, got standard input")
        FileSource(path, format, max_record_bytes=max_record_bytes).close()  # it checks them all
        self._name = str(Path(path))
        self._pattern = Path(path) if is_pattern(Path(path)) else Path(glob.escape(self._name))
        self._format, self._limit = format, max_record_bytes
        self._sizes: dict[str, int] = {}  # of the files that were not finished at the last plan
        self._reading: _Reading | None = None

    def plan(self, positions: Mapping[str, Position], workers: int, events: int) -> list[Share] | None:
        """Deal out the files that are not finished.

        Parameters
        ----------
        positions
            The last ``Event.resume`` of each stream, under its name, which is the path of the file.
        workers
            How many processes there are.
        events
            How many events each is to read at most. It is given no more files than that, since a file may have none.

        Returns
        -------
        list of Share or None
            ``None`` if all files are finished.
        """
        if not any(map(self._is_ours, positions)):
            position_of(self._name, positions)
        found = {name: size for name, size in files_of(self._pattern).items() if size}
        found |= dict.fromkeys((name for name in positions.keys() - found.keys() if self._is_ours(name)), 0)
        names = sorted(name for name in found if not _is_finished(positions.get(name)))
        self._sizes = {name: found[name] for name in names}
        places = [(name, _unwrapped(positions.get(name))) for name in names]
        dealt = [dict(places[worker::workers][:events]) for worker in range(workers)]
        return [Share(begin, {}, events if begin else 0) for begin in dealt] if names else None

    def read(self, share: Share) -> Iterator[list[Event]]:
        """Yield the events of a share, a few hundred at a time, and a mark at the end of each file."""
        left = share.events
        for name, position in share.begin.items():
            reading = self._at(name, position)
            while (events := reading.take(left)) is not None:
                yield events
                left -= len(events)
                if not left:
                    return
            yield [Event(name, {DONE: reading.position}, b"")]

    def lag(self, positions: Mapping[str, Position]) -> Mapping[tuple[str, str], int]:
        """Return what is behind these positions, as far as it is known.

        Parameters
        ----------
        positions
            As for `plan`.

        Returns
        -------
        mapping
            Bytes under ``(path, "0")``, for each file that was not finished when the last round was planned. A
            compressed file and one of Parquet count whole, until they are finished.
        """
        return {(name, "0"): _left(name, size, positions.get(name)) for name, size in dict(self._sizes).items()}

    def close(self) -> None:
        """Close the file that is being read."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _is_ours(self, name: str) -> bool:
        return matches(Path(name), self._pattern)

    def _at(self, name: str, position: Position) -> _Reading:
        """Return the file that is open, if it is there that it is to be gone on with, or open it anew."""
        if self._reading is None or (self._reading.name, self._reading.position) != (name, position):
            self.close()
            self._reading = _Reading(name, position, self._open(name))
        return self._reading

    def _open(self, name: str) -> PatternReader:
        pattern = Path(glob.escape(name))  # of one file; so a file that cannot be read is an event
        return PatternReader(
            pattern, lambda path, grows: file_reader(path, self._format, grows, self._limit), follow=False
        )


class _Reading:
    """One file, of which no more events are taken than are wanted."""

    def __init__(self, name: str, position: Position, reader: PatternReader) -> None:
        self.name, self.position, self._reader = name, position, reader
        self._at_hand: list[Event] = []
        if position is not None:
            reader.seek({name: position})

    def take(self, most: int) -> list[Event] | None:
        """Return the next events, ``None`` at the end of the file."""
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


def _is_finished(position: Position) -> bool:
    return isinstance(position, dict) and DONE in position


def _unwrapped(position: Position) -> Position:
    """Return the position in a file, without the note of a source that read it late."""
    return position[LATE] if isinstance(position, dict) else position


def _left(name: str, size: int, position: Position) -> int:
    if _is_finished(position):
        return 0
    place = _unwrapped(position)
    is_offset = isinstance(place, list) and not is_compressed(Path(name))
    return max(0, size - place[0]) if is_offset else size
