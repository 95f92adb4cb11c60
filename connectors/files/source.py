"""Files as sources, in the usual formats of data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from streamkernel.connectors.base import Event, Position, is_broken, position_of, unknown_name
from streamkernel.connectors.csv_table import PLAIN, CsvOptions
from streamkernel.connectors.files.following import Fingerprint, FollowReader, find
from streamkernel.connectors.files.parquet import ParquetReader
from streamkernel.connectors.files.readers import (
    STDIN_PATH,
    PatternReader,
    file_reader,
    files_of,
    follow_reader,
    inner_position,
    is_pattern,
    pattern_reader,
    stdin_reader,
)
from streamkernel.connectors.files.text import Layout, TextReader
from streamkernel.connectors.formats import FORMATS
from streamkernel.connectors.interfaces import Source

_FILES_LOOKED_AT = 8
_LOOK_SECONDS = 10.0


class FileSource(Source):
    r"""The records of one file, of all files that match a pattern, or of standard input.

    ========  ====================================  ===================================================
    format    suffixes                              a record is
    ========  ====================================  ===================================================
    csv       ``.csv``, ``.tsv``                    a row; the header line gives the names; a cell is
                                                    an integer, else a float, else a string; an empty
                                                    cell is a missing field, codes as ``007`` are strings
    jsonl     ``.jsonl``, ``.ndjson``               an object
    svmlight  ``.svmlight``, ``.svm``, ``.libsvm``  the label as ``"label"``, and indices as strings
    parquet   ``.parquet``                          a row; a null is a missing field
    ========  ====================================  ===================================================

    The text formats are UTF-8 and may be compressed: ``.gz`` comes after the suffix. Blank lines are skipped.

    A record that cannot be read is an event with an ``error``, and reading continues with the next record. A damaged
    row group of Parquet is one such event; a gzip file ends with such an event where it is damaged.

    The position after a record is ``[offset, line]`` in text (of the uncompressed bytes), and the number of rows in
    Parquet. Standard input cannot be rewound: `seek` only restores the numbering, and a CSV header is expected again.

    **A pattern**, such as ``"logs/2026-*/*.csv"`` or ``"logs/**/*.csv"``, is all files that match, in the order of
    their names, as one source; each is a separate stream. Hidden and empty files are excluded. A file that cannot be
    read is one event with an ``error``. New files whose names sort after the existing ones are read when they appear.
    New files with earlier names are read last, and their positions are ``{"late": position}``. Lines added to a file
    after a later file has been started are not read.

    **A file that is followed** may be rotated, by renaming it (``app.log.1``, ``app.log-20260131``) and creating a new
    one, or by copying and truncating it. The rest of the old file is read first, also under its new name, and a last
    line without a newline is a record. A position is ``[offset, line, fingerprint]``; the fingerprint, the inode and a
    hash of the first 1024 bytes, distinguishes the old file from the new one. If neither the old file nor a copy of it
    is found (because it was compressed or deleted), an event with an ``error`` reports this, and the new file is read.
    Lines written between the copy and the truncation are lost, and this cannot be detected.

    Parameters
    ----------
    path : str or PathLike
        The file, a pattern, or ``"-"`` for standard input. The name of an existing file is not a pattern.
    format : "csv" or "jsonl" or "svmlight" or "parquet" or None, default None
        The format, by default from the suffix of the file; required for standard input.
    follow : bool, default False
        Whether to wait for more lines at the end of the last file, and for more files that match. A line is read
        when its newline has been written.
    max_record_bytes : int, default 2**20
        The largest size of a text record, in bytes. A longer record is never loaded into memory; its event has the
        first 1024 bytes. A CSV quote that is open for longer is an error of its line alone.
    csv : CsvOptions, default CsvOptions()
        How tables are written: delimiter, decimal sign, encoding, names of columns if there is no header, and columns
        of texts.
    max_list_length : int, default 0
        The largest length of a list, in jsonl and Parquet, whose items become fields.
    zones : dict of str to str or None, default None
        The zones of Parquet's time stamps without one, by field, such as ``{"at": "Europe/Berlin"}``; by default UTC.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If the file does not exist, or no file matches and `follow` is false.
    OSError
        If it is not a regular file, but a pipe, a socket or a device.
    ValueError
        If the format is unknown, or `follow` is set for a file that cannot grow. `poll` raises it for a CSV header that
        does not name every column exactly once. With a pattern, or after a rotation, all lines of such a file are
        events with an ``error`` instead.
    ImportError
        If a file is in Parquet format and pyarrow is not installed.

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

    To continue later, seek a new source to the last position:

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
        csv: CsvOptions = PLAIN,
        max_list_length: int = 0,
        zones: Mapping[str, str] | None = None,
    ) -> None:
        if max_record_bytes < 1:
            raise ValueError(f"Expected max_record_bytes of at least 1, got {max_record_bytes}")
        if format is not None and format not in FORMATS:
            raise unknown_name("a format of", format, FORMATS)
        layout = Layout(format, csv, max_list_length, max_record_bytes, zones=zones or {})
        self._name = str(Path(path))
        self._reader: TextReader | ParquetReader | FollowReader | PatternReader
        if self._name == STDIN_PATH:
            self._reader = stdin_reader(layout, follow)
        elif is_pattern(Path(path)):
            self._reader = pattern_reader(Path(path), layout, follow)
        elif follow:
            self._reader = follow_reader(Path(path), layout)
        else:
            self._reader = file_reader(Path(path), layout)

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Continue after the given position of the file, or of each file by its path; also of `PartitionedFiles`.

        Raises
        ------
        ValueError
            If the positions are only of other files; or if the file is shorter than the position or has another
            fingerprint, and is not followed.
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

        Raises
        ------
        ValueError
            If the header of a CSV file cannot be used.
        """
        return self._reader.poll(timeout)

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the backlog after the last event.

        Returns
        -------
        mapping
            Bytes, or rows of Parquet, as ``(path, "0")`` for each unfinished file. For a compressed file, the sum of
            compressed bytes not yet read and uncompressed bytes in memory. For files of a pattern that were not
            started, bytes. 0 for standard input, whose backlog is unknown.
        """
        try:
            if isinstance(self._reader, PatternReader):
                return self._reader.lag()
            return {(self._name, "0"): self._reader.lag()}
        except (OSError, ValueError):  # It is gone from its server, or another thread closed it just now.
            return {}

    def close(self) -> None:
        """Close the file, but not standard input."""
        self._reader.close()


