"""Files as sinks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from connectors.base import Position

BUFFER_BYTES = 1 << 18
STDOUT_PATH = "-"

_JSON_LINE = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE


class FileSink:
    r"""A file of JSON lines, or standard output.

    An existing file is appended to; if a crash left half a line at its end, that line is ended first. Numbers
    of numpy are numbers, keys become strings, and NaN becomes null.

    Parameters
    ----------
    path
        The file, or ``"-"`` for standard output.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> directory = TemporaryDirectory()
    >>> path = Path(directory.name, "predictions.jsonl")
    >>> sink = FileSink(path)
    >>> sink.write({"y": 1.5})
    >>> position = sink.flush()
    >>> sink.write({"y": float("nan")})
    >>> sink.close()
    >>> path.read_text()
    '{"y":1.5}\n{"y":null}\n'

    To drop what came after a position, send another sink to it:

    >>> sink = FileSink(path)
    >>> sink.seek(position)
    >>> sink.close()
    >>> path.read_text()
    '{"y":1.5}\n'
    >>> directory.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._to_stdout = str(self._path) == STDOUT_PATH
        if self._to_stdout:
            self._file: Any = sys.stdout.buffer
            self._size = 0
        else:
            self._file = self._path.open("ab+", buffering=BUFFER_BYTES)
            self._size = self._file.seek(0, os.SEEK_END)
            self._end_last_line()

    def open(self) -> None:
        """Do nothing: it is open."""

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write one record; it is durable after the next `flush`.

        Parameters
        ----------
        record
            The fields.
        key
            Has no place in a file.

        Raises
        ------
        TypeError
            If JSON cannot say what is in them.
        """
        self._file.write(orjson.dumps(record, option=_JSON_LINE))

    def flush(self) -> Position:
        """Make everything written durable.

        Returns
        -------
        int
            The position after it: the size of the file, 0 for standard output.
        """
        self._file.flush()
        if self._to_stdout:
            return 0
        os.fsync(self._file.fileno())
        self._size = self._file.tell()
        return self._size

    def seek(self, position: Position) -> None:
        """Drop what was written after `position`, also by this sink; standard output cannot.

        Parameters
        ----------
        position
            What `flush` returned.

        Raises
        ------
        ValueError
            If the file is shorter: records that were durable are gone.
        """
        if self._to_stdout:
            return
        self._file.flush()
        if self._size < position:
            sizes = f"Expected at least {position} bytes, got {self._size}"
            raise ValueError(f"{sizes} - at {self._path}: predictions were lost")
        self._file.truncate(position)
        self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Flush and close the file; standard output stays open."""
        if self._to_stdout:
            self._file.flush()
        elif not self._file.closed:
            self.flush()
            self._file.close()

    def _end_last_line(self) -> None:
        if self._size:
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")
