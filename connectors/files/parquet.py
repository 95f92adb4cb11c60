"""Events from a Parquet file, a batch of rows at a time."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import orjson

from streamkernel.connectors.base import Event, Position
from streamkernel.connectors.checks import is_count
from streamkernel.connectors.csv_cells import check_names
from streamkernel.connectors.files.arrow_values import values_of
from streamkernel.connectors.json_text import RECORD
from streamkernel.connectors.nested import flatten

log = logging.getLogger(__name__)

BATCH_ROWS = 512

_INDEX = re.compile(r"__index_level_[0-9]+__")
"""The names that pandas gives to an index without one."""


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
    is_silent
        Whether nothing is written to the log.
    zones
        The zones of time stamps without one, by field; UTC for others.

    Raises
    ------
    ImportError
        If pyarrow is not installed.
    ValueError
        If it is not a Parquet file, or names of columns are empty or repeated.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        max_list_length: int = 0,
        *,
        is_silent: bool = False,
        zones: Mapping[str, str] | None = None,
    ) -> None:
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
        schema = self._file.schema_arrow
        index = [name for name in schema.names if _INDEX.fullmatch(name)]
        self._to_tell = [] if is_silent else index[:]
        self._schema = [field for field in schema if field.name not in index]
        self._columns = [field.name for field in self._schema]
        self._is_nested = any(_may_be_nested(field.type) for field in self._schema)
        self._max_list_length, self._zones = max_list_length, zones or {}
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
        while self._to_tell:
            log.info('the column "%s", an index of pandas without a name, is left out', self._to_tell.pop(0))
        batch = next(self._batches, None)
        if batch is None:
            return None
        if isinstance(batch, _Damage):
            rows = f"rows {self._row + 1} to {batch.end}"
            self._row = batch.end
            reason = f"Expected Parquet data, got an error: {batch.error} - at {rows}"
            return [Event(self._name, self._row, b"", error=reason)]
        columns = [values_of(batch.column(name), name, self._zones) for name in self._columns]
        return list(map(self._event, zip(*columns, strict=True) if columns else repeat((), batch.num_rows)))

    @property
    def names(self) -> Sequence[str]:
        """The names of the fields as far as the schema has them."""
        return list(_paths(self._schema))

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

    def _event(self, row: tuple[Any, ...]) -> Event:
        self._row += 1
        named = {name: value for name, value in zip(self._columns, row, strict=True) if value is not None}
        try:
            record = flatten(named, self._max_list_length) if self._is_nested else named
        except ValueError as error:
            return Event(self._name, self._row, _as_json(named), error=f"{error} - at row {self._row}")
        if self._is_nested:
            record = {name: value for name, value in record.items() if value is not None}
        return Event(self._name, self._row, _as_json(record), record)


def _may_be_nested(kind: Any) -> bool:
    from pyarrow import BaseExtensionType
    from pyarrow.types import is_nested

    return is_nested(kind.storage_type if isinstance(kind, BaseExtensionType) else kind)  # type: ignore[no-any-return]


def _as_json(record: dict[str, Any]) -> bytes:
    """Return a record as JSON, with infinity as Python's json module writes it."""
    found = orjson.dumps(record, default=repr, option=RECORD)
    return json.dumps(record, default=repr, ensure_ascii=False).encode() if b"null" in found else found


def _paths(fields: Iterable[Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of columns, and the paths to those in structs; lists and maps have names in each row only."""
    from pyarrow.types import is_nested, is_struct

    for field in fields:
        kind = field.type
        if is_struct(kind):
            yield from _paths((kind.field(i) for i in range(kind.num_fields)), f"{prefix}{field.name}.")
        elif not is_nested(kind):
            yield f"{prefix}{field.name}"


@dataclass(frozen=True)
class _Damage:
    """The reason why the rows up to `end` cannot be read."""

    error: Exception
    end: int
