"""Records as Parquet files of a directory, one or more for each checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamkernel.connectors.base import Position
from streamkernel.connectors.checks import is_count
from streamkernel.connectors.interfaces import Sink
from streamkernel.connectors.json_text import RECORD, to_json
from streamkernel.connectors.record_encoding import json_or_refuse

MOST_ROWS = 50_000
"""Rows of one file."""


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
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise ImportError("Parquet files need pyarrow: pip install 'streamkernel[parquet]'") from error
        self._arrow, self._parquet = pyarrow, parquet
        self._folder, self._rows = Path(directory), list[dict[str, Any]]()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._count = max((int(path.stem[5:]) for path in self._folder.glob("part-*.parquet")), default=0)

    def open(self) -> None:
        """Do nothing, because the directory exists."""

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
