"""Parsers of JSON values: the bytes of a JSON object become fields."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import orjson

from connectors.nested import flatten

_CONSTANT = re.compile(rb'"(?:[^"\\]|\\.?)*(?:"|\Z)|(-?(?:NaN|Infinity))', re.DOTALL)
"""A string, or a constant that only Python's json module reads and writes."""


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
            found = orjson.loads(b"[%b]" % joined)
        except orjson.JSONDecodeError:
            return None
        if len(found) == len(values) and {*map(type, found)} <= {dict}:
            return found  # type: ignore[no-any-return]
    return None


def json_object(raw: bytes) -> dict[str, Any]:
    """Return a JSON object unchanged, or raise a `ValueError` with the reason.

    A byte order mark before it does not count, and it may have the ``NaN`` and ``Infinity`` of Python's ``json.dumps``.

    Examples
    --------
    >>> json_object(b'{"a": {"b": NaN}, "c": "NaN"}')
    {'a': {'b': nan}, 'c': 'NaN'}
    """
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raw.decode()  # If it is not even text, say that.
        if raw.startswith(BOM_UTF8):
            return json_object(raw.removeprefix(BOM_UTF8))
        if b"NaN" not in raw and b"Infinity" not in raw:
            raise _invalid(error) from None
        record = _with_constants(raw)
    if type(record) is not dict:
        raise ValueError(f"Expected a JSON object, got {JSON_NAMES[type(record)]}")
    return record


def _with_constants(raw: bytes) -> Any:
    """Return JSON that also has the constants of Python's json module."""
    try:
        orjson.loads(_CONSTANT.sub(_as_zero, raw))  # which is stricter than the module in all else
        return json.loads(raw, parse_int=orjson.loads)
    except json.JSONDecodeError as error:  # of either
        raise _invalid(error) from None
    except RecursionError:
        raise ValueError("Expected valid JSON, got one that is nested too deeply") from None


def _as_zero(found: re.Match[bytes]) -> bytes:
    """Return a number as long as a constant, and a string unchanged."""
    constant: bytes | None = found[1]
    return found[0] if constant is None else b"0.".ljust(len(constant), b"0")


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
