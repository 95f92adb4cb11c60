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
from uuid import UUID

import orjson

from streamkernel.connectors.base import Event, Position, is_count
from streamkernel.connectors.csv_cells import check_names
from streamkernel.connectors.json_text import RECORD
from streamkernel.connectors.json_values import flatten

_SECONDS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400.0


def values_of(column: Any, name: str = "", zones: Mapping[str, str] | None = None) -> list[Any]:
    """Return the values of a column, an array of pyarrow, with ``None`` for nulls and for NaN.

    A time stamp becomes seconds since 1970, a date too, a time of day and a duration seconds, a decimal a float, an
    entry of a dictionary its value, a UUID a string, a struct and a map a dict. A value that Python cannot hold becomes
    bytes. `zones` are the zones of dates, and of time stamps without a zone, by name; UTC for others.

    Examples
    --------
    >>> import pyarrow as pa
    >>> values_of(pa.array([1_500, None], pa.timestamp("ms", "Europe/Berlin"))), values_of(pa.array([2, float("nan")]))
    ([1.5, None], [2.0, None])
    >>> values_of(pa.array([{"a": [3]}])), values_of(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())))
    ([{'a': [3]}], [{'a': 1}])
    """
    import pyarrow as pa

    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return values_of(column.dictionary_decode(), name, zones)
    if isinstance(kind, pa.BaseExtensionType):
        values = values_of(column.storage)
        return values if kind.extension_name != "arrow.uuid" else _map(lambda value: str(UUID(bytes=value)), values)
    if types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        paths = [f"{name}.{inside}" for inside in names]
        parts = [values_of(part, path, zones) for part, path in zip(column.flatten(), paths, strict=True)]
        rows = zip(*parts, strict=True) if names else ((),) * len(column)
        valid = column.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, valid, strict=True)]
    if types.is_map(kind):
        pairs = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return _map(lambda rows: {row["key"]: row["value"] for row in rows}, values_of(column.cast(pa.list_(pairs))))
    if types.is_nested(kind) and not types.is_union(kind):
        return list(_lists(column))
    if zones and name in zones and (types.is_date(kind) or (types.is_timestamp(kind) and kind.tz is None)):
        return values_of(_in_zone(column, zones[name]))
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_time(kind):
        per_second = _SECONDS[kind.unit]
        return _map(lambda ticks: ticks / per_second, _integers(column))
    if types.is_date(kind):
        return _map(lambda at: at * _DAY if types.is_date32(kind) else at / 1_000, _integers(column))
    values = _plain(column)
    if types.is_decimal(kind):
        return _map(float, values)
    return [None if value != value else value for value in values] if types.is_floating(kind) else values


def _map(convert: Any, values: list[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _in_zone(column: Any, zone: str) -> Any:
    """Return dates or time stamps that a clock in a zone shows as moments; of an hour that comes twice, the first."""
    import pyarrow as pa
    from pyarrow.compute import assume_timezone

    moments = column.cast(pa.timestamp("ms")) if pa.types.is_date(column.type) else column
    return assume_timezone(moments, zone, ambiguous="earliest", nonexistent="earliest")


def _integers(column: Any) -> list[Any]:
    """Return the integers that a column of times is stored as."""
    import pyarrow as pa

    return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _lists(column: Any) -> Iterator[list[Any] | None]:
    """Yield the lists of a column."""
    from pyarrow.compute import list_value_length

    items = iter(values_of(column.flatten()))
    for length in list_value_length(column).to_pylist():
        yield None if length is None else [next(items) for _ in range(length)]


def _plain(column: Any) -> list[Any]:
    """Return the values as pyarrow does, and bytes for values of which it raises an error."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        return [_one(scalar) for scalar in column]


def _one(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.as_buffer().to_pybytes() if hasattr(scalar, "as_buffer") else str(scalar).encode()


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

    Raise `ImportError` if pyarrow is not installed; `ValueError` if it is not a Parquet file, or names of columns are
    empty or repeated. `max_list_length` is the largest length of a list whose items become fields. `is_silent` says
    whether nothing is written to the log. `zones` are the zones of time stamps without one, by field; UTC for others.
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

    resume = seek

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
    text = orjson.dumps(record, default=repr, option=RECORD)
    return json.dumps(record, default=repr, ensure_ascii=False).encode() if b"null" in text else text


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
