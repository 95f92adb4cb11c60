"""Columns of Arrow as lists of values that records have: numbers, strings, booleans, dicts and lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SECONDS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400.0


def values_of(column: Any, name: str = "", zones: Mapping[str, str] | None = None) -> list[Any]:
    """Return the values of a column, with ``None`` for nulls and for NaN.

    A time stamp becomes seconds since 1970, a date too, a time of day and a duration seconds, a decimal a float, an
    entry of a dictionary its value, a UUID a string, a struct and a map a dict. A value that Python cannot hold
    becomes bytes.

    Parameters
    ----------
    column
        An array of pyarrow.
    name
        Its name.
    zones
        The zones of dates, and of time stamps without a zone, by name; UTC for others.

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
        found = values_of(column.storage)
        return found if kind.extension_name != "arrow.uuid" else _map(_uuid, found)
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
    found = _plain(column)
    if types.is_decimal(kind):
        return _map(float, found)
    return [None if value != value else value for value in found] if types.is_floating(kind) else found


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


def _uuid(value: bytes) -> str:
    from uuid import UUID

    return str(UUID(bytes=value))


def _lists(column: Any) -> Iterator[list[Any] | None]:
    """Yield the lists of a column."""
    from pyarrow.compute import list_value_length

    items = iter(values_of(column.flatten()))
    for length in list_value_length(column).to_pylist():
        yield None if length is None else [next(items) for _ in range(length)]


def _plain(column: Any) -> list[Any]:
    """Return the values as pyarrow does, and bytes for those of which it raises an error."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        return [_one(scalar) for scalar in column]


def _one(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.as_buffer().to_pybytes() if hasattr(scalar, "as_buffer") else str(scalar).encode()
