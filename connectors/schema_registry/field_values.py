"""Conversion of the values of a record to those that the schemas of fields have, the same for all formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from streamkernel.connectors.json_text import RECORD, printable, to_json


def converted(record: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a record without its missing values, and with Python's own types.

    Parameters
    ----------
    record
        The record.
    fields
        The kinds of the fields, one of `streamkernel.connectors.schema_registry.record_schemas.KINDS` for each name.

    Raises
    ------
    ValueError
        If the schema lacks a field, or has another kind for it.

    Examples
    --------
    >>> kinds = {"label": "value", "probabilities": "numbers", "position": "json"}
    >>> converted({"label": 2**70, "probabilities": {True: 1, None: 0}, "position": [3, "x"]}, kinds)
    {'label': '1180591620717411303424', 'probabilities': {'true': 1.0, 'null': 0.0}, 'position': '[3,"x"]'}
    >>> converted({"label": [1]}, kinds)
    Traceback (most recent call last):
    ValueError: Expected a label or a number, got list - at field "label"
    """
    fitting: dict[str, Any] = {}
    for name, value in record.items():
        if name not in fields:
            raise ValueError(f'Expected fields of the schema, got "{name}"')
        if value is None:
            continue
        expected, convert = _KINDS[fields[name]]
        try:
            fitting[name] = convert(value)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise ValueError(f'Expected {expected}, got {type(value).__name__} - at field "{name}"') from error
    return fitting


def _value(value: Any) -> bool | int | float | str:
    """Return a label or a number; what has no type of its own in the schema is text."""
    value = _plain(value)
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, (bool, float)):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int(value)
    text = to_json(value, RECORD).decode()
    if text[0] in "[{n":
        raise TypeError(text)
    return str(orjson.loads(text)) if text[0] == '"' else text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return printable(value)


def _integer(value: Any) -> int:
    value = _plain(value)
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise TypeError(value)
    return int(value)


def _boolean(value: Any) -> bool:
    value = _plain(value)
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _numbers(value: Any) -> dict[str, float]:
    return {_name(label): float(number) for label, number in value.items()}


def _name(label: Any) -> str:
    """Return a label as the key of a JSON object."""
    return printable(label) if isinstance(label, str) else next(iter(orjson.loads(to_json({label: 0}, RECORD))))


def _plain(value: Any) -> Any:
    """Return Python's own value for one of NumPy's."""
    return value.item() if hasattr(value, "item") else value


_KINDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "text": ("text", _text),
    "integer": ("an integer of 64 bits", _integer),
    "number": ("a number", float),
    "boolean": ("true or false", _boolean),
    "value": ("a label or a number", _value),
    "values": ("labels or numbers", lambda values: list(map(_value, values))),
    "numbers": ("numbers by label", _numbers),
    "json": ("values that JSON can hold", lambda value: to_json(value, RECORD).decode()),
}