def field_names(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    follow: bool = False,
    csv: CsvOptions = PLAIN,
    max_list_length: int = 0,
) -> list[str]:
    r"""Return the names of the fields in a file, or in the first files that match a pattern.

    They are from the header or the schema, or else from the first few hundred records.

    Parameters
    ----------
    path : str or PathLike
        The file or a pattern, as for :class:`FileSource`.
    format : str or None, default None
        The format, as for :class:`FileSource`.
    follow : bool, default False
        Whether more records may come, so that it is no error if none can be read yet.
    csv : CsvOptions, default CsvOptions()
        How tables are written.
    max_list_length : int, default 0
        The largest length of a list whose items become fields.

    Returns
    -------
    list of str
        The names, empty if there is no record yet.

    Raises
    ------
    ValueError
        If a header does not name every column once, or there are records and none can be read.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     path = Path(directory, "ages.csv")
    ...     path.write_text("name,age\nAnn,\n") and field_names(path)
    ['name', 'age']
    """
    names: dict[str, None] = {}
    problems = []
    for file, columns, events in _first_events(Path(path), Layout(format, csv, max_list_length, is_silent=True)):
        names |= dict.fromkeys([*columns, *(name for event in events for name in event.record or ())])
        problems += [f"{event.error} of {file}" for event in events if event.record is None]
    if problems and not names and not follow:
        raise ValueError(problems[0])
    return list(names)


def first_records(
    path: str | os.PathLike[str], format: str | None = None, *, csv: CsvOptions = PLAIN, max_list_length: int = 0
) -> list[dict[str, Any]]:
    r"""Return the first few hundred records of a file, or of the first files that match a pattern.

    Parameters
    ----------
    path : str or PathLike
        The file or a pattern, as for :class:`FileSource`.
    format : str or None, default None
        The format, as for :class:`FileSource`.
    csv : CsvOptions, default CsvOptions()
        How tables are written.
    max_list_length : int, default 0
        The largest length of a list whose items become fields.

    Returns
    -------
    list of dict
        The records, without the ones that cannot be read.

    Raises
    ------
    ValueError
        If a header does not name every column once.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as directory:
    ...     path = Path(directory, "ages.csv")
    ...     path.write_text("name,age\nAnn,31\n") and first_records(path)
    [{'name': 'Ann', 'age': 31}]
    """
    batches = _first_events(Path(path), Layout(format, csv, max_list_length, is_silent=True))
    return [event.record for *_, events in batches for event in events if event.record is not None]


def _first_events(path: Path, layout: Layout) -> Iterator[tuple[Path, Sequence[str], list[Event]]]:
    """Yield the first files, the names that their headers or schemas have, and their first events."""
    files = [Path(name) for name in files_of(path)] if is_pattern(path) else [path]
    for file in [file for file in files if file.exists()][:_FILES_LOOKED_AT]:
        with closing(file_reader(file, layout)) as reader:
            events = reader.poll(_LOOK_SECONDS) or []
            yield file, reader.names, events


def _check_fingerprint(path: Path, position: Position) -> None:
    """Raise an error if the position of a followed file belongs to another file than the current one."""
    marked = isinstance(position, (list, tuple)) and len(position) == 3 and not is_broken(position)
    if marked and find(path, Fingerprint.parse(position[2]), position[0]) != path:
        raise ValueError(
            f"Expected the file that was followed, got another one - at {path}; set follow = true to continue"
        )
