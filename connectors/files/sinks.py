"""Files as sinks: lines of JSON in one file, or Parquet files in a directory."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import Any

import orjson

from streamkernel.connectors.base import Position, RecordsRefusedError, is_count
from streamkernel.connectors.files.parquet import arrow
from streamkernel.connectors.interfaces import Sink
from streamkernel.connectors.json_text import RECORD, Refused, all_to_json, encode_each, json_or_refuse, to_json
from streamkernel.connectors.owner import Owner

BUFFER_BYTES = 1 << 18
STDOUT_PATH = "-"

_JSON_LINE = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE

MOST_ROWS = 50_000
"""Rows of one file."""


class OutputClosedError(RuntimeError):
    """The reader of standard output has closed it."""

    def __init__(self) -> None:
        super().__init__("standard output was closed; the last lines may not have been read")


class LinesLostError(RuntimeError):
    """The operating system could not write lines to the disk, and may have dropped them; writing again hides that."""


class FileSink(Sink):
    r"""A file of JSON lines, or standard output.

    An existing file is appended to; if a crash left half a line at its end, that line is ended first. Numbers
    of numpy are numbers, keys become strings, and NaN becomes null.

    Parameters
    ----------
    path : str or PathLike
        The file, or ``"-"`` for standard output.
    private : bool, default False
        Whether only the user of this process may read the file: it is created with these permissions, and a symbolic
        link is not followed. Otherwise the umask applies, and links are followed.

    Raises
    ------
    OSError
        If the file cannot be opened. Like errors of writing, it has the path.

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

    To remove the records after a position, seek a new sink to it:

    >>> sink = FileSink(path)
    >>> sink.seek(position)
    >>> sink.close()
    >>> path.read_text()
    '{"y":1.5}\n'
    >>> directory.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, private: bool = False) -> None:
        self._path = Path(path)
        self._to_stdout = str(self._path) == STDOUT_PATH
        self._is_device = False
        self._size = 0
        self._lost: LinesLostError | None = None
        self._owner = Owner(f"sink {path}")
        if self._to_stdout:
            if sys.stdout is None:
                raise OutputClosedError
            self._file: Any = sys.stdout.buffer
            return
        more, mode = (os.O_NOFOLLOW, 0o600) if private else (0, 0o666)
        with self._naming():
            try:
                self._file = open(  # noqa: SIM115 - the file stays open
                    self._path, "ab+", BUFFER_BYTES, opener=lambda path, flags: os.open(path, flags | more, mode)
                )
            except UnsupportedOperation as error:
                expected = 'Expected a file, got a pipe or a terminal, which are written as "-", standard output'
                raise OSError(errno.ESPIPE, expected) from error
            self._owner.release = self._file.raw.close  # what the file's buffer has, only the process itself writes
            self._is_device = not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
            self._size = self._file.seek(0, os.SEEK_END)
            self._end_last_line()

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write one record; it is durable after the next `flush`.

        Raises
        ------
        RecordsRefusedError
            If JSON cannot hold it.
        OutputClosedError
            If the reader of standard output has closed it; `flush` and `close` raise it too.
        """
        self.write_all([record], [key])

    def write_all(self, records: Iterable[Mapping[str, Any]], keys: Iterable[bytes | None]) -> None:
        """Write several records, as `write` does for each; a file has no keys.

        Raises
        ------
        RecordsRefusedError
            If JSON cannot hold some; the others are written.
        """
        self._owner.check()
        records, refused = list(records), list[Refused]()
        try:
            lines = all_to_json(records, _JSON_LINE)
        except TypeError:
            encoded, refused = encode_each(lambda record: to_json(record, _JSON_LINE), records, keys)
            lines = [content for *_, content in encoded]
        try:
            self._file.write(b"".join(lines))
        except OSError as error:
            raise self._name_file(error) from error
        if refused:
            raise RecordsRefusedError(refused)

    def flush(self) -> Position:
        """Make all written records durable.

        Returns
        -------
        int
            The position after them: the size of the file, 0 for standard output and for devices such as ``/dev/null``.

        Raises
        ------
        LinesLostError
            If the disk fails, also at each later call: a second attempt could succeed without the lines. The run ends,
            and a restart writes the lines since the last checkpoint again.
        """
        self._owner.check()
        if self._lost is not None:
            raise self._lost
        with self._naming():
            self._file.flush()
        if self._to_stdout or self._is_device:
            return 0
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            lost = (
                f"Expected lines on the disk, got: {error.strerror} - at {self._path}: lines after byte {self._size:,}"
            )
            self._lost = LinesLostError(f"{lost} may be lost; a restart of the run writes them again")
            raise self._lost from error
        with self._naming():
            self._size = self._file.tell()
        return self._size

    def seek(self, position: Position) -> None:
        """Remove the records after a position, also records of this sink; standard output cannot be truncated.

        Raises
        ------
        ValueError
            If the file is shorter, because durable records are missing.
        """
        if self._to_stdout or self._is_device:
            return
        if self._size < position:
            sizes = f"Expected at least {position} bytes, got {self._size}"
            raise ValueError(f"{sizes} - at {self._path}: predictions were lost")
        with self._naming():
            self._file.flush()
            self._file.truncate(position)
            self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Flush and close the file; standard output stays open."""
        if not self._owner.is_here:
            return
        if self._to_stdout:
            self.flush()
        elif not self._file.closed:
            try:
                self.flush()
            finally:
                with self._naming():
                    self._file.close()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._name_file(error) from error

    def _name_file(self, error: OSError) -> Exception:
        """Return an error that names the file, which the error of a full disk does not."""
        if self._to_stdout and isinstance(error, BrokenPipeError):
            return OutputClosedError()
        error.filename = "standard output" if self._to_stdout else str(self._path)
        return error

    def _end_last_line(self) -> None:
        if self._size:
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")


