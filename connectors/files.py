"""Files as sources, in the formats that data usually comes in."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from connectors.base import Event, Position
from connectors.bytestreams import ByteStream, FileBytes, GzipBytes, StdinBytes
from connectors.checks import position_of, unknown_name
from connectors.formats import FORMATS, TEXT_FORMATS, format_of
from connectors.parquet import ParquetReader
from connectors.text import TextReader

STDIN_PATH = "-"


class FileSource:
    r"""The records of one file, or of standard input.

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

    Parameters
    ----------
    path
        The file, or ``"-"`` for standard input.
    format
        ``"csv"``, ``"jsonl"``, ``"svmlight"`` or ``"parquet"``. By default the file's name tells; standard
        input has none.
    follow
        Whether to wait at the end of the file for more. A line is read once its newline has come. That the
        file was renamed, or replaced by another one, is not noticed.
    max_record_bytes
        Longest record that is read from text. What is longer is never held in memory: of such a record the
        event keeps the first 1024 bytes. Quotes in CSV that stay open for longer end there, with the line.

    Raises
    ------
    FileNotFoundError, IsADirectoryError
        If there is no such file.
    ValueError
        If the format is not known, or `follow` is asked of what cannot grow. `poll` raises it for a CSV
        header that does not name every column once; without names there are no records.
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
        self._reader: TextReader | ParquetReader
        if self._name == STDIN_PATH:
            self._reader = _stdin_reader(format, follow, max_record_bytes)
        else:
            self._reader = _file_reader(Path(path), format, follow, max_record_bytes)

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Go on after the given position of this file.

        Parameters
        ----------
        positions
            The ``resume`` of the last event, under the name of its stream, which is the path. Empty: from the
            start.

        Raises
        ------
        ValueError
            If the positions are of other files only, or the file is now shorter than the position.
        """
        position = position_of(self._name, positions)
        if position is not None:
            self._reader.seek(position)

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next few hundred events.

        Parameters
        ----------
        timeout
            How many seconds to wait for a file that is followed, or for standard input.

        Returns
        -------
        list of Event or None
            ``[]`` if none came in time, ``None`` at the end.

        Raises
        ------
        ValueError
            If the header of a CSV file cannot be used, or a file that is followed was cut.
        """
        return self._reader.poll(timeout)

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return what is behind the last event.

        Returns
        -------
        mapping
            Bytes under ``(path, "0")``, or rows of Parquet. For a compressed file they are the compressed
            bytes not read yet and the uncompressed ones at hand. 0 for standard input, where nobody knows.
        """
        return {(self._name, "0"): self._reader.lag()}

    def close(self) -> None:
        """Close the file, but not standard input."""
        self._reader.close()


def _stdin_reader(format: str | None, follow: bool, limit: int) -> TextReader:
    if format is None:
        raise unknown_name("a format for standard input, one of", "None", TEXT_FORMATS)
    if format not in TEXT_FORMATS:
        raise ValueError("Expected a file, got standard input - Parquet is read from its end")
    if follow:
        raise ValueError("Expected a file to follow, got standard input - it is waited for in any case")
    return TextReader(STDIN_PATH, StdinBytes(), TEXT_FORMATS[format](), limit)


def _file_reader(path: Path, format: str | None, follow: bool, limit: int) -> TextReader | ParquetReader:
    path.stat()
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    format = format or format_of(path)
    compressed = path.suffix.lower() == ".gz"
    if follow and (compressed or format == "parquet"):
        kind = "a compressed one" if compressed else "Parquet"
        raise ValueError(f"Expected a plain text file to follow, got {kind} - at {path}")
    if format == "parquet":
        return ParquetReader(str(path), path)
    stream: ByteStream = GzipBytes(path) if compressed else FileBytes(path, follow)
    return TextReader(str(path), stream, TEXT_FORMATS[format](), limit)
