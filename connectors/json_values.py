"""Parsers of JSON values: the bytes of a JSON object become fields, and nested fields become flat ones."""

from __future__ import annotations

import datetime as dt
import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from math import isinf
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson

DEEPEST = 32
"""Levels of objects in objects."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_UNUSUAL = re.compile(
    rb'"(?:[^"\\]|\\.?)*(?:"|\Z)|(-?(?:NaN|Infinity))|(-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)', re.DOTALL
)
"""A string, a constant that only Python's json module reads and writes, or a number, which may be too large."""


_MOST_DIGITS = 18
"""Integers of more characters are read as text where digits count, because they may become floats."""

_LARGEST = float(1 << 63)
"""Size from which on a float may have been an integer of JSON."""

_LONG = re.compile(rb"[0-9]{19}")
"""Digits that may belong to such an integer."""


def flatten(
    record: Mapping[str, Any], max_list_length: int = 0, zones: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the fields of a record, fields of an object inside under the path to them.

    Numbers, strings, booleans and ``None`` do not change. A decimal becomes a float; a date or a time stamp becomes
    seconds since 1970 (UTC where nothing says its zone), a time of day seconds since midnight, a duration seconds, and
    a UUID a string. Other values do not change, and neither does a list if `max_list_length` is 0. `max_list_length` is
    the largest length of a list whose items become fields, each under its number. `zones` are the zones of dates, and
    of times without a zone, by field. Raise `ValueError` if two fields get the same name, a list is longer, or objects
    are nested too deeply.

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


_PLAIN: dict[type, Callable[[Any], Any]] = {
    Decimal: float,
    dt.datetime: _seconds_of,
    dt.date: lambda day: _seconds_of(dt.datetime.combine(day, dt.time())),
    dt.time: lambda time: 3600.0 * time.hour + 60.0 * time.minute + time.second + 1e-6 * time.microsecond,
    dt.timedelta: dt.timedelta.total_seconds,
    UUID: str,
}


class JsonFields:
    """Reads JSON objects as fields, in which integers beyond 64 bits are floats, or texts of their digits.

    `max_list_length` is the largest length of a list whose items become fields, as for
    :func:`~streamkernel.connectors.json_values.flatten`. `texts` are the fields in which such integers are texts: codes
    and keys.

    Examples
    --------
    >>> read = JsonFields(texts=["id"])
    >>> read(b'{"id": 123456789012345678901, "size": {"x": 123456789012345678901}}')
    {'id': '123456789012345678901', 'size.x': 1.2345678901234568e+20}
    """

    def __init__(self, max_list_length: int = 0, texts: Iterable[str] = ()) -> None:
        self._max_list_length, self._texts = max_list_length, tuple(texts)

    def __call__(self, raw: bytes) -> dict[str, Any]:
        """Return the fields of an object."""
        longest = self._max_list_length
        fields = flatten(json_object(raw), longest) if longest else json_fields(raw)
        return self._with_digits(fields, raw) if self._texts else fields

    def read_all(self, values: Sequence[bytes]) -> list[dict[str, Any]] | None:
        """Return the fields of objects as a call does for each, faster; ``None`` if one must be read alone."""
        records = None if self._max_list_length else all_json_fields(values)
        if records is None or not self._texts:
            return records
        return [self._with_digits(*record) for record in zip(records, values, strict=True)]

    def _with_digits(self, fields: dict[str, Any], raw: bytes) -> dict[str, Any]:
        return with_digits(fields, self._texts, lambda: flatten(object_with_digits(raw), self._max_list_length))


def with_digits(fields: dict[str, Any], texts: Iterable[str], read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return fields in which large integers are texts of their digits.

    `fields` have floats instead, and `read` returns the same fields with `object_with_digits`.
    """
    names = [name for name in texts if type(fields.get(name)) is float and not -_LARGEST < fields[name] < _LARGEST]
    if not names:
        return fields
    digits = read()
    return fields | {name: digits[name] for name in names if type(digits[name]) is str}


def object_with_digits(raw: bytes) -> dict[str, Any]:
    """Return a valid JSON object, in which long integers are texts of their digits."""
    try:
        record: dict[str, Any] = json.loads(raw.removeprefix(BOM_UTF8), parse_int=_integer_or_digits)
        return record
    except RecursionError:
        return json_object(raw)


def put_digits(value: Any, raw: bytes, texts: Collection[str]) -> None:
    """Replace large integers in records inside a JSON value by the texts of their digits.

    `value` is the object that `json_object` returns for bytes, whose fields are records or lists of records. `texts`
    are the fields of the records that are to keep their digits.

    Examples
    --------
    >>> raw = b'{"xs": [{"user": {"id": 123456789012345678901}, "size": 123456789012345678901}]}'
    >>> found = json_object(raw)
    >>> put_digits(found, raw, ["user.id"])
    >>> found
    {'xs': [{'user': {'id': '123456789012345678901'}, 'size': 1.2345678901234568e+20}]}
    """
    if texts and _LONG.search(raw):
        digits = object_with_digits(raw)
        for name, records in value.items():
            _put_digits(records, digits[name], texts, "", 0)


def _put_digits(value: Any, digits: Any, texts: Collection[str], path: str, depth: int) -> None:
    if type(value) is list and not path:
        for record, digits_of_record in zip(value, digits, strict=True):
            _put_digits(record, digits_of_record, texts, path, depth + 1)
    elif type(value) is dict and depth <= DEEPEST:
        for name, inner in value.items():
            if type(inner) is float and type(digits[name]) is str and f"{path}{name}" in texts:
                value[name] = digits[name]
            else:
                _put_digits(inner, digits[name], texts, f"{path}{name}.", depth + 1)


def _integer_or_digits(text: str) -> int | str:
    return int(text) if len(text) <= _MOST_DIGITS else text


def json_fields(raw: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object, or raise a `ValueError` with the reason."""
    record = json_object(raw)
    return flatten(record) if raw.count(b"{") > 1 else record


def all_json_fields(values: Sequence[bytes]) -> list[dict[str, Any]] | None:
    """Return the fields of values as `json_fields` does for each, parsed as one; ``None`` if one must be parsed alone.

    Each has to begin with a brace and to have no other. As many objects as there are values, and nothing else, are then
    one object for each.

    Examples
    --------
    >>> all_json_fields([b'{"a": 1}', b'{"a": 2}']), all_json_fields([b'{"a": 1},{"a": 2}', b' '])
    ([{'a': 1}, {'a': 2}], None)
    """
    joined = b",".join(values)
    if joined.count(b"{") == len(values) and all(map(bytes.startswith, values, repeat(b"{"))):
        try:
            objects = orjson.loads(b"[%b]" % joined)
        except orjson.JSONDecodeError:
            return None
        if len(objects) == len(values) and {*map(type, objects)} <= {dict}:
            return objects  # type: ignore[no-any-return]
    return None


def json_object(raw: bytes) -> dict[str, Any]:
    """Return a JSON object unchanged, or raise a `ValueError` with the reason.

    A byte order mark before it does not count, and it may have the ``NaN`` and ``Infinity`` of Python's ``json.dumps``.
    A number too large for a float is infinite.

    Examples
    --------
    >>> json_object(b'{"a": {"b": NaN}, "c": "NaN"}')
    {'a': {'b': nan}, 'c': 'NaN'}
    >>> json_object(b'{"a": -1e999, "b": 7}')
    {'a': -inf, 'b': 7}
    """
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raw.decode()  # If it is not even text, say that.
        if raw.startswith(BOM_UTF8):
            return json_object(raw.removeprefix(BOM_UTF8))
        if b"NaN" not in raw and b"Infinity" not in raw and "infinity" not in error.msg:
            raise _invalid(error) from None
        record = _with_infinity(raw)
    if type(record) is not dict:
        raise ValueError(f"Expected a JSON object, got {JSON_NAMES[type(record)]}")
    return record


def _with_infinity(raw: bytes) -> Any:
    """Return JSON that also has the constants of Python's json module, or numbers too large for a float."""
    try:
        orjson.loads(_UNUSUAL.sub(_as_zero, raw))  # which is stricter than the module in all else
        return json.loads(raw, parse_int=_integer)
    except json.JSONDecodeError as error:  # of either
        raise _invalid(error) from None
    except RecursionError:
        raise ValueError("Expected valid JSON, got one that is nested too deeply") from None


def _as_zero(match: re.Match[bytes]) -> bytes:
    """Return a number as long as a constant or a number that is too large, and all else unchanged."""
    is_large = match[2] is not None and isinf(float(match[2]))
    return b"0.".ljust(len(match[0]), b"0") if match[1] is not None or is_large else match[0]


def _integer(text: str) -> int | float:
    number = float(text)
    return number if isinf(number) else orjson.loads(text)


def _invalid(error: json.JSONDecodeError) -> ValueError:
    return ValueError(f"Expected valid JSON, got {error.msg} in column {error.colno}")


JSON_NAMES = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}