class JsonText(str):
    """A value as JSON, in contrast to a string."""

    __slots__ = ()


class ParquetSink(Sink):
    """A directory of files, ``part-000001.parquet`` and so on, which contain each record exactly once.

    A position is the number of files. Each file has its own types: a field with objects or lists, with values of
    several types or with integers beyond 64 bits is a column of JSON text; integers among decimal fractions become
    such, unless one of them would lose digits.

    Parameters
    ----------
    directory : str or PathLike
        The directory, which is created if there is none.

    Raises
    ------
    ImportError
        If pyarrow is not installed.
    """

    def __init__(self, directory: str | Path) -> None:
        arrow()
        import pyarrow
        from pyarrow import parquet

        self._arrow, self._parquet = pyarrow, parquet
        self._folder, self._rows = Path(directory), list[dict[str, Any]]()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._count = max((int(path.stem[5:]) for path in self._folder.glob("part-*.parquet")), default=0)

    def write(self, record: Mapping[str, Any], key: bytes | None = None) -> None:
        """Write one record.

        Raises
        ------
        RecordsRefusedError
            If JSON cannot hold it.
        """
        row = json.loads(json_or_refuse(record, key))  # orjson would round integers beyond 64 bits
        for name, value in row.items():
            if isinstance(value, (dict, list)):
                row[name] = _json_text(value)
        self._rows.append(row)
        if len(self._rows) >= MOST_ROWS:
            self.flush()

    def flush(self) -> Position:
        """Write the records to a new file, if there are any, and return the number of files.

        Raises
        ------
        OSError
            If the file cannot be written; the records are kept for the next call.
        """
        if self._rows:
            path = self._path(self._count + 1)
            names = dict.fromkeys(name for row in self._rows for name in row)
            table = self._arrow.table({name: self._column([row.get(name) for row in self._rows]) for name in names})
            try:
                self._write(table, path)
            except OSError as error:
                error.filename = str(path)  # a full disk does not say which file is meant
                raise
            self._count += 1
            self._rows.clear()
        return self._count

    def seek(self, position: Position) -> None:
        """Delete the files after a position.

        Raises
        ------
        ValueError
            If there are fewer files.
        """
        if not is_count(position) or position > self._count:
            raise ValueError(f"Expected {position} files, got {self._count} - at {self._folder}")
        while self._count > position:
            self._path(self._count).unlink(missing_ok=True)
            self._count -= 1

    def close(self) -> None:
        """Write the records that are left."""
        self.flush()

    def _column(self, values: list[Any]) -> Any:
        """Return values as an array of one type, which is JSON text where they have none in common."""
        if not any(isinstance(value, JsonText) for value in values):
            with suppress(self._arrow.ArrowException, OverflowError):
                return self._arrow.array(values)
        return self._arrow.array(
            [value if value is None or isinstance(value, JsonText) else _json_text(value) for value in values],
            self._arrow.string(),
        )

    def _write(self, table: Any, path: Path) -> None:
        """Write a file durably, and its name."""
        draft = path.with_suffix(".draft")
        with draft.open("wb") as file:
            self._parquet.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        directory = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:06d}.parquet"


def _json_text(value: Any) -> JsonText:
    return JsonText(to_json(value, RECORD).decode())
