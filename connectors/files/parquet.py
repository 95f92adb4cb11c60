"""Events from a Parquet file, a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from connectors.base import Event, Position
from connectors.checks import is_count
from connectors.csv_cells import check_names
from connectors.json_text import RECORD

BATCH_ROWS = 512


def arrow() -> tuple[type[Exception], Any]:
    """Return pyarrow's error and its file class, or raise an `ImportError` that names what to install."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'streamkernel[parquet]'") from error
    return ArrowException, ParquetFile


class ParquetReader:
    """The rows of one file; a position is a number of rows.

    Parameters
    ----------
    name
        Name of the stream, for its events.
    path
        The file.
    max_list_length
        The largest length of a list whose items become fields.

    Raises
    ------
    ImportError
        If pyarrow is not installed.
    ValueError
        If it is not a Parquet file, or names of columns are empty or repeated.
    """

    def __init__(self, name: str, path: Path, max_list_length: int = 0) -> None:
        self._arrow_error, open_file = arrow()
        self._name = name
        try:
            self._file: Any = open_file(path)
        except self._arrow_error as error:
            raise ValueError(f"Expected a Parquet file, got an error: {error} - at {path}") from error
        try:
            check_names(self._file.schema_arrow.names)
        except ValueError as error:
            self.close()
            raise ValueError(f"{error} - at the schema of {path}") from None
        self._rows: int = self._file.metadata.num_rows
        self._row = 0
        self._batches = self._batches_from(0)

    def seek(self, position: Position) -> None:
        """Continue after `position`."""
        if not is_count(position):
            raise ValueError(f"Expected a number of rows as position, got {position!r} - at {self._name}")
        if self._rows < position:
            raise ValueError(
                f"Expected at least {position} rows, got {self._rows} - at {self._name}:"
                " it is not the file that was read before"
            )
        self._row = position
        self._batches = self._batches_from(position)

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the events of the next batch of rows, or ``None`` at the end; never wait."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        if isinstance(batch, _Damage):
            rows = f"rows {self._row + 1} to {batch.end}"
            self._row = batch.end
            reason = f"Expected Parquet data, got an error: {batch.error} - at {rows}"
            return [Event(self._name, self._row, b"", error=reason)]
        return [self._event(row) for row in _rows(batch)]

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return list(self._file.schema_arrow.names)

    def lag(self) -> int:
        """Return the number of rows after the last event."""
        return self._rows - self._row

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _batches_from(self, row: int) -> Iterator[Any]:
        """Yield the batches from `row` on; earlier row groups are not read."""
        end = 0
        for group in range(self._file.metadata.num_row_groups):
            at, end = end, end + self._file.metadata.row_group(group).num_rows
            if end <= row:
                continue
            try:
                for batch in self._file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group]):
                    if row < at + batch.num_rows:
                        yield batch.slice(max(0, row - at))
                    at += batch.num_rows
            except (self._arrow_error, OSError) as error:
                yield _Damage(error, end)

    def _event(self, row: dict[str, Any] | Exception) -> Event:
        self._row += 1
        if isinstance(row, Exception):
            reason = f"Expected values that Python can hold, got an error: {row} - at row {self._row}"
            return Event(self._name, self._row, b"", error=reason)
        record = {name: value for name, value in row.items() if value is not None}
        return Event(self._name, self._row, orjson.dumps(record, default=repr, option=RECORD), record)


@dataclass(frozen=True)
class _Damage:
    """The reason why the rows up to `end` cannot be read."""

    error: Exception
    end: int


def _rows(batch: Any) -> list[dict[str, Any] | Exception]:
    """Return the rows of a batch, read one by one if one of them is damaged."""
    try:
        rows: list[dict[str, Any] | Exception] = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        if batch.num_rows == 1:
            return [error]
        rows = [row for at in range(batch.num_rows) for row in _rows(batch.slice(at, 1))]
    return rows
