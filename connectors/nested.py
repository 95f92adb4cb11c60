"""Nested fields become flat ones: ``{"a": {"b": 1}}`` is read as ``{"a.b": 1}``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

DEEPEST = 32
"""Levels of objects in objects."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def flatten(
    record: Mapping[str, Any], max_list_length: int = 0, zones: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the fields of a record, fields of an object inside under the path to them.

    Numbers, strings, booleans and ``None`` do not change. A decimal becomes a float; a date or a time stamp becomes
    seconds since 1970 (UTC where nothing says its zone), a time of day seconds since midnight, a duration seconds, and
    a UUID a string. Other values do not change, and neither does a list if `max_list_length` is 0.

    Parameters
    ----------
    record
        The record.
    max_list_length
        The largest length of a list whose items become fields, each under its number.
    zones
        The zones of dates, and of times without a zone, by field.

    Raises
    ------
    ValueError
        If two fields get the same name, a list is longer, or objects are nested too deeply.

    Examples
    --------
    >>> flatten({"user": {"age": 31, "town": {"name": "Ulm"}}, "sizes": [3, 5]}, max_list_length=4)
    {'user.age': 31, 'user.town.name': 'Ulm', 'sizes.0': 3, 'sizes.1': 5}
    >>> flatten({"price": Decimal("9.90"), "at": dt.datetime(1970, 1, 2), "tags": ["a"]})
    {'price': 9.9, 'at': 86400.0, 'tags': ['a']}
    >>> flatten({"at": dt.datetime(1970, 1, 1, 1)}, zones={"at": "Europe/Berlin"})
    {'at': 0.0}
    >>> flatten({"a": {"b": 1}, "a.b": 2})
    Traceback (most recent call last):
    ValueError: Expected one value for each field, got two - at field "a.b"
    """
    fields: dict[str, Any] = {}
    _add(fields, "", record.items(), max_list_length, 0, zones or {})
    return fields


def _add(
    fields: dict[str, Any],
    prefix: str,
    items: Iterable[tuple[Any, Any]],
    longest: int,
    depth: int,
    zones: Mapping[str, str],
) -> None:
    if depth > DEEPEST:
        raise ValueError(f'Expected objects nested at most {DEEPEST} deep, got more - at field "{prefix[:60]}..."')
    for name, value in items:
        path = f"{prefix}{name}"
        kind = type(value)
        if kind is dict:
            _add(fields, f"{path}.", value.items(), longest, depth + 1, zones)
            continue
        if kind is list and longest:
            if len(value) > longest:
                raise ValueError(f'Expected a list of at most {longest}, got {len(value):,} - at field "{path}"')
            _add(fields, f"{path}.", enumerate(value), longest, depth + 1, zones)
            continue
        if path in fields:
            raise ValueError(f'Expected one value for each field, got two - at field "{path}"')
        if zones and path in zones and isinstance(value, dt.date):
            value, kind = _in_zone(value, zones[path]), dt.datetime
        convert = _PLAIN.get(kind)
        fields[path] = value if convert is None else convert(value)


def _in_zone(value: dt.date, zone: str) -> dt.datetime:
    """Return the moment of a date or of a time without a zone."""
    moment = value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
    return moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))


def _seconds_of(moment: dt.datetime) -> float:
    return ((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - EPOCH).total_seconds()


def _seconds_of_day(time: dt.time) -> float:
    return 3600.0 * time.hour + 60.0 * time.minute + time.second + 1e-6 * time.microsecond


_PLAIN: dict[type, Callable[[Any], Any]] = {
    Decimal: float,
    dt.datetime: _seconds_of,
    dt.date: lambda day: _seconds_of(dt.datetime.combine(day, dt.time())),
    dt.time: _seconds_of_day,
    dt.timedelta: dt.timedelta.total_seconds,
    UUID: str,
}
