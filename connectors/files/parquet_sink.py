"""Records as Parquet files of a directory, one or more for each checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from connectors.base import Position
from connectors.checks import is_count
from connectors.json_text import RECORD, to_json

MOST_ROWS = 50_000
"""Rows of one file."""


class ParquetSink:
    """A directory of files, ``part-000001.parquet`` and so on, which contain each record exactly once.

    A position is the number of files. Fields with objects or lists are columns of JSON text.

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

        Parameters
        ----------
        record : dict
            The fields.
        key : bytes or None, default None
            Not used.
        """
        row = orjson.loads(to_json(record, RECORD))
        for name, value in row.items():
            if isinstance(value, (dict, list)):
                row[name] = to_json(value, 0).decode()
        self._rows.append(row)
        if len(self._rows) >= MOST_ROWS:
            self.flush()

    def flush(self) -> Position:
        """Write the records to a new file, if there are any, and return the number of files.

        Raises
        ------
        ValueError
            If a field has values of several types.
        """
        if self._rows:
            path = self._path(self._count + 1)
            draft = path.with_suffix(".draft")
            names = dict.fromkeys(name for row in self._rows for name in row)
            try:
                table = self._arrow.table({name: [row.get(name) for row in self._rows] for name in names})
            except self._arrow.ArrowException as error:
                raise ValueError(f"Expected one type in each field of a file, got {error} - at {path}") from error
            with draft.open("wb") as file:
                self._parquet.write_table(table, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            self._count += 1
            self._rows.clear()
        return self._count

    def seek(self, position: Position) -> None:
        """Delete the files after a position.

        Parameters
        ----------
        position : Position
            A return value of `flush`.

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

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:06d}.parquet"
