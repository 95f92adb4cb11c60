"""Files as sources, in the formats that data usually comes in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from connectors.base import Event, Position
from connectors.checks import is_broken, position_of, unknown_name
from connectors.files.following import FollowReader
from connectors.files.many_files import PatternReader, files_of, inner_position, is_pattern
from connectors.files.parquet import ParquetReader
from connectors.files.readers import STDIN_PATH, file_reader, follow_reader, pattern_reader, read_to_end, stdin_reader
from connectors.files.rotation import Fingerprint, find
from connectors.files.text import TextReader
from connectors.formats import FORMATS

_FILES_LOOKED_AT = 8
_LOOK_SECONDS = 10.0


class FileSource:
    r"""The records of one file, of all files that match a pattern, or of standard input.

    ========  ====================================  ===================================================
    format    suffixes                              a record is
    ========  ====================================  ===================================================
    csv       ``.csv``                              a row; the header line gives the names; a cell is
                                                    an integer, else a float, else a string; an empty
                                                    cell is a missing field
    jsonl     ``.jsonl``, ``.ndjson``               an object
    svmlight  ``.svmlight``, ``.svm``, ``.libsvm``  the label as ``"label"``, and indices as strings
    parquet   ``.parquet``                          a row; a null is a missing field
    ========  ====================================  ===================================================

    The text formats are UTF-8 and may be compressed: ``.gz`` comes after the suffix. Blank lines are skipped.

    A record that cannot be read is an event with an ``error``, and the next one is read. So are the rows of a
    damaged row group of Parquet, together; a gzip file ends where it is damaged, with such an event.

    The position after a record is ``[offset, line]`` in text (of the uncompressed bytes), and the number of
    rows in Parquet. Standard input cannot be rewound: there, `seek` only restores the numbering, and a CSV
    header is expected again.

    **A pattern**, such as ``"logs/2026-*/*.csv"`` or ``"logs/**/*.csv"``, is all files that match, in the order of
    their names, as one source; each is a stream of its own. Hidden and empty files are left out. A file that
    cannot be read is one event with an ``error``. Files with names after those that are there are read when they
    appear. So are those with names before, after all others, and their positions are ``{"late": position}``.
    What is added to a file once a later one was begun is not read.

    **A file that is followed** may be rotated, by renaming it (``app.log.1``, ``app.log-20260131``) and making a
    new one, or by copying and cutting it. What is left of the old one is read first, under its new name too, and
    a last line without newline is a record. A position is ``[offset, line, fingerprint]``; the fingerprint tells the
    old file from the new one, by its inode and a hash of its first 1024 bytes. If the old file or a copy of it cannot
    be found (it was compressed, or deleted), an event with an ``error`` says so, and the new one is begun. What a
    writer adds between the copy and the truncation is lost, and this cannot be detected.

    Parameters
    ----------
    path
        The file, a pattern, or ``"-"`` for standard input. A file that is there is no pattern, whatever its name.
    format
        ``"csv"``, ``"jsonl"``, ``"svmlight"`` or ``"parquet"``. By default the file's name tells; standard
        input has none.
    follow
        Whether to wait for more at the end of the file, or of the last one, and for more files that match. A
        line is read once its newline has come.
    max_record_bytes
        Longest record that is read from text. What is longer is never held in memory: of such a record the
        event keeps the first 1024 bytes. Quotes in CSV that stay open for longer end there, with the line.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file, or none that matches and `follow` is false.
    ValueError
        If the format is not known, or `follow` is asked of what cannot grow. `poll` raises it for a CSV
        header that does not name every column once; without names there are no records. With a pattern, or
        after a rotation, all lines of such a file are events with an ``error``.
    ImportError
        If pyarrow is not installed and a Parquet file is to be read.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> directory = TemporaryDirectory()
    >>> path = Path(directory.name, "ages.csv")
    >>> path.write_text("name,age\nAnn,31\nBob,\n,x,\n") and None
    >>> source = FileSource(path)
    >>> for event in source.poll(timeout=1):
    ...     print(event.resume, event.record, event.error)
    [16, 2] {'name': 'Ann', 'age': 31} None
    [21, 3] {'name': 'Bob'} None
    [25, 4] None Expected 2 fields, got 3 - at line 4
    >>> source.poll(timeout=1) is None
    True

    To go on later, send another source to where the first one was:

    >>> source.close()
    >>> source = FileSource(path)
    >>> source.seek({str(path): [16, 2]})
    >>> source.poll(timeout=1)[0].record
    {'name': 'Bob'}
    >>> source.close()
    >>> directory.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        follow: bool = False,
        max_record_bytes: int = 1 << 20,
    ) -> None:
        if max_record_bytes < 1:
            raise ValueError(f"Expected max_record_bytes of at least 1, got {max_record_bytes}")
        if format is not None and format not in FORMATS:
            raise unknown_name("a format of", format, FORMATS)
        self._name = str(Path(path))
        self._reader: TextReader | ParquetReader | FollowReader | PatternReader
        if self._name == STDIN_PATH:
            self._reader = stdin_reader(format, follow, max_record_bytes)
        elif is_pattern(Path(path)):
            self._reader = pattern_reader(Path(path), format, follow, max_record_bytes)
        elif follow:
            self._reader = follow_reader(Path(path), format, max_record_bytes)
        else:
            self._reader = file_reader(Path(path), format, read_to_end, max_record_bytes)

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Go on after the given position of this file, or of each of these files.

        Parameters
        ----------
        positions
            The ``resume`` of the last event of each stream, under its name, which is the path of the file; also those
            that `PartitionedFiles` gave. Empty: from the start.

        Raises
        ------
        ValueError
            If the positions are of other files only; or if the file is now shorter than the position, or not the
            one of its fingerprint, and not followed.
        """
        if isinstance(self._reader, PatternReader):
            self._reader.seek(positions)
            return
        position = inner_position(position_of(self._name, positions))
        if position is None:
            return
        if isinstance(self._reader, TextReader):
            _check_fingerprint(Path(self._name), position)
        self._reader.seek(position)

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next few hundred events.

        Parameters
        ----------
        timeout
            How many seconds to wait for what is followed, or for standard input.

        Returns
        -------
        list of Event or None
            ``[]`` if none came in time, ``None`` at the end.

        Raises
        ------
        ValueError
            If the header of a CSV file cannot be used.
        """
        return self._reader.poll(timeout)

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return what is behind the last event.

        Returns
        -------
        mapping
            Bytes under ``(path, "0")``, or rows of Parquet, for each file that is not finished. For a compressed
            file they are the compressed bytes not read yet and the uncompressed ones at hand. Of a pattern's
            files that were not begun they are bytes. 0 for standard input, where it is unknown.
        """
        try:
            if isinstance(self._reader, PatternReader):
                return self._reader.lag()
            return {(self._name, "0"): self._reader.lag()}
        except ValueError:  # Another thread closed the file just now.
            return {}

    def close(self) -> None:
        """Close the file, but not standard input."""
        self._reader.close()


def field_names(path: str | os.PathLike[str], format: str | None = None) -> list[str]:
    """Return the names of the fields in a file, or in the first files that match a pattern.

    They are those of the header or the schema, or else those in the first few hundred records.

    Parameters
    ----------
    path, format
        As for :class:`FileSource`.

    Returns
    -------
    list of str
        Nothing if there is no record yet.

    Raises
    ------
    ValueError
        If a header does not name every column once.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     path = Path(directory, "ages.csv")
    ...     path.write_text("name,age\\nAnn,\\n") and field_names(path)
    ['name', 'age']
    """
    path = Path(path)
    files = [Path(name) for name in files_of(path)] if is_pattern(path) else [path]
    names: dict[str, None] = {}
    for file in [file for file in files if file.exists()][:_FILES_LOOKED_AT]:
        with closing(file_reader(file, format, read_to_end, 1 << 20)) as reader:
            events = reader.poll(_LOOK_SECONDS) or ()
            names |= dict.fromkeys(reader.names or [name for event in events for name in event.record or ()])
    return list(names)


def _check_fingerprint(path: Path, position: Position) -> None:
    """Refuse the position of a file that was followed, if it is of another file than the one that is there now."""
    marked = isinstance(position, (list, tuple)) and len(position) == 3 and not is_broken(position)
    if marked and find(path, Fingerprint.parse(position[2]), position[0]) != path:
        raise ValueError(f"Expected the file that was followed, got another one - at {path}: follow it to go on")
